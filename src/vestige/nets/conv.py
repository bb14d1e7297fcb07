"""The convolutional network of Farquhar and Gal C.8.1, for digits, without its dropout.

Two 3 x 3 convolutions with ReLU, 32 filters then 64, a 2 x 2 max pooling layer and two fully connected ones, of which
the second is the head. The paper leaves open how borders are padded (here not at all) and how wide the first of the two
is (`hidden`, which may also name more than one).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from torch import nn

from vestige.core import rng
from vestige.core.checks import refuse
from vestige.nets.classifier import Classifier
from vestige.nets.convolutional import Images, image_shape


class Conv(Classifier):
    """Two convolutions, one pooling layer, fully connected layers."""

    rows_at_once: ClassVar[int] = 256

    def __init__(
        self,
        input_shape: Sequence[int],
        hidden: Sequence[int],
        n_outputs: int,
        *,
        seed: int,
        filters: tuple[int, int] = (32, 64),
    ) -> None:
        channels, h, w = image_shape(input_shape, "Conv")
        if min(h, w) < 6:
            refuse("input_shape", "Conv", "images of 6 x 6 pixels at least", tuple(input_shape))
        first, second = filters
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [Images(), nn.Conv2d(channels, first, 3), nn.ReLU()]
            layers += [nn.Conv2d(first, second, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
            widths = [second * ((h - 4) // 2) * ((w - 4) // 2), *hidden]
            for a, b in pairwise(widths):
                layers += [nn.Linear(a, b), nn.ReLU()]
            super().__init__(nn.Sequential(*layers), nn.Linear(widths[-1], n_outputs))
