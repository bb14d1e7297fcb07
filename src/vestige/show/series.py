"""Series of numbers: curves over steps or tasks, and bars side by side.

Curves have bands for intervals and references for the truth or a published value; bars have whiskers, and stand for
methods under names of settings, or for a published value beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from vestige.core.checks import ArrayLike, number, one_of, refuse
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
    lines = {name: style.with_gaps(v, f"series[{name!r}]", CURVES, length=len(places)) for name, v in series.items()}
    shades = {name: _band(name, ends, lines, len(places)) for name, ends in (bands or {}).items()}
    references = {name: _level(name, value, len(places)) for name, value in (reference or {}).items()}
    for what, drawn in (("series", lines), ("reference", references)):
        for name, values in drawn.items():
            if log and bool((values <= 0).any()):
                refuse(f"{what}[{name!r}]", CURVES, "positive with log=True", f"{np.nanmin(values):.4g}")

    with style.settings():
        beside, least = style.legend_space([*lines, *references])
        figure, axes = style.sheet(5.6 + beside, max(4.0, least), title)
        handles: list[Any] = []
        for name, values in references.items():
            style_of: dict[str, Any] = {"color": style.BLACK, "linestyle": (0, (4, 3)), "linewidth": 1.1, "zorder": 1.5}
            handles += axes.plot(places, values, label=name, **style_of)
        for i, (name, values) in enumerate(lines.items()):
            if name in shades:
                low, high = shades[name]
                axes.fill_between(places, low, high, color=style.colour(i), alpha=0.18, linewidth=0)
            marked: dict[str, Any] = {"color": style.colour(i), "linestyle": style.dash(i), "marker": style.mark(i)}
            handles += axes.plot(places, values, label=name, **marked)
        style.say_if_blank(axes, *lines.values(), *references.values())
        if len(handles) > 1:
            # Series first, references last, though they lie beneath.
            names = [*lines, *references]
            style.legend(axes, [*handles[len(references) :], *handles[: len(references)]], names)
        axes.set_xlabel(style.word(x_label))
        axes.set_ylabel(style.word(y_label))
        _ticks(axes, places, ticks, log)
    return figure


def _places(x: ArrayLike) -> tuple[Float[np.ndarray, " n"], list[str] | None]:
    """Where the values stand, and the words under them if `x` is words."""
    if isinstance(x, Sequence) and len(x) and all(isinstance(v, str) for v in x):
        return np.arange(1.0, len(x) + 1), style.words(x)
    places = style.with_gaps(x, "x", CURVES)
    if bool(np.isnan(places).any()):
        refuse("x", CURVES, "finite", f"{int(np.isnan(places).sum())} NaN")
    return places, None


def _band(
    name: str, ends: tuple[ArrayLike, ArrayLike], lines: Mapping[str, Any], n: int
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    one_of(name, lines, "bands", CURVES)
    low, high = (style.with_gaps(end, f"bands[{name!r}]", CURVES, length=n) for end in ends)
    if bool((low > high).any()):
        at = int(np.argmax(low > high))
        refuse(f"bands[{name!r}]", CURVES, "(low, high) with low <= high", f"({low[at]:.4g}, {high[at]:.4g})")
    return low, high


def _level(name: str, value: float | ArrayLike, n: int) -> Float[np.ndarray, " n"]:
    """A reference as one value for each x."""
    if isinstance(value, int | float):
        value = [float(value)] * n
    return style.with_gaps(value, f"reference[{name!r}]", CURVES, length=n)


def _ticks(axes: Axes, places: Float[np.ndarray, " n"], ticks: list[str] | None, log: bool) -> None:
    if log:
        axes.set_yscale("log", nonpositive="clip")
        # Matplotlib's own labels are formulas, and formulas are switched off for the sake of users' names.
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    if ticks is not None:
        axes.set_xticks(places, ticks, rotation=0 if sum(map(len, ticks)) < 60 else 35, ha="center")
    elif bool((places == np.round(places)).all()):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


BARS = "bars"
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
    style.named(series, "series", BARS)
    if not labels:
        refuse("labels", BARS, "at least one name", "none")
    n = len(labels)
    heights = {name: style.with_gaps(v, f"series[{name!r}]", BARS, length=n) for name, v in series.items()}
    halves = {one_of(name, heights, "errors", BARS): _half(name, v, n) for name, v in (errors or {}).items()}
    levels = {name: number(v, f"reference[{name!r}]", BARS) for name, v in (reference or {}).items()}

    with style.settings():
        width = GROUP_WIDTH / len(heights)
        beside, least = style.legend_space([*heights, *levels])
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
    half = style.with_gaps(value, f"errors[{name!r}]", BARS, length=n)
    if bool((half < 0).any()):
        refuse(f"errors[{name!r}]", BARS, "0 or larger", f"{np.nanmin(half):.4g}")
    return half
