"""Where images differ: a map of mean pixels; with rows from the pixels, with a vestige through its components.

Of rows the map is the mean of the data less the mean of the new images. Of a vestige whose feature map is principal
components it is the difference of the mean components, mapped back to pixels: what lies outside of the components is
not in it. Colours are averaged. The map in deviations divides by the deviation of each pixel of the data, and by at
least FLOOR times the largest, so that a pixel that is nearly always black does not rule it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

COLOURS = (1, 3, 4)
FLOOR = 0.1
SMALLEST = 4  # pixels of a side; less is no image
DOWN, ACROSS = ("upper", "middle", "lower"), ("left", "centre", "right")


@dataclass(frozen=True, eq=False)
class ImageDifference:
    """Means of pixels: the data less the new images, as they are and in deviations of the pixel."""

    mean: Float[Tensor, "h w"]
    deviations: Float[Tensor, "h w"]
    region: str  # of nine, the one that differs most, in words

    @classmethod
    def of(
        cls,
        p_mean: Float[Tensor, " d"],
        q_mean: Float[Tensor, " d"],
        deviation: Float[Tensor, " d"],
        shape: tuple[int, ...],
    ) -> ImageDifference | None:
        """From means and deviations of pixels of samples of this shape; None where that is no image."""
        axis = _colours(shape)
        if axis is None:
            return None
        difference = (p_mean - q_mean).double()
        scale = deviation.double().clamp_min(FLOOR * float(deviation.max()) or 1.0)
        maps = [x.reshape(shape) for x in (difference, difference / scale)]
        mean, deviations = maps if len(shape) == 2 else [x.mean(axis) for x in maps]
        return cls(mean, deviations, _region(deviations))


def _colours(shape: tuple[int, ...]) -> int | None:
    """The axis of colours; None where samples of this shape are no images."""
    if len(shape) == 2:
        return 0 if min(shape) >= SMALLEST else None
    if len(shape) != 3:
        return None
    axis = 2 if shape[2] in COLOURS else 0 if shape[0] in COLOURS else None
    sides = [side for i, side in enumerate(shape) if i != axis]
    return axis if axis is not None and min(sides) >= SMALLEST else None


def _region(x: Float[Tensor, "h w"]) -> str:
    means = [[float(part.abs().mean()) for part in band.tensor_split(3, 1)] for band in x.tensor_split(3, 0)]
    i, j = max(((i, j) for i in range(3) for j in range(3)), key=lambda at: means[at[0]][at[1]])
    return "centre" if (i, j) == (1, 1) else f"{DOWN[i]} {ACROSS[j]}"


def of_rows(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    q_weights: Float[Tensor, " n_q"] | None,
    shape: tuple[int, ...],
) -> ImageDifference | None:
    """Of rows that are images of this shape, flattened."""
    if math.prod(shape) != p.shape[1]:
        return None
    q_mean = q.double().mean(0) if q_weights is None else q_weights.double() @ q.double() / q_weights.sum()
    return ImageDifference.of(p.double().mean(0), q_mean, p.double().std(0, correction=0), shape)


def as_images(x: Float[Tensor, "n ..."], shape: tuple[int, ...]) -> Float[Tensor, "n ..."]:
    """Rows as images that can be drawn: (n, h, w), or (n, h, w, 3) with colours last and nothing transparent."""
    images = x.reshape(-1, *shape).double()
    if len(shape) == 3 and _colours(shape) == 0:
        images = images.movedim(1, -1)
    return images[..., :3] if len(shape) == 3 and images.shape[-1] == COLOURS[-1] else images
