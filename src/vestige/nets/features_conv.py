"""The classifier of CDRE App. A.1: two convolutions of 4 x 4 with stride 2, then dense layers, then one logit a class.

Filters [4,4,c,64] and [4,4,64,128], zero padding as TensorFlow's SAME, ReLU after every hidden layer, batch
normalisation on the second convolution and on the first dense layer. A 28 x 28 image has 7 x 7 x 128 = 6272 numbers
after the convolutions. The appendix lists dense layers of [6272, 64] units: read literally, a matrix of 6272 x 6272
stands between the convolutions and the 64 features, 99 % of all weights; read as the widths in and out of one layer,
it does not. `dense=(6272, 64)` is the first reading and `dense=(64,)` the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng

KERNEL, STRIDE = 4, 2
FILTERS = (64, 128)


def same_padding(size: int) -> tuple[int, int]:
    """Zeros before and after an axis so that it comes out at ceil(size / stride)."""
    total = max((-(-size // STRIDE) - 1) * STRIDE + KERNEL - size, 0)
    return total // 2, total - total // 2


class SameConv(nn.Conv2d):
    """4 x 4 convolution of stride 2 with TensorFlow's SAME padding."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, KERNEL, STRIDE)

    def forward(self, input: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k h2 w2"]:
        """Pad, then convolve."""
        padding = (*same_padding(input.shape[3]), *same_padding(input.shape[2]))
        return super().forward(functional.pad(input, padding))


class TwoConv(nn.Module):
    """Images to logits; `features` stops at the last hidden layer."""

    def __init__(self, image: tuple[int, int, int], n_classes: int, *, dense: Sequence[int] = (64,), seed: int) -> None:
        super().__init__()
        channels, height, width = image
        flat = FILTERS[1] * -(-height // STRIDE**2) * -(-width // STRIDE**2)
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [SameConv(channels, FILTERS[0]), nn.ReLU()]
            layers += [SameConv(*FILTERS), nn.BatchNorm2d(FILTERS[1]), nn.ReLU(), nn.Flatten()]
            for i, (a, b) in enumerate(pairwise([flat, *dense])):
                layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if i == 0 else []), nn.ReLU()]
            self.body = nn.Sequential(*layers)
            self.head = nn.Linear(dense[-1], n_classes)

    def features(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n f"]:
        """Activations of the last hidden layer."""
        return self.body(x)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k"]:
        """Logits."""
        return self.head(self.body(x))

    def widen(self, n_classes: int, *, seed: int) -> None:
        """Room for more classes: new rows in the head, the old ones as they were."""
        old = self.head
        if n_classes <= old.out_features:
            return
        with rng.guard(seed, "widen"):
            self.head = nn.Linear(old.in_features, n_classes)
        with torch.no_grad():
            self.head.weight[: old.out_features] = old.weight
            self.head.bias[: old.out_features] = old.bias
