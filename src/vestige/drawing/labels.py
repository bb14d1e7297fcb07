"""Names beside points, kept apart: each takes the nearest place around its point where it covers the least.

Greedy, in the order given: cheap and the same every time, not the best layout there is. Where no place is free, the
names overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox, BboxBase

# Distances in points, and directions in the order of preference: right, left, above, below, then the corners.
DISTANCES = (8.0, 18.0, 30.0, 44.0)
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
Place: TypeAlias = tuple[float, tuple[int, int]]
PLACES: tuple[Place, ...] = tuple(product(DISTANCES, DIRECTIONS))
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
    taken: list[BboxBase] = [Bbox([dot - REACH * unit, dot + REACH * unit]) for dot in dots]
    taken += [artist.get_window_extent() for artist in avoid]
    written = []
    for name, at, dot in zip(names, np.column_stack([x, y]).tolist(), dots, strict=True):
        text = axes.annotate(name, at, textcoords="offset points", xytext=(0, 0), fontsize=9, path_effects=[HALO])
        text.set_in_layout(False)
        size = np.array(text.get_window_extent().size)
        boxes = [_box(dot, size, place, unit) for place in PLACES]
        hits = [sum(box.overlaps(other) for other in taken) + (not _inside(box, frame)) for box in boxes]
        best = int(np.argmin(hits))  # of equals the first, which is the nearest
        distance, (right, up) = PLACES[best]
        text.xyann = _offset(PLACES[best])
        text.set(ha=("center", "left", "right")[right], va=("center", "bottom", "top")[up])  # -1 is the last
        if distance > DISTANCES[0]:  # far from its point: a thin line leads back
            line = axes.annotate("", at, textcoords="offset points", xytext=text.xyann, arrowprops=LEADER)
            line.set_in_layout(False)
        taken.append(boxes[best])
        written.append(text)
    return written


def _offset(place: Place) -> tuple[float, float]:
    distance, (right, up) = place
    step = distance * (0.75 if right and up else 1.0)  # else a corner would be farther away than a side
    return step * right, step * up


def _box(dot: Float[np.ndarray, "2"], size: Float[np.ndarray, "2"], place: Place, unit: float) -> Bbox:
    """Where a text of that size, in pixels, stands at `place` around `dot`: its near side or corner towards it."""
    near = dot + unit * np.array(_offset(place))
    corner = (
        near + size * (np.array(place[1]) - 1) / 2
    )  # right: starts at `near`; centre: half before; left: ends there
    return Bbox([corner, corner + size])


def _inside(box: BboxBase, frame: BboxBase) -> bool:
    return bool(frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1)
