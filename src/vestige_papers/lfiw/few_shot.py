"""The network of meta-learning on Omniglot (Vinyals et al. 2016), which LFIW App. C.4 trains for classes and weights.

Four blocks of a 3 x 3 convolution with 64 filters, batch normalisation, a ReLU and 2 x 2 max pooling, then the output
layer: 28 x 28 pixels become 64 features. Convolutions keep the size of the image. Images too small for so many blocks
take fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vestige.core import rng
from vestige.core.checks import refuse
from vestige.nets.classifier import Classifier
from vestige.nets.convolutional import image_shape


class ChannelsLast(nn.Module):
    """Images (n, h, w) or (n, c, h, w) laid out channels last, in which convolutions cost about half on a CPU."""

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n c h w"]:
        """The same pixels."""
        x = x.unsqueeze(1) if x.ndim == 3 else x
        return x.contiguous(memory_format=torch.channels_last)


class FewShot(Classifier):
    """Blocks of convolution, normalisation, ReLU and pooling, and a linear layer."""

    rows_at_once: ClassVar[int] = 512

    def __init__(
        self, input_shape: Sequence[int], n_outputs: int, *, seed: int, filters: int = 64, blocks: int = 4
    ) -> None:
        channels, h, w = image_shape(input_shape, "FewShot")
        if min(h, w) < 2**blocks:
            refuse("input_shape", "FewShot", f"images of {2**blocks} x {2**blocks} pixels at least", tuple(input_shape))
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [ChannelsLast()]
            for _ in range(blocks):
                layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]
                layers += [nn.MaxPool2d(2)]
                channels = filters
            features = filters * (h // 2**blocks) * (w // 2**blocks)
            super().__init__(nn.Sequential(*layers, nn.Flatten()), nn.Linear(features, n_outputs))
