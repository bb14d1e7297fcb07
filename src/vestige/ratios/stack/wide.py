"""The stack's wide networks: MLPs on tame coordinates (`marginals`), one a fold, trained as one batched product.

AdamW over one cycle of the rate (Smith 2018); an eighth of each fold's training rows decides which of the parameters on
the way are kept, and ends the training where it has found nothing better for a quarter of the steps. The activation is
hardswish, which is as good as SiLU here at half of the time. The gradient is written out as in `nets`. Each batch holds
as many rows of p as of q, drawn by weight, so the logit is log p/q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import hardswish, softplus

from vestige.ratios.stack.loop import FlatAdam, batches, views

VALIDATION = 8  # one row in so many of a fold's training rows is left to choose the parameters by
LOOKS = 40  # how often they are looked at
PEAK = 0.25  # of the steps until the rate is at its largest
PATIENCE = 0.25  # of the steps, without a better loss in any fold, after which training ends
ADAM_SECOND = 0.99
ROWS_AT_ONCE = 8192  # of a prediction


@dataclass(frozen=True)
class WideSchedule:
    """What the networks are and how they are trained; `scale` multiplies the first layer's initial weights."""

    hidden: tuple[int, ...]
    learning_rate: float
    scale: float
    epochs: int
    decay: float = 1e-2
    batch_size: int = 128  # of p, and as many of q
    min_steps: int = 150
    max_steps: int = 2000

    def rate_at(self, step: int, steps: int) -> float:
        """A cosine up to the learning rate and a cosine down to zero."""
        t = step / steps
        if t < PEAK:
            return self.learning_rate * (0.52 - 0.48 * math.cos(math.pi * t / PEAK))
        return self.learning_rate * (1 + math.cos(math.pi * (t - PEAK) / (1 - PEAK))) / 2


@dataclass(frozen=True, eq=False)
class WideNets:
    """A network a fold: weights (folds, in, out) and biases (folds, 1, out) of each layer."""

    weights: list[Tensor]
    biases: list[Tensor]

    @classmethod
    def initial(cls, folds: int, width: int, schedule: WideSchedule, *, generator: torch.Generator) -> WideNets:
        """Networks that all say log-ratio 0."""
        sizes = [width, *schedule.hidden, 1]
        weights, biases = [], []
        for i in range(len(sizes) - 1):
            bound = (schedule.scale if i == 0 else 1.0) / math.sqrt(sizes[i]) if i < len(sizes) - 2 else 0.0
            weights.append((2 * torch.rand(folds, sizes[i], sizes[i + 1], generator=generator) - 1) * bound)
            biases.append((2 * torch.rand(folds, 1, sizes[i + 1], generator=generator) - 1) * bound)
        return cls(weights, biases)

    def tensors(self) -> list[Tensor]:
        """Every parameter."""
        return [*self.weights, *self.biases]

    def layers(self, u: Float[Tensor, "folds n d"]) -> tuple[list[Tensor], list[Tensor]]:
        """What each layer takes in, and what each gives before the activation."""
        taken, given = [u], []
        for w, b in zip(self.weights, self.biases, strict=True):
            given.append(torch.baddbmm(b, taken[-1], w))
            taken.append(hardswish(given[-1]))
        return taken[:-1], given

    def predict(self, u: Float[Tensor, "n d"]) -> Float[Tensor, "folds n"]:
        """Logits of every fold, in float64 so that a row's value does not depend on the rows beside it."""
        exact = WideNets([w.double() for w in self.weights], [b.double() for b in self.biases])
        parts = [part.expand(len(self.weights[0]), -1, -1) for part in u.double().split(ROWS_AT_ONCE)]
        return torch.cat([exact.layers(part)[1][-1][:, :, 0] for part in parts], 1)

    def write_gradient(self, u: Tensor, sign: Float[Tensor, " n"], into: list[Tensor]) -> None:
        """The gradient of each fold's mean softplus(-s f), written into tensors shaped as `tensors()`."""
        taken, given = self.layers(u)
        s, depth = sign[:, None], len(self.weights)
        back = torch.sigmoid(given[-1] * -s).mul_(-s / len(sign))
        for i in range(depth - 1, -1, -1):
            torch.bmm(taken[i].mT, back, out=into[i])
            torch.sum(back, 1, keepdim=True, out=into[depth + i])
            if i:
                back = torch.ops.aten.hardswish_backward(torch.bmm(back, self.weights[i].mT), given[i - 1])


@dataclass(frozen=True)
class Split:
    """Each fold's training weights without the rows that are left to choose by, and those rows."""

    trained: Float[Tensor, "folds n"]
    judges: Int[Tensor, "folds m"]
    sign: Float[Tensor, " m"]
    share: Float[Tensor, "folds m"]  # weights that sum to one half on either side

    @classmethod
    def of(cls, trained: Float[Tensor, "folds n"], n_p: int, *, generator: torch.Generator) -> Split:
        """One in VALIDATION of the rows that count, of either side, at random."""
        trained, judges, sign = trained.clone(), [], []
        for start, stop, s in ((0, n_p, 1.0), (n_p, trained.shape[1], -1.0)):
            counts = [w[start:stop].nonzero()[:, 0] + start for w in trained]
            m = max(1, min(map(len, counts)) // VALIDATION)
            judges.append(torch.stack([rows[torch.randperm(len(rows), generator=generator)[:m]] for rows in counts]))
            sign.append(torch.full((m,), s))
        shares = []
        for rows in judges:
            mass = trained.gather(1, rows)
            shares.append(mass / mass.sum(1, keepdim=True) / 2)
            if rows.shape[1] > 1:  # a side of a handful of rows trains on what it is judged by
                trained.scatter_(1, rows, 0.0)
        return cls(trained, torch.cat(judges, 1), torch.cat(sign), torch.cat(shares, 1).float())


def train_wide(
    u: Float[Tensor, "n d"],
    n_p: int,
    weights: Float[Tensor, "folds n"],
    schedule: WideSchedule,
    *,
    generator: torch.Generator,
) -> WideNets:
    """Networks trained on rows of p (the first `n_p`) and of q, each fold under its own weights."""
    with torch.no_grad():
        u, batch = u.float(), schedule.batch_size
        nets = WideNets.initial(len(weights), u.shape[1], schedule, generator=generator)
        split = Split.of(weights, n_p, generator=generator)
        tensors = nets.tensors()
        decays = [torch.full((len(weights),), schedule.decay * any(t is w for w in nets.weights)) for t in tensors]
        adam = FlatAdam.under(tensors, decays, second=ADAM_SECOND)
        best = adam.flat.clone()
        kept = views(best, tensors)
        least = torch.full((len(weights),), math.inf)
        sign = torch.cat([torch.ones(batch), -torch.ones(batch)])
        rows_seen = max(int((w[side] > 0).sum()) for w in split.trained for side in (slice(0, n_p), slice(n_p, None)))
        per_epoch = max(1, rows_seen // batch)
        steps = min(max(schedule.epochs * per_epoch, schedule.min_steps), schedule.max_steps)
        look, last = max(1, steps // LOOKS), 0
        drawn = batches(split.trained, n_p, per_epoch, batch, generator=generator)
        for step in range(steps):
            nets.write_gradient(u[next(drawn)], sign, adam.slots)
            adam.step(schedule.rate_at(step, steps))
            if (step + 1) % look == 0:
                logit = nets.layers(u[split.judges])[1][-1][:, :, 0]
                loss = (softplus(-split.sign * logit) * split.share).sum(1)
                better = loss < least
                least = torch.where(better, loss, least)
                for t, into in zip(tensors, kept, strict=True):
                    into[better] = t[better]
                last = step if bool(better.any()) else last
                if step - last > PATIENCE * steps:
                    break
        adam.flat.copy_(best)
    return nets
