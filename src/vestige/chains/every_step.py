"""The paper's own chain, CDRE Eq. 5 to 12: a ratio of neighbouring steps at every step, by a log-linear network.

psi_t starts at psi_{t-1}, with a new output for each new task, and is trained on Eq. 12: each known task's last
generated samples against those of this step, by KLIEP (Eq. 10) or another objective. For a new task the data stands in
the place of the last samples, and log r_{t-1} and the penalty are zero (Eq. 2, 3). r_t is exp(psi_t) / Psi_t (Eq. 7);
divergences are Eq. 4. Kept between steps: the networks, of each task the generated samples of the last step and, with
their weights, of the first (for the column `anchored`), and of the data mean and deviation of its even mixture with the
samples of its step, rounded to a hundredth of their standard errors.

psi has one output for each task and takes a standardised sample followed by its task's number. Every tensor has a
leading axis of `members`: networks, each a chain of its own from its own initialisation and, with `resample`, on its
own bootstrap of the rows (drawn anew at each step). They share each matrix product and nothing else: a member trained
among others ends where it would end alone. log r is the mean of theirs, less the logarithm of what its exponential
averages to (`level`), so that Eq. 6 holds for the mean as well. Their spread is reported beside the interval, not in
it: it does not know of the bias that they share.

Objectives (`step_value`), each maximal where r_t / r_{t-1} is the ratio of neighbouring steps (Eq. 5). All take the
step's log-ratio s = psi_t - log r_{t-1} (Eq. 9 without its normaliser) on X_{t-1}, in the place of p, and on X_t, in
the place of q, one row of values a member:

- "kliep": Eq. 10's first term, mean_p(s) - log mean_q(exp s), the normaliser of Eq. 9 inside; the paper's choice.
- "logistic": minus the balanced log-loss of the classifier with logit s.
- "lsif": mean_p(exp s) - mean_q(exp 2s) / 2. Section 3 names it for the Pearson divergence.
- "fgan": mean_p(T) - mean_q(f*(T)) with T = f'(exp s) (Nowozin et al. 2016), for the f called `critic`; section 3 has
  tried it and finds it less robust. With "kl" it is KLIEP with E_q[r] = 1 left to the optimum, with "js" it is the
  logistic loss.

The paper writes out the first alone. Deviation in the others: the network gives log r in all of them, the log-linear
form of Eq. 3, so that ratios multiply along the chain (Eq. 5) and none is negative, as the paper found of f-GAN's
chi-squared. They fix the constant of psi_t by themselves; the chain divides by Psi_t (Eq. 7) all the same.

Deviations: the penalty of Eq. 10 is subtracted (printed, it is added inside a maximisation, and the chain then
diverges); Psi_t is taken over all samples of the step and stored; inputs are standardised per task, without which half
of the KL of many tasks is lost. The default is a smaller network with a larger rate and no early stopping, a hundredth
of the cost and no worse in 2 dimensions; in 100 Eq. 4 is two to four times too large halfway with it.
`preset="paper"` has the settings of Appendix A.2 for synthetic data, "paper-images" those for images; lambda_c of the
former is to be chosen, as in Fig. 2. A.2 does not say how many synthetic rows validate (a fifth, here) nor for how long
their loss may rise (`patience` epochs); of images as many validate as train. lambda_c is multiplied by the number of
tasks (A.2) and is 0 by default: larger values have not lowered the bias in 2 dimensions: `vestige run cdre-fig2a` gives
Eq. 4 at t = 10 (kl 2.614) as 1.79, 1.74, 1.70 and 1.68 for lambda_c 0, 0.1, 1 and 10 with preset="paper" at a rate of
3e-4, as 1.61 with the default network, and as 1.56 with the exact ratio, over 5 seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.chains.strategy import Points, Strategy, TaskLogRatios
from vestige.core import rng
from vestige.core.checks import declared, option
from vestige.core.numerics import log_mean_exp
from vestige.nets import training
from vestige.nets.training import Best
from vestige.ratios import divergences, losses
from vestige.ratios.base import Sample
from vestige.ratios.coarse import with_rounded_coordinates
from vestige.ratios.standardise import Standardiser, mixture_standardiser

ESTIMATORS = ("fgan", "kliep", "logistic", "lsif")
# The f of "fgan" by the name that its critic has in `ratios.FGANRatio`.
CRITICS = {"kl": "kl", "reverse_kl": "reverse_kl", "js": "js", "hellinger": "hellinger2", "pearson": "pearson_chi2"}
A2: dict[str, Any] = {
    "hidden": (256, 256),
    "cosine": False,
    "batch_size": 2000,
    "first_epochs": 1000,  # "for DRE"
    "epochs": 2000,  # "for CDRE"
}


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Inputs of one task on one side, in float32, and log r_{t-1} on them, for every member."""

    x: Float[Tensor, "m n d"]
    before: Float[Tensor, "m n"]

    def at(self, rows: Int[Tensor, "m b"]) -> TaskRows:
        """Each member's choice of rows."""
        return TaskRows(self.x[torch.arange(len(rows))[:, None], rows], self.before.gather(1, rows))


def psi(layers: Sequence[Tensor], x: Float[Tensor, "m n d"], task: int) -> Float[Tensor, "m n"]:
    """The output of `task`. `layers` are weight (m, in, out), bias (m, 1, out), weight, bias, ..."""
    for w, b in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = torch.baddbmm(b, x, w).relu()
    return torch.baddbmm(layers[-1][:, :, task : task + 1], x, layers[-2][:, :, task : task + 1]).squeeze(2)


def fresh(sizes: Sequence[int], seeds: Sequence[int]) -> list[Tensor]:
    """Hidden layers of widths `sizes`, the input's first, and outputs for no task yet; each member from its seed."""
    members = []
    for seed in seeds:
        generator, own = rng.fork(seed, "init"), []
        for fan_in, fan_out in pairwise(sizes):
            bound = 1 / math.sqrt(fan_in)  # torch.nn.Linear's own initialisation
            own.append(torch.rand(fan_in, fan_out, generator=generator) * (2 * bound) - bound)
            own.append(torch.rand(1, fan_out, generator=generator) * (2 * bound) - bound)
        members.append([*own, torch.zeros(sizes[-1], 0), torch.zeros(1, 0)])
    return [torch.stack(tensors) for tensors in zip(*members, strict=True)]


def grown(layers: Sequence[Tensor], tasks: int) -> list[Tensor]:
    """`layers` with outputs for `tasks` tasks, new ones at zero."""
    more = tasks - layers[-1].shape[2]
    widened = [torch.cat([x, x.new_zeros(*x.shape[:2], more)], 2) for x in layers[-2:]]
    return [*layers[:-2], *widened]


def step_value(
    s_p: Float[Tensor, "m b"], s_q: Float[Tensor, "m c"], estimator: str, critic: str = "kl"
) -> Float[Tensor, " m"]:
    """The objective called `estimator`, to be maximised."""
    if estimator == "fgan":
        div = divergences.get(CRITICS[critic])
        dual = divergences.get(div.reverse).slope  # -f*(f'(r)) = f(r) - r f'(r) is the slope of the reverse at 1/r
        return div.slope(s_p).mean(1) + dual(-s_q).mean(1)
    even_p, even_q = (torch.full_like(s, 1 / s.shape[1]) for s in (s_p, s_q))
    if estimator == "lsif":
        return -losses.least_squares(s_p.exp(), s_q.exp(), even_p, even_q)
    loss = losses.kliep if estimator == "kliep" else losses.logistic
    return -loss(s_p, s_q, even_p, even_q)


def objective(
    on_p: Float[Tensor, "m b"],
    on_q: Float[Tensor, "m c"],
    before_p: Float[Tensor, "m b"],
    before_q: Float[Tensor, "m c"],
    strength: float,
    estimator: str,
    critic: str = "kl",
) -> Float[Tensor, " m"]:
    """Eq. 10 of one task, to be maximised: psi_t and log r_{t-1} on X_{t-1} and on X_t, lambda_c t.

    r_{t-1} is exp(psi_{t-1}) / Psi_{t-1}, so the penalty's Psi^-1_t Psi_{t-1} / Psi_t is the mean over X_t of
    exp(psi_t) / r_{t-1}, divided by that of exp(psi_t).
    """
    total = step_value(on_p - before_p, on_q - before_q, estimator, critic)
    if strength:
        off = torch.logsumexp(on_q - before_q, 1) - torch.logsumexp(on_q, 1)  # Eq. 8, in logarithms
        total = total - strength * torch.expm1(off).square()
    return total


def inputs(standardise: Standardiser, x: Float[Tensor, "n d"], task: int) -> Float[Tensor, "n d1"]:
    """A standardised sample and its task's number, from 1."""
    return torch.cat([standardise(x), x.new_full((len(x), 1), task + 1)], 1)


def outputs(
    layers: Sequence[Tensor], standardise: Standardiser, x: Float[Tensor, "n d"], task: int
) -> Float[Tensor, "m n"]:
    """psi of every member in float64."""
    seen = inputs(standardise, x, task)
    return psi([w.double() for w in layers], seen.expand(len(layers[0]), -1, -1), task)


@dataclass(frozen=True, eq=False)
class LogLinearTask:
    """What belongs to one task."""

    standardise: Standardiser
    samples: Float[Tensor, "n d"]  # of this step
    anchor: Float[Tensor, "k d"]  # of the step at which the data was here, weighted by r of that step
    anchor_weights: Float[Tensor, " k"]
    log_normaliser: Float[Tensor, " m"]  # log Psi_t of each member
    level: float
    depth: int  # ratios chained so far

    @classmethod
    def of(
        cls,
        layers: Sequence[Tensor],
        standardise: Standardiser,
        q: Float[Tensor, "n d"],
        task: int,
        old: LogLinearTask | None,
    ) -> LogLinearTask:
        """After a step that ended in `layers`; `old` is the task before it, None for a new one."""
        out = outputs(layers, standardise, q, task)
        log_normaliser = torch.logsumexp(out, 1) - math.log(len(q))
        mean = (out - log_normaliser[:, None]).mean(0)
        level = float(log_mean_exp(mean)) if len(out) > 1 else 0.0
        if old is None:
            return cls(standardise, q.clone(), q.clone(), torch.softmax(mean, 0), log_normaliser, level, 1)
        return cls(standardise, q.clone(), old.anchor, old.anchor_weights, log_normaliser, level, old.depth + 1)


@dataclass(frozen=True, eq=False)
class LogLinearState:
    """psi_t and the tasks that it knows."""

    layers: tuple[Tensor, ...]
    tasks: tuple[LogLinearTask, ...]

    def member_log_ratios(self, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, "m n"]:
        """log r_t of every member."""
        own = self.tasks[task]
        return outputs(self.layers, own.standardise, x, task) - own.log_normaliser[:, None]

    def log_ratio(self, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """log r_t of all members together."""
        return self.member_log_ratios(task, x).mean(0) - self.tasks[task].level


@dataclass(frozen=True)
class EveryStep(Strategy[LogLinearState]):
    """Eq. 5 to 12. `critic` is the f of estimator "fgan"; `held_out` rows stop training early; 0: never."""

    name: ClassVar[str] = "every-step"
    version: ClassVar[int] = 3  # 2: what is kept of the data is rounded; 3: Eq. 4 has no interval and is never "ok"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": A2 | {"learning_rate": 2e-5, "held_out": 0.2},
        "paper-images": A2 | {"learning_rate": 1e-5, "held_out": 0.5, "lambda_c": 1.0},
    }
    estimator: str = option("kliep", among=ESTIMATORS)
    critic: str = option("kl", among=CRITICS)
    hidden: tuple[int, ...] = option((32, 32), low=1, least=1)
    learning_rate: float = option(1e-2, above=0)
    cosine: bool = True
    batch_size: int = option(500, low=1)
    first_epochs: int = option(20, low=1)
    epochs: int = option(10, low=1)
    held_out: float = option(0.0, low=0, high=0.5)
    patience: int = option(10, low=1)
    lambda_c: float = option(0.0, low=0)
    members: int = option(1, low=1)
    resample: bool = False
    moments: bool = True  # False: coordinates are standardised by the model's samples alone

    def __post_init__(self) -> None:
        declared(self, f"Chain('{self.name}')")

    def step(
        self, state: LogLinearState | None, real: Mapping[int, Tensor], model: Mapping[int, Tensor], seed: int
    ) -> tuple[LogLinearState, dict[int, TaskLogRatios]]:
        """One network for all tasks."""
        old = {} if state is None else dict(enumerate(state.tasks))
        tasks, seeds = range(len(model)), [rng.child_seed(seed, "member", k) for k in range(self.members)]
        last = [old[i].samples if i in old else real[i] for i in tasks]
        standardise = [
            old[i].standardise if i in old else _coordinates(real[i] if self.moments else model[i], model[i])
            for i in tasks
        ]

        def rows(x: Tensor, task: int) -> TaskRows:
            seen = inputs(standardise[task], x, task).float().expand(self.members, -1, -1)
            if state is None or task not in old:
                return TaskRows(seen, torch.zeros(seen.shape[:2]))
            return TaskRows(seen, state.member_log_ratios(task, x).float())

        layers = fresh([model[0].shape[1] + 1, *self.hidden], seeds) if state is None else state.layers
        layers = self.train(
            grown(layers, len(tasks)),
            [rows(last[i], i) for i in tasks],
            [rows(model[i], i) for i in tasks],
            [self.lambda_c * len(tasks) * (i in old) for i in tasks],  # A.2: grows with the number of tasks
            epochs=self.epochs if old else self.first_epochs,
            seeds=seeds,
        )
        after = tuple(LogLinearTask.of(layers, standardise[i], model[i], i, old.get(i)) for i in tasks)
        now = LogLinearState(tuple(layers), after)
        return now, {i: self._found(state if i in old else None, now, i, last[i], model[i]) for i in tasks}

    def _found(
        self, before: LogLinearState | None, now: LogLinearState, task: int, last: Tensor, q: Tensor
    ) -> TaskLogRatios:
        """log r_t wherever a divergence is averaged; `before` is None for a new task, `last` its data then."""
        own = now.tasks[task]
        anchored = running = Points(now.log_ratio(task, last), None, None)
        if before is not None:
            log_ratio = before.log_ratio(task, last)
            anchored = Points(now.log_ratio(task, own.anchor), own.anchor_weights, None)
            running = Points(running.log_ratio, torch.softmax(log_ratio, 0), log_ratio)
        every = now.member_log_ratios(task, q) if self.members > 1 else None
        on_q = now.log_ratio(task, q)
        return TaskLogRatios(
            on_q, None, None, depth=own.depth, anchored=anchored, running=running, moved=True, members=every
        )

    def train(
        self,
        layers: Sequence[Tensor],
        p: Sequence[TaskRows],
        q: Sequence[TaskRows],
        strengths: Sequence[float],
        *,
        epochs: int,
        seeds: Sequence[int],
    ) -> list[Tensor]:
        """Adam on Eq. 12, the mean of Eq. 10 over tasks; returns new layers, each member's best if rows are held out.

        Its step is not `vestige.nets.training.adam`, whose fused Adam and recursive cosine round differently.
        """
        layers = [x.clone().requires_grad_() for x in layers]
        optimizer = torch.optim.Adam(layers, lr=self.learning_rate)
        on_p, on_q = (
            [_Side(rows, self, seeds, name, i) for i, rows in enumerate(side)] for name, side in (("p", p), ("q", q))
        )
        per_epoch = max(1, max(side.train.shape[1] for side in (*on_p, *on_q)) // self.batch_size)
        total = epochs * per_epoch

        def values(pairs: Iterator[tuple[TaskRows, TaskRows]]) -> Float[Tensor, " m"]:
            parts = []
            for i, (a, b) in enumerate(pairs):
                on = psi(layers, a.x, i), psi(layers, b.x, i)
                parts.append(objective(*on, a.before, b.before, strengths[i], self.estimator, self.critic))
            return torch.stack(parts).mean(0)

        def descend(step: int) -> None:
            if self.cosine:
                optimizer.param_groups[0]["lr"] = self.learning_rate * (1 + math.cos(math.pi * step / total)) / 2
            optimizer.zero_grad()
            (-values((next(a.batches), next(b.batches)) for a, b in zip(on_p, on_q, strict=True)).sum()).backward()
            optimizer.step()

        @torch.no_grad()
        def check(step: int) -> bool:
            return best.update(-values((a.held_out, b.held_out) for a, b in zip(on_p, on_q, strict=True)), step)

        best = Best(layers, self.patience * per_epoch)
        training.train(descend, total, check_every=per_epoch, check=check if self.held_out else None)
        return best.kept if self.held_out else [x.detach() for x in layers]

    def log_ratio(self, state: LogLinearState, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Eq. 7: psi_t - log Psi_t."""
        return state.log_ratio(task, x)

    def anchor_samples(self, state: LogLinearState, task: int) -> tuple[Tensor, Tensor]:
        """The last generated samples under r_t."""
        samples = state.tasks[task].samples
        return samples, torch.softmax(state.log_ratio(task, samples), 0)


def _coordinates(p: Tensor, q: Tensor) -> Standardiser:
    found: Standardiser = with_rounded_coordinates(mixture_standardiser(Sample(p, q)), len(p))
    return found


class _Side:
    """The rows of one task on one side: each member's own for training, in minibatches without end, and held out."""

    def __init__(self, rows: TaskRows, settings: EveryStep, seeds: Sequence[int], name: str, task: int) -> None:
        n = rows.x.shape[1]
        kept = max(1, round(settings.held_out * n)) if settings.held_out else 0
        order = torch.stack([torch.randperm(n, generator=rng.fork(s, "held out", name, task)) for s in seeds])
        self.train, self.held_out = order[:, kept:], rows.at(order[:, :kept])
        if settings.resample:
            drawn = [torch.randint(n - kept, (n - kept,), generator=rng.fork(s, "resample", name, task)) for s in seeds]
            self.train = self.train.gather(1, torch.stack(drawn))
        self.batches = self._batches(rows, settings.batch_size, [rng.fork(s, "batches", name, task) for s in seeds])

    def _batches(self, rows: TaskRows, batch: int, streams: Sequence[torch.Generator]) -> Iterator[TaskRows]:
        """Each row once an epoch; a short rest at the end of an epoch is left out."""
        n = self.train.shape[1]
        size = min(batch, n)
        while True:
            order = torch.stack([torch.randperm(n, generator=stream) for stream in streams])
            for at in range(0, n - size + 1, size):
                yield rows.at(self.train.gather(1, order[:, at : at + size]))
