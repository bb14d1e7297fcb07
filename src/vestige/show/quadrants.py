"""The plane of forgetting and intransigence (RWalk, Fig. 3), with its four quadrants named in words.

Forgetting F (RWalk, Eq. 3) stands upwards and intransigence I (Eq. 4) to the right, as printed: up is what was lost of
old tasks, right is what was not learnt of new ones. The lower left quadrant, which the paper marks PBT, PFT (positive
backward and positive forward transfer), is the one to be in; nearest to the origin is next best in the upper right.
Deviation: the paper names that quadrant alone, here each has its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from vestige.core.checks import number, one_of, refuse
from vestige.show import labels, style

OWNER = "plane"
# How far the axes reach beyond the farthest point, and at least on the other side of zero, as shares of that distance.
ROOM = 0.25
OTHER_SIDE = 0.45
GOOD = "#009E73"


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
    style.named(points, "points", OWNER)
    F = np.array([_finite(f"points[{name!r}]", pair[0]) for name, pair in points.items()])
    I = np.array([_finite(f"points[{name!r}]", pair[1]) for name, pair in points.items()])  # noqa: E741
    given = {one_of(name, points, "errors", OWNER): _half(name, pair) for name, pair in (errors or {}).items()}
    halves = np.array([given.get(name, (0.0, 0.0)) for name in points])

    with style.settings():
        figure, axes = style.sheet(6.4, 5.2, title)
        axes.set_xlim(*_reach(I, halves[:, 1]))
        axes.set_ylim(*_reach(F, halves[:, 0]))
        avoid: list[Artist] = list(_name_quadrants(axes))
        for i, name in enumerate(points):
            look: dict[str, Any] = {
                "color": style.colour(i),
                "marker": style.mark(i),
                "markersize": 8,
                "markeredgecolor": "white",
            }
            axes.plot(I[i], F[i], linestyle="none", label=name, **look)
            up, right = halves[i]
            whiskers: dict[str, Any] = {"color": style.colour(i), "linewidth": 1, "zorder": 1.9}
            avoid += axes.plot([I[i], I[i]], [F[i] - up, F[i] + up], marker="_", **whiskers) if up else []
            avoid += axes.plot([I[i] - right, I[i] + right], [F[i], F[i]], marker="|", **whiskers) if right else []
        axes.set_xlabel("intransigence: what new tasks lack  \N{RIGHTWARDS ARROW}")
        axes.set_ylabel("forgetting: what old tasks lost  \N{RIGHTWARDS ARROW}")
        labels.beside(figure, axes, style.words(list(points)), I, F, avoid=avoid)
    return figure


def _name_quadrants(axes: Axes) -> list[Text]:
    """The two lines through zero, the good quadrant shaded, and each quadrant's name in its outer corner."""
    axes.axhline(0, color=style.BLACK, linewidth=0.9)
    axes.axvline(0, color=style.BLACK, linewidth=0.9)
    left, low = axes.get_xlim()[0], axes.get_ylim()[0]
    axes.add_patch(Rectangle((left, low), -left, -low, color=GOOD, alpha=0.1, linewidth=0))
    corners = []
    for up, right in product((1, -1), repeat=2):
        x, ha = (0.985, "right") if right > 0 else (0.015, "left")
        y, va = (0.985, "top") if up > 0 else (0.015, "bottom")
        look: dict[str, Any] = {"color": style.GREY, "style": "italic", "gid": "quadrant"}
        corners.append(
            axes.text(x, y, quadrant(up, right).replace(" ", "\n", 1), transform=axes.transAxes, ha=ha, va=va, **look)
        )
    return corners


def _finite(name: str, value: float) -> float:
    x = number(value, name, OWNER)
    if np.isinf(x):
        refuse(name, OWNER, "finite", x)
    return x


def _half(name: str, pair: tuple[float, float]) -> tuple[float, float]:
    vertical, horizontal = (number(value, f"errors[{name!r}]", OWNER, low=0) for value in pair)
    return vertical, horizontal


def _reach(values: Float[np.ndarray, " n"], halves: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Limits with zero inside and room on both sides, so that all four quadrants can be seen."""
    low, high = min(float((values - halves).min()), 0.0), max(float((values + halves).max()), 0.0)
    far = max(-low, high) or 1.0
    return min(low - ROOM * far, -OTHER_SIDE * far), max(high + ROOM * far, OTHER_SIDE * far)
