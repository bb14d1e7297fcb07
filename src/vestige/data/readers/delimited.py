"""Delimited text, read once: what separates the cells, what is a number, what is missing; as a table or as a matrix.

A cell is missing when it is blank or says nan, na, n/a, null, none, ? or a dash, in capitals or not.

A table (`csv_table`, `csv_batches`) is UTF-8 with a header line; its separator is the one of , ; or tab that the first
line holds most of; a first line of numbers alone is data, not a header. Rows must all be as long as the header, and
the errors name the row.

A matrix (`cells`) is delimited by commas, semicolons, tabs or spaces, with or without a header and a column of labels.
A percent sign is dropped, the number stays. Where a comma cannot be the delimiter it may be the decimal point. Every
other cell that is not a finite number (a word among numbers, a formula, a spreadsheet's error, an infinity) is refused
by file, line and column. What is a label: in the first line, when every cell is a word, or when the line counts 0, 1,
2 ... or 1, 2, 3 ... beside a corner that is no number; in the first column, when every cell is a word, or when it
counts below a header.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv as pa_csv

from vestige.core import InputError
from vestige.data.readers.address import Address, refuse_file

DASHES = ("-", "--", "\N{EN DASH}", "\N{EM DASH}")
# In small letters, without blanks around; `is_missing` asks for both.
MISSING = ("", "?", "nan", "na", "n/a", "null", "none", *DASHES)
# Arrow compares letter by letter: the spellings that occur.
_SPELLINGS = sorted({spell(word) for word in MISSING for spell in (str, str.upper, str.capitalize)} | {"NaN"})

DIGITS = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
NUMBER = re.compile(DIGITS, re.ASCII)
NOT_FINITE = re.compile(r"[-+]?(nan|inf(inity)?)", re.IGNORECASE)
SHOWN = 40  # characters of a bad cell that an error repeats

# A row of a .csv file must fit in one block.
BLOCK_BYTES = 1 << 24


def is_missing(text: str) -> bool:
    """Whether a cell says that nothing was recorded."""
    return text.strip().lower() in MISSING


@dataclass(frozen=True)
class Dialect:
    """How a .csv file is written."""

    separator: str
    names: tuple[str, ...]
    has_header: bool
    skip: int  # lines before the data


def dialect(at: Address) -> Dialect:
    """Separator and column names from the first line that is not blank."""
    try:
        with at.path.open(encoding="utf-8-sig", newline="") as file:
            line, blank = "", -1
            while not line.strip():
                line, blank = file.readline(BLOCK_BYTES), blank + 1
                if not line:
                    refuse_file(at, "a table with a header line", "blank lines alone")
    except UnicodeDecodeError:
        refuse_file(at, "a .csv file in UTF-8", "bytes that are not")
    separator = max(",;\t", key=line.count)
    try:
        names = [name.strip() for name in next(csv.reader([line], delimiter=separator))]
    except (csv.Error, StopIteration):
        refuse_file(at, "a .csv file with a header line", "a first line that cannot be split")
    if all(NUMBER.fullmatch(name) or NOT_FINITE.fullmatch(name) for name in names):
        return Dialect(separator, tuple(f"column {i}" for i in range(len(names))), False, blank)
    return Dialect(separator, tuple(names), True, blank + 1)


def _csv_options(at: Address, how: Dialect, types: dict[str, Any] | None) -> dict[str, Any]:
    check_names(at, how.names)
    return {
        # One thread, so that errors count rows; names are ours, so that a header of numbers is data.
        "read_options": pa_csv.ReadOptions(
            use_threads=False, block_size=BLOCK_BYTES, column_names=list(how.names), skip_rows=how.skip
        ),
        "parse_options": pa_csv.ParseOptions(delimiter=how.separator, newlines_in_values=True),
        "convert_options": pa_csv.ConvertOptions(null_values=_SPELLINGS, strings_can_be_null=True, column_types=types),
    }


def check_names(at: object, names: tuple[str, ...]) -> None:
    """Column names must be there and differ."""
    seen: set[str] = set()
    twice = sorted({name for name in names if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
    if twice:
        refuse_file(at, "a table whose columns have different names", f"more than one '{twice[0]}'")
    if "" in names:
        refuse_file(at, "a table whose columns all have names", f"column {names.index('') + 1} without one")


def csv_table(at: Address) -> tuple[pa.Table, tuple[str, ...]]:
    """The whole table, its types inferred over the whole column, and what there is to say about how it was read."""
    how = dialect(at)
    options = _csv_options(at, how, None)
    try:
        table = pa_csv.read_csv(at.path, **options)
    except (pa.ArrowException, OSError, MemoryError) as error:
        _damaged_csv(at, error)
    return table, () if how.has_header else (f"{at.path.name} has no header line: its columns go by position",)


def csv_batches(at: Address) -> Iterator[pa.Table]:
    """The table in batches, every column as float64; text is refused with its column and row."""
    how = dialect(at)
    try:
        with pa_csv.open_csv(at.path, **_csv_options(at, how, dict.fromkeys(how.names, pa.float64()))) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError, MemoryError) as error:
        _damaged_csv(at, error)


def first_line(error: BaseException) -> str:
    """What a library complains of, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _damaged_csv(at: Address, error: BaseException) -> NoReturn:
    """Arrow's complaint in our words, with the row it counted (the header is row 1)."""
    text = first_line(error)
    if found := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", text):
        row, want, got = found.groups()
        refuse_file(at, f"a table with {want} columns in every row", f"{got} in row {row}")
    if found := re.search(r"In CSV column #(\d+).*Row #(\d+).*invalid value '(.*)'", text):
        column, row, value = found.groups()
        name = dialect(at).names[int(column)]
        refuse_file(at, f"numeric in column '{name}' to be read in chunks", f"'{value}' in row {row}")
    if "invalid UTF8" in text:
        refuse_file(at, "a .csv file in UTF-8", "bytes that are not")
    refuse_file(at, "a whole .csv file", f"one that cannot be read ({text})")


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


def cells(text: str, path: str, *, labels: str = "auto", vector: bool = False) -> Cells:
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
        own = enumerate(line.cells[index:], 1 + index)
        row = [_number(c, decimal_comma, f"Line {line.number}, column {j} of {path}") for j, c in own]
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
    beside = max(len(line.cells) for line in body) - 1
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


def _number(cell: str, decimal_comma: bool, place: str) -> float:
    text = cell.strip()
    if is_missing(text):
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
