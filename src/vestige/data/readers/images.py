"""A folder of images as samples: every image in it and below it, in the order of their names, pixels in [0, 1].

All must be of one size. Grey images stay one channel wide unless there is colour among them; transparency is laid on
black. Only pictures of pixels are read, whatever a file's name says: an EPS would be handed to Ghostscript, which runs
programs. Sizes are looked at in the headers, before a pixel is decoded.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vestige.data.readers.address import refuse_file

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# Of pillow: what those endings stand for, and nothing that is drawn by another program.
PICTURES = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
# Every pixel is a feature, and no more than this can be compared.
MAX_PIXELS = 2**22
GREY = ("1", "L", "LA", "I;16")
COLOUR = ("RGB", "RGBA", "P", "PA", "CMYK", "YCbCr")


# What pillow raises on torn or hostile bytes.
DAMAGE = (OSError, ValueError, SyntaxError, EOFError, ArithmeticError, LookupError, TypeError, struct.error)


@dataclass(frozen=True)
class ImageFolder:
    """The images in a folder: their paths, the (height, width) of all, and whether any has colour."""

    paths: list[Path]
    size: tuple[int, int]
    colour: bool

    @classmethod
    def survey(cls, folder: Path) -> ImageFolder:
        """Every image file in `folder` and below it, sorted, from their headers alone; none at all is refused.

        Folders, pipes and devices that are named like images are passed over.
        """
        paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        if not paths:
            refuse_file(folder, f"a folder of images ({', '.join(ENDINGS)})", "none in it")
        size, colour = (0, 0), False
        for path in paths:
            with _opened(path) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    refuse_file(path, f"an image of at most {MAX_PIXELS} pixels", f"{height} x {width}")
                if image.mode not in GREY + COLOUR:
                    refuse_file(path, "a grey or colour image", f"the mode {image.mode}")
                colour |= image.mode in COLOUR
            if path is paths[0]:
                size = (height, width)
            elif size != (height, width):
                must = f"an image of {size[0]} x {size[1]} pixels, like {paths[0].name}"
                refuse_file(path, must, f"{height} x {width}")
        return cls(paths, size, colour)

    def width(self, colour: bool) -> int:
        """Numbers of one image."""
        return self.size[0] * self.size[1] * (3 if colour else 1)

    def batches(self, rows: int, *, colour: bool) -> Iterator[Float[Tensor, "n d"]]:
        """The images as float32 rows of height x width x channels, `rows` at a time."""
        for start in range(0, len(self.paths), rows):
            paths = self.paths[start : start + rows]
            batch = np.empty((len(paths), self.width(colour)), dtype=np.float32)
            for row, path in zip(batch, paths, strict=True):
                row[:] = _pixels(path, colour=colour, size=self.size).reshape(-1)
            yield torch.from_numpy(batch)

    def read(self, *, colour: bool) -> Float[Tensor, "n d"]:
        """All of them at once."""
        return next(self.batches(len(self.paths), colour=colour))


def _opened(path: Path) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(path, formats=PICTURES)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        refuse_file(path, f"an image of at most {MAX_PIXELS} pixels", f"more than {Image.MAX_IMAGE_PIXELS}")
    except DAMAGE:
        refuse_file(path, f"an image that can be read ({', '.join(PICTURES)})", "a torn or foreign file")


def _pixels(path: Path, *, colour: bool, size: tuple[int, int]) -> NDArray[np.float32]:
    with _opened(path) as image:
        if image.size != size[::-1]:
            refuse_file(path, f"an image of {size[0]} x {size[1]} pixels", "another since it was first looked at")
        try:
            image.load()
        except (*DAMAGE, Image.DecompressionBombError):
            refuse_file(path, "an image that can be read", "a torn one")
        if image.mode == "I;16":
            grey = np.asarray(image, dtype=np.float32) / np.float32(65535)
            return np.repeat(grey[..., None], 3, axis=2) if colour else grey
        if image.has_transparency_data:
            opaque = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", opaque.size, (0, 0, 0, 255)), opaque)
        return np.asarray(image.convert("RGB" if colour else "L"), dtype=np.float32) / np.float32(255)
