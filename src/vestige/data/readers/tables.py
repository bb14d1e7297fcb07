"""Tables on disk, whole or in batches: .csv, .parquet and Arrow IPC (.arrow, .feather).

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
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from vestige.core import checks
from vestige.data.formats import first_line, require_memory
from vestige.data.readers.address import Address, refuse_file, refuse_number

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
# Far more than any table that is compared has; each column takes time, whatever it holds.
MAX_COLUMNS = 100_000
# A .csv file with more blank lines than this before its header is none.
BLANK_LINES = 1000
CELL_BYTES = 8
BUFFER_BYTES = 1 << 20  # of a column of a .parquet file
IPC = (".arrow", ".feather")
# What pandas calls the column of an index without a name.
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# Whole numbers of so many digits may not be what float64 makes of them; those with more are too large for any float.
LONG_WHOLE = r"^[-+]?\d{16,39}$"


def is_missing(text: str) -> bool:
    """Whether a cell says that nothing was recorded."""
    return text.strip().lower() in MISSING


def read_table(at: Address, *, with_index: bool = False) -> tuple[pa.Table, tuple[str, ...]]:
    """The whole table, and what there is to say about how it was read; without what was an index in pandas."""
    notes: tuple[str, ...] = ()
    if at.suffix == ".csv":
        table, notes = csv_table(at)
    elif at.suffix in IPC:
        with _ipc(at) as file:
            require_memory(at, at.path.stat().st_size)
            names, index = (None, []) if with_index else _without_index(at, file.schema)
            table = pa.Table.from_batches([file.batch(i) for i in range(file.count)], file.schema)
            table = table if names is None else table.select(names)
    else:
        with _parquet(at) as file:
            require_memory(at, _unpacked(file.metadata))
            names, index = (None, []) if with_index else _without_index(at, file.schema_arrow)
            table = file.read(columns=names, use_threads=False)
    if at.suffix != ".csv" and index:
        notes = (f"{at.path.name}: {', '.join(index)} is the index of a pandas table and was left out",)
    if table.num_rows == 0:
        refuse_file(at, "a table with at least one row", "none")
    return table, notes


def table_batches(at: Address, rows: int, types: CsvTypes | None = None) -> Iterator[pa.Table]:
    """The table in batches, of a .parquet file of `rows` rows; columns of a .csv have `types`, or are float64."""
    if at.suffix == ".csv":
        yield from csv_batches(at, types)
        return
    if at.suffix in IPC:
        with _ipc(at) as ipc:
            names, _ = _without_index(at, ipc.schema)
            for i in range(ipc.count):
                table = pa.Table.from_batches([ipc.batch(i)])
                yield table if names is None else table.select(names)
        return
    with _parquet(at) as file:
        names, _ = _without_index(at, file.schema_arrow)
        for batch in file.iter_batches(batch_size=rows, columns=names, use_threads=False):
            yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class _IpcFile:
    """An open file of record batches; each is checked, for a hostile one could lead outside of its own memory."""

    reader: Any

    @property
    def schema(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        return self.reader.schema

    @property
    def count(self) -> int:
        return int(self.reader.num_record_batches)

    def batch(self, i: int) -> Any:  # noqa: ANN401
        found = self.reader.get_batch(i)
        found.validate(full=True)
        return found


@contextmanager
def _ipc(at: Address) -> Iterator[_IpcFile]:
    """The open file; what goes wrong while it is read is said in a sentence."""
    try:
        with pa.OSFile(str(at.path), "rb") as raw:
            file = _IpcFile(pa.ipc.open_file(raw))
            check_names(at, tuple(file.schema.names))
            yield file
    except (pa.ArrowException, OSError, MemoryError) as error:
        told = f"a torn or foreign one ({first_line(error)})"
        refuse_file(at, f"a whole {at.suffix} file of Arrow's IPC file format", told)


@contextmanager
def _parquet(at: Address) -> Iterator[Any]:
    """The open file; what goes wrong while it is read is said in a sentence."""
    try:
        schema = pa_parquet.read_schema(at.path)
        check_names(at, tuple(schema.names))
        # Texts stay in the dictionaries that they are stored in: spelt out, a long one could fill any memory.
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        # A column of a row group, which may be the whole file, is read as it is needed.
        with pa_parquet.ParquetFile(at.path, read_dictionary=texts, buffer_size=BUFFER_BYTES) as file:
            yield file
    except (pa.ArrowException, OSError, MemoryError) as error:
        refuse_file(at, "a whole .parquet file", f"a torn or foreign one ({first_line(error)})")


def _unpacked(metadata: Any) -> int:  # noqa: ANN401 - pyarrow has no types
    """Bytes that the table takes, as its metadata claims."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    rows = max(metadata.num_rows, sum(group.num_rows for group in groups))
    return max(rows * metadata.num_columns * CELL_BYTES, sum(group.total_byte_size for group in groups))


def _without_index(at: Address, schema: Any) -> tuple[list[str] | None, list[str]]:  # noqa: ANN401 - no types
    """The columns of a table, None for all, and those that were its index in pandas: by name, or by pandas' notes."""
    try:
        noted = (schema.pandas_metadata or {})["index_columns"]
    except (ValueError, LookupError, TypeError, RecursionError):  # none, or notes of another kind
        noted = []
    marked = {name for name in noted if isinstance(name, str)} if isinstance(noted, list) else set()
    index = [name for name in schema.names if name in marked or PANDAS_INDEX.fullmatch(name)]
    if not index:
        return None, []
    names = [name for name in schema.names if name not in index]
    if not names:
        refuse_file(at, "a table with columns beside the index of pandas", f"only {', '.join(index)}")
    return names, index


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
                if not line or blank > BLANK_LINES:
                    refuse_file(at, "a table with a header line", "blank lines alone")
    except UnicodeDecodeError:
        refuse_file(at, "a .csv file in UTF-8", "bytes that are not")
    separator = max(",;\t", key=line.count)
    _require_columns(at, line.count(separator) + 1 - line.count('"'))  # those between quotes are none
    try:
        names = [name.strip() for name in next(csv.reader([line], delimiter=separator))]
    except (csv.Error, StopIteration):
        refuse_file(at, "a .csv file with a header line", "a first line that cannot be split")
    if all(NUMBER.fullmatch(name) or NOT_FINITE.fullmatch(name) for name in names):
        return Dialect(separator, tuple(f"column {i}" for i in range(len(names))), False, blank)
    return Dialect(separator, tuple(names), True, blank + 1)


def _csv_options(
    at: Address, how: Dialect, types: dict[str, Any] | None, only: list[str] | None = None
) -> dict[str, Any]:
    check_names(at, how.names)
    return {
        # One thread, so that errors count rows; names are ours, so that a header of numbers is data.
        "read_options": pa_csv.ReadOptions(
            use_threads=False, block_size=BLOCK_BYTES, column_names=list(how.names), skip_rows=how.skip
        ),
        "parse_options": pa_csv.ParseOptions(delimiter=how.separator, newlines_in_values=True),
        "convert_options": pa_csv.ConvertOptions(
            null_values=_SPELLINGS, strings_can_be_null=True, column_types=types, include_columns=only
        ),
    }


def _require_columns(at: object, count: int) -> None:
    if count > MAX_COLUMNS:
        refuse_file(at, f"a table of at most {MAX_COLUMNS} columns", f"{count}")


def check_names(at: object, names: tuple[str, ...]) -> None:
    """Column names must be there and differ, and not be too many."""
    _require_columns(at, len(names))
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
    require_memory(at, max(at.path.stat().st_size, CELL_BYTES * _cells(at, how)))
    try:
        table = pa_csv.read_csv(at.path, **options)
        _require_exact(at, how, _large(table))
    except (pa.ArrowException, OSError, MemoryError) as error:
        _damaged_csv(at, error)
    return table, () if how.has_header else (f"{at.path.name} has no header line: its columns go by position",)


def _cells(at: Address, how: Dialect) -> int:
    """How many cells there are at most: separators and ends of lines."""
    count, separator = 0, how.separator.encode()
    with at.path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            count += block.count(separator) + block.count(b"\n")
    return count + 1


def _large(table: pa.Table) -> list[str]:
    """Columns of floats in which whole numbers may have been rounded."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_floating(column.type):
            low, high = (end.as_py() or 0.0 for end in pc.min_max(column).values())
            if max(-low, high) > checks.EXACT:
                found.append(name)
    return found


def _require_exact(at: Address, how: Dialect, names: list[str]) -> None:
    """Refuse whole numbers in these columns, as they are spelt, that float64 would make another number of."""
    if not names:
        return
    done = 0
    with pa_csv.open_csv(at.path, **_csv_options(at, how, dict.fromkeys(names, pa.string()), names)) as reader:
        for batch in reader:
            for name in names:
                text = pc.utf8_trim_whitespace(batch.column(name))
                whole = pc.fill_null(pc.match_substring_regex(text, LONG_WHOLE), False)
                for row in pc.indices_nonzero(whole).to_pylist():
                    if int(spelt := text[row].as_py()) != float(spelt):
                        refuse_number(at, name, spelt, done + row)
            done += batch.num_rows


CsvTypes: TypeAlias = "dict[str, pa.DataType]"
BOOLEAN = r"^(0|1|true|false|True|False|TRUE|FALSE)$"  # as Arrow reads it


def csv_types(at: Address) -> CsvTypes:
    """The type of each column that all of its rows allow: float64, boolean or text. Takes a pass over the file."""
    how = dialect(at)
    numbers, booleans = set(how.names), set(how.names)
    number = rf"^({DIGITS}|(?i:{NOT_FINITE.pattern}))$"
    try:
        with pa_csv.open_csv(at.path, **_csv_options(at, how, dict.fromkeys(how.names, pa.string()))) as reader:
            for batch in reader:
                numbers -= {n for n in numbers if not _all_match(pc.utf8_trim_whitespace(batch.column(n)), number)}
                booleans -= {n for n in booleans if not _all_match(batch.column(n), BOOLEAN)}
    except (pa.ArrowException, OSError, MemoryError) as error:
        _damaged_csv(at, error)
    kinds = [pa.float64() if n in numbers else pa.bool_() if n in booleans else pa.string() for n in how.names]
    return dict(zip(how.names, kinds, strict=True))


def _all_match(text: pa.Array, pattern: str) -> bool:
    return pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False  # None where all is missing


def csv_batches(at: Address, types: CsvTypes | None = None) -> Iterator[pa.Table]:
    """The table in batches, its columns of `types`, or all float64; what is not is refused with its column and row."""
    how = dialect(at)
    looked: set[str] = set()
    chosen = types or dict.fromkeys(how.names, pa.float64())
    try:
        with pa_csv.open_csv(at.path, **_csv_options(at, how, chosen)) as reader:
            for batch in reader:
                table = pa.Table.from_batches([batch])
                _require_exact(at, how, [name for name in _large(table) if name not in looked])
                looked.update(_large(table))
                yield table
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
