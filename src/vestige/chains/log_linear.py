"""The log-linear network of CDRE section 3 and its objective: Eq. 9, 10 and 12.

psi has one output for each task and takes a standardised sample followed by its task's number. `objective` is Eq. 10
with the penalty subtracted: printed, it is added inside a maximisation, and the chain then diverges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige import rng


@dataclass(frozen=True)
class Schedule:
    """How psi is trained. `held_out` rows stop it early after `patience` epochs without gain; 0: all epochs are run."""

    lr: float
    cosine: bool
    batch: int
    epochs: int
    held_out: float
    patience: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Inputs of one task on one side, in float32, and psi_{t-1} on them."""

    x: Float[Tensor, "n d"]
    before: Float[Tensor, " n"]

    def at(self, rows: Int[Tensor, " b"]) -> Rows:
        """Some of the rows."""
        return Rows(self.x[rows], self.before[rows])


def psi(layers: Sequence[Tensor], x: Float[Tensor, "n d"], task: int) -> Float[Tensor, " n"]:
    """The output of `task`. `layers` are weight, bias, weight, bias, ..."""
    for w, b in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        x = torch.addmm(b, x, w).relu()
    return x @ layers[-2][:, task] + layers[-1][task]


def grown(layers: Sequence[Tensor], sizes: Sequence[int], tasks: int, *, generator: torch.Generator) -> list[Tensor]:
    """`layers` with outputs for `tasks` tasks, new ones at zero; fresh hidden layers where there are none yet."""
    if not layers:
        fresh = []
        for fan_in, fan_out in pairwise(sizes):
            bound = 1 / math.sqrt(fan_in)  # torch.nn.Linear's own initialisation
            fresh.append(torch.rand(fan_in, fan_out, generator=generator) * (2 * bound) - bound)
            fresh.append(torch.rand(fan_out, generator=generator) * (2 * bound) - bound)
        layers = [*fresh, torch.zeros(sizes[-1], 0), torch.zeros(0)]
    more = tasks - len(layers[-1])
    weight = torch.cat([layers[-2], torch.zeros(sizes[-1], more)], 1)
    return [*layers[:-2], weight, torch.cat([layers[-1], torch.zeros(more)])]


def objective(
    on_p: Float[Tensor, " b"],
    on_q: Float[Tensor, " c"],
    before_p: Float[Tensor, " b"],
    before_q: Float[Tensor, " c"],
    log_normaliser_before: float,
    strength: float,
) -> Float[Tensor, ""]:
    """Eq. 10 of one task, to be maximised: psi_t and psi_{t-1} on X_{t-1} and on X_t, log Psi_{t-1}, lambda_c t."""
    log_n = math.log(len(on_q))
    log_step = torch.logsumexp(on_q - before_q, 0) - log_n  # log Psi^-1_t(X_t), the denominator of Eq. 9
    value = (on_p - before_p).mean() - log_step
    if strength:
        log_now = torch.logsumexp(on_q, 0) - log_n  # log Psi_t(X_t)
        value = value - strength * torch.expm1(log_step + log_normaliser_before - log_now).square()
    return value


def train(
    layers: Sequence[Tensor],
    p: Sequence[Rows],
    q: Sequence[Rows],
    log_normalisers_before: Sequence[float],
    strengths: Sequence[float],
    schedule: Schedule,
    *,
    seed: int,
) -> list[Tensor]:
    """Adam on Eq. 12, the mean of Eq. 10 over tasks; returns new layers, the best ones if rows are held out."""
    layers = [x.clone().requires_grad_() for x in layers]
    optimizer = torch.optim.Adam(layers, lr=schedule.lr)
    split_p, split_q = (
        [_split(rows, schedule.held_out, rng.fork(seed, "held out", name, i)) for i, rows in enumerate(side)]
        for name, side in (("p", p), ("q", q))
    )
    pairs = list(zip(split_p, split_q, strict=True))
    per_epoch = max(1, max(len(side[0].x) for pair in pairs for side in pair) // schedule.batch)
    total = schedule.epochs * per_epoch
    streams = [
        (
            _batches(a, schedule.batch, rng.fork(seed, "batches", "p", i)),
            _batches(b, schedule.batch, rng.fork(seed, "batches", "q", i)),
        )
        for i, ((a, _), (b, _)) in enumerate(pairs)
    ]

    def value(sides: Sequence[tuple[Rows, Rows]]) -> Tensor:
        parts = [
            objective(psi(layers, a.x, i), psi(layers, b.x, i), a.before, b.before, z, s)
            for i, ((a, b), z, s) in enumerate(zip(sides, log_normalisers_before, strengths, strict=True))
        ]
        return torch.stack(parts).mean()

    best, best_value, since = [x.detach().clone() for x in layers], -math.inf, 0
    for step in range(total):
        if schedule.cosine:
            optimizer.param_groups[0]["lr"] = schedule.lr * (1 + math.cos(math.pi * step / total)) / 2
        optimizer.zero_grad()
        (-value([(next(a), next(b)) for a, b in streams])).backward()
        optimizer.step()
        if schedule.held_out and (step + 1) % per_epoch == 0:
            with torch.no_grad():
                now = float(value([(a[1], b[1]) for a, b in pairs]))
            since = 0 if now > best_value else since + 1
            if not since:
                best, best_value = [x.detach().clone() for x in layers], now
            if since >= schedule.patience:
                break
    return best if schedule.held_out else [x.detach() for x in layers]


def _split(rows: Rows, held_out: float, generator: torch.Generator) -> tuple[Rows, Rows]:
    """Rows to train on and rows held out."""
    order = torch.randperm(len(rows.x), generator=generator)
    kept = round(held_out * len(order))
    return rows.at(order[kept:]), rows.at(order[:kept])


def _batches(rows: Rows, batch: int, generator: torch.Generator) -> Iterator[Rows]:
    """Minibatches without end, each row once an epoch; a short rest at the end of an epoch is left out."""
    n = len(rows.x)
    size = min(batch, n)
    while True:
        order = torch.randperm(n, generator=generator)
        for at in range(0, n - size + 1, size):
            yield rows.at(order[at : at + size])
