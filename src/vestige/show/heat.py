"""A matrix as coloured cells with the value written in each, as a picture and as an HTML table.

The colours run evenly from dark to light (cividis), so they survive a grey print and colour-blind eyes. Light is
better, or larger where neither is better, and what was not measured has no colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure

from vestige.core import checks
from vestige.core.checks import ArrayLike, refuse
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

    def fill(self, value: float) -> tuple[float, float, float]:
        """Red, green and blue of a cell."""
        red, green, blue, _ = self.colours(float(self.scale(value)))
        return red, green, blue

    def ink(self, value: float) -> str:
        """Black or white, whichever can be read on the cell."""
        red, green, blue = self.fill(value)
        return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < DARK else "black"  # luma of ITU-R BT.601


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

    def html(self) -> str:
        """A `<table>` whose measured cells are coloured."""
        cells = _cells(self.values, self.rows, self.columns)
        shades = Shades(cells, self.better, self.limits)
        measured = [(place, float(v)) for place, v in np.ndenumerate(cells) if np.isfinite(v)]
        styles = {(i, j + 1): f"background:{to_hex(shades.fill(v))};color:{shades.ink(v)}" for (i, j), v in measured}
        return self.table().html(styles)


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
        figure, axes = style.sheet(max(width, 4.2), height, title)
        drawn = axes.imshow(np.ma.masked_invalid(cells), cmap=shades.colours, norm=shades.scale, aspect="auto")
        for (i, j), value in np.ndenumerate(cells):
            if np.isfinite(value):
                look: dict[str, Any] = {"ha": "center", "va": "center", "color": shades.ink(value), "fontsize": 9}
                text = axes.text(j, i, cell(float(value), places), **look)
                text.set_in_layout(False)  # it lies inside the axes; measuring thousands of them takes seconds
        style.say_if_blank(axes, cells)
        slanted: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
        tight = style.longest(columns) > 0.8 * CELL_INCHES[0]
        axes.set_xticks(range(len(columns)), style.words(columns), **(slanted if tight else {}))
        axes.set_yticks(range(len(rows)), style.words(rows))
        axes.set_xlabel(style.word(column_label))
        axes.set_ylabel(style.word(row_label))
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(drawn, ax=axes, label=SIDES[better], shrink=0.9, extend=shades.tip)
    return figure


def _cells(values: ArrayLike, rows: Sequence[str], columns: Sequence[str]) -> Float[np.ndarray, "r c"]:
    cells = checks.matrix(values, "values", "matrix", finite=False).cpu().numpy()
    for name, given, n in (("rows", rows, cells.shape[0]), ("columns", columns, cells.shape[1])):
        if len(given) != n:
            refuse(name, "matrix", f"{n} names", len(given))
    return cells
