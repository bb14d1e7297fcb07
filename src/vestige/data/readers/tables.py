"""Tables on disk: .csv and .parquet, whole or in batches; what separates the cells, what is a number, what is missing.

A cell is missing when it is blank or says nan, na, n/a, null, none, ? or a dash, in capitals or not.

A .csv is UTF-8 with a header line; its separator is the one of , ; or tab that the first line holds most of; a first
line of numbers alone is data, not a header. Rows must all be as long as the header, and the errors name the row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from vestige.data.formats import first_line
from vestige.data.readers.address import Address, refuse_file, require_memory

DASHES = ("-", "--", "\N{EN DASH}", "\N{EM DASH}")
# In small letters, without blanks around; `is_missing` asks for both.
MISSING = ("", "?", "nan", "na", "n/a", "null", "none", *DASHES)
# Arrow compares letter by letter: the spellings that occur.
_SPELLINGS = sorted({spell(word) for word in MISSING for spell in (str, str.upper, str.capitalize)} | {"NaN"})

DIGITS = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
NUMBER = re.compile(DIGITS, re.ASCII)
NOT_FINITE = re.compile(r"[-+]?(nan|inf(inity)?)", re.IGNORECASE)

# A row of a .csv file must fit in one block.
BLOCK_BYTES = 1 << 24


def is_missing(text: str) -> bool:
    """Whether a cell says that nothing was recorded."""
    return text.strip().lower() in MISSING


def read_table(at: Address) -> tuple[pa.Table, tuple[str, ...]]:
    """The whole table, and what there is to say about how it was read."""
    notes: tuple[str, ...] = ()
    if at.suffix == ".csv":
        table, notes = csv_table(at)
    else:
        with _parquet(at) as file:
            require_memory(at, file.metadata.num_rows * file.metadata.num_columns)
            table = file.read(use_threads=False)
    if table.num_rows == 0:
        refuse_file(at, "a table with at least one row", "none")
    return table, notes


def table_batches(at: Address, rows: int) -> Iterator[pa.Table]:
    """The table in batches; of a .csv every column as float64."""
    if at.suffix == ".csv":
        yield from csv_batches(at)
        return
    with _parquet(at) as file:
        for batch in file.iter_batches(batch_size=rows, use_threads=False):
            yield pa.Table.from_batches([batch])


@contextmanager
def _parquet(at: Address) -> Iterator[Any]:
    """The open file; what goes wrong while it is read is said in a sentence."""
    try:
        with pa_parquet.ParquetFile(at.path) as file:
            check_names(at, tuple(file.schema_arrow.names))
            yield file
    except (pa.ArrowException, OSError, MemoryError) as error:
        refuse_file(at, "a whole .parquet file", f"a torn or foreign one ({first_line(error)})")


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
