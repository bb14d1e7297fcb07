"""Names beside points, kept apart: each takes the nearest place around its point where it covers the least.

Greedy, in the order given: cheap and the same every time, not the best layout there is. Where no place is free, the
names overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import BboxBase

# Distances in points, and directions in the order of preference: right, left, above, below, then the corners.
DISTANCES = (8.0, 18.0, 30.0, 44.0)
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
Place: TypeAlias = tuple[float, tuple[int, int]]
PLACES: tuple[Place, ...] = tuple(product(DISTANCES, DIRECTIONS))
# A corner goes less far each way, else it would be farther from its point than a side.
CORNER = 0.75
SIDES = np.array([direction for _, direction in PLACES], dtype=float)
OFFSETS = np.array([distance * (CORNER if right and up else 1.0) for distance, (right, up) in PLACES])[:, None] * SIDES
# Half the side of the square around a point that counts as covered, in points.
REACH = 5.0
HALO = withStroke(linewidth=2.5, foreground="white")
LEADER = {"arrowstyle": "-", "linewidth": 0.5, "color": "#888888"}


def beside(
    figure: Figure,
    axes: Axes,
    names: Sequence[str],
    x: Float[np.ndarray, " n"],
    y: Float[np.ndarray, " n"],
    *,
    avoid: Sequence[Artist] = (),
) -> list[Annotation]:
    """Write `names` beside the points (x, y) of `axes`; limits and labels of the axes must be final by now."""
    figure.draw_without_rendering()  # the layout settles, so that distances on the paper are known
    frame = axes.get_window_extent()
    dots = axes.transData.transform(np.column_stack([x, y]))
    unit = figure.dpi / 72  # pixels a point
    around = np.hstack([dots - REACH * unit, dots + REACH * unit])
    taken = np.vstack([around, *(np.array(artist.get_window_extent().extents) for artist in avoid)])
    written = []
    for name, at, dot in zip(names, np.column_stack([x, y]).tolist(), dots, strict=True):
        text = axes.annotate(name, at, textcoords="offset points", xytext=(0, 0), fontsize=9, path_effects=[HALO])
        text.set_in_layout(False)
        boxes = _boxes(dot, np.array(text.get_window_extent().size), unit)
        hits = _overlaps(boxes, taken).sum(1) + ~_inside(boxes, frame)
        best = int(np.argmin(hits))  # of equals the first, which is the nearest
        distance, (right, up) = PLACES[best]
        text.xyann = tuple(OFFSETS[best].tolist())
        text.set(ha=("center", "left", "right")[right], va=("center", "bottom", "top")[up])  # -1 is the last
        if distance > DISTANCES[0]:  # far from its point: a thin line leads back
            line = axes.annotate("", at, textcoords="offset points", xytext=text.xyann, arrowprops=LEADER)
            line.set_in_layout(False)
        taken = np.vstack([taken, boxes[best]])
        written.append(text)
    return written


def _boxes(dot: Float[np.ndarray, "2"], size: Float[np.ndarray, "2"], unit: float) -> Float[np.ndarray, "places 4"]:
    """Where a text of that size, in pixels, stands at each place around `dot`: its near side or corner towards it."""
    near = dot + unit * OFFSETS
    corner = near + size * (SIDES - 1) / 2  # right: starts at `near`; centre: half before; left: ends there
    return np.hstack([corner, corner + size])


def _overlaps(one: Float[np.ndarray, "n 4"], two: Float[np.ndarray, "m 4"]) -> Bool[np.ndarray, "n m"]:
    """Which boxes (left, bottom, right, top) have a point in common."""
    first, second = one[:, None], two[None]
    return np.all((first[..., :2] <= second[..., 2:]) & (second[..., :2] <= first[..., 2:]), axis=-1)


def _inside(boxes: Float[np.ndarray, "n 4"], frame: BboxBase) -> Bool[np.ndarray, " n"]:
    return np.all((boxes[:, :2] >= frame.min) & (boxes[:, 2:] <= frame.max), axis=1)
