"""Pictures, tables and pages. They show what others measured and compute no result of their own.

Every picture is a `matplotlib.figure.Figure` made through matplotlib's object interface: nothing here touches pyplot or
leaves a changed setting behind. `encode` and `save` turn it into PNG, SVG or PDF; the same input gives the same bytes.
A `Page` puts text, tables and pictures into one HTML file that opens from disk and asks the network for nothing.

The files are loaded when a name is first used: a `Table` needs neither matplotlib nor torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vestige.show.grids import Heat as Heat
    from vestige.show.grids import images as images
    from vestige.show.grids import matrix as matrix
    from vestige.show.grids import signed_map as signed_map
    from vestige.show.page import Heading as Heading
    from vestige.show.page import Page as Page
    from vestige.show.page import Part as Part
    from vestige.show.page import Picture as Picture
    from vestige.show.page import Status as Status
    from vestige.show.page import Verbatim as Verbatim
    from vestige.show.points import pareto_front as pareto_front
    from vestige.show.points import plane as plane
    from vestige.show.points import quadrant as quadrant
    from vestige.show.points import scatter_front as scatter_front
    from vestige.show.series import bars as bars
    from vestige.show.series import curves as curves
    from vestige.show.series import estimates as estimates
    from vestige.show.series import while_training as while_training
    from vestige.show.style import encode as encode
    from vestige.show.style import save as save
    from vestige.show.style import settled as settled
    from vestige.show.tables import Link as Link
    from vestige.show.tables import Noted as Noted
    from vestige.show.tables import Table as Table

HOMES = {
    "grids": ("Heat", "images", "matrix", "signed_map"),
    "page": ("Heading", "Page", "Part", "Picture", "Status", "Verbatim"),
    "points": ("pareto_front", "plane", "quadrant", "scatter_front"),
    "series": ("bars", "curves", "estimates", "while_training"),
    "style": ("encode", "save", "settled"),
    "tables": ("Link", "Noted", "Table"),
}
__all__ = sorted(name for names in HOMES.values() for name in names)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a function or a class of one of the files
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'vestige.show' has no attribute {name!r}")
    return getattr(import_module(f"vestige.show.{home}"), name)
