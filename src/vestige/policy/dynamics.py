"""A learned model of the dynamics, P_theta(s' | s, a), and how real its transitions are (LFIW section 3.3).

An ensemble of networks, trained as one, gives the mean of s' - s; its noise is one deviation a column. A trajectory is
simulated by one member from beginning to end, so that members disagree about values as far as they disagree about the
dynamics; the states of all trajectories of all members go through one batched product per layer and step.

**The mean is fitted by squared error**, each member stopping where the squared error of its own held-out fold is least,
and the deviation of each column is measured afterwards on the rows of that fold. A Gaussian likelihood, which fits both
at once, lets a member call noise what it has not yet learnt, and divides the gradient of the mean by that noise: the
mean stays under-fitted, by little at a step and by much over a hundred of them (tests/policy/test_regression.py has a
case). A trajectory follows the means ("mean"), or draws s' around them ("noise"); the second is the law of s' where the
system itself is noisy, the first where what the model leaves unexplained is its own error.

Deviations from LFIW App. C.5, which does not name its loss: 3 layers of 200 units instead of 500 and 3000 steps of Adam
instead of 100 000; each member is trained without one fold of the episodes and stops by it (the classifier then meets
every row beside the member that has not seen it). The paper assumes a *known* reward function; where none is given,
r(s, a, s') is learned from the logs with networks of the same kind. No episode ends: the paper's
environments never do, and where logs hold terminal states `evaluate` says so. Simulated states are kept within the
range of the logs widened by `MARGIN` times its width on either side; the share of states cut there is reported.

**Regression** by an ensemble trained as one batched network: y | x ~ N(mean_k(x), diag sd_k^2).

Each member leaves a fold of the rows of its own aside and stops where the squared error of that fold is least, so that
for every row there is a member that has not learnt from it. Members differ in their fold, their start and the order of
their rows. In units of the deviations of x and y; a linear path from input to output stands beside the network and
starts at zero. A column of y that never changes is no matter of learning: it has its one value and a deviation of zero.

**How real is a simulated transition?** log w(s, a, s') = log P(s' | s, a) / P_theta(s' | s, a) (LFIW Eq. 10).

Classifiers tell real triples from generated ones that share (s, a) and differ in s' alone. Several, with seeds of
their own and generated states of their own, are trained as one batched network, each calibrated (Platt) on rows that it
has not seen.

`within` cuts log-ratios to what the middle of the real rows have. A policy that goes where the logs have not been asks
the classifier for what it has never seen, and its answers there, in sums of a hundred, would decide everything. For a
policy that stays among the logs it also cuts what is right: of the exact ratio of a wrong linear model half is left.

Deviations from LFIW App. C.5. The classifier sees (s, a, z) instead of (s, a, s'), where z = (s' - mean) / deviation of
the member that simulates: for a fixed (s, a) that is an invertible map of s', so the ratio is the same, and the misfit
of the dynamics stands before it in units of its own noise, which in coordinates of s' would first have to be learnt
(`sees="state"` is the paper's way, with s' - s for s'). Each member has a ratio of its own, as trajectories have a
member of their own. Real rows meet the member that has *not* learnt from them: on rows that it has, its errors look
smaller than they are. Layers of 64-64 with squares of the features beside them instead of 500-500-500.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vestige import store
from vestige.core import NotFitted, VestigeWarning, checks, rng
from vestige.core.checks import declared, learnt, option
from vestige.core.numerics import log_mean_exp
from vestige.nets import training
from vestige.nets.batched import BatchedMLP
from vestige.policy.environments import Reward
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.ratios import Logistic
from vestige.ratios.base import Sample
from vestige.ratios.standardise import Standardiser

States: TypeAlias = Float[Tensor, "n s"]
Actions: TypeAlias = Float[Tensor, "n a"]
Members: TypeAlias = Int64[Tensor, " n"]
# The same for every member at once.
ManyStates: TypeAlias = Float[Tensor, "m n s"]
ManyActions: TypeAlias = Float[Tensor, "m n a"]
# Rows a member that go through the network at once where nothing is learnt: bounds the memory, not the result.
CHUNK = 4096
LEAST_DEVIATION = 1e-6  # of a column that was predicted without any error, in units of its own: residuals stay finite


@dataclass(frozen=True)
class Settings:
    """Shape of the networks and how they are trained."""

    hidden: tuple[int, ...] = option((200, 200, 200), low=1)
    learning_rate: float = option(1e-3, above=0)  # falls along a cosine to zero
    weight_decay: float = option(1e-5, low=0)  # decoupled
    batch_size: int = option(256, low=1)
    steps: int = option(3000, low=1)
    check_every: int = option(100, low=1)
    patience: int = option(20, low=1)  # looks at the held-out squared error without improvement
    judged: int = option(2000, low=1)  # rows of the fold that a look takes at most
    input_clip: float = option(10.0, above=0)  # bound of standardised inputs, in deviations

    def __post_init__(self) -> None:
        declared(self)


def squared_error(mean: Float[Tensor, "m n v"], y: Float[Tensor, "m n v"]) -> Float[Tensor, "m v"]:
    """Of each member and column, averaged over the rows."""
    return (y - mean).square().mean(1)


def padded(groups: Int64[Tensor, " n"], members: int) -> Int64[Tensor, "m r"]:
    """Rows of each group, as many columns as the largest has; -1 fills up. Groups beyond `members` are left out."""
    rows = [(groups == i).nonzero().squeeze(1) for i in range(members)]
    return pad_sequence(rows, batch_first=True, padding_value=-1)


def unpadded(values: Float[Tensor, "m r d"], rows: Int64[Tensor, "m r"]) -> Float[Tensor, "n d"]:
    """What was computed for the groups of `padded`, in the order of the rows, as float32."""
    kept = rows >= 0
    found = torch.empty(int(kept.sum()), values.shape[2])
    found[rows[kept]] = values[kept].float()
    return found


@dataclass(frozen=True, eq=False)
class GaussianEnsemble:
    """The fitted ensemble: standardisations, one batched network whose outputs are means, and a deviation a column.

    `varying` are the columns of y that the network speaks of; the others are constant. `deviation` is in units of y's
    own, of each member's held-out rows.
    """

    net: BatchedMLP
    x: Standardiser
    y: Standardiser
    varying: Int64[Tensor, " v"]
    deviation: Float[Tensor, "m v"]

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "m n d"]) -> tuple[Float[Tensor, "m n k"], Float[Tensor, "m 1 k"]]:
        """Mean of y for each member's own rows, and its deviation, which is the same in all of them."""
        z = self.x(x.to(torch.float32).flatten(0, 1)).unflatten(0, x.shape[:2])
        mean = torch.cat([self.net(piece) for piece in z.split(CHUNK, 1)], 1)
        parts = (mean, self.deviation[:, None])
        mean, deviation = (
            part.new_zeros(*part.shape[:2], len(self.y.scale)).index_copy(2, self.varying, part) for part in parts
        )
        return self.y.shift + self.y.scale * mean, self.y.scale * deviation


def fit_ensemble(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n k"],
    folds: Int64[Tensor, " n"],
    members: int,
    settings: Settings,
    seed: int,
    on_progress: Callable[[float], None] = lambda _: None,
) -> tuple[GaussianEnsemble, dict[str, Any]]:
    """Member i learns from the rows outside of fold i; `on_progress` hears how much is done."""
    held = torch.bincount(folds, minlength=members)[:members]
    if int(held.min()) == 0 or int(held.max()) == len(x):
        must = f"one with rows for each of {members} members, and rows outside of it"
        checks.refuse("folds", "fit_ensemble", must, f"{held.tolist()} of {len(x)} rows")
    z_x = Standardiser.of(x.to(torch.float64), clip=settings.input_clip)
    z_y = Standardiser.of(y.to(torch.float64))
    shifts = [Standardiser(z.shift.float(), z.scale.float(), z.clip) for z in (z_x, z_y)]
    x_, y_ = z_x(x.to(torch.float64)).float(), z_y(y.to(torch.float64)).float()
    # `Standardiser` gives deviation one to all columns that have any, and leaves those without at their zeros.
    varying = (y_.square().mean(0) > 0.5).nonzero().squeeze(1)
    y_ = y_[:, varying]
    sizes = [x.shape[1], *settings.hidden, len(varying)]
    net = BatchedMLP.initial(members, sizes, generator=rng.fork(seed, "init"), activation="silu", skip=True)
    report = train_members(net, x_, y_, folds, settings, seed, on_progress)
    deviation = torch.tensor(report["unexplained"], dtype=torch.float32).reshape(members, -1).sqrt()
    return GaussianEnsemble(net, shifts[0], shifts[1], varying, deviation.clamp_min(LEAST_DEVIATION)), report


def train_members(
    net: BatchedMLP,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n v"],
    folds: Int64[Tensor, " n"],
    settings: Settings,
    seed: int,
    on_progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Member i of `net` learns from the rows outside of fold i, and ends where it was best on that fold."""
    members, order = net.members, rng.fork(seed, "batches")
    held = [(folds == i).nonzero().squeeze(1) for i in range(members)]
    judged = min(settings.judged, *map(len, held))
    look = torch.stack([rows[torch.randperm(len(rows), generator=order)[:judged]] for rows in held])
    taught = [(folds != i).nonzero().squeeze(1) for i in range(members)]
    table = pad_sequence(taught, batch_first=True)
    counts = torch.tensor([len(rows) for rows in taught])[:, None]

    parameters = net.parameters()
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    best = training.Best(parameters, limit=math.inf)  # members go on as long as any of them improves

    def descend(_: int) -> None:
        drawn = (torch.rand(members, settings.batch_size, generator=order) * counts).long().clamp_max(counts - 1)
        rows = table.gather(1, drawn)
        optimizer.zero_grad()
        squared_error(net(x[rows]), y[rows]).sum().backward()  # members share nothing: a sum keeps them apart
        optimizer.step()
        schedule.step()

    @torch.no_grad()
    def check(step: int) -> bool:
        best.update(squared_error(net(x[look]), y[look]).mean(1), step)
        on_progress(step / settings.steps)
        return step - int(best.step.max()) < settings.patience * settings.check_every

    check(0)
    steps = training.train(descend, settings.steps, check_every=settings.check_every, check=check)
    best.restore()
    with torch.no_grad():
        unexplained = torch.stack([_held_out_error(net, i, x[rows], y[rows]) for i, rows in enumerate(held)])
    on_progress(1.0)
    return {
        "steps": steps,
        "best_step": best.step.tolist(),
        "unexplained": unexplained.tolist(),  # of each column's variance on the rows held out, by member
        "input_clipped": float((x.abs() >= settings.input_clip).any(1).double().mean()),
        "rows": len(x),
        "held_out_rows": [len(rows) for rows in held],
    }


def _held_out_error(net: BatchedMLP, member: int, x: Tensor, y: Tensor) -> Float[Tensor, " v"]:
    """Mean squared error of each column for one member, in pieces."""
    one = net.part(slice(member, member + 1), torch.float32)
    pieces = zip(x.split(CHUNK), y.split(CHUNK), strict=True)
    total = sum((squared_error(one(a), b[None])[0].double() * len(a) for a, b in pieces), torch.zeros(()))
    return total / len(x)


REWARD_HIDDEN = (64, 64)  # and half as many steps
MARGIN = 1.0  # how far simulated states may leave the range of the logs, in widths of it
ROLLOUTS = ("mean", "noise")
FEWEST_FOLDS = 5  # a member never leaves more than a fifth of the rows aside


@dataclass(frozen=True, eq=False)
class Trajectories:
    """n simulated trajectories of h steps; the n / members of a member stand together."""

    observations: Float[Tensor, "n h_1 s"]  # one more than steps
    actions: Float[Tensor, "n h a"]
    rewards: Float64[Tensor, "n h"]
    members: Int64[Tensor, " n"]
    clipped: float  # the share of simulated states that met the limits

    def returns(self, discount: float = 1.0) -> Float64[Tensor, " n"]:
        """R(tau), LFIW section 3.3; discounted on request."""
        return self.rewards @ discount ** torch.arange(self.rewards.shape[1], dtype=torch.float64)


def _drawn(mean: Tensor, deviation: Tensor, generator: torch.Generator | None) -> Tensor:
    """A draw of the normal law, or its mean."""
    if generator is None:
        return mean
    return mean + deviation * torch.randn(mean.shape, generator=generator, dtype=mean.dtype)


def assign_folds(logs: Logs, folds: int, generator: torch.Generator) -> Int64[Tensor, " m"]:
    """The fold of each row: whole episodes if there are enough, else stretches of consecutive rows."""
    episodes = len(logs.lengths)
    if episodes >= folds:
        return (torch.randperm(episodes, generator=generator) % folds)[logs.episodes]
    return torch.arange(len(logs)) * folds // len(logs)


def require_rows(logs: Logs, members: int, owner: str) -> None:
    """Refuse logs that leave a fold without rows to stop by: its member would stay untrained."""
    fewest = 2 * max(members, FEWEST_FOLDS)
    if len(logs) < fewest:
        checks.refuse("logs", owner, f"{fewest} transitions or more for {members} members", len(logs))


@dataclass(eq=False)
class Dynamics:
    """`members` networks for s' - s and, without a known reward function, as many for the reward.

    Example
    -------
    >>> s = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    >>> logs = Logs.of(s, -s, -s[:, 0] ** 2, 0.5 * s, torch.arange(64))
    >>> small = Settings(hidden=(8,), steps=20)
    >>> dynamics = Dynamics(2, small, reward=lambda s, a, after: -s[..., 0] ** 2).fit(logs)
    >>> dynamics.replay(torch.zeros(4, 3, 1), s[:4], generator=torch.Generator().manual_seed(0)).rewards.shape
    torch.Size([4, 3])
    """

    members: int = option(5, low=1)
    settings: Settings = field(default_factory=Settings)
    reward: Reward | None = field(default=None, kw_only=True)
    report_: dict[str, Any] = learnt(factory=dict)
    change_: GaussianEnsemble | None = learnt(None)
    reward_: GaussianEnsemble | None = learnt(None)
    limits_: Float[Tensor, "2 s"] | None = learnt(None)
    folds_: Int64[Tensor, " rows"] | None = learnt(None)  # the fold of each row; member i has not learnt from fold i

    def __post_init__(self) -> None:
        declared(self)

    def fit(self, logs: Logs, *, seed: int = 0, on_progress: Callable[[float], None] = lambda _: None) -> Dynamics:
        """Learn from `logs`; `on_progress` hears how much is done. Returns self."""
        require_rows(logs, self.members, "Dynamics.fit")
        folds = assign_folds(logs, max(self.members, FEWEST_FOLDS), rng.fork(seed, "folds"))
        s, a = logs.observations, logs.actions.to(logs.observations.dtype)
        change = logs.next_observations - s
        known = torch.cat([s, a], 1)
        both = torch.stack([s, logs.next_observations])
        low, high = both.amin((0, 1)), both.amax((0, 1))
        self.limits_ = torch.stack([low - MARGIN * (high - low), high + MARGIN * (high - low)]).float()

        def learn(
            name: str, x: Tensor, y: Tensor, settings: Settings, begun: float, share: float
        ) -> tuple[GaussianEnsemble, dict[str, Any]]:
            own, told = rng.child_seed(seed, name), lambda done: on_progress(begun + share * done)
            return fit_ensemble(x, y, folds, self.members, settings, own, told)

        share = 1.0 if self.reward is not None else 0.8
        self.change_, told = learn("change", known, change, self.settings, 0.0, share)
        self.report_ = {"change": told, "reward": "known"}
        self.reward_ = None
        if self.reward is None:
            small = replace(self.settings, hidden=REWARD_HIDDEN, steps=(self.settings.steps + 1) // 2)
            x = torch.cat([known, change], 1)
            self.reward_, self.report_["reward"] = learn("reward", x, logs.rewards[:, None], small, share, 1 - share)
        self.folds_ = folds
        return self

    def change(self) -> GaussianEnsemble:
        """The networks for s' - s, once they are fitted."""
        if self.change_ is None:
            raise NotFitted("Dynamics was used before fit.")
        return self.change_

    def law(self, s: ManyStates, a: ManyActions) -> tuple[ManyStates, Float[Tensor, "m 1 s"]]:
        """Mean of s' for each member's own rows, and the deviation, which is the same in all of them."""
        mean, deviation = self.change()(torch.cat([s, a.to(s.dtype)], 2))
        return s + mean, deviation

    def step(self, s: ManyStates, a: ManyActions, *, generator: torch.Generator | None) -> ManyStates:
        """s' ~ P_theta(. | s, a) for every particle of every member; its mean without a generator."""
        mean, deviation = self.law(s, a)
        return _drawn(mean, deviation, generator)

    def rewards(
        self, s: ManyStates, a: ManyActions, after: ManyStates, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, "m n"]:
        """r(s, a, s'): the known function, or each member's draw; its mean without a generator."""
        if self.reward is not None:
            return self.reward(s, a, after)
        assert self.reward_ is not None
        return _drawn(*self.reward_(torch.cat([s, a.to(s.dtype), after - s], 2)), generator).squeeze(2)

    def rollout(
        self,
        policy: Policy,
        initial: States,
        horizon: int,
        *,
        generator: torch.Generator,
        rollouts: str = "mean",
    ) -> Trajectories:
        """`horizon` steps of `policy` from each of `initial`, an equal number for each member.

        `rollouts` is "mean" or "noise", see the module. Actions and transitions have streams of their own, so that two
        policies with one seed meet the same noise.
        """
        horizon = checks.whole(horizon, "horizon", "Dynamics.rollout", low=1)

        def choose(_: int, s: Tensor) -> Tensor:
            return policy.act(s, generator=generator)

        return self._simulate(choose, initial, horizon, generator, rollouts, "Dynamics.rollout")

    def replay(
        self,
        actions: Float[Tensor, "e h a"],
        initial: States,
        *,
        generator: torch.Generator,
        rollouts: str = "mean",
    ) -> Trajectories:
        """The given actions, step by step, from each of `initial`, whatever states the model comes to."""
        if len(actions) != len(initial):
            checks.refuse("actions", "Dynamics.replay", f"as many as 'initial' ({len(initial)})", len(actions))
        each = actions.unflatten(0, (self.members, -1)) if len(actions) % self.members == 0 else actions

        def choose(t: int, _: Tensor) -> Tensor:
            return each[:, :, t]

        return self._simulate(choose, initial, actions.shape[1], generator, rollouts, "Dynamics.replay")

    @torch.no_grad()
    def _simulate(
        self,
        choose: Callable[[int, Tensor], Tensor],
        initial: Tensor,
        horizon: int,
        generator: torch.Generator,
        rollouts: str,
        owner: str,
    ) -> Trajectories:
        n = len(initial)
        if n == 0 or n % self.members:
            checks.refuse("initial", owner, f"a multiple of {self.members} (members) states", n)
        noisy = checks.one_of(rollouts, ROLLOUTS, "rollouts", owner) == "noise"
        s = initial.to(torch.float32).reshape(self.members, -1, initial.shape[1])
        if self.limits_ is None:
            raise NotFitted("Dynamics was used before fit.")
        low, high = self.limits_
        seed = int(torch.randint(2**62, (), generator=generator))
        stream = rng.fork(seed, "transitions") if noisy else None
        states, actions, rewards, met = [s], [], [], 0
        for t in range(horizon):
            a = choose(t, s).to(torch.float32)
            free = self.step(s, a, generator=stream)
            after = torch.minimum(torch.maximum(free, low), high)
            met += int((after != free).any(2).sum())  # a NaN is no state either, and differs from everything
            rewards.append(self.rewards(s, a, after, generator=stream).to(torch.float64))
            states.append(after)
            actions.append(a)
            s = after
        flat = [torch.stack(part, 2).flatten(0, 1) for part in (states, actions, rewards)]
        members = torch.arange(self.members).repeat_interleave(n // self.members)
        return Trajectories(flat[0], flat[1], flat[2], members, met / (n * horizon))

    def draw(self, s: States, a: Actions, members: Members, *, generator: torch.Generator) -> States:
        """s' ~ P_theta(. | s, a) of each row under its own member."""
        rows = padded(members, self.members)
        at = rows.clamp_min(0)
        return unpadded(self.step(s[at].float(), a[at].float(), generator=generator), rows)

    def residuals(self, s: States, a: Actions, after: States, members: Members) -> Float[Tensor, "n v"]:
        """(s' - mean) / deviation of each row under its own member, of which that member's draws have N(0, I).

        In the coordinates of s' that vary at all.
        """
        rows = padded(members, self.members)
        at = rows.clamp_min(0)
        mean, deviation = self.law(s[at].float(), a[at].float())
        return unpadded(((after[at] - mean) / deviation)[:, :, self.change().varying], rows)

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and networks to `path` (.json) and a safetensors file beside it."""
        self.change()
        stored = copy.copy(self)
        stored.reward = None
        return store.save_object(path, "dynamics", stored)

    @classmethod
    def load(cls, path: str | Path, *, reward: Reward | None = None) -> Dynamics:
        """The dynamics stored at `path`; a known reward function is code and is handed over again."""
        found = store.load_object(cls, path, "dynamics")
        if found.reward_ is None and reward is None:
            checks.refuse("reward", "Dynamics.load", "the known function that these dynamics were fitted with", None)
        found.reward = reward
        return found


SEES = ("residual", "state")


@dataclass(eq=False)
class TransitionRatio:
    """`classifiers` estimates of log P/P_theta on triples, one batched network."""

    classifiers: int = option(5, low=1)
    _: KW_ONLY
    sees: str = option("residual", among=SEES)
    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 10
    rows: int = option(50_000, low=10)  # fitted on at most so many
    cut: float = option(0.01, low=0, below=0.5)
    dynamics_: Dynamics | None = learnt(None)
    limits_: Float[Tensor, "2 c"] | None = learnt(None)  # of the log-ratio, by classifier
    report_: dict[str, Any] = learnt(factory=dict)

    def __post_init__(self) -> None:
        declared(self)
        self.ratio = Logistic(
            hidden=self.hidden, skip="quadratic", calibration="platt", learning_rate=3e-3, epochs=self.epochs
        )

    def fit(self, dynamics: Dynamics, logs: Logs, folds: Members, *, seed: int = 0) -> TransitionRatio:
        """Learn from the rows of `logs` whose fold is that of a member, each beside the member that left it aside."""
        rows = (folds < dynamics.members).nonzero().squeeze(1)
        rows = rows[torch.randperm(len(rows), generator=rng.fork(seed, "rows"))[: self.rows]]
        s, a, after, members = logs.observations[rows], logs.actions[rows], logs.next_observations[rows], folds[rows]
        self.dynamics_ = dynamics
        real = self.features(s, a, after, members).to(torch.float64)
        weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)

        def draw(i: int) -> Sample:
            fake = self._generated(s, a, members, rng.fork(seed, "generated", i)).to(torch.float64)
            return Sample(real, fake, weights, weights)

        seeds = [rng.child_seed(seed, "classifier", i) for i in range(self.classifiers)]
        with warnings.catch_warnings():  # what did not converge is in the report, and calibrated all the same
            warnings.simplefilter("ignore", VestigeWarning)
            told = self.ratio.fit_members(draw, seeds)
        # A plain sort: torch's quantile takes no more than 16 million numbers.
        seen = self.ratio.member_log_ratios(real).sort(1).values
        last = len(rows) - 1
        self.limits_ = torch.stack([seen[:, round(self.cut * last)], seen[:, round((1 - self.cut) * last)]])
        mean = torch.stack([log_mean_exp(row) for row in self.ratio.member_log_ratios(draw(0).q)])
        self.report_ = {name: [r["held_out"][name] for r in told] for name in ("accuracy", "log_loss", "ece")} | {
            "slope": [r["calibration"]["slope"] for r in told],
            "converged": [r["converged"] for r in told],
            "clipped": [r["clips"]["features"] for r in told],
            "mean_weight": mean.exp().tolist(),  # of a generated transition; 1 if the ratio is right
            "rows": len(rows),
            "sees": self.sees,
            "limits": self.limits_.T.tolist(),
        }
        return self

    def features(self, s: States, a: Actions, after: States, members: Members) -> Float[Tensor, "n f"]:
        """What the classifier sees of a triple."""
        if self.dynamics_ is None:
            raise NotFitted("TransitionRatio was used before fit.")
        if self.sees == "state":
            return torch.cat([s, a, after - s], 1).float()
        return torch.cat([s.float(), a.float(), self.dynamics_.residuals(s, a, after, members)], 1)

    def _generated(self, s: Tensor, a: Tensor, members: Tensor, generator: torch.Generator) -> Tensor:
        """Features of generated triples that share (s, a): s' drawn anew by each row's member."""
        assert self.dynamics_ is not None
        if self.sees == "residual":  # a draw is mean + deviation * noise: its residual is the noise
            noise = torch.randn(len(s), len(self.dynamics_.change().varying), generator=generator)
            return torch.cat([s.float(), a.float(), noise], 1)
        return torch.cat([s, a, self.dynamics_.draw(s, a, members, generator=generator) - s], 1).float()

    def log_ratio(self, s: States, a: Actions, after: States, members: Members) -> Float[Tensor, "c n"]:
        """log w of each triple by each classifier."""
        return self.ratio.member_log_ratios(self.features(s, a, after, members).to(torch.float64))

    def of_trajectories(self, simulated: Trajectories) -> Float[Tensor, "c n h"]:
        """log w of every simulated transition by each classifier."""
        n, h, _ = simulated.actions.shape
        s, a = simulated.observations[:, :-1].flatten(0, 1), simulated.actions.flatten(0, 1)
        after, members = simulated.observations[:, 1:].flatten(0, 1), simulated.members.repeat_interleave(h)
        return self.log_ratio(s, a, after, members).reshape(-1, n, h)

    def within(self, log_ratio: Float[Tensor, "c *n"]) -> Float[Tensor, "c *n"]:
        """Log-ratios cut to the range of the middle 1 - 2 `cut` of the real rows."""
        if self.limits_ is None:
            raise NotFitted("TransitionRatio was used before fit.")
        low, high = (end.reshape(-1, *(1,) * (log_ratio.ndim - 1)) for end in self.limits_)
        return log_ratio.clamp(low, high)
