"""A page on disk, and all that it shows as files: pictures as PNG, PDF and SVG, tables as CSV, LaTeX and Markdown.

    report/index.html        report/figures/NAME.{png,pdf,svg}        report/tables/NAME.{csv,tex,md}

The files come from the very objects that the page shows; a coloured matrix gives a table and a picture. Names are made
of the section's number and the title's plain letters, whatever else a title holds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from vestige import drawing
from vestige.drawing import Heat, Page, Picture, Table
from vestige.store import write_bytes

FIGURES, TABLES = "figures", "tables"
KINDS = ("png", "pdf", "svg")
LONGEST_NAME = 60


@dataclass(frozen=True)
class Written:
    """Where everything went."""

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]


def write(page: Page, out: str | Path, *, files: bool = True) -> Written:
    """`page` as OUT/index.html, its pictures and tables beside it; an OUT of NAME.html puts those into NAME.

    Without `files` the page is all that is written, in a fraction of the time.
    """
    out = Path(out)
    named = out.suffix.lower() in (".html", ".htm")
    folder = out.with_suffix("") if named else out
    drawn: list[Path] = []
    tables: list[Path] = []
    for name, exhibit in exhibits(page) if files else ():
        if isinstance(exhibit, Table):
            formats = {"csv": exhibit.csv(), "tex": exhibit.latex(), "md": exhibit.markdown()}
            for suffix, text in formats.items():
                tables.append(folder / TABLES / f"{name}.{suffix}")
                write_bytes(tables[-1], text.encode())
        else:
            drawn += [drawing.save(exhibit, folder / FIGURES / f"{name}.{kind}") for kind in KINDS]
    return Written(page.save(out if named else folder / "index.html"), tuple(drawn), tuple(tables))


def exhibits(page: Page) -> Iterator[tuple[str, Table | Figure]]:
    """Every table and picture of the page under a name of its own; a coloured matrix comes as both."""
    seen: dict[str, int] = {}
    for number, (heading, parts) in enumerate(page.sections, 1):
        for part in parts:
            if not isinstance(part, Table | Heat | Picture):
                continue
            plain = f"{number:02d}-{slug(title(part)) or slug(heading) or 'part'}"
            seen[plain] = seen.get(plain, 0) + 1
            name = plain if seen[plain] == 1 else f"{plain}-{seen[plain]}"
            if isinstance(part, Picture):
                yield name, part.figure
            elif isinstance(part, Table):
                yield name, part
            else:
                yield name, part.table()
                yield name, picture(part)


def title(part: Table | Heat | Picture) -> str:
    """What a part is called; a picture by the title that is drawn on it."""
    if not isinstance(part, Picture):
        return part.title
    axes = part.figure.axes
    return (axes[0].get_title(loc="left") or axes[0].get_title()) if axes else part.alt


def picture(heat: Heat) -> Figure:
    """A coloured table as a picture for print."""
    names = {"rows": heat.rows, "columns": heat.columns, "title": heat.title, "row_label": heat.corner}
    return drawing.matrix(heat.values, better=heat.better, limits=heat.limits, **names)  # type: ignore[arg-type]


def slug(text: str) -> str:
    """Plain lower-case letters, digits and dashes: a name that any file system and shell takes."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:LONGEST_NAME].rstrip("-")
