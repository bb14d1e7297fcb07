"""A figure as bytes, and as a file that is written whole or not at all.

The same figure gives the same bytes: no dates, no versions, no random names. The drawing itself depends on the version
of matplotlib, and so may the bytes. Every format has one layout, so that a picture in three formats is laid out once.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vestige.core.checks import one_of
from vestige.show.style import settings
from vestige.store import write_bytes

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
