"""A matrix from a file of any framework: delimited text, .npy or JSON, told apart by their content.

Percentages stay as they are. A JSON null and a NaN are cells that were not measured; a triangle may leave its empty
half out. What is not a finite number is refused by file and place; nothing is skipped, evaluated or guessed.

Text (`cells`) is delimited by commas, semicolons, tabs or spaces, with or without a header and a column of labels.
A percent sign is dropped, the number stays. Where a comma cannot be the delimiter it may be the decimal point. Every
other cell that is not a finite number (a word among numbers, a formula, a spreadsheet's error, an infinity) is refused
by file, line and column. What is a label: in the first line, when every cell is a word, or when the line counts 0, 1,
2 ... or 1, 2, 3 ... beside a corner that is no number; in the first column, when every cell is a word, or when it
counts below a header.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from vestige import store
from vestige.core import InputError
from vestige.data.readers.tables import NOT_FINITE, NUMBER, is_missing

# Far above any matrix of tasks, far below what would fill the memory.
MAX_BYTES = 64 * 2**20
MAX_CELLS = 10**6
SHOWN = 40  # characters of a bad cell that an error repeats


@dataclass(frozen=True)
class Cells:
    """Rows of numbers of one length, NaN where nothing was measured; the labels that stood around them."""

    rows: list[list[float]]
    header: list[str] | None = None
    index: list[str] | None = None
    percent: bool = False  # whether each number had a percent sign


def read_matrix(path: Path, *, labels: str = "auto", vector: bool = False) -> Cells:
    """The matrix in `path` ("-": standard input), or with `vector` a single row or column of numbers as well."""
    data = file_bytes(path)
    if data.startswith(b"\x93NUMPY"):
        return Cells(nested(npy_values(data, path), path, vector))
    text = file_text(data, path)
    if text.lstrip().startswith(("[", "{")):
        return Cells(_from_json(text, path, vector))
    return cells(text, str(path), labels=labels, vector=vector)


def file_bytes(path: Path) -> bytes:
    """All of a file, or of standard input."""
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with store.regular(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"The file {path} must be one that can be read. Got '{error.strerror}' instead.") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"The file {path} must be at most {MAX_BYTES // 2**20} MB large. Got more instead.")
    return data


def require_cells(count: int, path: object) -> None:
    """Refuse more cells than any matrix of tasks has."""
    if count > MAX_CELLS:
        raise InputError(f"The file {path} must hold at most {MAX_CELLS} cells. Got {count} instead.")


def file_text(data: bytes, path: Path) -> str:
    """The text that the bytes are."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        got = f"a byte in line {line} that is none of these"
        raise InputError(f"The file {path} must be text, JSON or .npy. Got {got} instead.") from None
    if "\0" in text:
        raise InputError(f"The file {path} must be text, JSON or .npy. Got binary data instead.")
    return text


def npy_values(data: bytes, path: Path) -> Any:  # noqa: ANN401 - of any depth
    """The numbers of an .npy as nested lists."""
    import numpy as np

    from vestige.data.readers.arrays import npy_header

    try:
        shape = npy_header(io.BytesIO(data)).shape
        require_cells(math.prod(max(side, 1) for side in shape), path)  # a row without cells is a row
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except InputError:
        raise
    except Exception as error:  # a header made to hurt can raise almost anything in numpy's parser
        raise InputError(f"The file {path} must be a whole .npy of numbers. Got '{error}' instead.") from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"The file {path} must be a .npy of numbers. Got {array.dtype} instead.")
    return array.astype(np.float64).tolist()


def json_values(text: str, path: Path) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What the file says, as plain values."""
    require_cells(text.count(","), path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"Line {error.lineno}, column {error.colno} of {path}"
        raise InputError(f"{place} must be JSON. Got '{error.msg}' instead.") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"The file {path} must be JSON of plain nested lists. Got '{error}' instead.") from None


def _from_json(text: str, path: Path, vector: bool) -> list[list[float]]:
    value = json_values(text, path)
    if isinstance(value, dict):
        key = next((key for key in ("R", "matrix") if key in value), None)
        if key is None:
            got = ", ".join(map(repr, list(value)[:5])) or "none"
            raise InputError(f"The object in {path} must have a key 'R' or 'matrix'. Got the keys {got} instead.")
        value = value[key]
    return nested(value, path, vector)


def nested(value: object, path: Path, vector: bool) -> list[list[float]]:
    """Rows from nested lists; one flat list is a vector."""
    if not isinstance(value, list) or not value:
        raise InputError(f"The file {path} must hold a list of rows. Got {shorten(value)} instead.")
    if vector and not any(isinstance(row, list) for row in value):
        value = [value]
    rows = {f"Row {i}": row for i, row in enumerate(value, 1)}
    for place, row in rows.items():
        if not isinstance(row, list):
            raise InputError(f"{place} of {path} must be a list of numbers. Got {shorten(row)} instead.")
    return _numbers(rows, path, value_of)


def value_of(value: object, place: str) -> float:
    """A value of JSON as a number."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse_cell(place, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return number if math.isfinite(number) else _refuse_cell(place, value)


def cells(text: str, path: str, *, labels: str = "auto", vector: bool = False) -> Cells:
    """The cells of `text`; `path` names it in errors, `labels` says which are labels ("auto": see above)."""
    lines, decimal_comma = split_lines(text, path)
    if not lines:
        raise InputError(f"The file {path} must hold a matrix. Got nothing but blanks and comments instead.")
    header, index = _labels([line for _, line in lines], labels, vector)
    body = lines[1:] if header else lines
    if not body:
        raise InputError(f"The file {path} must hold a row of numbers. Got a header alone instead.")
    names = None
    if header:
        (first, names), width = lines[0], max(len(line) for _, line in body)
        short_corner = index and len(names) == width - 1  # how R writes its tables
        if not short_corner and len(names) != width:
            refuse_width(f"Line {first} of {path}", width, len(names))
        names = [name.strip() for name in (names if short_corner else names[index:])]
    rows = {f"Line {number}": line[index:] for number, line in body}
    numbers = _numbers(rows, path, partial(cell_of, decimal_comma=decimal_comma), first_column=1 + index)
    percent = all(cell.rstrip().endswith("%") or is_missing(cell) for row in rows.values() for cell in row)
    return Cells(numbers, names, [line[0].strip() for _, line in body] if index else None, percent)


def split_lines(text: str, path: str) -> tuple[list[tuple[int, list[str]]], bool]:
    """Lines with their numbers, and whether a comma is the decimal point (where it cannot be the delimiter)."""
    # A comment is "# " and words, as numpy writes it; "#REF!" is a broken cell.
    physical = text.splitlines()
    require_cells(len(physical), path)
    physical = ["" if re.match(r"#(\s|$)", line) else line for line in physical]
    last = next((line for line in reversed(physical) if line.strip()), "")
    delimiter = next((d for d in "\t;," if d in last), None)
    require_cells(sum(len(line.split(delimiter)) for line in physical), path)
    if delimiter is None:
        return [(i, line.split()) for i, line in enumerate(physical, 1) if line.strip()], False
    reader = csv.reader(physical, delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        place = f"Line {reader.line_num} of {path}"
        raise InputError(f"{place} must be cells delimited by {delimiter!r}. Got '{error}' instead.") from None
    return lines, delimiter != ","


def _labels(lines: Sequence[list[str]], labels: str, vector: bool) -> tuple[bool, bool]:
    """Whether the first line and the first column are labels; see the top of this file."""
    if labels != "auto":
        return labels in ("header", "both"), labels in ("index", "both")
    first, body = lines[0], lines[1:]
    column = [line[0] for line in body]
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
    beside = max(map(len, body)) - 1
    # Two rows may well count as values do (0, 1); three, or any beside an empty corner, are labels.
    certain = len(body) > 2 or not first[0].strip() or (len(body) == 2 and beside >= (1 if vector else 2))
    return True, words or (counts and certain and beside > 0)


def _is_word(cell: str) -> bool:
    """A label: has a letter, and is no missing value, infinity, formula or spreadsheet error."""
    text = cell.strip()
    plain = bool(text) and text[0] not in "=+-@#" and not is_missing(text) and not NOT_FINITE.fullmatch(text)
    return plain and any(c.isalpha() for c in text) and not NUMBER.fullmatch(text)


def _counts(cells: Sequence[str]) -> bool:
    """0, 1, 2 ... or 1, 2, 3 ..., written as whole numbers."""
    text = [cell.strip() for cell in cells]
    return bool(text) and any(text == [str(i + start) for i in range(len(text))] for start in (0, 1))


def cell_of(cell: str, place: str, *, decimal_comma: bool) -> float:
    """A cell of text as a number."""
    text = cell.strip()
    if is_missing(text):
        return math.nan
    bare = text.removesuffix("%").rstrip()
    if decimal_comma and bare.count(",") == 1 and "." not in bare:
        bare = bare.replace(",", ".")
    number = float(bare) if NUMBER.fullmatch(bare) else math.inf
    return number if math.isfinite(number) else _refuse_cell(place, cell)


def _numbers(
    rows: Mapping[str, list[Any]], path: object, number: Callable[[Any, str], float], first_column: int = 1
) -> list[list[float]]:
    """The rows, by where they stand, as numbers of one length; a triangle may leave its empty half out."""
    widths = [len(row) for row in rows.values()]
    if widths != list(range(1, len(rows) + 1)):
        for place, width in zip(rows, widths, strict=True):
            if width != widths[0] or not width:
                refuse_width(f"{place} of {path}", max(widths[0], 1), width)
    found = []
    for place, row in rows.items():
        read = [number(value, f"{place}, column {j} of {path}") for j, value in enumerate(row, first_column)]
        found.append(read + [math.nan] * (max(widths) - len(row)))
    return found


def refuse_width(place: str, expected: int, width: int) -> NoReturn:
    """Refuse a row of another length."""
    raise InputError(f"{place} must have {expected} cell{'s' * (expected != 1)}. Got {width} instead.")


def _refuse_cell(place: str, cell: object) -> NoReturn:
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
