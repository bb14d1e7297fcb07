"""Training of batched ratio networks with any loss: Adam, minibatches by weight, early stopping on held-out loss.

Every member has its own rows, its own order of minibatches and its own best step, so that a member trained among
others ends where it would end alone. The learning rate falls along a cosine to zero over the whole budget.

Weighted rows are drawn by their weight: an epoch is a shuffled systematic resample, which with equal weights is a
permutation, and every minibatch is then an even sample. A side no larger than a minibatch is used whole, with its
weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.core import rng
from vestige.nets.batched import BatchedMLP, gradients

# Gains of the held-out loss below this, in nats, say nothing about convergence.
NOISE = 1e-4
# (out_p, out_q, w_p, w_q) -> one loss a member; see `losses`.
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# (w_p, w_q) -> the derivative of the loss, as a function of outputs on p and q side by side.
LossSlope = Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]


@dataclass(frozen=True)
class Budget:
    """How fast and how long: at least `steps` updates and at least `epochs` passes over the larger side."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    steps: int
    epochs: int
    check_every: int
    patience: int
    tolerance: float
    gradient_clip: float | None


@dataclass(frozen=True)
class MemberRows:
    """The rows of p, or of q, of every member, in float32; weights sum to one in each row."""

    x: Float[Tensor, "m n d"]
    w: Float[Tensor, "m n"]


@dataclass(frozen=True)
class Outcome:
    """How each member's training ended. The network holds each member's best parameters."""

    held_out_loss: Float[Tensor, " m"]
    judged: Float[Tensor, " m"]  # what chose the best step; the held-out loss where that is its own judge
    best_step: Int[Tensor, " m"]
    converged: Bool[Tensor, " m"]
    clipped: Float[Tensor, " m"]  # the share of updates whose gradient was scaled down
    steps: int


class _Batches:
    """Minibatches of one side: whole, or drawn by weight epoch after epoch from each member's own stream."""

    def __init__(self, side: MemberRows, batch: int, seeds: Sequence[int], name: str) -> None:
        self.side, self.n, self.size = side, side.x.shape[1], min(batch, side.x.shape[1])
        self.whole, self.at = self.size == self.n, self.n
        if not self.whole:
            self.streams = [rng.fork(seed, "batches", name) for seed in seeds]
            self.cumulative = side.w.to(torch.float64).cumsum(1)
            self.even = torch.full((len(seeds), self.size), 1 / self.size)

    def next(self) -> MemberRows:
        if self.whole:
            return self.side
        if self.at + self.size > self.n:
            self.order, self.at = torch.stack([self._epoch(i) for i in range(len(self.streams))]), 0
        rows = self.order[:, self.at : self.at + self.size]
        self.at += self.size
        return MemberRows(self.side.x.gather(1, rows.unsqueeze(2).expand(-1, -1, self.side.x.shape[2])), self.even)

    def _epoch(self, member: int) -> Tensor:
        stream, c = self.streams[member], self.cumulative[member]
        start = torch.rand(1, generator=stream, dtype=torch.float64)
        ticks = (torch.arange(self.n, dtype=torch.float64) + start) * (c[-1] / self.n)
        return torch.searchsorted(c, ticks).clamp_max_(self.n - 1)[torch.randperm(self.n, generator=stream)]


class _Adam:
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

    def step(self, gradient: Float[Tensor, "m k"], lr: float, decay: float) -> None:
        self.t += 1
        self.first.lerp_(gradient, 1 - self.beta1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        spread = self.second.sqrt().div_(math.sqrt(1 - self.beta2**self.t)).add_(self.eps)
        self.flat[:, : self.decayed].mul_(1 - lr * decay)
        self.flat.addcdiv_(self.first, spread, value=-lr / (1 - self.beta1**self.t))


class _Best:
    """Each member's best parameters so far; a member that has not improved for `limit` steps is settled for good."""

    def __init__(self, flat: Tensor, limit: int, total: int) -> None:
        self.flat, self.limit, self.total, members = flat, limit, total, len(flat)
        self.kept = flat.clone()
        self.loss, self.step = torch.full((members,), math.inf), torch.zeros(members, dtype=torch.int64)
        self.latest = self.half_way = self.start = self.loss
        self.alive = torch.ones(members, dtype=torch.bool)

    def update(self, latest: Tensor, step: int) -> None:
        self.latest = torch.where(self.alive, latest, self.latest)
        better = self.alive & (latest < self.loss)  # never true of a NaN
        self.loss, self.step = torch.where(better, latest, self.loss), self.step.masked_fill(better, step)
        self.kept[better] = self.flat[better]
        self.alive = self.alive & (step - self.step < self.limit)
        if step == 0:
            self.start = latest
        if step * 2 <= self.total:
            self.half_way = self.loss


def _slope(loss: Loss, p: MemberRows, q: MemberRows) -> Callable[[Tensor], Tensor]:
    """How `loss` answers to the outputs on the rows of p, then of q."""
    n_p = p.x.shape[1]

    def slope(out: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = out.detach().requires_grad_()
            return torch.autograd.grad(loss(leaf[:, :n_p], leaf[:, n_p:], p.w, q.w).sum(), leaf)[0]

    return slope


def train(
    net: BatchedMLP,
    p: MemberRows,
    q: MemberRows,
    stop_p: MemberRows,
    stop_q: MemberRows,
    loss: Loss,
    budget: Budget,
    seeds: Sequence[int],
    loss_slope: LossSlope | None = None,
    judge: Loss | None = None,
) -> Outcome:
    """Minimise `loss` on (p, q), keep the parameters that `judge` likes best on (stop_p, stop_q); moves `net`.

    `loss_slope` is the derivative of `loss` where it is known in closed form; it saves autograd's share of a step.
    `judge` is `loss` itself unless that is no judge: one without a lower bound rewards what it has not seen.
    """
    judge = judge or loss
    batches_p, batches_q = _Batches(p, budget.batch_size, seeds, "p"), _Batches(q, budget.batch_size, seeds, "q")
    total = max(budget.steps, budget.epochs * max(math.ceil(b.n / b.size) for b in (batches_p, batches_q)))
    adam = _Adam(net)
    best = _Best(adam.flat, budget.patience * budget.check_every, total)
    shallow = len(net.weights) == 2
    work = torch.empty(net.members, batches_p.size + batches_q.size, net.weights[0].shape[2]) if shallow else None
    clipped, lived = torch.zeros(net.members), torch.zeros(net.members)

    stop_x, stop_at = torch.cat([stop_p.x, stop_q.x], 1), stop_p.x.shape[1]
    for step in range(total + 1):
        if step % budget.check_every == 0 or step == total:
            with torch.no_grad():
                out = net(stop_x).squeeze(2)
                best.update(judge(out[:, :stop_at], out[:, stop_at:], stop_p.w, stop_q.w), step)
            if step == total or not bool(best.alive.any()):
                break
        if step == 0 or not (batches_p.whole and batches_q.whole):
            batch_p, batch_q = batches_p.next(), batches_q.next()
            x = torch.cat([batch_p.x, batch_q.x], 1)
            slope = loss_slope(batch_p.w, batch_q.w) if loss_slope else _slope(loss, batch_p, batch_q)
        gradient = torch.cat([g.flatten(1) for g in gradients(net, x, slope, work)], 1)
        lived += best.alive
        if budget.gradient_clip is not None:
            factor = (budget.gradient_clip / gradient.norm(dim=1)).clamp_max(1)
            clipped += (factor < 1) & best.alive
            gradient *= factor[:, None]
        adam.step(gradient, budget.learning_rate * (1 + math.cos(math.pi * step / total)) / 2, budget.weight_decay)
    adam.flat.copy_(best.kept)
    with torch.no_grad():
        out = net(stop_x).squeeze(2)
        held_out = loss(out[:, :stop_at], out[:, stop_at:], stop_p.w, stop_q.w)
    # Stopped by patience, or little gained in the second half; what overflowed on the way has not converged. A share of
    # the gain, because a learning rate that is far too small also gives a flat curve.
    gain, late = best.start - best.loss, best.half_way - best.loss
    settled = ~best.alive | (late < budget.tolerance * gain + NOISE)
    return Outcome(held_out, best.loss, best.step, settled & best.latest.isfinite(), clipped / lived.clamp_min(1), step)
