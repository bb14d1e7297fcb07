"""ResNet18 (He et al. 2016) for small images: CIFAR-100 in twenty tasks, RWalk Table 2.

A 3 x 3 convolution instead of the 7 x 7 and the pooling of the original, four stages of two blocks of two convolutions,
batch norm after each, the mean over the image, one linear layer. `width` is the number of filters of the first stage,
doubled at each: 64 is He et al.'s; 20 is the "reduced" ResNet18 of Lopez-Paz and Ranzato, whose setting Table 2 follows
and which RWalk's authors use in their code ("three times fewer feature maps").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.nets.classifier import Classifier
from vestige.nets.convolutional import Images, image_shape


def _convolution(a: int, b: int, kernel: int, stride: int) -> nn.Sequential:
    padding = kernel // 2
    return nn.Sequential(nn.Conv2d(a, b, kernel, stride, padding, bias=False), nn.BatchNorm2d(b))


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
            layers: list[nn.Module] = [Images(), _convolution(channels, width, 3, 1), nn.ReLU()]
            channels = width
            for stage in range(4):
                wide = width * 2**stage
                layers += [Block(channels, wide, 1 if stage == 0 else 2), Block(wide, wide, 1)]
                channels = wide
            body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
            super().__init__(body, nn.Linear(channels, n_outputs))
