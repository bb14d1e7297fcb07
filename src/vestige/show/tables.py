"""A table, and how it is written: CSV for machines; Markdown, LaTeX and HTML for people.

People get the same number of decimals throughout a table (or each row or column of it), enough for the largest number
there; CSV gets every digit. Text is never read as markup: each format escapes its own, and control characters are spelt
out. In CSV a text that a spreadsheet would run as a formula gets an apostrophe before it, the one place where a cell is
changed.

This file imports neither torch nor matplotlib, so that the shell can print a table at once.
"""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from vestige.core import Estimate, InputError, rendered

if TYPE_CHECKING:
    from jinja2 import Environment

SIGNIFICANT, MOST_DECIMALS = 4, 12  # digits of the largest number; decimals at most
PROSE = 60  # letters from which a cell is prose, that no column may squeeze to a word a line
FOOTNOTE = 40  # letters from which the reason of an estimate stands below the table
Cell: TypeAlias = "str | float | int | Estimate | None"


class Link(str):
    """Words that lead somewhere in HTML, and are words anywhere else."""

    __slots__ = ("to",)
    to: str

    def __new__(cls, words: str, to: str) -> Self:
        """`words`, leading to the address `to`."""
        link = super().__new__(cls, words)
        link.to = to
        return link


class Noted(str):
    """Words with something to say about them that is too long for a cell: a footnote below the table."""

    __slots__ = ("note",)
    note: str

    def __new__(cls, words: str, note: str) -> Self:
        """`words`, explained by `note`."""
        noted = super().__new__(cls, words)
        noted.note = note
        return noted


@dataclass(frozen=True)
class Table:
    """A table as it is shown: `rows` of ready cells; numbers (None included) stand right, words and Estimates left.

    `alike` says which numbers share their decimals: those of the whole "table", of each "row" where every row is
    another quantity, or of each "column". Long reasons of Estimates, and notes of `Noted` words, are footnotes.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    alike: Literal["table", "row", "column"] = "table"

    def __post_init__(self) -> None:
        wide = len(self.columns)
        for row in self.rows:
            if len(row) != wide:
                raise InputError(f"The 'rows' of Table must be {wide} cells wide. Got {len(row)} instead.")

    def texts(self) -> list[list[str]]:
        """The cells as people read them, with the same decimals where they are `alike`, and marks of footnotes."""
        found = self.footnotes()
        marks = {text: f" [{i}]" for i, text in enumerate(found, 1)}
        if self.alike == "row":
            return [_alike(row, marks) for row in self.rows]
        if self.alike == "column" and self.rows:
            columns = [_alike(column, marks) for column in zip(*self.rows, strict=True)]
            return [list(row) for row in zip(*columns, strict=True)]
        places = decimals(v for row in self.rows for v in row if isinstance(v, float))
        return [[cell(value, places, marks) for value in row] for row in self.rows]

    def footnotes(self) -> list[str]:
        """What the marks [1], [2] ... of the cells stand for, each text once."""
        return list(dict.fromkeys(text for row in self.rows for value in row if (text := footnote(value))))

    def words(self) -> list[bool]:
        """For each column: does it hold words? Then it stands left."""
        return [any(isinstance(row[i], str | Estimate) for row in self.rows) for i in range(len(self.columns))]

    def csv(self) -> str:
        """Header and rows, every digit of every number, nothing for what is missing; title and note left out."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow([_no_formula(name) for name in self.columns])
        for row in self.rows:
            writer.writerow([_no_formula(rendered(v)) if isinstance(v, Estimate) else _exact(_whole(v)) for v in row])
        return buffer.getvalue()

    def markdown(self) -> str:
        """A pipe table as GitHub reads it, title before and note after."""
        return templates().get_template("table.md").render(part=self)

    def latex(self) -> str:
        """A `table` with booktabs rules (`\\usepackage{booktabs}`); UTF-8, as LaTeX reads it since 2018."""
        return templates().get_template("table.tex").render(part=self)

    def html(self, styles: Mapping[tuple[int, int], str] | None = None) -> str:
        """A `<table>` with caption and column heads; `styles`: (row, column) -> the `style` of that cell."""
        macros: Any = templates().get_template("parts.html").module
        return str(macros.grid(self, styles or {}))


def card(head: str, figures: Iterable[tuple[str, Cell]]) -> str:
    """A few figures under a line of words, as HTML for a notebook."""
    rows = [(name, cell(value) if isinstance(value, float) else value) for name, value in figures]
    drawn = Table("", ("", ""), rows).html() if rows else ""
    return f"<div class='vestige'><p>{html.escape(printable(head))}</p>{drawn}</div>"


@cache
def templates() -> Environment:
    """The templates of pages and tables. What is put into HTML is escaped, control characters are spelt out in all."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    found = Environment(
        loader=PackageLoader("vestige.show"),
        autoescape=select_autoescape(),
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {"exact": _exact, "line": one_line, "markdown": _markdown, "latex": _latex}
    found.tests |= {"measured": _is_number, "link": lambda value: isinstance(value, Link)}
    found.globals["PROSE"] = PROSE
    return found


def printable(text: str) -> str:
    """`text` with control characters and broken bytes spelt out, so that no file can drive what shows it."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def decimals(values: Iterable[float | None]) -> int:
    """How many decimals show SIGNIFICANT digits of the largest of `values`: 4 for 0.98, 2 for 98.2."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    before_the_point = math.ceil(math.log10(max(sizes))) if sizes else 0
    return min(max(SIGNIFICANT - before_the_point, 0), MOST_DECIMALS)


def footnote(value: Cell) -> str:
    """What is to say of a cell below the table."""
    if isinstance(value, Estimate):
        return value.reason if len(value.reason) >= FOOTNOTE else ""
    return value.note if isinstance(value, Noted) else ""


def _whole(value: Cell) -> Cell:
    """With its footnote behind it, for machines."""
    return f"{value} ({value.note})" if isinstance(value, Noted) and value.note else value


def cell(value: Cell, places: int = 4, marks: Mapping[str, str] | None = None) -> str:
    """One cell: a number with `places` decimals, a dash for what is not there; `marks` of what is said below."""
    if marks and (mark := marks.get(footnote(value))):
        plain = value.but(reason="") if isinstance(value, Estimate) else str(value)
        return cell(plain, places).removesuffix(": ") + mark
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if not isinstance(value, float):
        return printable(rendered(value) if isinstance(value, Estimate) else str(value))
    text = f"{value:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text


def _alike(values: Sequence[Cell], marks: Mapping[str, str]) -> list[str]:
    places = decimals(v for v in values if isinstance(v, float))
    return [cell(value, places, marks) for value in values]


def _is_number(value: Cell) -> bool:
    value = value.value if isinstance(value, Estimate) else value
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _exact(value: Cell) -> str:
    if isinstance(value, Estimate):
        return _exact(value.value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    # float(): numpy's own floats would say their type
    return repr(float(value)) if isinstance(value, float) else _no_formula(str(value))


def _no_formula(text: str) -> str:
    # The apostrophe is what spreadsheets themselves use for "this is text". A lone dash or a number runs nothing.
    shown = printable(text)
    return f"'{shown}" if re.match(r"[=+@-](?![\d.]*$)", shown) else shown


def one_line(text: str) -> str:
    """`text` on one line, control characters spelt out."""
    return " ".join(printable(text).split("\n"))


def _markdown(text: str) -> str:
    # Any ASCII punctuation may be escaped (CommonMark 2.4); these are the ones that could begin something.
    return re.sub(r"([\\`*_{}\[\]<>|~#$&!])", r"\\\1", one_line(text))


_SPELT = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {c: rf"\text{name}{{}}" for c, name in {**_SPELT, '"': "quotedbl"}.items()}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in one_line(text))
