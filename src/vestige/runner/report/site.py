"""Runs of several experiments on disk: a short index, and beside it a page of its own for each.

    report/index.html        report/NAME.html        report/NAME/figures        report/NAME/tables

Every page opens alone from disk; one page of everything would be too large to read or to send. Pages are drawn one at
a time, so that a folder of any size needs the memory of its largest experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vestige.runner.report.conclusion import conclusion, item, overall, word
from vestige.runner.report.files import Heard, Written, nothing, place, slug, write
from vestige.runner.report.page import page_of
from vestige.runner.report.reading import Group
from vestige.show import Link, Page, Table

INDEX = "index"


@dataclass(frozen=True)
class Site:
    """Where everything went, and what the index concludes."""

    index: Path
    lead: str
    pages: tuple[Written, ...]


def write_site(
    volumes: Mapping[str, Sequence[Group]], out: str | Path, *, files: bool = False, heard: Heard = nothing
) -> Site:
    """A page for each of `volumes` (`reading.volumes`) and the index, at OUT/index.html or at an OUT of NAME.html.

    `files` writes figures and tables of every page as well, which takes several times as long. `heard` is told the
    name of each page before it is drawn.
    """
    at, folder = place(out)
    names = page_names(volumes)
    pages = []
    for name, found in volumes.items():
        heard(name)
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
