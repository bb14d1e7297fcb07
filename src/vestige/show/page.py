"""One self-contained HTML page: text, tables and pictures in a single file that opens from disk.

Nothing is fetched: the style and the small script stand in the page, pictures are inlined as data. It follows the
reader's light or dark setting, which a button changes, prints, fits a phone, and can be used by keyboard and screen
reader: status and answer before anything else, a link past the head, landmarks, one heading a section, a text for every
picture, tables that scroll and sort by buttons. Every text that comes in is escaped; a page says what it is given and
never runs it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self, TypeAlias

from matplotlib.figure import Figure

from vestige.core.checks import refuse
from vestige.show.grids import Heat
from vestige.show.style import encode
from vestige.show.tables import Table, templates
from vestige.store import write_bytes

# A picture of many marks is smaller as PNG: above this many bytes of SVG, PNG is taken.
SVG_BYTES = 150_000


@dataclass(frozen=True)
class Status:
    """How it stands, in a word and a colour: "good", "care" and "bad" are green, amber and red, "plain" is grey."""

    kind: Literal["good", "care", "bad", "plain"]
    word: str


@dataclass(frozen=True)
class Picture:
    """A figure with `alt`, what it shows in words for those who cannot see it, and an optional `caption` below."""

    figure: Figure
    alt: str
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.alt.strip():
            refuse("alt", "Picture", "words that say what the picture shows", repr(self.alt))

    @cached_property
    def svg(self) -> bytes:
        """As SVG, drawn once for the page and for a file beside it."""
        return encode(self.figure, "svg")

    @property
    def source(self) -> str:
        """The picture itself, as an address that holds it."""
        small = len(self.svg) <= SVG_BYTES
        kind, data = ("svg+xml", self.svg) if small else ("png", encode(self.figure, "png"))
        return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"

    @property
    def width(self) -> int:
        """In CSS pixels, of which an inch has 96."""
        return round(self.figure.get_figwidth() * 96)


@dataclass(frozen=True)
class Verbatim:
    """Commands or output, shown as they are."""

    text: str


@dataclass(frozen=True)
class Heading:
    """A heading inside a section, for a section of many parts."""

    text: str


# `templates/parts.html` has a macro for each, by its name.
Part: TypeAlias = str | Table | Heat | Picture | Verbatim | Heading


class Page:
    """A page under `title`, opened by `lead`: its conclusion in a sentence or two, or what to do.

    With a `status` the first heading is the `answer`, and the title stands beside the status.
    """

    def __init__(self, title: str, lead: str = "", *, status: Status | None = None, answer: str = "") -> None:
        if not title.strip():
            refuse("title", "Page", "a few words", repr(title))
        if (status is None) != (not answer.strip()):
            refuse("answer", "Page", "given with a 'status', and only then", repr(answer))
        self.title, self.lead, self.status, self.answer = title, lead, status, answer
        self.sections: tuple[tuple[str, tuple[Part, ...]], ...] = ()  # headings with their parts, as added

    def section(self, heading: str, *parts: Part) -> Self:
        """Add a section: each part a paragraph (a string), a `Table`, `Heat`, `Picture`, `Verbatim` or `Heading`.

        Returns the page, so that sections can be added in a row.
        """
        if not heading.strip():
            refuse("heading", "Page.section", "a few words", repr(heading))
        wrong = [type(part).__name__ for part in parts if not isinstance(part, Part)]
        if wrong:
            refuse("parts", "Page.section", "strings, Tables, Heats, Pictures, Verbatim or Headings", wrong[0])
        self.sections += ((heading, parts),)
        return self

    def html(self) -> str:
        """The whole page; the same parts give the same text."""
        return templates().get_template("page.html").render(page=self)

    def save(self, path: str | Path) -> Path:
        """The page at `path`, written whole or not at all."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            refuse("path", "Page.save", "a name that ends in .html", path.name)
        write_bytes(path, self.html().encode())
        return path
