"""The convolutional network of RWalk Table 4, for CIFAR-100 in ten tasks.

Twice two 3 x 3 convolutions with ReLU, then 2 x 2 max pooling and dropout 0.5; 32 filters, then 64; one linear layer to
the classes. The table does not say how borders are padded: as in the authors' code a convolution keeps the size of the
image ("same"), so 32 x 32 pixels become 64 x 8 x 8 = 4096 features. Their code rounds an odd side up when it pools, and
so do we.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from vestige.core import rng
from vestige.core.checks import refuse
from vestige.nets.classifier import Classifier
from vestige.nets.dropout import Dropout


class Images(nn.Module):
    """Inputs as images with channels: (n, h, w) becomes (n, 1, h, w)."""

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n c h w"]:
        """The same pixels."""
        return x.unsqueeze(1) if x.ndim == 3 else x


def image_shape(input_shape: Sequence[int], owner: str) -> tuple[int, int, int]:
    """(channels, height, width) of inputs that are images; others are refused."""
    if len(input_shape) not in (2, 3):
        refuse("input_shape", owner, "(h, w) or (c, h, w)", tuple(input_shape))
    c, h, w = (1, *input_shape) if len(input_shape) == 2 else input_shape
    return c, h, w


class Table4(Classifier):
    """Four convolutions and a linear layer."""

    rows_at_once: ClassVar[int] = 256

    def __init__(
        self,
        input_shape: Sequence[int],
        n_outputs: int,
        *,
        seed: int,
        filters: tuple[int, int] = (32, 64),
        dropout: float = 0.5,
    ) -> None:
        channels, h, w = image_shape(input_shape, "Table4")
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [Images()]
            for i, width in enumerate(filters):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
                layers += [nn.MaxPool2d(2, ceil_mode=True), Dropout(dropout, seed=seed, name=i)]
                channels, h, w = width, -(-h // 2), -(-w // 2)
            body = nn.Sequential(*layers, nn.Flatten())
            super().__init__(body, nn.Linear(channels * h * w, n_outputs))
