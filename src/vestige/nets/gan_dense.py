"""Small dense networks of a conditional GAN: noise and a condition to a row, a row and a condition to one number.

The condition enters both as a one-hot row beside the input (Mirza and Osindero 2014). In the generator it also gates
the hidden units (see `gated_vae`), so that it cannot be ignored; in the critic it may also choose the last layer's
weights, as a projection: those of all conditions plus the condition's own, which begin at zero (Miyato and Koyama 2018,
Eq. 3).

The generator normalises every hidden layer over the batch. In testing mode it does so with running statistics of the
training batches, in which every condition has its share: a sample of one condition does not depend on what else is
drawn with it. The critic has no normalisation: the penalty on its gradient is defined row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.nets.gated_vae import gates

SLOPE = 0.2  # of the leaky ReLU below zero


def beside(x: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], count: int) -> Float[Tensor, "n e"]:
    """`x` with the one-hot row of each condition, one of `count`, to its right."""
    return torch.cat([x, functional.one_hot(conditions, count).to(x.dtype)], 1)


class Judgement(nn.Module):
    """Features and conditions to one number each, with a layer for all and, with `projection`, one a condition."""

    def __init__(self, width: int, n_conditions: int, projection: bool) -> None:
        super().__init__()
        self.shared = nn.Linear(width, 1)
        self.own = nn.Parameter(torch.zeros(n_conditions, width)) if projection else None

    def forward(self, h: Float[Tensor, "n w"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
        """(shared + own of the condition) . h + bias."""
        out = self.shared(h).squeeze(1)
        return out if self.own is None else out + (self.own[conditions] * h).sum(1)


class DenseGenerator(nn.Module):
    """Noise and conditions to rows, in (0, 1) where `bounded`."""

    def __init__(
        self,
        n_codes: int,
        n_conditions: int,
        hidden: Sequence[int],
        n_outputs: int,
        *,
        keep: float,
        bounded: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.n_conditions, self.bounded = n_conditions, bounded
        widths = [n_codes + n_conditions, *hidden]
        with rng.guard(seed, "init"):
            self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
            self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in hidden)
            self.last = nn.Linear(widths[-1], n_outputs)
        generator = rng.fork(seed, "gates")
        for i, width in enumerate(hidden):
            self.register_buffer(f"gates_{i}", gates(n_conditions, width, keep, generator))

    def forward(self, z: Float[Tensor, "n z"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """One row for each row of noise."""
        h = beside(z, conditions, self.n_conditions)
        for i, (layer, norm) in enumerate(zip(self.hidden, self.norms, strict=True)):
            h = functional.leaky_relu(norm(layer(h)), SLOPE) * self.get_buffer(f"gates_{i}")[conditions]
        out: Tensor = self.last(h)
        return out.sigmoid() if self.bounded else out


class DenseCritic(nn.Module):
    """Rows and their conditions to one number each, unbounded."""

    def __init__(self, n_inputs: int, n_conditions: int, hidden: Sequence[int], *, projection: bool, seed: int) -> None:
        super().__init__()
        self.n_conditions = n_conditions
        widths = [n_inputs + n_conditions, *hidden]
        with rng.guard(seed, "init"):
            self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
            self.last = Judgement(widths[-1], n_conditions, projection)

    def forward(self, x: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
        """One number for each row."""
        h = beside(x, conditions, self.n_conditions)
        for layer in self.hidden:
            h = functional.leaky_relu(layer(h), SLOPE)
        return self.last(h, conditions)
