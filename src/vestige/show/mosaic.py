"""Sample images side by side, row after row, pixel for pixel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from vestige.core.checks import ArrayLike, refuse, whole
from vestige.core.checks.kinds import as_tensor
from vestige.show import style

OWNER = "images"
# White pixels between two images.
GAP = 1
TILE_INCHES = 0.55


def images(
    grid: ArrayLike,
    *,
    title: str,
    columns: int | None = None,
    rows: Sequence[str] | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """`grid` (n, h, w) or (n, h, w, c) with c of 1 or 3, laid out in rows of `columns` images.

    `rows` names each row, for instance by its task. `limits` are the values drawn black and white: by default 0 and 255
    for bytes, 0 and 1 for fractions. Values beyond them are refused, not clipped.
    """
    pixels, dark, light = _pixels(grid, limits)
    n = len(pixels)
    per_row = whole(math.ceil(math.sqrt(n)) if columns is None else columns, "columns", OWNER, low=1)
    down = math.ceil(n / per_row)
    if rows is not None and len(rows) != down:
        refuse("rows", OWNER, f"{down} names", len(rows))
    height, width = pixels.shape[1] + GAP, pixels.shape[2] + GAP
    canvas = np.ones((down * height - GAP, per_row * width - GAP, 3))
    for i, image in enumerate(pixels):
        top, left = i // per_row * height, i % per_row * width
        canvas[top : top + height - GAP, left : left + width - GAP] = (image - dark) / (light - dark)

    with style.settings():
        wide = TILE_INCHES * per_row
        tall = TILE_INCHES * down * height / width
        figure, axes = style.sheet(
            max(wide + (0.3 + style.longest(rows or [])), 2.0),
            max(tall + 0.5, 1.0),
            title,
        )
        axes.imshow(canvas, interpolation="nearest")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_xticks([])
        axes.set_yticks(
            [r * height + (height - GAP) / 2 - 0.5 for r in range(down)] if rows else [], style.words(rows or [])
        )
        axes.tick_params(length=0)
    return figure


def _pixels(grid: ArrayLike, limits: tuple[float, float] | None) -> tuple[Float[np.ndarray, "n h w c"], float, float]:
    """The images as (n, h, w, 3 or 1) with the values of black and white."""
    array = as_tensor(grid, "grid", OWNER).cpu().numpy()
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3):
        refuse("grid", OWNER, "images of shape (n, h, w), (n, h, w, 1) or (n, h, w, 3)", f"shape {array.shape}")
    if not array.size:
        refuse("grid", OWNER, "at least one image with a pixel", f"shape {array.shape}")
    dark, light = limits or ((0.0, 255.0) if array.dtype == np.uint8 else (0.0, 1.0))
    if not dark < light:
        refuse("limits", OWNER, "(black, white) with black < white", limits)
    array = array.astype(np.float64)
    if not bool(((array >= dark) & (array <= light)).all()):
        found = f"values from {array.min():.4g} to {array.max():.4g}"
        refuse("grid", OWNER, f"within the limits {dark:g} and {light:g}", found)
    return array, dark, light
