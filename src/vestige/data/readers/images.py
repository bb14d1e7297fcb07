"""A folder of images as samples: every image in it and below it, in the order of their names, pixels in [0, 1].

All must be of one size. Grey images stay one channel wide unless there is colour among them; transparency is laid on
black; pillow's guard against decompression bombs refuses, rather than warns, by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from vestige.data.readers.address import refuse_file, require_memory

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
GREY = ("1", "L", "LA", "I;16")
COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")


@dataclass(frozen=True)
class ImageFolder:
    """The images in a folder: their paths, the (height, width) of all, and whether any has colour."""

    paths: list[Path]
    size: tuple[int, int]
    colour: bool

    @classmethod
    def survey(cls, folder: Path) -> ImageFolder:
        """Every image file in `folder` and below it, sorted, from their headers alone; none at all is refused."""
        paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        if not paths:
            refuse_file(folder, f"a folder of images ({', '.join(ENDINGS)})", "none in it")
        size, colour = (0, 0), False
        for path in paths:
            with _opened(path) as image:
                width, height = image.size
                if image.mode not in GREY + COLOUR:
                    refuse_file(path, "a grey or colour image", f"the mode {image.mode}")
                colour |= image.mode in COLOUR
            if path is paths[0]:
                size = (height, width)
            elif size != (height, width):
                must = f"an image of {size[0]} x {size[1]} pixels, like {paths[0].name}"
                refuse_file(path, must, f"{height} x {width}")
        return cls(paths, size, colour)

    def batches(self, rows: int, *, colour: bool) -> Iterator[Float[Tensor, "n d"]]:
        """The images as float32 rows of height x width x channels, `rows` at a time."""
        for start in range(0, len(self.paths), rows):
            batch = [_pixels(path, colour=colour) for path in self.paths[start : start + rows]]
            yield torch.from_numpy(np.stack(batch)).reshape(len(batch), -1)

    def read(self, *, colour: bool) -> Float[Tensor, "n d"]:
        """All of them at once."""
        numbers = len(self.paths) * self.size[0] * self.size[1] * (3 if colour else 1)
        require_memory(self.paths[0].parent, numbers, bytes_each=4)
        return torch.cat(list(self.batches(1024, colour=colour)))


def _opened(path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(path)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        refuse_file(path, f"an image of at most {Image.MAX_IMAGE_PIXELS} pixels", "more: a decompression bomb?")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        refuse_file(path, "an image that can be read", "a torn or foreign file")


def _pixels(path: Path, *, colour: bool) -> NDArray[np.float32]:
    with _opened(path) as image:
        try:
            image.load()
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            refuse_file(path, "an image that can be read", "a torn one")
        if image.mode == "I;16":
            grey = np.asarray(image, dtype=np.float32) / np.float32(65535)
            return np.repeat(grey[..., None], 3, axis=2) if colour else grey
        if image.has_transparency_data:
            opaque = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", opaque.size, (0, 0, 0, 255)), opaque)
        return np.asarray(image.convert("RGB" if colour else "L"), dtype=np.float32) / np.float32(255)
