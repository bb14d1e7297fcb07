"""The networks of a data augmentation GAN (Antoniou et al. 2017; LFIW section 3.2, App. C.4): example, noise -> image.

`PixelMaker` is theirs in kind, a U-net. 3 x 3 convolutions of stride 2 carry an example down, noise joins it at the
coarsest maps, and upsampling with 3 x 3 convolutions brings both up again beside the maps of the way down, to logits of
pixels. The example is added to the logits: the network begins near a copy.

`Mover` is ours, for little data and short training: from the same coarse maps one convolution reads how far each part
of the example is shifted, at most `REACH` of the image either way; bilinear interpolation makes that a smooth field and
moves the pixels. What it makes is a drawing from the first step on; what it cannot do is add or remove a stroke.

`PairCritic`: two images as channels of one, 3 x 3 convolutions of stride 2, one linear layer, and no batch
normalisation, as its gradient is penalised row by row.

Deviations. Antoniou et al. have four residual blocks of four convolutions each way and a DenseNet with layer
normalisation as critic; here a level of the U-net has `layers` convolutions, those after the first with a residual
connection, the last upsampling is a shuffle of pixels, and the critic is plain. LFIW prints neither network.

Images go in and out as flat rows; sides may be of any length, halves are rounded up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.nets.gan_dense import SLOPE

NOISE_MAPS = 16  # coarsest maps that the noise makes
COPY = 6.0  # logits between white and black in the copy that the U-net begins near
REACH = 0.1  # of the image's side


def halves(image: tuple[int, int, int], times: int) -> list[tuple[int, int]]:
    """Height and width after 0 .. `times` halvings, rounded up."""
    _, h, w = image
    return [(-(-h // 2**i), -(-w // 2**i)) for i in range(times + 1)]


class Level(nn.Module):
    """`layers` 3 x 3 convolutions, each with batch normalisation and a leaky ReLU; from the second on residual."""

    def __init__(self, channels_in: int, channels: int, layers: int, *, stride: int = 1) -> None:
        super().__init__()
        convs = [nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)]
        convs += [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(layers - 1)]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in convs)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k h2 w2"]:
        """Maps of the same or, with a stride of 2, half the size."""
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = functional.leaky_relu(norm(conv(x)), SLOPE)
            x = x + out if i else out
        return x


class Maker(nn.Module):
    """The way down, and the coarse maps of example and noise; what becomes of them is a child's to say."""

    def __init__(
        self, n_codes: int, image: tuple[int, int, int], filters: Sequence[int], layers: int, *, seed: int
    ) -> None:
        super().__init__()
        self.image, self.sizes = image, halves(image, len(filters))
        h, w = self.sizes[-1]
        self.noise_map = (NOISE_MAPS, h, w)
        with rng.guard(seed, "init"):
            self.down = nn.ModuleList(Level(a, b, layers, stride=2) for a, b in pairwise([image[0], *filters]))
            self.noise = nn.Linear(n_codes, NOISE_MAPS * h * w)
            self.middle = Level(filters[-1] + NOISE_MAPS, filters[-1], layers)

    def coarse(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> tuple[Tensor, list[Tensor]]:
        """Maps of example and noise together, and those of the example at every size, its own first."""
        h = examples.unflatten(1, self.image).contiguous(memory_format=torch.channels_last)
        seen = [h]
        for level in self.down:
            h = level(h)
            seen.append(h)
        return self.middle(torch.cat([h, self.noise(z).unflatten(1, self.noise_map)], 1)), seen


class PixelMaker(Maker):
    """A U-net whose output are the pixels of an image."""

    def __init__(
        self, n_codes: int, image: tuple[int, int, int], filters: Sequence[int], layers: int, *, seed: int
    ) -> None:
        super().__init__(n_codes, image, filters, layers, seed=seed)
        with rng.guard(seed, "up"):
            # A level of the way up reads what comes from below and the maps of its own size on the way down.
            self.up = nn.ModuleList(Level(a + b, b, layers) for a, b in pairwise(reversed(filters)))
            self.last = nn.Conv2d(filters[0], 4 * image[0], 3, padding=1)
        self.copy = nn.Parameter(torch.tensor(COPY))

    def forward(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """One image for each row of noise."""
        h, seen = self.coarse(z, examples)
        for i, level in enumerate(self.up, start=2):
            h = level(torch.cat([functional.interpolate(h, self.sizes[-i]), seen[-i]], 1))
        height, width = self.sizes[0]
        fine = functional.pixel_shuffle(self.last(h), 2)[..., :height, :width]
        return (fine + self.copy * (seen[0] - 0.5)).flatten(1).sigmoid()


class Mover(Maker):
    """Moves the pixels of the example along a smooth field."""

    still: Tensor

    def __init__(
        self, n_codes: int, image: tuple[int, int, int], filters: Sequence[int], layers: int, *, seed: int
    ) -> None:
        super().__init__(n_codes, image, filters, layers, seed=seed)
        with rng.guard(seed, "shift"):
            self.shift = nn.Conv2d(filters[-1], 2, 3, padding=1)
        # Where each pixel reads if nothing moves: centres of pixels, the image being (-1, 1) each way.
        identity = torch.eye(2, 3)[None]
        still = functional.affine_grid(identity, [1, *image], align_corners=False)
        self.register_buffer("still", still, persistent=False)

    def field(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> Float[Tensor, "n h w 2"]:
        """How far each pixel of the image reads from its own place, right and down, in halves of the image's side."""
        maps, _ = self.coarse(z, examples)
        shifts = 2 * REACH * self.shift(maps).tanh()
        return functional.interpolate(shifts, self.sizes[0], mode="bilinear").movedim(1, -1)

    def forward(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """One image for each row of noise."""
        places = self.still + self.field(z, examples)
        return functional.grid_sample(examples.unflatten(1, self.image), places, align_corners=False).flatten(1)


class PairCritic(nn.Module):
    """Images and the examples that they stand beside, both as flat rows, to one number for each pair."""

    def __init__(self, image: tuple[int, int, int], filters: Sequence[int], *, seed: int) -> None:
        super().__init__()
        self.image = image
        h, w = halves(image, len(filters))[-1]
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = []
            for a, b in pairwise([2 * image[0], *filters]):
                layers += [nn.Conv2d(a, b, 3, 2, padding=1), nn.LeakyReLU(SLOPE)]
            self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(filters[-1] * h * w, 1))

    def forward(self, x: Float[Tensor, "n d"], examples: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """How much x and its example look like two images of one class."""
        pair = torch.cat([examples.unflatten(1, self.image), x.unflatten(1, self.image)], 1)
        found: Tensor = self.layers(pair.contiguous(memory_format=torch.channels_last))
        return found.squeeze(1)
