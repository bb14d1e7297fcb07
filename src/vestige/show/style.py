"""How every picture looks: one palette, one set of marks, one sheet to draw on.

The colours are those of Okabe and Ito, told apart by colour-blind readers; yellow is left out because it vanishes on
white. Marks and dashes change with the colours, so that a grey print can be read as well. Settings of matplotlib hold
inside `settings()` alone and start from its own defaults, whatever the user's session says.

`encode` and `save` turn a figure into bytes and into a file that is written whole or not at all. The same figure gives
the same bytes: no dates, no versions, no random names. The drawing itself depends on the version of matplotlib, and so
may the bytes. Every format has one layout, so that a picture in three formats is laid out once.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from vestige.core.checks import ArrayLike, one_of, refuse, vector
from vestige.show.tables import one_line, printable
from vestige.store import write_bytes

BLACK = "#000000"
GREY = "#666666"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", BLACK)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
REFERENCE: dict[str, Any] = {"color": BLACK, "linestyle": (0, (4, 3)), "linewidth": 1.1}  # the truth, or a front
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")

# A longer name is cut, for it would push the picture off the paper; pages and tables have the whole of it.
LONGEST = 40
# Inches that a letter of a name, a letter of a title and a line of the legend take.
LETTER = 0.08
TITLE_LETTER = 0.12
LEGEND_LINE = 0.22

SETTINGS: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "font.size": 10,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "pdf.fonttype": 42,  # TrueType: what publishers ask for
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
    "svg.hashsalt": "vestige",  # names inside an SVG are else drawn at random
    "text.parse_math": False,  # a dollar sign in a user's name is a dollar sign
}
# Of the machine, not of the look; matplotlib does not reset them either.
_KEPT = {"backend", "backend_fallback", "interactive", "toolbar", "webagg.port", "webagg.address"}


@contextmanager
def settings() -> Iterator[None]:
    """Matplotlib's own defaults with `SETTINGS` on top, while the block runs; then all as it was."""
    values: dict[Any, Any] = {key: value for key, value in matplotlib.rcParamsDefault.items() if key not in _KEPT}
    with matplotlib.rc_context(values | SETTINGS), warnings.catch_warnings():
        # A name in a script that the font does not have is drawn as boxes; that is visible and no fault of the run.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        yield


def sheet(
    width: float, height: float, title: str, x_label: str = "", y_label: str = "", *, legend: Sequence[str] = ()
) -> tuple[Figure, Axes]:
    """An empty figure of that many inches with one set of axes; call it inside `settings()`.

    Beside it is room for a `legend` of those names.
    """
    if len(legend) > 1:
        width, height = width + 0.5 + longest(legend), max(height, 0.8 + LEGEND_LINE * len(legend))
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot(xlabel=word(x_label), ylabel=word(y_label))
    cut: dict[str, Any] = {"max_lines": 3, "placeholder": " \N{HORIZONTAL ELLIPSIS}"}
    axes.set_title("\n".join(textwrap.wrap(printable(title), max(int(width / TITLE_LETTER), 20), **cut)), loc="left")
    return figure, axes


def bare(axes: Axes) -> None:
    """No grid, no ticks, no frame: for cells and images, which are their own."""
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def plain_labels(axis: Axis) -> None:
    """Numbers beside an axis in powers of ten: matplotlib's own are formulas, which `SETTINGS` switch off."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def colour(i: int) -> str:
    """The colour of the i-th series; after the last it starts again, where marks and dashes still differ."""
    return PALETTE[i % len(PALETTE)]


def look(i: int) -> dict[str, Any]:
    """Colour, mark and dashes of the i-th series."""
    return {"color": colour(i), "marker": MARKS[i % len(MARKS)], "linestyle": DASHES[i % len(DASHES)]}


def with_gaps(value: ArrayLike, name: str, owner: str, *, length: int | None = None) -> Float[np.ndarray, " n"]:
    """`value` as an (n,) float64 array in which NaN stands for what was not measured; infinity is refused."""
    tensor = vector(value, name, owner, length=length, finite=False)
    if bool(torch.isinf(tensor).any()):
        refuse(name, owner, "finite, or NaN where nothing was measured", f"{int(tensor.isinf().sum())} infinite values")
    return tensor.cpu().numpy()


def named(series: Mapping[str, Any], name: str, owner: str) -> None:
    """Refuse a picture of nothing."""
    if not series:
        refuse(name, owner, "at least one name with its values", "none")


def word(value: object) -> str:
    """A name as it is drawn: on one line, control characters spelt out, cut after `LONGEST` characters."""
    text = one_line(str(value))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"


def words(values: Sequence[object]) -> list[str]:
    """Names as they are drawn."""
    return [word(value) for value in values]


def say_if_blank(axes: Axes, *values: Float[np.ndarray, "..."]) -> None:
    """Say so in the middle of the axes if there is not one number to show."""
    if not any(np.isfinite(v).any() for v in values):
        axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", va="center", color=GREY)


def longest(names: Sequence[str]) -> float:
    """Inches that the longest of `names` takes as it is drawn."""
    return LETTER * max((len(name) for name in words(names)), default=0)


def legend(axes: Axes, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Names beside the axes, where they cover no data; a single one needs none."""
    if len(handles) > 1:
        axes.legend(list(handles), words(names), loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)


# What matplotlib would otherwise write about itself and about the hour.
PASSES = 3
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Creator": None, "Date": None, "Format": None, "Type": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}


@contextmanager
def settled(figure: Figure) -> Iterator[None]:
    """The layout of `figure`, found once and held while the block runs; then it is free again."""
    engine = figure.get_layout_engine()
    with settings():
        if engine is not None:
            # Axes that keep their shape move with each layout, and settle down in a few.
            shaped = any(axes.get_aspect() != "auto" for axes in figure.axes)
            for _ in range(PASSES if shaped else 1):
                figure.draw_without_rendering()
            figure.set_layout_engine(None)  # else matplotlib draws everything once more to lay it out
        try:
            yield
        finally:
            figure.set_layout_engine(engine)


def encode(figure: Figure, kind: str) -> bytes:
    """`figure` as "png", "svg" or "pdf"."""
    kind = one_of(kind, METADATA, "kind", "encode")
    buffer = io.BytesIO()
    with settled(figure):
        figure.savefig(buffer, format=kind, metadata=METADATA[kind])
    return buffer.getvalue()


def save(figure: Figure, path: str | Path) -> Path:
    """`figure` at `path`, in the format of its suffix: .png, .svg or .pdf."""
    path = Path(path)
    kind = one_of(path.suffix.lower().lstrip("."), METADATA, "suffix", "drawing.save")
    write_bytes(path, encode(figure, kind))
    return path
