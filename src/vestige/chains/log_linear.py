"""The log-linear networks of CDRE section 3 and their objective, Eq. 10 and 12: many members trained as one.

psi has one output for each task and takes a standardised sample followed by its task's number. Every tensor has a
leading axis of members: initialisations, bootstrap resamples, or chains on data of their own. Members share each matrix
product and nothing else: a member trained among others ends where it would end alone.

`objective` is Eq. 10 with the penalty subtracted: printed, it is added inside a maximisation, and the chain then
diverges.

`LogLinearState` is what the chain keeps: log r_t of a member is psi_t - log Psi_t (CDRE Eq. 7), Psi_t being the mean of
exp(psi_t) over all samples of the step; that of several is the mean of theirs, less the logarithm of what its
exponential averages to (`level`), so that Eq. 6 holds for the mean as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.chains.step_losses import StepValue
from vestige.core import rng
from vestige.core.numerics import log_mean_exp
from vestige.nets import training
from vestige.nets.training import Best
from vestige.ratios.standardise import Standardiser


@dataclass(frozen=True)
class LogLinearSchedule:
    """How psi is trained. `held_out` rows stop it early after `patience` epochs without gain; 0: all epochs are run.

    With `resample` each member sees a bootstrap of the rows that it is trained on.
    """

    learning_rate: float
    cosine: bool
    batch_size: int
    epochs: int
    held_out: float
    patience: int
    resample: bool = False


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


def objective(
    on_p: Float[Tensor, "m b"],
    on_q: Float[Tensor, "m c"],
    before_p: Float[Tensor, "m b"],
    before_q: Float[Tensor, "m c"],
    strength: float,
    value: StepValue,
) -> Float[Tensor, " m"]:
    """Eq. 10 of one task, to be maximised: psi_t and log r_{t-1} on X_{t-1} and on X_t, lambda_c t.

    r_{t-1} is exp(psi_{t-1}) / Psi_{t-1}, so the penalty's Psi^-1_t Psi_{t-1} / Psi_t is the mean over X_t of
    exp(psi_t) / r_{t-1}, divided by that of exp(psi_t).
    """
    total = value(on_p - before_p, on_q - before_q)
    if strength:
        off = torch.logsumexp(on_q - before_q, 1) - torch.logsumexp(on_q, 1)  # Eq. 8, in logarithms
        total = total - strength * torch.expm1(off).square()
    return total


def train(
    layers: Sequence[Tensor],
    p: Sequence[TaskRows],
    q: Sequence[TaskRows],
    strengths: Sequence[float],
    value: StepValue,
    schedule: LogLinearSchedule,
    *,
    seeds: Sequence[int],
) -> list[Tensor]:
    """Adam on Eq. 12, the mean of Eq. 10 over tasks; returns new layers, each member's best if rows are held out.

    Its step is not `vestige.nets.training.adam`, whose fused Adam and recursive cosine round differently.
    """
    layers = [x.clone().requires_grad_() for x in layers]
    optimizer = torch.optim.Adam(layers, lr=schedule.learning_rate)
    sides = [
        _Side(rows, schedule, seeds, name, i) for name, side in (("p", p), ("q", q)) for i, rows in enumerate(side)
    ]
    on_p, on_q = sides[: len(p)], sides[len(p) :]
    per_epoch = max(1, max(side.train.shape[1] for side in sides) // schedule.batch_size)
    total = schedule.epochs * per_epoch

    def values(pairs: Iterator[tuple[TaskRows, TaskRows]]) -> Float[Tensor, " m"]:
        parts = [
            objective(psi(layers, a.x, i), psi(layers, b.x, i), a.before, b.before, strength, value)
            for i, ((a, b), strength) in enumerate(zip(pairs, strengths, strict=True))
        ]
        return torch.stack(parts).mean(0)

    def descend(step: int) -> None:
        if schedule.cosine:
            optimizer.param_groups[0]["lr"] = schedule.learning_rate * (1 + math.cos(math.pi * step / total)) / 2
        optimizer.zero_grad()
        (-values((next(a.batches), next(b.batches)) for a, b in zip(on_p, on_q, strict=True)).sum()).backward()
        optimizer.step()

    @torch.no_grad()
    def check(step: int) -> bool:
        return best.update(-values((a.held_out, b.held_out) for a, b in zip(on_p, on_q, strict=True)), step)

    best = Best(layers, schedule.patience * per_epoch)
    training.train(descend, total, check_every=per_epoch, check=check if schedule.held_out else None)
    return best.kept if schedule.held_out else [x.detach() for x in layers]


class _Side:
    """The rows of one task on one side: each member's own for training, in minibatches without end, and held out."""

    def __init__(self, rows: TaskRows, schedule: LogLinearSchedule, seeds: Sequence[int], name: str, task: int) -> None:
        n = rows.x.shape[1]
        kept = max(1, round(schedule.held_out * n)) if schedule.held_out else 0
        order = torch.stack([torch.randperm(n, generator=rng.fork(s, "held out", name, task)) for s in seeds])
        self.train, self.held_out = order[:, kept:], rows.at(order[:, :kept])
        if schedule.resample:
            drawn = [torch.randint(n - kept, (n - kept,), generator=rng.fork(s, "resample", name, task)) for s in seeds]
            self.train = self.train.gather(1, torch.stack(drawn))
        self.batches = self._batches(rows, schedule.batch_size, [rng.fork(s, "batches", name, task) for s in seeds])

    def _batches(self, rows: TaskRows, batch: int, streams: Sequence[torch.Generator]) -> Iterator[TaskRows]:
        """Each row once an epoch; a short rest at the end of an epoch is left out."""
        n = self.train.shape[1]
        size = min(batch, n)
        while True:
            order = torch.stack([torch.randperm(n, generator=stream) for stream in streams])
            for at in range(0, n - size + 1, size):
                yield rows.at(self.train.gather(1, order[:, at : at + size]))


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
        """After a step that ended in `layers`; `old` is the side before it, None for a new task."""
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
        side = self.tasks[task]
        return outputs(self.layers, side.standardise, x, task) - side.log_normaliser[:, None]

    def log_ratio(self, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """log r_t of all members together."""
        return self.member_log_ratios(task, x).mean(0) - self.tasks[task].level
