"""Pages on disk: one with all that it shows as files, or several with an index.

    report/index.html        report/figures/NAME.{png,pdf,svg}        report/tables/NAME.{csv,tex,md}
    report/index.html        report/NAME.html        report/NAME/figures        report/NAME/tables

The files come from the very objects that the page shows; a coloured matrix gives a table and a picture. Names are made
of the section's number and the title's plain letters, whatever else a title holds.

Runs of several experiments get a short index, and beside it a page of its own for each: every page opens alone from
disk, and one page of everything would be too large to read or to send. Pages are drawn one at a time, so that a folder
of any size needs the memory of its largest experiment.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from vestige import show as drawing
from vestige.runner.report.page import conclusion, item, overall, page_of, word
from vestige.runner.report.reading import Group
from vestige.show import Heat, Link, Page, Picture, Table
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


def nothing(words: str) -> None:
    """Hears what is being written, and does nothing."""


def place(out: str | Path) -> tuple[Path, Path]:
    """The page and the folder of an OUT: OUT/index.html in OUT, or NAME.html with NAME."""
    out = Path(out)
    named = out.suffix.lower() in (".html", ".htm")
    return (out, out.with_suffix("")) if named else (out / "index.html", out)


def write(page: Page, out: str | Path, *, files: bool = True, on_progress: Callable[[str], None] = nothing) -> Written:
    """`page` as OUT/index.html, its pictures and tables beside it; an OUT of NAME.html puts those into NAME.

    Without `files` the page is all that is written, in a fraction of the time. `on_progress` is told the name of each
    picture and table before it is written.
    """
    at, folder = place(out)
    drawn: list[Path] = []
    tables: list[Path] = []
    for name, exhibit in exhibits(page) if files else ():
        on_progress(name)
        if isinstance(exhibit, Table):
            formats = {"csv": exhibit.csv(), "tex": exhibit.latex(), "md": exhibit.markdown()}
            for suffix, text in formats.items():
                tables.append(folder / TABLES / f"{name}.{suffix}")
                write_bytes(tables[-1], text.encode())
        else:
            with drawing.settled(exhibit.figure):  # laid out once, drawn in each format
                for kind in KINDS:
                    drawn.append(folder / FIGURES / f"{name}.{kind}")
                    write_bytes(drawn[-1], exhibit.svg if kind == "svg" else drawing.encode(exhibit.figure, kind))
    return Written(page.save(at), tuple(drawn), tuple(tables))


def exhibits(page: Page) -> Iterator[tuple[str, Table | Picture]]:
    """Every table and picture of the page under a name of its own; a coloured matrix comes as both."""
    seen: dict[str, int] = {}
    for number, (heading, parts) in enumerate(page.sections, 1):
        for part in parts:
            if not isinstance(part, Table | Heat | Picture):
                continue
            plain = f"{number:02d}-{slug(title(part)) or slug(heading) or 'part'}"
            seen[plain] = seen.get(plain, 0) + 1
            name = plain if seen[plain] == 1 else f"{plain}-{seen[plain]}"
            if isinstance(part, Picture | Table):
                yield name, part
            else:
                yield name, part.table()
                yield name, Picture(picture(part), part.title or heading)


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


INDEX = "index"


@dataclass(frozen=True)
class Site:
    """Where everything went, and what the index concludes."""

    index: Path
    lead: str
    pages: tuple[Written, ...]


def write_site(
    volumes: Mapping[str, Sequence[Group]],
    out: str | Path,
    *,
    files: bool = False,
    on_progress: Callable[[str], None] = nothing,
) -> Site:
    """A page for each of `volumes` (`reading.volumes`) and the index, at OUT/index.html or at an OUT of NAME.html.

    `files` writes figures and tables of every page as well, which takes several times as long. `on_progress` is told
    the name of each page before it is drawn.
    """
    at, folder = place(out)
    names = page_names(volumes)
    pages = []
    for name, found in volumes.items():
        on_progress(name)
        pages.append(write(page_of(found), folder / f"{names[name]}.html", files=files))
    # The index comes last: whoever sees it finds every page that it names.
    prefix = "" if at.parent == folder else f"{folder.name}/"
    index = index_page(volumes, {name: f"{prefix}{file}.html" for name, file in names.items()})
    return Site(index.save(at), index.lead, tuple(pages))


def index_page(volumes: Mapping[str, Sequence[Group]], addresses: Mapping[str, str]) -> Page:
    """One line a group: the page it stands on, the verdict and the conclusion."""
    found = [group for own in volumes.values() for group in own]
    rows = []
    for group in found:
        seeds = len({record.seed for record in group.records})
        several = group.title.partition(item(group))[2].strip() if len(volumes[group.name]) > 1 else ""
        name = Link(f"{group.name} {several}".strip(), addresses[group.name])
        rows.append((name, item(group), word(group), seeds, len(group.records), conclusion(group)))
    columns = ("runs", "item", "verdict", "seeds", "Records", "in words")
    return Page("Runs", overall(found)).section("What came out", Table("Every experiment", columns, rows))


def page_names(volumes: Mapping[str, Sequence[Group]]) -> dict[str, str]:
    """A file name for each, made of plain letters, none twice."""
    names: dict[str, str] = {}
    for name in volumes:
        plain = slug(name) or "runs"
        taken = {INDEX, *names.values()}
        names[name] = next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, len(volumes) + 3))) if n not in taken)
    return names
