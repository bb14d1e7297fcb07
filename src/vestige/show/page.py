"""One self-contained HTML page: text, tables and pictures in a single file that opens from disk.

Nothing is fetched: the style and the small script stand in the page, pictures are inlined as data. It follows the
reader's light or dark setting, which a button changes, prints, fits a phone, and can be used by keyboard and screen
reader: a link past the head, landmarks, one heading a section, a text for every picture, tables that scroll and sort by
buttons. Every text that comes in is escaped; a page says what it is given and never runs it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Self, TypeAlias

from matplotlib.figure import Figure

from vestige.core.checks import one_of, refuse
from vestige.show.encoding import encode
from vestige.show.heat import Heat
from vestige.show.page_style import CSS, SCRIPT
from vestige.show.tables import Table, printable
from vestige.store import write_bytes

MIME = {"svg": "image/svg+xml", "png": "image/png"}
# A picture of many marks is smaller as PNG: above this many bytes of SVG, PNG is taken.
SVG_BYTES = 150_000


@dataclass(frozen=True)
class Picture:
    """A figure with `alt`, what it shows in words for those who cannot see it, and an optional `caption` below.

    `kind` is "svg", "png" or "auto": SVG unless that is large.
    """

    figure: Figure
    alt: str
    caption: str = ""
    kind: str = "auto"

    def __post_init__(self) -> None:
        one_of(self.kind, {"auto", *MIME}, "kind", "Picture")
        if not self.alt.strip():
            refuse("alt", "Picture", "words that say what the picture shows", repr(self.alt))

    @cached_property
    def svg(self) -> bytes:
        """As SVG, drawn once for the page and for a file beside it."""
        return encode(self.figure, "svg")

    def html(self) -> str:
        """A `<figure>` with the picture inlined."""
        small = self.kind == "svg" or (self.kind == "auto" and len(self.svg) <= SVG_BYTES)
        kind, data = ("svg", self.svg) if small else ("png", encode(self.figure, "png"))
        source = f"data:{MIME[kind]};base64,{base64.b64encode(data).decode()}"
        width = round(self.figure.get_figwidth() * 96)  # CSS has 96 pixels an inch
        caption = f"<figcaption>{_text(self.caption)}</figcaption>" if self.caption else ""
        image = f'<img src="{source}" width="{width}" alt="{_attribute(self.alt)}">'
        scroll = '<div class="scroll" role="group" aria-label="Picture" tabindex="0">'
        return f"<figure>{scroll}{image}</div>{caption}</figure>\n"


@dataclass(frozen=True)
class Code:
    """Commands or output, shown as they are."""

    text: str

    def html(self) -> str:
        """A `<pre>` that scrolls."""
        return f'<pre tabindex="0"><code>{escape(printable(self.text))}</code></pre>\n'


@dataclass(frozen=True)
class Heading:
    """A heading inside a section, for a section of many parts."""

    text: str

    def html(self) -> str:
        """An `<h3>`."""
        return f"<h3>{_text(self.text)}</h3>\n"


Part: TypeAlias = "str | Table | Heat | Picture | Code | Heading"


class Page:
    """A page under `title`, opened by `lead`: its conclusion in a sentence or two."""

    def __init__(self, title: str, lead: str = "") -> None:
        if not title.strip():
            refuse("title", "Page", "a few words", repr(title))
        self.title = title
        self.lead = lead
        self._sections: list[tuple[str, tuple[Part, ...]]] = []

    def section(self, heading: str, *parts: Part) -> Self:
        """Add a section: each part a paragraph (a string), a `Table`, `Heat`, `Picture`, `Code` or `Heading`.

        Returns the page, so that sections can be added in a row.
        """
        if not heading.strip():
            refuse("heading", "Page.section", "a few words", repr(heading))
        for part in parts:
            if not isinstance(part, str | Table | Heat | Picture | Code | Heading):
                refuse(
                    "parts", "Page.section", "strings, Tables, Heats, Pictures, Code or Headings", type(part).__name__
                )
        self._sections.append((heading, parts))
        return self

    @property
    def sections(self) -> tuple[tuple[str, tuple[Part, ...]], ...]:
        """Headings with their parts, as added."""
        return tuple(self._sections)

    def html(self) -> str:
        """The whole page; the same parts give the same text."""
        contents = "".join(
            f'<li><a href="#section-{i}">{_text(heading)}</a></li>' for i, (heading, _) in enumerate(self._sections, 1)
        )
        nav = f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n' if len(self._sections) > 1 else ""
        sections = "".join(
            f'<section aria-labelledby="section-{i}">\n<h2 id="section-{i}">{_text(heading)}</h2>\n'
            f"{''.join(map(_part, parts))}</section>\n"
            for i, (heading, parts) in enumerate(self._sections, 1)
        )
        lead = f'<p class="lead">{_text(self.lead)}</p>\n' if self.lead else ""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n'
            f"<title>{escape(printable(self.title))}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
            '<a class="skip" href="#main">Skip to the content</a>\n'
            f"<header>\n<h1>{_text(self.title)}</h1>\n{lead}</header>\n{nav}"
            f'<main id="main" tabindex="-1">\n{sections}</main>\n'
            f"<footer>\n<p>Written by Vestige.</p>\n</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
        )

    def save(self, path: str | Path) -> Path:
        """The page at `path`, written whole or not at all."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            refuse("path", "Page.save", "a name that ends in .html", path.name)
        write_bytes(path, self.html().encode())
        return path


def _part(part: Part) -> str:
    if isinstance(part, str):
        return "".join(f"<p>{_text(paragraph)}</p>\n" for paragraph in part.split("\n\n") if paragraph.strip())
    if isinstance(part, Table | Heat):
        note = f'<p class="note">{_text(part.note)}</p>\n' if part.note else ""
        label = _attribute(part.title or "table")
        shown = f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">\n{part.html()}</div>\n{note}'
        # Matrices are small and come in numbers: they stand side by side where there is room.
        return f'<figure class="side">\n{shown}</figure>\n' if isinstance(part, Heat) else shown
    return part.html()


def _text(text: str) -> str:
    # <bdi>: words written from right to left turn only themselves around.
    return f"<bdi>{escape(printable(text))}</bdi>"


def _attribute(text: str) -> str:
    return escape(" ".join(printable(text).split()), quote=True)
