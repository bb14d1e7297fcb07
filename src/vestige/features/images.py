"""How the pixels of a sample lie, and rows as the (n, channels, height, width) that convolutions eat."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vestige.core import checks

CHANNELS = (1, 3)


@dataclass(frozen=True)
class Layout:
    """Size of an image, and whether its channels are the last axis rather than the first."""

    channels: int
    height: int
    width: int
    channels_last: bool = False

    @classmethod
    def of(cls, shape: tuple[int, ...], image: tuple[int, ...] | None, owner: str) -> Layout:
        """The layout of samples of `shape`; of flat ones `image` must say it."""
        if len(shape) == 1:
            if image is None:
                must = "images, or flat rows whose shape the option 'image' gives, such as (28, 28)"
                checks.refuse("x", owner, must, f"samples of shape {shape}")
            layout = cls._read(image, "image", owner)
            if layout.channels * layout.height * layout.width != shape[0]:
                checks.refuse("x", owner, f"as wide as images of {tuple(image)}", f"{shape[0]} features")
            return layout
        if image is not None and tuple(image) != shape:
            checks.refuse("x", owner, f"images of shape {tuple(image)}", f"samples of shape {shape}")
        return cls._read(shape, "x", owner)

    @classmethod
    def _read(cls, shape: tuple[int, ...], name: str, owner: str) -> Layout:
        if len(shape) == 2:
            return cls(1, *shape)
        if len(shape) == 3 and shape[0] in CHANNELS:
            return cls(*shape)
        if len(shape) == 3 and shape[2] in CHANNELS:
            return cls(shape[2], *shape[:2], channels_last=True)
        must = "grey or colour: (height, width), (channels, height, width) or (height, width, channels)"
        checks.refuse(name, owner, must, f"samples of shape {shape}")

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c h w"]:
        """Rows as images."""
        if self.channels_last:
            return x.reshape(-1, self.height, self.width, self.channels).permute(0, 3, 1, 2)
        return x.reshape(-1, self.channels, self.height, self.width)
