"""Convolutional networks for small images.

`Table4`: RWalk Table 4, for CIFAR-100 in ten tasks. Twice two 3 x 3 convolutions with ReLU, then 2 x 2 max pooling and
dropout 0.5; 32 filters, then 64; one linear layer to the classes. The table does not say how borders are padded: as in
the authors' code a convolution keeps the size of the image ("same"), so 32 x 32 pixels become 64 x 8 x 8 = 4096
features. Their code rounds an odd side up when it pools, and so do we.

`Conv`: Farquhar and Gal C.8.1, for digits, without its dropout. Two 3 x 3 convolutions with ReLU, 32 filters then 64, a
2 x 2 max pooling layer and two fully connected ones, of which the second is the head. The paper leaves open how borders
are padded (here not at all) and how wide the first of the two is (`hidden`, which may also name more than one).

`StridedConv`: the classifier of CDRE App. A.1. Two convolutions of 4 x 4 with stride 2, then dense layers, then one
logit a class. Filters [4,4,c,64] and [4,4,64,128], zero padding as TensorFlow's SAME, ReLU after every hidden layer,
batch normalisation on the second convolution and on the first dense layer. A 28 x 28 image has 7 x 7 x 128 = 6272
numbers after the convolutions. The appendix lists dense layers of [6272, 64] units: read literally, a matrix of 6272 x
6272 stands between the convolutions and the 64 features, 99 % of all weights; read as the widths in and out of one
layer, it does not. `dense=(6272, 64)` is the first reading and `dense=(64,)` the second.

`ResNet18` (He et al. 2016): CIFAR-100 in twenty tasks, RWalk Table 2. A 3 x 3 convolution instead of the 7 x 7 and the
pooling of the original, four stages of two blocks of two convolutions, batch norm after each, the mean over the image,
one linear layer. `width` is the number of filters of the first stage, doubled at each: 64 is He et al.'s; 20 is the
"reduced" ResNet18 of Lopez-Paz and Ranzato, whose setting Table 2 follows and which RWalk's authors use in their code
("three times fewer feature maps").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import refuse
from vestige.nets.classifier import Classifier, Dropout, dense


class Images(nn.Module):
    """Inputs as images with channels: (n, h, w) becomes (n, 1, h, w).

    `channels_last` keeps the channels of a pixel beside each other in memory, and so does every layer after it: on a
    CPU a step takes a fifth to a quarter less time (`python -m benchmarks convolutions`).
    """

    def __init__(self, *, channels_last: bool = False) -> None:
        super().__init__()
        self.memory_format = torch.channels_last if channels_last else torch.preserve_format

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n c h w"]:
        """The same pixels."""
        images = x.unsqueeze(1) if x.ndim == 3 else x
        return images.to(memory_format=self.memory_format)


def image_shape(input_shape: Sequence[int], owner: str) -> tuple[int, int, int]:
    """(channels, height, width) of inputs that are images; others are refused."""
    if len(input_shape) not in (2, 3):
        refuse("input_shape", owner, "(h, w) or (c, h, w)", tuple(input_shape))
    c, h, w = (1, *input_shape) if len(input_shape) == 2 else input_shape
    return c, h, w


CLASSIFIER_FILTERS = (32, 64)  # of Table4 and Conv


class Table4(Classifier):
    """Four convolutions and a linear layer."""

    rows_at_once: ClassVar[int] = 256

    def __init__(
        self, input_shape: Sequence[int], n_outputs: int, *, seed: int, filters: tuple[int, int] = CLASSIFIER_FILTERS
    ) -> None:
        channels, h, w = image_shape(input_shape, "Table4")
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [Images(channels_last=True)]
            for i, width in enumerate(filters):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
                layers += [nn.MaxPool2d(2, ceil_mode=True), Dropout(0.5, seed=seed, name=i)]
                channels, h, w = width, -(-h // 2), -(-w // 2)
            body = nn.Sequential(*layers, nn.Flatten())
            super().__init__(body, nn.Linear(channels * h * w, n_outputs))


class Conv(Classifier):
    """Two convolutions, one pooling layer, fully connected layers."""

    rows_at_once: ClassVar[int] = 256

    def __init__(self, input_shape: Sequence[int], hidden: Sequence[int], n_outputs: int, *, seed: int) -> None:
        channels, h, w = image_shape(input_shape, "Conv")
        if min(h, w) < 6:
            refuse("input_shape", "Conv", "images of 6 x 6 pixels at least", tuple(input_shape))
        first, second = CLASSIFIER_FILTERS
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [Images(channels_last=True), nn.Conv2d(channels, first, 3), nn.ReLU()]
            layers += [nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
            widths = [second * ((h - 4) // 2) * ((w - 4) // 2), *hidden]
            super().__init__(nn.Sequential(*layers, *dense(widths)), nn.Linear(widths[-1], n_outputs))


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


class StridedConv(Classifier):
    """Two convolutions and dense layers; a whole head that may be widened."""

    def __init__(self, image: tuple[int, int, int], n_classes: int, *, dense: Sequence[int] = (64,), seed: int) -> None:
        channels, height, width = image
        flat = FILTERS[1] * -(-height // STRIDE**2) * -(-width // STRIDE**2)
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [SameConv(channels, FILTERS[0]), nn.ReLU()]
            layers += [SameConv(*FILTERS), nn.BatchNorm2d(FILTERS[1]), nn.ReLU(), nn.Flatten()]
            for i, (a, b) in enumerate(pairwise([flat, *dense])):
                layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if i == 0 else []), nn.ReLU()]
            super().__init__(nn.Sequential(*layers), nn.Linear(dense[-1], n_classes))

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


def _convolution(a: int, b: int, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(b))


class Block(nn.Module):
    """Two convolutions beside a way around them, which is projected where the shape changes."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = _convolution(a, b, 3, stride), _convolution(b, b, 3, 1)
        self.around = nn.Identity() if a == b and stride == 1 else _convolution(a, b, 1, stride)

    def forward(self, x: Float[Tensor, "n a h w"]) -> Float[Tensor, "n b h2 w2"]:
        """relu(f(x) + x)."""
        return functional.relu(self.second(functional.relu(self.first(x))) + self.around(x))


class ResNet18(Classifier):
    """Eight blocks; features are the means over the image of the last stage."""

    rows_at_once: ClassVar[int] = 64

    def __init__(self, input_shape: Sequence[int], n_outputs: int, *, seed: int, width: int = 64) -> None:
        channels, _, _ = image_shape(input_shape, "ResNet18")
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [Images(channels_last=True), _convolution(channels, width, 3, 1), nn.ReLU()]
            channels = width
            for stage in range(4):
                wide = width * 2**stage
                layers += [Block(channels, wide, 1 if stage == 0 else 2), Block(wide, wide, 1)]
                channels = wide
            body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
            super().__init__(body, nn.Linear(channels, n_outputs))
