"""Batched ratio networks: samples on their way in, training with any loss, and the way back to log-ratios.

A member has its own sample, its own standardisation and its own split into rows for training, for early stopping and,
on request, rows kept aside. Weights say how often a row counts; a bootstrap is a set of weights, so a row is never
on both sides of a split.

Training is Adam on minibatches by weight, with early stopping on held-out loss. Every member has its own rows, its own
order of minibatches and its own best step, so that a member trained among others ends where it would end alone. The
learning rate falls along a cosine to zero over the whole budget.

Weighted rows are drawn by their weight: an epoch is a shuffled systematic resample, which with equal weights is a
permutation, and every minibatch is then an even sample. A side no larger than a minibatch is used whole, with its
weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.core import checks, rng
from vestige.nets import training
from vestige.nets.batched import BatchedMLP, Slope, gradients
from vestige.nets.training import Best, MemberAdam, systematic
from vestige.ratios.base import Sample
from vestige.ratios.standardise import Standardiser, mixture_standardiser

# Hidden layers of about this many numbers stay in the cache; larger blocks of members are slower, not faster.
BLOCK_CELLS = 2**20
# Gains of the held-out loss below this, in nats, say nothing about convergence.
NOISE = 1e-4
# (out_p, out_q, w_p, w_q) -> one loss a member; see `losses`.
Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# (w_p, w_q) -> the derivative of the loss, as a function of outputs on p and q side by side.
LossSlope = Callable[[Tensor, Tensor], Slope]


@dataclass(frozen=True)
class MemberRows:
    """The rows of p, or of q, of every member, in float32; weights sum to one in each row."""

    x: Float[Tensor, "m n d"]
    w: Float[Tensor, "m n"]


@dataclass(frozen=True)
class Prepared:
    """A sample with its standardisation and its rows by use: training, early stopping, and kept aside if asked for."""

    sample: Sample
    standardise: Standardiser
    p_rows: list[Tensor]
    q_rows: list[Tensor]
    clipped: float  # the share of rows that the clip of the standardisation changed


def split(w: Float[Tensor, " n"], shares: Sequence[float], owner: str, generator: torch.Generator) -> list[Tensor]:
    """Random disjoint rows: what is left over first, then `shares` of the whole. Each part has some weight."""
    order = torch.randperm(len(w), generator=generator)
    sizes = [max(1, round(share * len(w))) for share in shares]
    sizes = [len(w) - sum(sizes), *sizes]
    heavy = order[w[order] > 0][: len(sizes)]
    if len(heavy) < len(sizes) or sizes[0] < 1:
        checks.refuse("p and q", owner, f"at least {len(sizes)} samples of positive weight each", len(heavy))
    light = order[~torch.isin(order, heavy)].split([size - 1 for size in sizes])
    return [torch.cat([heavy[i : i + 1], rows]) for i, rows in enumerate(light)]


def reach(n: int, rows: float = 5.0) -> float:
    """Deviations beyond which a normal sample of `n` has `rows` rows on each side; one at the least."""
    return max(1.0, -math.sqrt(2) * float(torch.erfinv(torch.tensor(min(2 * rows / n, 1.0) - 1, dtype=torch.float64))))


def prepare(
    sample: Sample, seed: int, *, p_share: float, shares: Sequence[float], floor: float, clip: float | None, owner: str
) -> Prepared:
    """Standardise by the mixture in which p has the mass `p_share`, and split both."""
    standardise = mixture_standardiser(sample, p_share=p_share, floor=floor, clip=clip)
    p_rows = split(sample.w_p, shares, owner, rng.fork(seed, "split", "p"))
    q_rows = split(sample.w_q, shares, owner, rng.fork(seed, "split", "q"))
    return Prepared(sample, standardise, p_rows, q_rows, standardise.clipped(torch.cat([sample.p, sample.q])))


def feature_map(z: Float[Tensor, "*m n d"], quadratic: bool) -> Float[Tensor, "*m n k"]:
    """z, or [z, (z^2 - 1) / sqrt 2], whose halves both have unit variance under a standard normal."""
    return torch.cat([z, (z.square() - 1) / math.sqrt(2)], -1) if quadratic else z


def sides(members: Sequence[Prepared], part: int, quadratic: bool) -> tuple[MemberRows, MemberRows]:
    """The rows of p and of q in one part of the split, of all members, as a batched network takes them."""

    def joined(sides: Iterable[tuple[Tensor, Tensor]]) -> MemberRows:
        x, w = zip(*((rows, weights / weights.sum()) for rows, weights in sides), strict=True)
        return MemberRows(feature_map(torch.stack(x).to(torch.float32), quadratic), torch.stack(w).to(torch.float32))

    seen = [(m.standardise, m.sample.rows(m.p_rows[part], m.q_rows[part])) for m in members]
    return joined((z(s.p), s.w_p) for z, s in seen), joined((z(s.q), s.w_q) for z, s in seen)


@torch.no_grad()
def evaluate(net: BatchedMLP, state: dict[str, Tensor], x: Float[Tensor, "*m n d"]) -> Float[Tensor, "m n"]:
    """Outputs of every member on one set (n, d), or on one each (m, n, d), in float64 and in pieces of bounded size.

    float64, so that what a row gives hardly depends on the shape of the call.
    """
    shift, scale, clip = state["shift"].unsqueeze(1), state["scale"].unsqueeze(1), state["clip"][:, None, None]
    members, n = len(shift), x.shape[-2]
    width = max(w.shape[-1] for w in net.weights)
    rows = max(1, min(n, BLOCK_CELLS // width))
    block = max(1, BLOCK_CELLS // (rows * width))
    out = torch.empty(members, n, dtype=torch.float64)
    for i in range(0, members, block):
        chosen = slice(i, i + block)
        part = net.part(chosen, torch.float64)
        for j in range(0, n, rows):
            seen = x[j : j + rows] if x.ndim == 2 else x[chosen, j : j + rows]
            z = ((seen - shift[chosen]) / scale[chosen]).clamp(-clip[chosen], clip[chosen])
            out[chosen, j : j + rows] = part(feature_map(z, quadratic=net.skip is not None)).squeeze(2)
    return out


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
            self.weights = side.w.to(torch.float64)
            self.even = torch.full((len(seeds), self.size), 1 / self.size)

    def next(self) -> MemberRows:
        if self.whole:
            return self.side
        if self.at + self.size > self.n:
            epoch = [systematic(w, self.n, generator=s) for w, s in zip(self.weights, self.streams, strict=True)]
            self.order, self.at = torch.stack(epoch), 0
        rows = self.order[:, self.at : self.at + self.size]
        self.at += self.size
        return MemberRows(self.side.x.gather(1, rows.unsqueeze(2).expand(-1, -1, self.side.x.shape[2])), self.even)


def _slope(loss: Loss, p: MemberRows, q: MemberRows) -> Slope:
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
    adam = MemberAdam(net)
    best = Best([adam.flat], budget.patience * budget.check_every)
    shallow = len(net.weights) == 2
    work = torch.empty(net.members, batches_p.size + batches_q.size, net.weights[0].shape[2]) if shallow else None
    clipped, lived = torch.zeros(net.members), torch.zeros(net.members)
    stop_x, stop_at = torch.cat([stop_p.x, stop_q.x], 1), stop_p.x.shape[1]
    first_half = []  # the best losses of its checks

    @torch.no_grad()
    def held_out(by: Loss) -> Tensor:
        out = net(stop_x).squeeze(2)
        return by(out[:, :stop_at], out[:, stop_at:], stop_p.w, stop_q.w)

    def check(step: int) -> bool:
        going = best.update(held_out(judge), step)
        if step * 2 <= total:
            first_half.append(best.loss)
        return going

    def drawn() -> tuple[Tensor, Slope]:
        batch_p, batch_q = batches_p.next(), batches_q.next()
        slope = loss_slope(batch_p.w, batch_q.w) if loss_slope else _slope(loss, batch_p, batch_q)
        return torch.cat([batch_p.x, batch_q.x], 1), slope

    always = drawn() if batches_p.whole and batches_q.whole else None

    def descend(step: int) -> None:
        x, slope = always or drawn()
        gradient = torch.cat([g.flatten(1) for g in gradients(net, x, slope, work)], 1)
        lived.add_(best.alive)
        if budget.gradient_clip is not None:
            factor = (budget.gradient_clip / gradient.norm(dim=1)).clamp_max(1)
            clipped.add_((factor < 1) & best.alive)
            gradient *= factor[:, None]
        adam.step(gradient, budget.learning_rate * (1 + math.cos(math.pi * step / total)) / 2, budget.weight_decay)

    check(0)
    start = best.latest
    steps = training.train(descend, total, check_every=budget.check_every, check=check)
    best.restore()
    # Stopped by patience, or little gained in the second half; what overflowed on the way has not converged. A share of
    # the gain, because a learning rate that is far too small also gives a flat curve.
    gain, late = start - best.loss, first_half[-1] - best.loss
    settled = (~best.alive | (late < budget.tolerance * gain + NOISE)) & best.latest.isfinite()
    return Outcome(held_out(loss), best.loss, best.step, settled, clipped / lived.clamp_min(1), steps)
