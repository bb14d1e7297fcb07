"""Grids: a matrix as coloured cells with the value written in each, as a picture and as HTML; and sample images.

The colours run evenly from dark to light (cividis), so they survive a grey print and colour-blind eyes. Light is
better, or larger where neither is better, and what was not measured has no colour. Images stand side by side, row after
row, pixel for pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure

from vestige.core import checks
from vestige.core.checks import ArrayLike, as_tensor, refuse, whole
from vestige.show import style
from vestige.show.tables import Table, cell, decimals

CELL_INCHES = (0.72, 0.42)
BORDER_INCHES = (2.2, 1.4)
# Under this share of white a cell is dark, and its number is written in white.
DARK = 0.45
SIDES = {"up": "larger is better", "down": "smaller is better", "neither": ""}
TIPS = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}


class Shades:
    """The colours of values between two limits, light where it is better; by default the smallest and the largest."""

    def __init__(self, values: Float[np.ndarray, "..."], better: str, limits: tuple[float, float] | None) -> None:
        checks.one_of(better, SIDES, "better", "matrix")
        measured = values[np.isfinite(values)]
        low, high = limits or ((float(measured.min()), float(measured.max())) if measured.size else (0.0, 1.0))
        if limits is not None and not low < high:
            refuse("limits", "matrix", "(low, high) with low < high", limits)
        self.scale = Normalize(low, high if high > low else low + 1.0)
        self.colours = matplotlib.colormaps["cividis_r" if better == "down" else "cividis"]
        self.tip = TIPS[bool((measured < low).any()), bool((measured > high).any())]

    def __call__(self, value: float) -> tuple[str, str]:
        """The colour of a cell, and black or white, whichever can be read on it."""
        red, green, blue, _ = self.colours(float(self.scale(value)))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < DARK  # luma of ITU-R BT.601
        return to_hex((red, green, blue)), "white" if dark else "black"


@dataclass(frozen=True)
class Heat:
    """A matrix as a coloured HTML table for a `Page`; the arguments are those of `matrix`."""

    values: ArrayLike
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    better: str = "up"
    corner: str = ""
    limits: tuple[float, float] | None = None
    note: str = ""

    def table(self) -> Table:
        """The same without colours, for CSV, Markdown and LaTeX."""
        cells = _cells(self.values, self.rows, self.columns)
        rows = [[name, *row] for name, row in zip(self.rows, cells.tolist(), strict=True)]
        return Table(self.title, [self.corner, *self.columns], rows, self.note)

    def styles(self) -> dict[tuple[int, int], str]:
        """(row, column) of the table -> the colours of a measured cell."""
        cells = _cells(self.values, self.rows, self.columns)
        shades = Shades(cells, self.better, self.limits)
        looks = {place: shades(float(v)) for place, v in np.ndenumerate(cells) if np.isfinite(v)}
        return {(i, j + 1): f"background:{fill};color:{ink}" for (i, j), (fill, ink) in looks.items()}


def matrix(
    values: ArrayLike,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    better: str = "up",
    row_label: str = "",
    column_label: str = "",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """`values` (r, c) as coloured cells under names of `rows` and `columns`; NaN is left blank.

    `better` is the end of the scale that is drawn light: "up" for accuracies, "down" for losses and divergences, and
    "neither" for what is good or bad by its place, such as an entropy.
    `limits` are the values at the two ends of the colours, for matrices that are to be compared; by default the
    smallest and the largest. A value beyond them has the colour of the end, and the bar of colours gets a tip.
    """
    cells = _cells(values, rows, columns)
    shades = Shades(cells, better, limits)
    places = decimals(cells.ravel().tolist())

    with style.settings():
        width = BORDER_INCHES[0] + CELL_INCHES[0] * cells.shape[1] + style.longest(rows)
        height = BORDER_INCHES[1] + CELL_INCHES[1] * cells.shape[0] + style.longest(columns) / 2
        figure, axes = style.sheet(max(width, 4.2), height, title, column_label, row_label)
        drawn = axes.imshow(np.ma.masked_invalid(cells), cmap=shades.colours, norm=shades.scale, aspect="auto")
        for (i, j), value in np.ndenumerate(cells):
            if np.isfinite(value):
                look: dict[str, Any] = {"ha": "center", "va": "center", "color": shades(value)[1], "fontsize": 9}
                text = axes.text(j, i, cell(float(value), places), **look)
                text.set_in_layout(False)  # it lies inside the axes; measuring thousands of them takes seconds
        style.say_if_blank(axes, cells)
        slanted: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        tight = style.longest(columns) > 0.8 * CELL_INCHES[0]
        axes.set_xticks(range(len(columns)), style.words(columns), **(slanted if tight else {}))
        axes.set_yticks(range(len(rows)), style.words(rows))
        style.bare(axes)
        figure.colorbar(drawn, ax=axes, label=SIDES[better], shrink=0.9, extend=shades.tip)
    return figure


def _cells(values: ArrayLike, rows: Sequence[str], columns: Sequence[str]) -> Float[np.ndarray, "r c"]:
    cells = checks.matrix(values, "values", "matrix", finite=False).cpu().numpy()
    for name, given, n in (("rows", rows, cells.shape[0]), ("columns", columns, cells.shape[1])):
        if len(given) != n:
            refuse(name, "matrix", f"{n} names", len(given))
    return cells


SIGNED = "signed_map"
MAP_INCHES = 3.6


def signed_map(values: ArrayLike, *, title: str, label: str) -> Figure:
    """`values` (h, w) as a picture: white where they are zero, orange above, blue below (colour-blind readers, too)."""
    cells = checks.matrix(values, "values", SIGNED).cpu().numpy()
    most = float(np.abs(cells).max()) or 1.0
    with style.settings():
        tall = MAP_INCHES * min(max(cells.shape[0] / cells.shape[1], 0.4), 2.5)
        figure, axes = style.sheet(MAP_INCHES + 1.4, tall + 0.6, title)
        drawn = axes.imshow(cells, cmap="PuOr_r", norm=Normalize(-most, most), interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        style.bare(axes)
        figure.colorbar(drawn, ax=axes, label=style.word(label), shrink=0.9)
    return figure


IMAGES = "images"
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
    pixels = _pixels(grid, limits)
    n = len(pixels)
    per_row = whole(math.ceil(math.sqrt(n)) if columns is None else columns, "columns", IMAGES, low=1)
    down = math.ceil(n / per_row)
    if rows is not None and len(rows) != down:
        refuse("rows", IMAGES, f"{down} names", len(rows))
    height, width = pixels.shape[1] + GAP, pixels.shape[2] + GAP
    canvas = np.ones((down * height - GAP, per_row * width - GAP, 3))
    for i, image in enumerate(pixels):
        top, left = i // per_row * height, i % per_row * width
        canvas[top : top + height - GAP, left : left + width - GAP] = image

    with style.settings():
        wide = TILE_INCHES * per_row + 0.3 + style.longest(rows or [])
        tall = TILE_INCHES * down * height / width + 0.5
        figure, axes = style.sheet(max(wide, 2.0), max(tall, 1.0), title)
        axes.imshow(canvas, interpolation="nearest")
        axes.set_xticks([])
        middles = [r * height + (height - GAP) / 2 - 0.5 for r in range(down)]
        axes.set_yticks(middles if rows else [], style.words(rows or []))
        style.bare(axes)
    return figure


def _pixels(grid: ArrayLike, limits: tuple[float, float] | None) -> Float[np.ndarray, "n h w c"]:
    """The images as (n, h, w, 3 or 1), black 0 and white 1."""
    array = as_tensor(grid, "grid", IMAGES).cpu().numpy()
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3):
        refuse("grid", IMAGES, "images of shape (n, h, w), (n, h, w, 1) or (n, h, w, 3)", f"shape {array.shape}")
    if not array.size:
        refuse("grid", IMAGES, "at least one image with a pixel", f"shape {array.shape}")
    dark, light = limits or ((0.0, 255.0) if array.dtype == np.uint8 else (0.0, 1.0))
    if not dark < light:
        refuse("limits", IMAGES, "(black, white) with black < white", limits)
    array = array.astype(np.float64)
    if not bool(((array >= dark) & (array <= light)).all()):
        found = f"values from {array.min():.4g} to {array.max():.4g}"
        refuse("grid", IMAGES, f"within the limits {dark:g} and {light:g}", found)
    return (array - dark) / (light - dark)
