"""Numbers from delimited text: commas, semicolons, tabs or spaces; with or without a header and a column of labels.

A blank cell, and one that says nan, na, null, none or a dash, was not measured. A percent sign is dropped, the number
stays. Where a comma cannot be the delimiter it may be the decimal point. Every other cell that is not a finite number
(a word among numbers, a formula, a spreadsheet's error, an infinity) is refused by file, line and column.

What is a label: in the first line, when every cell is a word, or when the line counts 0, 1, 2 ... or 1, 2, 3 ... beside
a corner that is no number; in the first column, when every cell is a word, or when it counts below a header.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from vestige.core.errors import InputError

MISSING = frozenset({"", "nan", "na", "n/a", "null", "none", "-", "--", "\N{EN DASH}", "\N{EM DASH}"})
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
SHOWN = 40  # characters of a bad cell that an error repeats


@dataclass(frozen=True)
class Cells:
    """Rows of numbers of one length, NaN where nothing was measured; the labels that stood around them."""

    rows: list[list[float]]
    header: list[str] | None = None
    index: list[str] | None = None


@dataclass(frozen=True)
class _Line:
    number: int
    cells: list[str]


def parse(text: str, path: str, *, labels: str = "auto", vector: bool = False) -> Cells:
    """The cells of `text`; `path` names it in errors, `labels` says which are labels ("auto": see above)."""
    lines, decimal_comma = _split(text, path)
    if not lines:
        raise InputError(f"The file {path} must hold a matrix. Got nothing but blanks and comments instead.")
    header, index = _labels(lines, labels, vector)
    names = lines[0].cells if header else None
    body = lines[1:] if header else lines
    if not body:
        raise InputError(f"The file {path} must hold a row of numbers. Got a header alone instead.")
    places = [f"Line {line.number} of {path}" for line in body]
    widths = [len(line.cells) for line in body]
    short_corner = names is not None and index and len(names) == max(widths) - 1  # how R writes its tables
    if names is not None and not short_corner and len(names) != max(widths):
        _refuse_width(f"Line {lines[0].number} of {path}", max(widths), len(names))
    rectangle([w - index for w in widths], places)
    width = max(widths) - index
    rows = []
    for line in body:
        cells = enumerate(line.cells[index:], 1 + index)
        row = [_number(c, decimal_comma, f"Line {line.number}, column {j} of {path}") for j, c in cells]
        rows.append(row + [math.nan] * (width - len(row)))
    if names is not None:
        names = [name.strip() for name in (names if short_corner else names[index:])]
    return Cells(rows, names, [line.cells[0].strip() for line in body] if index else None)


def _split(text: str, path: str) -> tuple[list[_Line], bool]:
    """The lines that hold cells, and whether a comma is the decimal point (where it cannot be the delimiter)."""
    # A comment is "# " and words, as numpy writes it; "#REF!" is a broken cell.
    physical = ["" if re.match(r"#(\s|$)", line) else line for line in text.splitlines()]
    last = next((line for line in reversed(physical) if line.strip()), "")
    delimiter = next((d for d in "\t;," if d in last), None)
    if delimiter is None:
        return [_Line(i, line.split()) for i, line in enumerate(physical, 1) if line.strip()], False
    reader = csv.reader(physical, delimiter=delimiter, strict=True)
    lines = []
    try:
        lines = [_Line(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        place = f"Line {reader.line_num} of {path}"
        raise InputError(f"{place} must be cells delimited by {delimiter!r}. Got '{error}' instead.") from None
    return lines, delimiter != ","


def _labels(lines: Sequence[_Line], labels: str, vector: bool) -> tuple[bool, bool]:
    """Whether the first line and the first column are labels; see the top of this file."""
    if labels != "auto":
        return labels in ("header", "both"), labels in ("index", "both")
    first, body = lines[0].cells, lines[1:]
    column = [line.cells[0] for line in body]
    words = bool(column) and all(map(_is_word, column))
    counts = words or _counts(column)
    corner = not NUMBER.fullmatch(first[0].strip())
    header = bool(body) and (
        all(map(_is_word, first))
        or (all(map(_is_word, first[1:])) and len(first) > 1 and not first[0].strip())
        or (corner and counts and _counts(first[1:]))
        # A line of numbers too many, which counts: pandas writes it so.
        or (not vector and _counts(first) and len(body) == len(first))
    )
    if not header:
        return False, _is_word(first[0]) and (words or not body)
    room = max(len(line.cells) for line in body) - 1
    # Two rows may well count as values do (0, 1); three, or any beside an empty corner, are labels.
    certain = len(body) > 2 or not first[0].strip() or (len(body) == 2 and room >= (1 if vector else 2))
    return True, words or (counts and certain and room > 0)


def _is_word(cell: str) -> bool:
    """A label: has a letter, and is no missing value, infinity, formula or spreadsheet error."""
    text = cell.strip()
    plain = bool(text) and text[0] not in "=+-@#" and text.lower() not in MISSING and not INFINITY.fullmatch(text)
    return plain and any(c.isalpha() for c in text) and not NUMBER.fullmatch(text)


def _counts(cells: Sequence[str]) -> bool:
    """0, 1, 2 ... or 1, 2, 3 ..., written as whole numbers."""
    text = [cell.strip() for cell in cells]
    return bool(text) and any(text == [str(i + start) for i in range(len(text))] for start in (0, 1))


def _number(cell: str, decimal_comma: bool, place: str) -> float:
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    bare = text.removesuffix("%").rstrip()
    if decimal_comma and bare.count(",") == 1 and "." not in bare:
        bare = bare.replace(",", ".")
    number = float(bare) if NUMBER.fullmatch(bare) else math.inf
    return number if math.isfinite(number) else refuse_cell(place, cell)


def rectangle(widths: Sequence[int], places: Sequence[str]) -> None:
    """Refuse rows of unequal length, unless they are a triangle that leaves its empty half out."""
    triangle = list(range(1, len(widths) + 1))
    if list(widths) == triangle:
        return
    for width, place in zip(widths, places, strict=True):
        if width != widths[0] or not width:
            _refuse_width(place, max(widths[0], 1), width)


def _refuse_width(place: str, expected: int, width: int) -> NoReturn:
    raise InputError(f"{place} must have {expected} cell{'s' * (expected != 1)}. Got {width} instead.")


def refuse_cell(place: str, cell: object) -> NoReturn:
    """Refuse what should have been a number."""
    raise InputError(f"{place} must be a finite number, or blank if it was not measured. Got {shorten(cell)} instead.")


def shorten(value: object) -> str:
    """What was found instead, short enough for a sentence."""
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**SHOWN:  # spelling it out could take for ever
        return "a whole number far too large"
    text = repr(value[:SHOWN] if isinstance(value, str) else value)
    return text + " ..." if isinstance(value, str) and len(value) > SHOWN else text
