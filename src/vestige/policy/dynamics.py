"""A learned model of the dynamics, P_theta(s' | s, a) (LFIW section 3.3): an ensemble of Gaussian networks, as one.

The networks give mean and deviation of s' - s. A trajectory is simulated by one member from beginning to end, so that
members disagree about values as far as they disagree about the dynamics; the states of all trajectories of all members
go through one batched product per layer and step.

Deviations from LFIW App. C.5: 3 layers of 200 units instead of 500 and 6000 steps of Adam instead of 100 000; each
member is trained without one fold of the episodes and stops by the likelihood of that fold (the classifier then meets
every row beside the member that has not seen it). The paper assumes a *known* reward function; where none is given,
r(s, a, s') is learned from the logs with networks of the same kind, and its mean is used. No episode ends: the paper's
environments never do, and where logs hold terminal states `evaluate` says so. Simulated states are kept within the
range of the logs widened by `margin` times its width on either side; the share of states cut there is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vestige import store
from vestige.core import checks, rng
from vestige.core.errors import InputError, NotFitted, StoreError
from vestige.policy import regression
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.policy.regression import GaussianEnsemble, Settings, padded

# r(s, a, s') of many rows at once.
Reward: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
REWARD_HIDDEN = (64, 64)  # and half as many steps, where nothing else is said
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


def deal_folds(logs: Logs, folds: int, generator: torch.Generator) -> Int64[Tensor, " m"]:
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


class Dynamics:
    """`members` Gaussian networks for s' - s and, without a known reward function, as many for the reward."""

    def __init__(
        self,
        members: int = 5,
        settings: Settings | None = None,
        reward_settings: Settings | None = None,
        *,
        reward: Reward | None = None,
        margin: float = 1.0,
    ) -> None:
        self.members = checks.whole(members, "members", "Dynamics", low=1)
        self.settings = settings or Settings()
        halved = replace(self.settings, hidden=REWARD_HIDDEN, steps=(self.settings.steps + 1) // 2)
        self.reward_settings = reward_settings or halved
        self.settings.check("Dynamics")
        self.reward_settings.check("Dynamics")
        self.reward = reward
        self.margin = checks.number(margin, "margin", "Dynamics", low=0)
        self.report_: dict[str, Any] = {}
        self.change_: GaussianEnsemble | None = None
        self.reward_: GaussianEnsemble | None = None
        self.limits_: Float[Tensor, "2 s"] | None = None

    def fit(self, logs: Logs, *, seed: int = 0, tell: Callable[[float], None] = lambda _: None) -> Dynamics:
        """Learn from `logs`; `tell` hears how much is done. Returns self."""
        require_rows(logs, self.members, "Dynamics.fit")
        folds = self.folds(logs, seed)
        s, a = logs.observations, logs.actions.to(logs.observations.dtype)
        change = logs.next_observations - s
        share = 1.0 if self.reward is not None else 0.8
        known = torch.cat([s, a], 1)
        both = torch.stack([logs.observations, logs.next_observations])
        low, high = both.amin((0, 1)), both.amax((0, 1))
        self.limits_ = torch.stack([low - self.margin * (high - low), high + self.margin * (high - low)]).float()
        self.change_, told = regression.fit(
            known, change, folds, self.members, self.settings, rng.child_seed(seed, "change"), lambda d: tell(share * d)
        )
        self.report_ = {"change": told, "reward": "known"}
        self.reward_ = None
        if self.reward is None:
            x, settings = torch.cat([known, change], 1), self.reward_settings
            self.reward_, told = regression.fit(
                x,
                logs.rewards[:, None],
                folds,
                self.members,
                settings,
                rng.child_seed(seed, "reward"),
                lambda d: tell(share + (1 - share) * d),
            )
            self.report_["reward"] = told
        return self

    def folds(self, logs: Logs, seed: int) -> Int64[Tensor, " m"]:
        """The fold of each row in a fit with this seed; member i has not learnt from fold i."""
        return deal_folds(logs, max(self.members, FEWEST_FOLDS), rng.fork(seed, "folds"))

    def law(
        self, s: Float[Tensor, "m n s"], a: Float[Tensor, "m n a"]
    ) -> tuple[Float[Tensor, "m n s"], Float[Tensor, "m n s"]]:
        """Mean and deviation of s' for each member's own rows."""
        if self.change_ is None:
            raise NotFitted("Dynamics was used before fit.")
        mean, deviation = self.change_(torch.cat([s, a.to(s.dtype)], 2))
        return s + mean, deviation

    def step(
        self, s: Float[Tensor, "m n s"], a: Float[Tensor, "m n a"], *, generator: torch.Generator
    ) -> Float[Tensor, "m n s"]:
        """s' ~ P_theta(. | s, a) for every particle of every member."""
        mean, deviation = self.law(s, a)
        return mean + deviation * torch.randn(mean.shape, generator=generator, dtype=mean.dtype)

    def rewards(
        self, s: Float[Tensor, "m n s"], a: Float[Tensor, "m n a"], after: Float[Tensor, "m n s"]
    ) -> Float[Tensor, "m n"]:
        """r(s, a, s'): the known function, or each member's mean."""
        if self.reward is not None:
            return self.reward(s, a, after)
        if self.reward_ is None:
            raise NotFitted("Dynamics was used before fit.")
        return self.reward_(torch.cat([s, a.to(s.dtype), after - s], 2))[0].squeeze(2)

    @torch.no_grad()
    def rollout(
        self, policy: Policy, initial: Float[Tensor, "n s"], horizon: int, *, generator: torch.Generator
    ) -> Trajectories:
        """`horizon` steps of `policy` from each of `initial`, an equal number for each member."""
        horizon, n = checks.whole(horizon, "horizon", "Dynamics.rollout", low=1), len(initial)
        if n == 0 or n % self.members:
            checks.refuse("initial", "Dynamics.rollout", f"a multiple of {self.members} (members) states", n)
        s = initial.to(torch.float32).reshape(self.members, -1, initial.shape[1])
        if self.limits_ is None:
            raise NotFitted("Dynamics was used before fit.")
        low, high = self.limits_
        states, actions, rewards, met = [s], [], [], 0
        for _ in range(horizon):
            a = policy.act(s, generator=generator).to(torch.float32)
            free = self.step(s, a, generator=generator)
            after = torch.minimum(torch.maximum(free, low), high)
            met += int((after != free).any(2).sum())  # a NaN is no state either, and differs from everything
            rewards.append(self.rewards(s, a, after).to(torch.float64))
            states.append(after)
            actions.append(a)
            s = after
        flat = [torch.stack(part, 2).flatten(0, 1) for part in (states, actions, rewards)]
        members = torch.arange(self.members).repeat_interleave(n // self.members)
        return Trajectories(flat[0], flat[1], flat[2], members, met / (n * horizon))

    def draw(
        self,
        s: Float[Tensor, "n s"],
        a: Float[Tensor, "n a"],
        members: Int64[Tensor, " n"],
        *,
        generator: torch.Generator,
    ) -> Float[Tensor, "n s"]:
        """s' ~ P_theta(. | s, a) of each row under its own member."""
        rows = padded(members, self.members)
        after = self.step(s[rows.clamp_min(0)].float(), a[rows.clamp_min(0)].float(), generator=generator)
        found = torch.empty(s.shape)
        found[rows[rows >= 0]] = after[rows >= 0]
        return found

    def residuals(
        self,
        s: Float[Tensor, "n s"],
        a: Float[Tensor, "n a"],
        after: Float[Tensor, "n s"],
        members: Int64[Tensor, " n"],
    ) -> Float[Tensor, "n v"]:
        """(s' - mean) / deviation of each row under its own member, of which that member's draws have N(0, I).

        In the coordinates of s' that vary at all.
        """
        rows = padded(members, self.members)
        at = rows.clamp_min(0)
        mean, deviation = self.law(s[at].float(), a[at].float())
        assert self.change_ is not None
        z = ((after[at] - mean) / deviation)[:, :, self.change_.varying]
        found = torch.empty(len(s), z.shape[2])
        found[rows[rows >= 0]] = z[rows >= 0].float()
        return found

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and networks to `path` (.json) and a safetensors file beside it."""
        if self.change_ is None or self.limits_ is None:
            raise NotFitted("Dynamics.save was called before fit.")
        fields: dict[str, Any] = {"members": self.members, "margin": self.margin, "report": self.report_}
        fields |= {name: asdict(getattr(self, name)) for name in ("settings", "reward_settings")}
        tensors = {"limits": self.limits_} | self.change_.state("change.")
        if self.reward_ is not None:
            tensors |= self.reward_.state("reward.")
        return store.save(path, "dynamics", fields, tensors)

    @classmethod
    def load(cls, path: str | Path, *, reward: Reward | None = None) -> Dynamics:
        """The dynamics stored at `path`; a known reward function is code and is handed over again."""
        fields, tensors = store.load(path, "dynamics")
        try:
            settings, reward_settings = (
                Settings(**{**fields[name], "hidden": tuple(fields[name]["hidden"])})
                for name in ("settings", "reward_settings")
            )
            found = cls(fields["members"], settings, reward_settings, reward=reward, margin=fields["margin"])
            found.report_, found.limits_ = fields["report"], tensors["limits"]
            found.change_ = GaussianEnsemble.from_state(tensors, "change.", settings)
            learned = any(key.startswith("reward.") for key in tensors)
            if learned:
                found.reward_ = GaussianEnsemble.from_state(tensors, "reward.", reward_settings)
        except (KeyError, TypeError, IndexError, InputError) as error:
            raise StoreError(f"{path} does not hold dynamics that this version can read: {error}.") from None
        if not learned and reward is None:
            checks.refuse("reward", "Dynamics.load", "the known function that these dynamics were fitted with", None)
        return found
