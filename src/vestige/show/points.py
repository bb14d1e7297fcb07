"""Methods as points with their names beside them: in the plane of forgetting and intransigence, and accuracy over time.

The plane (RWalk, Fig. 3): forgetting F (RWalk, Eq. 3) stands upwards and intransigence I (Eq. 4) to the right, as
printed: up is what was lost of old tasks, right is what was not learnt of new ones. The lower left quadrant, which the
paper marks PBT, PFT (positive backward and positive forward transfer), is the one to be in; nearest to the origin is
next best in the upper right. Deviation: the paper names that quadrant alone, here each has its name.

Accuracy against time with the Pareto front: what each second buys (Farquhar and Gal, C.7, Fig. 13 and 14). The upper
left corner is the one to be in. Deviations: the front is drawn, and the time may stand in powers of ten.

Names are kept apart: each takes the nearest place around its point where it covers the least. Greedy, in the order
given: cheap and the same every time, not the best layout there is. Where no place is free, the names overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation, Text

from vestige.core import checks
from vestige.core.checks import ArrayLike, as_tensor, number, one_of, refuse
from vestige.show import style

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
    points: Float[np.ndarray, "n 2"],
    avoid: Sequence[Artist] = (),
    nameless: Float[np.ndarray, "m 2"] | None = None,
) -> list[Annotation]:
    """Write `names` beside the `points` (x, y) of `axes`; limits and labels of the axes must be final by now.

    Names keep clear of each other, of all points, the `nameless` ones too, and of what is to `avoid`, where they can.
    """
    figure.draw_without_rendering()  # the layout settles, so that distances on the paper are known
    frame = axes.get_window_extent()
    dots = axes.transData.transform(points)
    unit = figure.dpi / 72  # pixels a point
    every = dots if nameless is None else np.vstack([dots, axes.transData.transform(nameless)])
    around = np.hstack([every - REACH * unit, every + REACH * unit])
    taken = np.vstack([around, *(np.array(artist.get_window_extent().extents) for artist in avoid)])
    written = []
    for name, at, dot in zip(names, points.tolist(), dots, strict=True):
        text = axes.annotate(name, at, textcoords="offset points", xytext=(0, 0), fontsize=9, path_effects=[HALO])
        text.set_in_layout(False)
        boxes = _boxes(dot, np.array(text.get_window_extent().size), unit)
        inside = np.all((boxes[:, :2] >= frame.min) & (boxes[:, 2:] <= frame.max), axis=1)
        hits = _overlaps(boxes, taken).sum(1) + ~inside
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


PLANE = "plane"
# How far the axes reach beyond the farthest point, and at least on the other side of zero, as shares of that distance.
MARGIN = 0.25
OTHER_SIDE = 0.45


def quadrant(forgetting: float, intransigence: float) -> str:
    """The quadrant of a method in words; zero counts as nothing lost."""
    old = "forgets" if forgetting > 0 else "keeps"
    new = "refuses to learn" if intransigence > 0 else "learns"
    return f"{old}, {new}"


def plane(
    points: Mapping[str, tuple[float, float]],
    *,
    title: str,
    errors: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """`points`: name -> (forgetting, intransigence), positive where something was lost; `errors`: their half-widths."""
    style.named(points, "points", PLANE)
    pairs = [checks.vector(pair, f"points[{name!r}]", PLANE, length=2).cpu().numpy() for name, pair in points.items()]
    F, I = np.stack(pairs, 1)  # noqa: E741
    halves = dict.fromkeys(points, (0.0, 0.0))
    for name, (up, right) in (errors or {}).items():
        of = f"errors[{one_of(name, points, 'errors', PLANE)!r}]"
        halves[name] = number(up, of, PLANE, low=0), number(right, of, PLANE, low=0)
    ups, rights = np.array(list(halves.values())).T

    with style.settings():
        lacks = "intransigence: what new tasks lack  \N{RIGHTWARDS ARROW}"
        figure, axes = style.sheet(6.4, 5.2, title, lacks, "forgetting: what old tasks lost  \N{RIGHTWARDS ARROW}")
        axes.set(xlim=_reach(I, rights), ylim=_reach(F, ups))
        avoid: list[Artist] = list(_name_quadrants(axes))
        for i, (name, x, y, right, up) in enumerate(zip(points, I, F, rights, ups, strict=True)):
            axes.plot(x, y, label=name, **_dots(i, 8))
            whiskers: dict[str, Any] = {"color": style.colour(i), "linewidth": 1, "zorder": 1.9}
            avoid += axes.plot([x, x], [y - up, y + up], marker="_", **whiskers) if up else []
            avoid += axes.plot([x - right, x + right], [y, y], marker="|", **whiskers) if right else []
        beside(figure, axes, style.words(list(points)), np.column_stack([I, F]), avoid)
    return figure


def _dots(i: int, size: int) -> dict[str, Any]:
    """How the points of the i-th method look."""
    return style.look(i) | {"linestyle": "none", "markeredgecolor": "white", "markersize": size}


def _name_quadrants(axes: Axes) -> list[Text]:
    """The two lines through zero, the good quadrant shaded, and each quadrant's name in its outer corner."""
    axes.axhline(0, color=style.BLACK, linewidth=0.9)
    axes.axvline(0, color=style.BLACK, linewidth=0.9)
    left, low = axes.get_xlim()[0], axes.get_ylim()[0]
    axes.add_patch(Rectangle((left, low), -left, -low, color=style.PALETTE[2], alpha=0.1, linewidth=0))
    corners = []
    for up, right in product((1, -1), repeat=2):
        x, ha = (0.985, "right") if right > 0 else (0.015, "left")
        y, va = (0.985, "top") if up > 0 else (0.015, "bottom")
        look: dict[str, Any] = {"color": style.GREY, "style": "italic", "gid": "quadrant", "ha": ha, "va": va}
        corners.append(axes.text(x, y, quadrant(up, right).replace(" ", "\n", 1), transform=axes.transAxes, **look))
    return corners


def _reach(values: Float[np.ndarray, " n"], halves: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Limits with zero inside and room on both sides, so that all four quadrants can be seen."""
    low, high = min(float((values - halves).min()), 0.0), max(float((values + halves).max()), 0.0)
    far = max(-low, high) or 1.0
    return min(low - MARGIN * far, -OTHER_SIDE * far), max(high + MARGIN * far, OTHER_SIDE * far)


FRONT = "scatter_front"


def pareto_front(seconds: Sequence[float], accuracy: Sequence[float]) -> list[int]:
    """Indices of the points that no other beats, fastest first: none is as fast and as accurate, and better in one.

    Of points that are equal in both, all are kept.
    """
    front: list[int] = []
    for i in sorted(range(len(seconds)), key=lambda i: (seconds[i], -accuracy[i])):
        last = front[-1] if front else None
        if last is None or accuracy[i] > accuracy[last] or (seconds[i], accuracy[i]) == (seconds[last], accuracy[last]):
            front.append(i)
    return front


def scatter_front(
    points: Mapping[str, ArrayLike],
    *,
    title: str,
    x_label: str = "seconds",
    y_label: str = "average accuracy",
    log: bool = False,
) -> Figure:
    """`points`: name of a method -> (seconds, accuracy), or a row of the two for each of its settings.

    `log` draws the seconds in powers of ten.
    """
    style.named(points, "points", FRONT)
    clouds = {name: _pairs(f"points[{name!r}]", value, log) for name, value in points.items()}
    every = np.concatenate(list(clouds.values()))
    front = every[pareto_front(every[:, 0].tolist(), every[:, 1].tolist())]

    with style.settings():
        figure, axes = style.sheet(7.0, 4.4, title, y_label=y_label)
        axes.set_xlabel(f"{style.word(x_label)}  (less is better)")
        if log:
            axes.set_xscale("log")
            style.plain_labels(axes.xaxis)
        stairs = style.REFERENCE | {"color": style.GREY, "drawstyle": "steps-post"}
        axes.plot(front[:, 0], front[:, 1], label="Pareto front", zorder=1.5, **stairs)
        for i, (name, cloud) in enumerate(clouds.items()):
            axes.plot(cloud[:, 0], cloud[:, 1], label=name, **_dots(i, 7))
        axes.margins(0.12)
        axes.autoscale_view()
        # One name a method, at its most accurate point.
        tops = np.stack([cloud[np.argmax(cloud[:, 1])] for cloud in clouds.values()])
        beside(figure, axes, style.words(list(clouds)), tops, nameless=every)
    return figure


def _pairs(name: str, value: ArrayLike, log: bool) -> Float[np.ndarray, "n 2"]:
    found = as_tensor(value, name, FRONT)
    pairs = checks.matrix(found[None] if found.ndim == 1 else found, name, FRONT).cpu().numpy()
    if pairs.shape[1] != 2:
        refuse(name, FRONT, "(seconds, accuracy)", f"{pairs.shape[1]} numbers")
    least = pairs[:, 0].min()
    if least < 0 or (log and least == 0):
        refuse(name, FRONT, f"seconds {'above 0 with log=True' if log else 'of 0 or more'}", f"{least:g}")
    return pairs
