"""Dropout whose masks follow from a seed and from how often it was called, and from nothing else.

torch's own draws from the global generator, which this package leaves alone, and a training that is saved in its middle
could not go on with the same masks. Here the count of calls is a buffer: it is saved with the network, and the next
mask is the one that would have come.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vestige.core import rng


class Dropout(nn.Module):
    """In training each entry is zero with probability `p` and divided by 1 - p otherwise; at test time it is itself."""

    calls: Tensor

    def __init__(self, p: float, *, seed: int, name: str | int = 0) -> None:
        super().__init__()
        self.p, self.seed, self.name = p, seed, name
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """`x`, thinned out in training."""
        if not self.training or self.p == 0:
            return x
        generator = rng.fork(self.seed, "dropout", self.name, int(self.calls))
        self.calls += 1
        mask = torch.empty_like(x).bernoulli_(1 - self.p, generator=generator)
        return x * mask.div_(1 - self.p)
