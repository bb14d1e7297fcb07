"""The one loop that trains small networks, and what its users share.

`train` repeats a step and looks every so often at where it has led. `adam` is such a step, for a loss that autograd
differentiates; `descent` the same with any optimiser. `Best` keeps each member's best parameters of networks that are
trained side by side, and `MemberAdam` moves a `BatchedMLP` whose gradient is already known. `evaluating` is the mode in
which a network is only looked at.

Adversarial training has loops of its own, because two networks take turns there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vestige.nets.batched import BatchedMLP

# What takes one step of training, told how many came before it.
Descend = Callable[[int], object]


def train(descend: Descend, steps: int, *, check_every: int = 1, check: Callable[[int], bool] | None = None) -> int:
    """Call `descend(0)`, `descend(1)`, ... `steps` times; returns how many steps were made.

    `check` is called after every `check_every` steps and after the last, with the number of steps so far; if it
    returns False, training ends.
    """
    for done in range(1, steps + 1):
        descend(done - 1)
        if check is not None and (done % check_every == 0 or done == steps) and not check(done):
            return done
    return steps


def adam(
    parameters: Iterable[Tensor],
    loss: Callable[[int], Tensor],
    learning_rate: float,
    *,
    weight_decay: float = 0.0,
    cosine: int | None = None,
) -> Descend:
    """Steps of Adam on `loss(step)`, which draws its own batch and is differentiated by autograd.

    `weight_decay` adds (weight_decay / 2) |W|^2 for every weight matrix W, biases and norms left alone. The learning
    rate falls to zero along a cosine of `cosine` steps.
    """
    parameters = list(parameters)
    matrices, others = ([p for p in parameters if (p.ndim > 1) is wanted] for wanted in (True, False))
    # Adam adds weight_decay * W to the gradient: the derivative of the penalty, inside its normalisation.
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": weight_decay}, {"params": others}]
    optimizer = torch.optim.Adam(groups, learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cosine) if cosine else None
    return descent(optimizer, loss, schedule)


def descent(
    optimizer: torch.optim.Optimizer,
    loss: Callable[[int], Tensor],
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> Descend:
    """Steps of any optimiser on such a loss, its rate by a schedule if there is one."""

    def descend(step: int) -> None:
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()

    return descend


@contextmanager
def evaluating(nets: Sequence[nn.Module]) -> Iterator[None]:
    """Within it `nets` are in evaluation mode; afterwards each is in the mode that it was in."""
    modes = [net.training for net in nets]
    for net in nets:
        net.eval()
    try:
        yield
    finally:
        for net, mode in zip(nets, modes, strict=True):
            net.train(mode)


class Best:
    """Each member's best parameters so far; a member that has not improved for `limit` steps is settled for good.

    `parameters` are moved by others, members along their first axis; `kept` are the best of them.
    """

    def __init__(self, parameters: Sequence[Tensor], limit: float) -> None:
        self.parameters, self.limit, members = parameters, limit, len(parameters[0])
        self.kept = [p.detach().clone() for p in parameters]
        self.loss, self.step = torch.full((members,), math.inf), torch.zeros(members, dtype=torch.int64)
        self.latest = self.loss
        self.alive = torch.ones(members, dtype=torch.bool)

    def update(self, latest: Float[Tensor, " m"], step: int) -> bool:
        """Take note of each member's loss after `step` steps; returns whether any may still improve."""
        self.latest = torch.where(self.alive, latest, self.latest)
        better = self.alive & (latest < self.loss)  # never true of a NaN
        self.loss, self.step = torch.where(better, latest, self.loss), self.step.masked_fill(better, step)
        for kept, now in zip(self.kept, self.parameters, strict=True):
            kept[better] = now.detach()[better]
        self.alive = self.alive & (step - self.step < self.limit)
        return bool(self.alive.any())

    @torch.no_grad()
    def restore(self) -> None:
        """Put the best parameters in the place of the latest."""
        for kept, now in zip(self.kept, self.parameters, strict=True):
            now.copy_(kept)


class MemberAdam:
    """AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019) on one (m, k) matrix that all parameters are views of.

    One matrix, because a step is then a handful of calls whatever the depth; and torch.optim takes seconds to import.
    """

    def __init__(self, net: BatchedMLP, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        parts = net.parameters()
        self.flat = torch.cat([t.detach().flatten(1) for t in parts], 1)
        pieces = self.flat.split([t[0].numel() for t in parts], 1)
        views = [v.unflatten(1, t.shape[1:]).requires_grad_() for v, t in zip(pieces, parts, strict=True)]
        depth = len(net.weights)
        net.weights, net.biases = views[:depth], views[depth : 2 * depth]
        net.skip = None if net.skip is None else views[-1]
        self.decayed = sum(w[0].numel() for w in net.weights)  # weights come first
        self.beta1, self.beta2, self.eps, self.t = beta1, beta2, eps, 0
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)

    def step(self, gradient: Float[Tensor, "m k"], learning_rate: float, weight_decay: float) -> None:
        """Move against `gradient`, its columns in the order of `net.parameters()`."""
        self.t += 1
        self.first.lerp_(gradient, 1 - self.beta1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        spread = self.second.sqrt().div_(math.sqrt(1 - self.beta2**self.t)).add_(self.eps)
        self.flat[:, : self.decayed].mul_(1 - learning_rate * weight_decay)
        self.flat.addcdiv_(self.first, spread, value=-learning_rate / (1 - self.beta1**self.t))


def systematic(weights: Float[Tensor, " n"], count: int, *, generator: torch.Generator) -> Int[Tensor, " count"]:
    """`count` row numbers, row i the floor or the ceiling of count w_i / sum w times, in random order."""
    cumulative = weights.cumsum(0)
    start = torch.rand((), generator=generator, dtype=weights.dtype)
    ticks = (torch.arange(count, dtype=weights.dtype) + start) * (cumulative[-1] / count)
    last = int(weights.nonzero()[-1])  # rounding must not carry the last tick to a row of weight zero
    rows = torch.searchsorted(cumulative, ticks, right=True).clamp_max(last)
    return rows[torch.randperm(count, generator=generator)]
