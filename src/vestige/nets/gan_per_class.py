"""The two pairs of networks of Farquhar and Gal C.4 and C.5, which draw the samples of one class and judge them.

Dense (C.4): fully connected layers of 256, 512, 1024 units and one as wide as a sample (784 for MNIST). Convolutional
(C.5): a fully connected layer, then two 5 x 5 convolutions, with 64 channels and with those of the image, a 2 x 2
upsampling before each. Leaky ReLU of slope 0.2 between layers.

What is not printed. Codes are standard normal, 100 wide. The last layer ends in a sigmoid, for pixels in [0, 1], or in
nothing ("linear"), for tables. Behind each leaky ReLU of a maker stands batch normalisation, as is the custom with such
networks, without which short training gives few shapes of each digit. The fully connected layer of the convolutional
one gives `filters` maps of a quarter of the image's sides; sides that four does not divide are rounded up, and the
image is cropped. The judges are the makers' mirror: dense layers of 512 and 256; two 5 x 5 convolutions that halve each
side, then one linear layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.nets.convolutional import image_shape

SLOPE = 0.2  # of the leaky ReLUs
CODES = 100
MOMENTUM = 0.2  # of the running moments, of which short training sees few


def _last(output: str) -> nn.Module:
    return nn.Sigmoid() if output == "sigmoid" else nn.Identity()


class DenseMaker(nn.Module):
    """Codes to flat samples."""

    def __init__(self, widths: Sequence[int], n_columns: int, output: str) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in pairwise([CODES, *widths]):
            layers += [nn.Linear(a, b), nn.LeakyReLU(SLOPE), nn.BatchNorm1d(b, momentum=MOMENTUM)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], n_columns), _last(output))

    def forward(self, z: Float[Tensor, "n codes"]) -> Float[Tensor, "n d"]:
        """Samples as rows."""
        found: Tensor = self.layers(z)
        return found


class DenseJudge(nn.Module):
    """The logit of a flat sample being real."""

    def __init__(self, widths: Sequence[int], n_columns: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for a, b in pairwise([n_columns, *widths]):
            layers += [nn.Linear(a, b), nn.LeakyReLU(SLOPE)]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Logits."""
        found: Tensor = self.layers(x)
        return found.squeeze(1)


class UpConv(nn.Conv2d):
    """2 x 2 upsampling and a 5 x 5 convolution of what comes out, with the same weights and less work.

    A pixel upsampled to four is read by the four outputs above it through 3 x 3 sums of the 5 x 5 weights: one 3 x 3
    convolution of the coarse maps gives all four, 9 products each instead of 25.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 5)
        # folds[a, m, k]: output 2 r + a reads fine row 2 r + a + k - 2, which is coarse row r + m - 1.
        folds = torch.tensor([[[(a + k) // 2 == m for k in range(5)] for m in range(3)] for a in range(2)])
        self.register_buffer("folds", folds.float(), persistent=False)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n o h2 w2"]:
        """Twice as high and wide."""
        folds = self.get_buffer("folds")
        weight = torch.einsum("oikl,amk,bnl->oabimn", self.weight, folds, folds).flatten(0, 2)
        assert self.bias is not None, "it was made with one"
        coarse = functional.conv2d(x, weight, self.bias.repeat_interleave(4), padding=1)
        return functional.pixel_shuffle(coarse, 2)


class ConvMaker(nn.Module):
    """Codes to images, flat."""

    def __init__(self, shape: Sequence[int], filters: Sequence[int], output: str) -> None:
        super().__init__()
        channels, self.height, self.width = image_shape(shape, "ConvMaker")
        coarse, fine = filters
        h, w = -(-self.height // 4), -(-self.width // 4)
        self.layers = nn.Sequential(
            nn.Linear(CODES, coarse * h * w),
            nn.LeakyReLU(SLOPE),
            nn.Unflatten(1, (coarse, h, w)),
            nn.BatchNorm2d(coarse, momentum=MOMENTUM),
            UpConv(coarse, fine),
            nn.LeakyReLU(SLOPE),
            nn.BatchNorm2d(fine, momentum=MOMENTUM),
            UpConv(fine, channels),
            _last(output),
        )

    def forward(self, z: Float[Tensor, "n codes"]) -> Float[Tensor, "n d"]:
        """Samples as rows."""
        found: Tensor = self.layers(z)
        return found[..., : self.height, : self.width].flatten(1)


class ConvJudge(nn.Module):
    """The logit of a flat image being real."""

    def __init__(self, shape: Sequence[int], filters: Sequence[int]) -> None:
        super().__init__()
        self.shape = image_shape(shape, "ConvJudge")
        channels, h, w = self.shape
        fine, coarse = filters
        self.layers = nn.Sequential(
            nn.Conv2d(channels, fine, 5, stride=2, padding=2),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(fine, coarse, 5, stride=2, padding=2),
            nn.LeakyReLU(SLOPE),
            nn.Flatten(),
            nn.Linear(coarse * -(-h // 4) * -(-w // 4), 1),
        )

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Logits."""
        found: Tensor = self.layers(x.unflatten(1, self.shape))
        return found.squeeze(1)
