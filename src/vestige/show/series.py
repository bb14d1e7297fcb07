"""Series of numbers: curves over steps or tasks, bars side by side, and Estimates under each other.

Curves have bands for intervals and references for the truth or a published value; bars have whiskers, and stand for
methods under names of settings, or for a published value beside ours. Estimates of one quantity have intervals, or
spreads that promise nothing and look like it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from vestige.core import Estimate
from vestige.core.checks import ArrayLike, one_of, refuse
from vestige.show import style

CURVES = "curves"


def curves(
    series: Mapping[str, ArrayLike],
    x: ArrayLike,
    *,
    title: str,
    x_label: str,
    y_label: str,
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    reference: Mapping[str, float | ArrayLike] | None = None,
    log: bool = False,
) -> Figure:
    """One line for each of `series` (name -> values, NaN where nothing was measured) over `x`, numbers or words.

    `bands`: name of a series -> (low, high), shaded behind it. `reference`: name -> a value or one value for each x,
    dashed and black. `log` draws the y axis in powers of ten: values must then be positive, and a band whose low end is
    not runs off the bottom.
    """
    style.named(series, "series", CURVES)
    places, ticks = _places(x)
    n = len(places)
    lines = {name: style.with_gaps(v, f"series[{name!r}]", CURVES, length=n) for name, v in series.items()}
    shades = {one_of(name, lines, "bands", CURVES): _band(name, ends, n) for name, ends in (bands or {}).items()}
    references = {
        name: style.with_gaps([v] * n if isinstance(v, int | float) else v, f"reference[{name!r}]", CURVES, length=n)
        for name, v in (reference or {}).items()
    }
    for what, drawn in (("series", lines), ("reference", references)):
        for name, values in drawn.items():
            if log and bool((values <= 0).any()):
                refuse(f"{what}[{name!r}]", CURVES, "positive with log=True", f"{np.nanmin(values):.4g}")

    names = [*lines, *references]
    with style.settings():
        figure, axes = style.sheet(5.6, 4.0, title, x_label, y_label, legend=names)
        beneath = [axes.plot(places, v, label=k, zorder=1.5, **style.REFERENCE)[0] for k, v in references.items()]
        handles = []
        for i, (name, values) in enumerate(lines.items()):
            if name in shades:
                axes.fill_between(places, *shades[name], color=style.colour(i), alpha=0.18, linewidth=0)
            handles += axes.plot(places, values, label=name, **style.look(i))
        style.say_if_blank(axes, *lines.values(), *references.values())
        style.legend(axes, [*handles, *beneath], names)
        if log:
            axes.set_yscale("log")
            style.plain_labels(axes.yaxis)
        if ticks is not None:
            axes.set_xticks(places, ticks, rotation=0 if sum(map(len, ticks)) < 60 else 35, ha="center")
        elif bool((places == np.round(places)).all()):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def while_training(curve: ArrayLike, at: ArrayLike, *, title: str, names: Sequence[str] | None = None) -> Figure:
    """Accuracy on each task while all of them train, one after the other: where a line falls and comes back is a gap.

    `curve` has a row for each moment and a column for each task, NaN for tasks to come; `at` the task that trained and
    its batch at each moment: `while_training` and `while_training_at` of a Record. Upright lines are borders; dots are
    the lowest accuracy of each task since its own training (min-ACC is their mean).
    """
    owner = "while_training"
    values = np.array([style.with_gaps(row, "curve", owner) for row in np.asarray(curve, dtype=float)])
    moments = np.asarray(at, dtype=float)
    if values.ndim != 2 or moments.shape != (len(values), 2) or not len(values):
        refuse("at", owner, f"a task and a batch for each of {len(values)} moments", f"shape {moments.shape}")
    tasks = moments[:, 0].astype(int)
    ends = np.array([moments[tasks == k, 1].max() if (tasks == k).any() else 0.0 for k in range(values.shape[1])])
    batch = moments[:, 1] + np.concatenate([[0.0], ends.cumsum()])[tasks]
    labels = [f"task {k + 1}" for k in range(values.shape[1])] if names is None else style.words(names)
    if len(labels) != values.shape[1]:
        refuse("names", owner, f"one for each of {values.shape[1]} tasks", len(labels))
    with style.settings():
        figure, axes = style.sheet(6.4, 4.0, title, "batches", "accuracy", legend=labels)
        handles = []
        for k in range(values.shape[1]):
            look = style.look(k) | {"marker": "", "linewidth": 1.2}
            handles += axes.plot(batch, values[:, k], label=labels[k], **look)
            later = (tasks > k) & np.isfinite(values[:, k])
            if later.any():
                low = np.flatnonzero(later)[values[later, k].argmin()]
                axes.plot(batch[low], values[low, k], "o", color=style.colour(k), markersize=4)
        for border in ends.cumsum()[:-1]:
            axes.axvline(border, color=style.BLACK, linewidth=0.6, alpha=0.5)
        style.say_if_blank(axes, *values.T)
        style.legend(axes, handles, labels)
        axes.set_ylim(-0.02, 1.02)
    return figure


def _places(x: ArrayLike) -> tuple[Float[np.ndarray, " n"], list[str] | None]:
    """Where the values stand, and the words under them if `x` is words."""
    if isinstance(x, Sequence) and len(x) and all(isinstance(v, str) for v in x):
        return np.arange(1.0, len(x) + 1), style.words(x)
    places = style.with_gaps(x, "x", CURVES)
    if bool(np.isnan(places).any()):
        refuse("x", CURVES, "finite", f"{int(np.isnan(places).sum())} NaN")
    return places, None


def _band(name: str, ends: tuple[ArrayLike, ArrayLike], n: int) -> Float[np.ndarray, "2 n"]:
    low, high = (style.with_gaps(end, f"bands[{name!r}]", CURVES, length=n) for end in ends)
    if bool((low > high).any()):
        at = int(np.argmax(low > high))
        refuse(f"bands[{name!r}]", CURVES, "(low, high) with low <= high", f"({low[at]:.4g}, {high[at]:.4g})")
    return np.stack([low, high])


BARS = "bars"
GROUP_WIDTH = 0.8


def bars(
    series: Mapping[str, ArrayLike],
    labels: Sequence[str],
    *,
    title: str,
    y_label: str,
    errors: Mapping[str, ArrayLike] | None = None,
) -> Figure:
    """A group of bars for each of `labels`, one bar in it for each of `series` (name -> one value a label).

    A NaN has no bar. `errors`: name -> half-widths, NaN where there is none.
    """
    style.named(series, "series", BARS)
    if not labels:
        refuse("labels", BARS, "at least one name", "none")
    n, k = len(labels), len(series)
    heights = {name: style.with_gaps(v, f"series[{name!r}]", BARS, length=n) for name, v in series.items()}
    halves = {one_of(name, heights, "errors", BARS): _half(name, v, n) for name, v in (errors or {}).items()}

    with style.settings():
        crowded = style.longest(labels) > 0.32 * (k + 1)
        wide = min(max(3.0, 0.7 + 0.32 * n * (k + 1)), 12.0) + (style.longest(labels) / 2 if crowded else 0)
        figure, axes = style.sheet(wide, 4.0, title, y_label=y_label, legend=list(heights))
        width = GROUP_WIDTH / k
        handles = []
        for i, (name, values) in enumerate(heights.items()):
            at = np.arange(n) + (i + 0.5) * width - GROUP_WIDTH / 2
            hatch = style.HATCHES[i % len(style.HATCHES)]
            filled = axes.bar(
                at, values, 0.92 * width, color=style.colour(i), hatch=hatch, edgecolor="white", linewidth=0
            )
            handles.append(filled)
            if name in halves:
                half = halves[name]
                shown = np.isfinite(values + half)
                axes.errorbar(
                    at[shown], values[shown], half[shown], color=style.BLACK, capsize=3, linewidth=1.1, fmt="none"
                )
        style.say_if_blank(axes, *heights.values())
        axes.axhline(0, color=style.BLACK, linewidth=0.8)
        style.legend(axes, handles, list(heights))
        slant, side = (35, "right") if crowded else (0, "center")
        axes.set_xticks(range(n), style.words(labels), rotation=slant, ha=side, rotation_mode="anchor")
        axes.set_xlim(-0.5, n - 0.5)  # a NaN at the end keeps its place
        axes.grid(visible=False, axis="x")
    return figure


def _half(name: str, value: ArrayLike, n: int) -> Float[np.ndarray, " n"]:
    half = style.with_gaps(value, f"errors[{name!r}]", BARS, length=n)
    if bool((half < 0).any()):
        refuse(f"errors[{name!r}]", BARS, "0 or larger", f"{np.nanmin(half):.4g}")
    return half


ESTIMATES = "estimates"


def estimates(
    values: Mapping[str, Estimate], *, title: str, x_label: str, reference: Mapping[str, float] | None = None
) -> Figure:
    """A row for each Estimate: a dot, its interval as a thick bar with ends, or its spread as a thin dotted line.

    A spread reaches one deviation to either side and has no ends, because it
    promises nothing. What was refused keeps its row, with that word. `reference`: name -> a value, dashed and upright.
    """
    style.named(values, "values", ESTIMATES)
    names, n = list(values), len(values)
    with style.settings():
        drawn = {"interval (95 %)": None, "spread, no interval": None, **dict.fromkeys(reference or {})}
        width = 4.4 + style.longest(names)
        figure, axes = style.sheet(width, 1.1 + 0.42 * n, title, x_label, legend=list(drawn))
        for i, (name, found) in enumerate(values.items()):
            at, value = n - 1 - i, float(found.value)
            if math.isfinite(float(found.low)) and math.isfinite(float(found.high)):
                reach = [[value - float(found.low)], [float(found.high) - value]]
                thick: dict[str, Any] = {
                    "color": style.colour(0),
                    "linewidth": 2.4,
                    "capsize": 4,
                    "capthick": 1.6,
                    "zorder": 2.0,
                }
                axes.errorbar([value], [at], xerr=reach, fmt="none", **thick)
            elif found.verdict == "spread" and math.isfinite(float(found.std_error)):
                ends = value - float(found.std_error), value + float(found.std_error)
                axes.plot(ends, (at, at), color=style.GREY, linestyle=":", linewidth=1.6, zorder=1.8)
            axes.plot([value], [at], marker="o", markersize=6, color=style.BLACK, linestyle="none", label=name)
            if not found.known:
                axes.text(0.02, at, "refused", transform=axes.get_yaxis_transform(), va="center", color=style.GREY)
        handles = [
            Line2D([], [], color=style.colour(0), linewidth=2.4),
            Line2D([], [], color=style.GREY, linestyle=":", linewidth=1.6),
        ]
        handles += [axes.axvline(value, zorder=1.5, **style.REFERENCE) for value in (reference or {}).values()]
        style.say_if_blank(axes, np.array([float(found.value) for found in values.values()]))
        axes.set_yticks(range(n - 1, -1, -1), style.words(names))
        axes.set_ylim(-0.6, n - 0.4)
        axes.grid(visible=False, axis="y")
        style.legend(axes, handles, list(drawn))
    return figure
