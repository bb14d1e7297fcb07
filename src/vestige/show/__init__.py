"""Pictures, tables and pages. They show what others measured and compute no result of their own.

Every picture is a `matplotlib.figure.Figure` made through matplotlib's object interface: nothing here touches pyplot or
leaves a changed setting behind. `encode` and `save` turn it into PNG, SVG or PDF; the same input gives the same bytes.
A `Page` puts text, tables and pictures into one HTML file that opens from disk and asks the network for nothing.

The files are loaded when a name is first used: a `Table` needs neither matplotlib nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.show.columns import bars
    from vestige.show.encoding import encode, save, settled
    from vestige.show.heat import Heat, matrix
    from vestige.show.lines import curves
    from vestige.show.mosaic import images
    from vestige.show.page import Code, Heading, Page, Part, Picture
    from vestige.show.quadrants import plane, quadrant
    from vestige.show.tables import Link, Table
    from vestige.show.trade_off import pareto_front, scatter_front

HOMES = {
    "Code": "page",
    "Heading": "page",
    "Heat": "heat",
    "Link": "tables",
    "Page": "page",
    "Part": "page",
    "Picture": "page",
    "Table": "tables",
    "bars": "columns",
    "curves": "lines",
    "encode": "encoding",
    "images": "mosaic",
    "matrix": "heat",
    "pareto_front": "trade_off",
    "plane": "quadrants",
    "quadrant": "quadrants",
    "save": "encoding",
    "scatter_front": "trade_off",
    "settled": "encoding",
}

__all__ = [
    "Code",
    "Heading",
    "Heat",
    "Link",
    "Page",
    "Part",
    "Picture",
    "Table",
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
