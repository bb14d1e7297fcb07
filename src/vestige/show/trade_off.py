"""Accuracy against time with the Pareto front: what each second buys (Farquhar and Gal, C.7, Fig. 13 and 14).

The upper left corner is the one to be in. Deviations: the front is drawn, and the time may stand in powers of ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from vestige.core import checks
from vestige.core.checks import ArrayLike, refuse
from vestige.show import labels, style

OWNER = "scatter_front"


def pareto_front(seconds: Sequence[float], accuracy: Sequence[float]) -> list[int]:
    """Indices of the points that no other beats, fastest first: none is as fast and as accurate, and better in one.

    Of points that are equal in both, all are kept.
    """
    order = sorted(range(len(seconds)), key=lambda i: (seconds[i], -accuracy[i]))
    front: list[int] = []
    for i in order:
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
    style.named(points, "points", OWNER)
    clouds = {name: _pairs(name, value, log) for name, value in points.items()}
    every = np.concatenate(list(clouds.values()))
    front = every[pareto_front(every[:, 0].tolist(), every[:, 1].tolist())]

    with style.settings():
        figure, axes = style.sheet(7.0, 4.4, title)
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        stairs: dict[str, Any] = {
            "color": style.GREY,
            "linewidth": 1.1,
            "linestyle": (0, (4, 3)),
            "drawstyle": "steps-post",
        }
        axes.plot(front[:, 0], front[:, 1], label="Pareto front", zorder=1.5, **stairs)
        for i, (name, cloud) in enumerate(clouds.items()):
            marked: dict[str, Any] = {"color": style.colour(i), "marker": style.mark(i), "markeredgecolor": "white"}
            axes.plot(cloud[:, 0], cloud[:, 1], linestyle="none", markersize=7, label=name, **marked)
        axes.margins(0.12)
        axes.set_xlabel(f"{style.word(x_label)}  (less is better)")
        axes.set_ylabel(style.word(y_label))
        # One name a method, at its most accurate point.
        tops = np.stack([cloud[np.argmax(cloud[:, 1])] for cloud in clouds.values()])
        axes.autoscale_view()
        labels.beside(figure, axes, style.words(list(clouds)), tops[:, 0], tops[:, 1], avoid=[])
    return figure


def _pairs(name: str, value: ArrayLike, log: bool) -> Float[np.ndarray, "n 2"]:
    rows = np.asarray(checks.vector(value, f"points[{name!r}]", OWNER)) if _is_pair(value) else None
    pairs = rows[None] if rows is not None else checks.matrix(value, f"points[{name!r}]", OWNER).cpu().numpy()
    if pairs.shape[1] != 2:
        refuse(f"points[{name!r}]", OWNER, "(seconds, accuracy)", f"{pairs.shape[1]} numbers")
    if bool((pairs[:, 0] <= 0 if log else pairs[:, 0] < 0).any()):
        refuse(
            f"points[{name!r}]",
            OWNER,
            f"seconds {'above 0 with log=True' if log else 'of 0 or more'}",
            f"{pairs[:, 0].min():g}",
        )
    return pairs


def _is_pair(value: ArrayLike) -> bool:
    return np.ndim(value) == 1
