"""Pictures, tables and pages. They show what others measured and compute no result of their own.

Every picture is a `matplotlib.figure.Figure` made through matplotlib's object interface: nothing here touches pyplot or
leaves a changed setting behind. `encode` and `save` turn it into PNG, SVG or PDF; the same input gives the same bytes.
A `Page` puts text, tables and pictures into one HTML file that opens from disk and asks the network for nothing.

The files are loaded when a name is first used: a `Table` needs neither matplotlib nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.show.grids import Heat, images, matrix
    from vestige.show.page import Heading, Page, Part, Picture, Verbatim
    from vestige.show.points import pareto_front, plane, quadrant, scatter_front
    from vestige.show.series import bars, curves
    from vestige.show.style import encode, save, settled
    from vestige.show.tables import Link, Table

HOMES = {
    "Verbatim": "page",
    "Heading": "page",
    "Heat": "grids",
    "Link": "tables",
    "Page": "page",
    "Part": "page",
    "Picture": "page",
    "Table": "tables",
    "bars": "series",
    "curves": "series",
    "encode": "style",
    "images": "grids",
    "matrix": "grids",
    "pareto_front": "points",
    "plane": "points",
    "quadrant": "points",
    "save": "style",
    "scatter_front": "points",
    "settled": "style",
}

__all__ = [
    "Heading",
    "Heat",
    "Link",
    "Page",
    "Part",
    "Picture",
    "Table",
    "Verbatim",
    "bars",
    "curves",
    "encode",
    "images",
    "matrix",
    "pareto_front",
    "plane",
    "quadrant",
    "save",
    "scatter_front",
    "settled",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function or a class of one of the files
    if name in HOMES:
        return getattr(import_module(f"vestige.show.{HOMES[name]}"), name)
    raise AttributeError(f"module 'vestige.show' has no attribute {name!r}")
