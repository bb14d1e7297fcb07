"""Bars side by side with error bars: methods under names of settings, or a published value beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from vestige.core.checks import ArrayLike, number, one_of, refuse
from vestige.show import style

OWNER = "bars"
GROUP_WIDTH = 0.8


def bars(
    series: Mapping[str, ArrayLike],
    labels: Sequence[str],
    *,
    title: str,
    y_label: str,
    errors: Mapping[str, ArrayLike] | None = None,
    reference: Mapping[str, float] | None = None,
) -> Figure:
    """A group of bars for each of `labels`, one bar in it for each of `series` (name -> one value a label).

    A NaN has no bar. `errors`: name -> half-widths, NaN where there is none. `reference`: name -> level of a
    dashed line.
    """
    style.named(series, "series", OWNER)
    if not labels:
        refuse("labels", OWNER, "at least one name", "none")
    n = len(labels)
    heights = {name: style.with_gaps(v, f"series[{name!r}]", OWNER, length=n) for name, v in series.items()}
    halves = {one_of(name, heights, "errors", OWNER): _half(name, v, n) for name, v in (errors or {}).items()}
    levels = {name: number(v, f"reference[{name!r}]", OWNER) for name, v in (reference or {}).items()}

    with style.settings():
        width = GROUP_WIDTH / len(heights)
        beside, least = style.room([*heights, *levels])
        crowded = style.longest(labels) > 0.32 * (len(heights) + 1)
        wide = min(max(3.0, 0.7 + 0.32 * n * (len(heights) + 1)), 12.0) + (style.longest(labels) / 2 if crowded else 0)
        figure, axes = style.sheet(wide + beside, max(4.0, least), title)
        handles: list[Any] = []
        for i, (name, values) in enumerate(heights.items()):
            at = np.arange(n) + (i + 0.5) * width - GROUP_WIDTH / 2
            look: dict[str, Any] = {
                "color": style.colour(i),
                "hatch": style.HATCHES[i % len(style.HATCHES)],
                "edgecolor": "white",
            }
            handles.append(axes.bar(at, values, 0.92 * width, linewidth=0, label=name, **look))
            if name in halves:
                shown = np.isfinite(values) & np.isfinite(halves[name])
                whiskers: dict[str, Any] = {"color": style.BLACK, "capsize": 3, "linewidth": 1.1, "fmt": "none"}
                axes.errorbar(at[shown], values[shown], yerr=halves[name][shown], **whiskers)
        for name, level in levels.items():
            handles.append(axes.axhline(level, color=style.BLACK, linestyle=(0, (4, 3)), linewidth=1.1, label=name))
        style.say_if_blank(axes, *heights.values())
        axes.axhline(0, color=style.BLACK, linewidth=0.8)
        if len(handles) > 1:
            style.legend(axes, handles, [*heights, *levels])
        ticks = style.words(labels)
        axes.set_xticks(
            range(n), ticks, rotation=35 if crowded else 0, ha="right" if crowded else "center", rotation_mode="anchor"
        )
        axes.set_ylabel(style.word(y_label))
        axes.set_xlim(-0.5, n - 0.5)  # a NaN at the end keeps its place
        axes.grid(visible=False, axis="x")
    return figure


def _half(name: str, value: ArrayLike, n: int) -> Float[np.ndarray, " n"]:
    half = style.with_gaps(value, f"errors[{name!r}]", OWNER, length=n)
    if bool((half < 0).any()):
        refuse(f"errors[{name!r}]", OWNER, "0 or larger", f"{np.nanmin(half):.4g}")
    return half
