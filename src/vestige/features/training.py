"""The one training loop of the feature maps: Adam over shuffled batches, weighted rows, L2 on weight matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.core import checks, rng
from vestige.core.errors import NotEstimable

# Row numbers of a batch -> the loss of each.
Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast. `l2` adds (l2 / 2) |W|^2 for every weight matrix W, biases and norms left alone."""

    epochs: int
    batch_size: int
    lr: float
    l2: float

    def check(self, owner: str) -> None:
        """Refuse settings that cannot be used."""
        checks.whole(self.epochs, "epochs", owner, low=1)
        checks.whole(self.batch_size, "batch_size", owner, low=2)
        checks.number(self.lr, "lr", owner, low=0, open_low=True, high=math.inf, open_high=True)
        checks.number(self.l2, "l2", owner, low=0, high=math.inf, open_high=True)


def batches(n: int, size: int, generator: torch.Generator) -> tuple[Int64[Tensor, " _"], ...]:
    """Every row once, shuffled, in batches of at least `size` rows (one batch if there are fewer)."""
    return torch.tensor_split(torch.randperm(n, generator=generator), max(1, n // size))


def train(
    net: nn.Module, loss: Loss, weights: Float[Tensor, " n"], schedule: Schedule, seed: int, owner: str
) -> list[float]:
    """Train `net` in place; returns the weighted mean loss of each epoch, the penalty not counted."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    # Adam's weight_decay adds l2 * W to the gradient: the derivative of the penalty, inside Adam's normalisation.
    groups = [{"params": matrices, "weight_decay": schedule.l2}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.Adam(groups, lr=schedule.lr, fused=True)
    order = rng.fork(seed, "batches")
    n, losses = len(weights), []
    net.train()
    for epoch in range(schedule.epochs):
        total = torch.zeros((), dtype=torch.float64)
        for rows in batches(n, schedule.batch_size, order):
            weighted = weights[rows] * loss(rows)
            optimizer.zero_grad()
            weighted.mean().backward()
            optimizer.step()
            total += weighted.detach().sum()
        losses.append(float(total) / n)
        if not math.isfinite(losses[-1]):
            raise NotEstimable(
                f"The training of {owner} diverged in epoch {epoch + 1}; the map is as it was. "
                "Samples on the scale of pixels, in [0, 1], and a smaller 'lr' help."
            )
    net.eval()
    return losses
