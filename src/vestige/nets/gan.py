"""Networks of GANs: told a condition, or made for one class.

`ConditionalGenerator`, `ConditionalCritic`. The condition enters both as a one-hot row beside the input (Mirza and
Osindero 2014). In the generator it also gates the hidden units (see `vae`), so that it cannot be ignored; in the critic
it may also choose the last layer's weights, as a projection: those of all conditions plus the condition's own, which
begin at zero (Miyato and Koyama 2018, Eq. 3). The generator normalises every hidden layer over the batch. In testing
mode it does so with running statistics of the training batches, in which every condition has its share: a sample of one
condition does not depend on what else is drawn with it. The dense critic has no normalisation: the penalty on its
gradient is defined row by row.

With `filters` they are those of CDRE App. A.3, for images whose sides are multiples of four. Generator: dense layers of
[1024, 6272] units with batch normalisation, then transposed convolutions with filters [4,4,64,128] and [4,4,1,64] and
stride 2: 7 x 7 x 128, 14 x 14 x 64, 28 x 28 x 1. Critic: the classifier of App. A.1 with a last dense layer of 1024
units and one output, batch normalisation on the second convolution and on the dense layer. Leaky ReLU throughout. Of
the two readings of the classifier's dense layers (see `convolutional`) this is the one without a matrix of 6272 x 6272.
The appendix does not say how the condition enters. Here it stands one-hot beside the noise and beside the critic's
flattened convolutions; gates and projection are as in the dense networks, and off at `keep=1` and `projection=False`.
The output is a sigmoid where `bounded`. A critic made without `norm` has no batch normalisation.

`dense_class_generator`, `conv_class_generator` and their discriminators: Farquhar and Gal C.4 and C.5, a pair for a
class. Dense (C.4): fully connected layers of 256, 512, 1024 units and one as wide as a sample (784 for MNIST).
Convolutional (C.5): a fully connected layer, then two 5 x 5 convolutions, with 64 channels and with those of the image,
a 2 x 2 upsampling before each. Leaky ReLU of slope 0.2 between layers. What is not printed: codes are standard normal,
100 wide. The last layer ends in a sigmoid, for pixels in [0, 1], or in nothing ("linear"), for tables. Behind each
leaky ReLU of a generator stands batch normalisation, as is the custom with such networks, without which short training
gives few shapes of each digit. The fully connected layer of the convolutional one gives `filters` maps of a quarter of
the image's sides; sides that four does not divide are rounded up, and the image is cropped. The discriminators are the
generators' mirror: dense layers of 512 and 256; two 5 x 5 convolutions that halve each side, then one linear layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import refuse
from vestige.nets.classifier import dense
from vestige.nets.convolutional import KERNEL, STRIDE, SameConv, image_shape
from vestige.nets.vae import gates

SLOPE = 0.2  # of the leaky ReLU below zero


def beside(x: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], count: int) -> Float[Tensor, "n e"]:
    """`x` with the one-hot row of each condition, one of `count`, to its right."""
    return torch.cat([x, functional.one_hot(conditions, count).to(x.dtype)], 1)


class ProjectionHead(nn.Module):
    """Features and conditions to one number each, with a layer for all and, with `projection`, one a condition."""

    def __init__(self, width: int, n_conditions: int, projection: bool) -> None:
        super().__init__()
        self.shared = nn.Linear(width, 1)
        self.own = nn.Parameter(torch.zeros(n_conditions, width)) if projection else None

    def forward(self, h: Float[Tensor, "n w"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
        """(shared + own of the condition) . h + bias."""
        out = self.shared(h).squeeze(1)
        return out if self.own is None else out + (self.own[conditions] * h).sum(1)


def quarters(shape: Sequence[int]) -> tuple[int, int]:
    """Height and width after two convolutions of stride 2; sides that do not come out even are refused."""
    _, height, width = image_shape(shape, "a convolutional GAN")
    if height % STRIDE**2 or width % STRIDE**2:
        refuse(
            "shape", "a convolutional GAN", f"of images whose sides are multiples of {STRIDE**2}", f"{height} x {width}"
        )
    return height // STRIDE**2, width // STRIDE**2


class ConditionalGenerator(nn.Module):
    """Noise and conditions to flat rows of `shape`, in (0, 1) where `bounded`.

    They come from dense layers or, with two `filters`, the fine one first, from transposed convolutions after these.
    """

    def __init__(
        self,
        n_codes: int,
        n_conditions: int,
        hidden: Sequence[int],
        shape: Sequence[int],
        *,
        filters: tuple[int, int] | None = None,
        keep: float,
        bounded: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.n_conditions, self.bounded = n_conditions, bounded
        widths = [*hidden] if filters is None else [*hidden, filters[1] * math.prod(quarters(shape))]
        with rng.guard(seed, "init"):
            self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise([n_codes + n_conditions, *widths]))
            self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths)
            if filters is None:
                self.last: nn.Module = nn.Linear(widths[-1], math.prod(shape))
            else:
                fine, coarse = filters
                self.last = nn.Sequential(
                    nn.Unflatten(1, (coarse, *quarters(shape))),
                    nn.ConvTranspose2d(coarse, fine, KERNEL, STRIDE, padding=1),
                    nn.LeakyReLU(SLOPE),
                    nn.ConvTranspose2d(fine, image_shape(shape, "a convolutional GAN")[0], KERNEL, STRIDE, padding=1),
                    nn.Flatten(),
                )
        generator = rng.fork(seed, "gates")
        for i, width in enumerate(widths):
            self.register_buffer(f"gates_{i}", gates(n_conditions, width, keep, generator))

    def forward(self, z: Float[Tensor, "n z"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """One row for each row of noise."""
        h = beside(z, conditions, self.n_conditions)
        for i, (layer, norm) in enumerate(zip(self.hidden, self.norms, strict=True)):
            h = functional.leaky_relu(norm(layer(h)), SLOPE) * self.get_buffer(f"gates_{i}")[conditions]
        out = self.last(h)
        return out.sigmoid() if self.bounded else out


class ConditionalCritic(nn.Module):
    """Flat rows of `shape` and their conditions to one number each, unbounded.

    Dense layers read the rows or, with two `filters`, the fine one first, what convolutions make of them; only these
    may be normalised over the batch (`norm`).
    """

    def __init__(
        self,
        shape: Sequence[int],
        n_conditions: int,
        hidden: Sequence[int],
        *,
        filters: tuple[int, int] | None = None,
        projection: bool,
        norm: bool = False,
        seed: int,
    ) -> None:
        super().__init__()
        self.n_conditions = n_conditions
        with rng.guard(seed, "init"):
            self.shrink, width = nn.Sequential(), math.prod(shape)
            if filters is not None:
                (fine, coarse), image = filters, image_shape(shape, "a convolutional GAN")
                width = coarse * math.prod(quarters(shape))
                layers = [nn.Unflatten(1, image), SameConv(image[0], fine), nn.LeakyReLU(SLOPE), SameConv(fine, coarse)]
                layers += [nn.BatchNorm2d(coarse)] if norm else []
                self.shrink = nn.Sequential(*layers, nn.LeakyReLU(SLOPE), nn.Flatten())
            layers = []
            for i, (a, b) in enumerate(pairwise([width + n_conditions, *hidden])):
                layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm and i == 0 else []), nn.LeakyReLU(SLOPE)]
            self.hidden = nn.Sequential(*layers)
            self.last = ProjectionHead(hidden[-1], n_conditions, projection)

    def forward(self, x: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
        """One number for each row."""
        return self.last(self.hidden(beside(self.shrink(x), conditions, self.n_conditions)), conditions)


CODES = 100
MOMENTUM = 0.2  # of the running moments, of which short training sees few
OUTPUTS = {"sigmoid": nn.Sigmoid, "linear": nn.Identity}  # of a generator for one class


def dense_class_generator(widths: Sequence[int], n_columns: int, output: str) -> nn.Sequential:
    """Codes to flat samples."""
    layers: list[nn.Module] = []
    for a, b in pairwise([CODES, *widths]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(SLOPE), nn.BatchNorm1d(b, momentum=MOMENTUM)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_columns), OUTPUTS[output]())


def dense_discriminator(widths: Sequence[int], n_columns: int) -> nn.Sequential:
    """Flat samples to the logit of each being real."""
    layers = dense([n_columns, *widths], partial(nn.LeakyReLU, SLOPE))
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1), nn.Flatten(0))


class UpConv(nn.Conv2d):
    """2 x 2 upsampling and a 5 x 5 convolution of what comes out, with the same weights and less work.

    A pixel upsampled to four is read by the four outputs above it through 3 x 3 sums of the 5 x 5 weights: one 3 x 3
    convolution of the coarse maps gives all four, 9 products each instead of 25. What lies beyond `size` is cropped.
    """

    def __init__(self, in_channels: int, out_channels: int, size: tuple[int | None, int | None] = (None, None)) -> None:
        super().__init__(in_channels, out_channels, 5)
        self.height, self.width = size
        # folds[a, m, k]: output 2 r + a reads fine row 2 r + a + k - 2, which is coarse row r + m - 1.
        folds = torch.tensor([[[(a + k) // 2 == m for k in range(5)] for m in range(3)] for a in range(2)])
        self.register_buffer("folds", folds.float(), persistent=False)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n o h2 w2"]:
        """Twice as high and wide."""
        folds = self.get_buffer("folds")
        weight = torch.einsum("oikl,amk,bnl->oabimn", self.weight, folds, folds).flatten(0, 2)
        assert self.bias is not None, "it was made with one"
        coarse = functional.conv2d(x, weight, self.bias.repeat_interleave(4), padding=1)
        return functional.pixel_shuffle(coarse, 2)[..., : self.height, : self.width]


def conv_class_generator(shape: Sequence[int], filters: Sequence[int], output: str) -> nn.Sequential:
    """Codes to images, flat."""
    channels, height, width = image_shape(shape, "conv_class_generator")
    coarse, fine = filters
    maps = (coarse, -(-height // 4), -(-width // 4))
    return nn.Sequential(
        nn.Linear(CODES, math.prod(maps)),
        nn.LeakyReLU(SLOPE),
        nn.Unflatten(1, maps),
        nn.BatchNorm2d(coarse, momentum=MOMENTUM),
        UpConv(coarse, fine),
        nn.LeakyReLU(SLOPE),
        nn.BatchNorm2d(fine, momentum=MOMENTUM),
        UpConv(fine, channels, (height, width)),
        OUTPUTS[output](),
        nn.Flatten(),
    )


def conv_discriminator(shape: Sequence[int], filters: Sequence[int]) -> nn.Sequential:
    """Images, flat, to the logit of each being real."""
    channels, height, width = image_shape(shape, "conv_discriminator")
    fine, coarse = filters
    return nn.Sequential(
        nn.Unflatten(1, (channels, height, width)),
        nn.Conv2d(channels, fine, 5, stride=2, padding=2),
        nn.LeakyReLU(SLOPE),
        nn.Conv2d(fine, coarse, 5, stride=2, padding=2),
        nn.LeakyReLU(SLOPE),
        nn.Flatten(),
        nn.Linear(coarse * -(-height // 4) * -(-width // 4), 1),
        nn.Flatten(0),
    )
