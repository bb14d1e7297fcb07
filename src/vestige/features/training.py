"""The one training loop of the feature maps: Adam over shuffled batches, weighted rows, weight decay on matrices."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.core import rng
from vestige.core.errors import NotEstimable

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

    `weight_decay` adds (weight_decay / 2) |W|^2 for every weight matrix W, biases and norms left alone.
    """
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    # Adam adds weight_decay * W to the gradient: the derivative of the penalty, inside its normalisation.
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.Adam(groups, lr=learning_rate, fused=True)
    order = rng.fork(seed, "batches")
    n, losses = len(weights), []
    net.train()
    for epoch in range(epochs):
        total = torch.zeros((), dtype=torch.float64)
        for rows in batches(n, batch_size, order):
            weighted = weights[rows] * loss(rows)
            optimizer.zero_grad()
            weighted.mean().backward()
            optimizer.step()
            total += weighted.detach().sum()
        losses.append(float(total) / n)
        if not math.isfinite(losses[-1]):
            raise NotEstimable(
                f"The training of {owner} diverged in epoch {epoch + 1}; the map is as it was. "
                "Samples on the scale of pixels, in [0, 1], and a smaller 'learning_rate' help."
            )
    net.eval()
    return losses
