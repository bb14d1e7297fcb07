"""The convolutional networks of CDRE App. A.3, for images whose sides are multiples of four.

Generator: dense layers of [1024, 6272] units with batch normalisation, then transposed convolutions with filters
[4,4,64,128] and [4,4,1,64] and stride 2: 7 x 7 x 128, 14 x 14 x 64, 28 x 28 x 1. Critic: the classifier of App. A.1
with a last dense layer of 1024 units and one output, batch normalisation on the second convolution and on the dense
layer. Leaky ReLU throughout. Of the two readings of the classifier's dense layers (see `features_conv`) this is the
one without a matrix of 6272 x 6272.

The appendix does not say how the condition enters. Here it stands one-hot beside the noise and beside the critic's
flattened convolutions; gates and projection are as in `gan_dense`, and off at `keep=1` and `projection=False`. The
output is a sigmoid where `bounded`. A critic made without `norm` has no batch normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import refuse
from vestige.nets.features_conv import KERNEL, STRIDE, SameConv
from vestige.nets.gan_dense import SLOPE, Judgement, beside
from vestige.nets.gated_vae import gates


def quarters(image: tuple[int, int, int], owner: str) -> tuple[int, int]:
    """Height and width after two convolutions of stride 2; sides that do not come out even are refused."""
    _, height, width = image
    if height % STRIDE**2 or width % STRIDE**2:
        refuse("shape", owner, f"of images whose sides are multiples of {STRIDE**2}", f"{height} x {width}")
    return height // STRIDE**2, width // STRIDE**2


class ConvGenerator(nn.Module):
    """Noise and conditions to images, as flat rows."""

    def __init__(
        self,
        n_codes: int,
        n_conditions: int,
        hidden: Sequence[int],
        image: tuple[int, int, int],
        *,
        filters: tuple[int, int] = (64, 128),
        keep: float,
        bounded: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.n_conditions, self.bounded = n_conditions, bounded
        self.map = (filters[1], *quarters(image, "ConvGenerator"))
        widths = [n_codes + n_conditions, *hidden, self.map[0] * self.map[1] * self.map[2]]
        with rng.guard(seed, "init"):
            self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
            self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
            self.grow = nn.ConvTranspose2d(filters[1], filters[0], KERNEL, STRIDE, padding=1)
            self.last = nn.ConvTranspose2d(filters[0], image[0], KERNEL, STRIDE, padding=1)
        generator = rng.fork(seed, "gates")
        for i, width in enumerate(widths[1:]):
            self.register_buffer(f"gates_{i}", gates(n_conditions, width, keep, generator))

    def forward(self, z: Float[Tensor, "n z"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """One image for each row of noise."""
        h = beside(z, conditions, self.n_conditions)
        for i, (layer, norm) in enumerate(zip(self.hidden, self.norms, strict=True)):
            h = functional.leaky_relu(norm(layer(h)), SLOPE) * self.get_buffer(f"gates_{i}")[conditions]
        h = functional.leaky_relu(self.grow(h.unflatten(1, self.map)), SLOPE)
        out: Tensor = self.last(h).flatten(1)
        return out.sigmoid() if self.bounded else out


class ConvCritic(nn.Module):
    """Images, as flat rows, and their conditions to one number each."""

    def __init__(
        self,
        image: tuple[int, int, int],
        n_conditions: int,
        hidden: Sequence[int],
        *,
        filters: tuple[int, int] = (64, 128),
        projection: bool,
        norm: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.image, self.n_conditions = image, n_conditions
        height, width = quarters(image, "ConvCritic")
        widths = [filters[1] * height * width + n_conditions, *hidden]
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [SameConv(image[0], filters[0]), nn.LeakyReLU(SLOPE), SameConv(*filters)]
            layers += [nn.BatchNorm2d(filters[1])] if norm else []
            self.shrink = nn.Sequential(*layers, nn.LeakyReLU(SLOPE), nn.Flatten())
            layers = []
            for i, (a, b) in enumerate(pairwise(widths)):
                layers += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm and i == 0 else []), nn.LeakyReLU(SLOPE)]
            self.hidden = nn.Sequential(*layers)
            self.last = Judgement(widths[-1], n_conditions, projection)

    def forward(self, x: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
        """One number for each image."""
        h = self.shrink(x.unflatten(1, self.image))
        return self.last(self.hidden(beside(h, conditions, self.n_conditions)), conditions)
