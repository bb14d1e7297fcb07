"""Training of feature maps: Adam over shuffled batches, weighted rows, weight decay on matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.core import NotEstimable, rng
from vestige.nets import training

# Row numbers of a batch -> the loss of each.
Loss = Callable[[Tensor], Tensor]


def batches(n: int, size: int, generator: torch.Generator) -> tuple[Int64[Tensor, " _"], ...]:
    """Every row once, shuffled, in batches of at least `size` rows (one batch if there are fewer)."""
    return torch.tensor_split(torch.randperm(n, generator=generator), max(1, n // size))


def train(
    net: nn.Module,
    loss: Loss,
    weights: Float[Tensor, " n"],
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    seed: int,
    owner: str,
) -> list[float]:
    """Train `net` in place; returns the weighted mean loss of each epoch, the penalty not counted.

    `weight_decay` is as in `vestige.nets.training.adam`.
    """
    n, losses = len(weights), list[float]()
    order = rng.fork(seed, "batches")
    every_batch = chain.from_iterable(batches(n, batch_size, order) for _ in range(epochs))
    total = torch.zeros((), dtype=torch.float64)

    def batch_loss(_: int) -> Tensor:
        rows = next(every_batch)
        weighted = weights[rows] * loss(rows)
        total.add_(weighted.detach().sum())
        return weighted.mean()

    def end_epoch(_: int) -> bool:
        losses.append(float(total) / n)
        total.zero_()
        if not math.isfinite(losses[-1]):
            raise NotEstimable(
                f"The training of {owner} diverged in epoch {len(losses)}; the map is as it was. "
                "Samples on the scale of pixels, in [0, 1], and a smaller 'learning_rate' help."
            )
        return True

    per_epoch = max(1, n // batch_size)
    descend = training.adam(net.train().parameters(), batch_loss, learning_rate, weight_decay=weight_decay)
    training.train(descend, epochs * per_epoch, check_every=per_epoch, check=end_epoch)
    net.eval()
    return losses
