"""The mixed columns of tables as numbers, with a report of each column.

The kinds of a column are number, boolean, date, text, and empty (no value at all). Text that is all ISO 8601 dates
counts as dates; local forms such as 01/02/2020 do not, because they can be read in two ways.

There is one encoding for every table that is compared. Text becomes one column a category, the categories being what
the tables hold together; the rarest beyond a cap share one column, and columns of (nearly) unique text are dropped,
because an identifier has no distribution to compare. Missing text is a category; a missing number is an indicator
column and the pooled median. Dates are days since 1970, booleans 0 and 1. Columns are matched by name; a column that
only one table has, or that is text in one and numbers in the other, is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import InputError, checks
from vestige.data.formats import memory_limit, require_memory
from vestige.data.readers.address import refuse_number
from vestige.data.readers.tables import DIGITS, MISSING

DATE = r"^\d{4}-\d{2}-\d{2}([ T].*)?$"
MICROSECONDS_A_DAY = 86_400e6
FLOAT_BYTES = 8
# The most categories of one text column that get a column of their own.
MAX_CATEGORIES = 32
# Text that takes more different values than this share of the rows is an identifier.
ID_SHARE = 0.5


@dataclass(frozen=True)
class Column:
    """What was done to one column, and the features it became."""

    name: str
    kind: str
    treatment: str
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ColumnReport:
    """What was done to each column; `notes` concern the files as a whole, `shape` is that of an image."""

    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the numbers that came out, in their order."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def of_table(self) -> bool:
        """Whether columns have names and units of their own, as in tables."""
        own = (column.features == (column.name,) for column in self.columns)
        return any(one or column.kind not in ("number", "pixel") for one, column in zip(own, self.columns, strict=True))


def plain(column: pa.ChunkedArray, name: str, origin: str) -> pa.Array:
    """One array of a plain type: bool, number, timestamp or trimmed text; words for nothing become nulls."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # more than one array can hold
        raise InputError(f"The column '{name}' of {origin} must be smaller. Got {array.nbytes} bytes instead.")
    kind = array.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_string_view(kind.value_type):  # as polars hands over its categories; Arrow casts no such thing
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.large_string()))
            kind = array.type
        if pa.types.is_large_string(kind.value_type) or pa.types.is_string(kind.value_type):
            spelt = pc.sum(pc.take(pc.binary_length(array.dictionary).cast(pa.int64()), array.indices))
            require_memory(f"{origin}, column '{name}'", spelt.as_py() or 0)
        array = array.cast(kind.value_type)
        kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
        return pc.if_else(pc.is_in(pc.utf8_lower(text), value_set=pa.array(MISSING, pa.large_string())), None, text)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us"), safe=False)  # instants in UTC; a date without a zone counts as UTC
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        unit = pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")
        return pc.divide(array.cast(unit, safe=False).cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        number = array.cast(pa.float64(), safe=False)
        if pa.types.is_decimal(kind):
            _apart(array, number, name, origin)
        return pc.if_else(pc.is_nan(number), None, number)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return array
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise InputError(f"The column '{name}' of {origin} must be text in UTF-8. Got bytes that are not instead.")
    raise InputError(f"The column '{name}' of {origin} must be numbers, text, dates or booleans. Got {kind} instead.")


def kind_of(array: pa.Array) -> str:
    """number, boolean, date, text or empty."""
    if array.null_count == len(array):
        return "empty"
    if pa.types.is_boolean(array.type):
        return "boolean"
    if pa.types.is_timestamp(array.type):
        return "date"
    return "text" if pa.types.is_large_string(array.type) else "number"


def joint_kind(name: str, parts: list[pa.Array], origins: Sequence[str]) -> str:
    """The one kind of a column in every table; `parts` that are text but all dates become dates in place."""
    for i, part in enumerate(parts):
        if kind_of(part) == "text" and pc.all(pc.match_substring_regex(part, DATE)).as_py():
            parts[i] = _parsed_dates(part)
    kinds = [kind_of(part) for part in parts]
    present = set(kinds) - {"empty"}
    if not present or present == {"boolean", "number"}:
        return "number"
    if len(present) > 1:
        told = "; ".join(
            f"{kind} in {where}{_example(part)}" for kind, part, where in zip(kinds, parts, origins, strict=True)
        )
        raise InputError(f"The column '{name}' must be of one kind in both tables. Got {told} instead.")
    return present.pop()


def _parsed_dates(text: pa.Array) -> pa.Array:
    for zone in (None, "UTC"):
        try:
            return text.cast(pa.timestamp("us", zone)).cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            continue
    return text  # it looked like dates, but some are none


def _example(part: pa.Array) -> str:
    """A text that is no number, for the error that a stray one causes."""
    if kind_of(part) != "text":
        return ""
    is_number = pc.match_substring_regex(part, f"^{DIGITS}$")
    strays = part.filter(pc.invert(is_number)).drop_null()
    return f" (such as '{str(strays[0])[:40]}')" if len(strays) else ""


def _apart(decimals: pa.Array, number: pa.Array, name: str, origin: str) -> None:
    """Refuse decimals beyond 2^53 that are not the floats they become."""
    rows = pc.indices_nonzero(pc.fill_null(pc.greater(pc.abs(number), float(checks.EXACT)), False)).to_pylist()
    for row in rows:
        if (value := decimals[row].as_py()) != number[row].as_py():
            refuse_number(origin, name, value, row)


def opened(name: str, table: pa.Table, origin: str) -> tuple[str, pa.Array]:
    """One column in a plain form, and its kind; text that is all dates comes as dates."""
    parts = [plain(table.column(name), name, origin)]
    kind = kind_of(parts[0])
    return (kind if kind == "empty" else joint_kind(name, parts, [origin])), parts[0]


def ranked(texts: pa.Array) -> list[tuple[str, int]]:
    """The different texts with their numbers of rows, the commonest first, then by the alphabet."""
    counts = pc.value_counts(texts.drop_null())
    pairs = zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def nearly_unique(distinct: int, rows: int) -> bool:
    """Whether text of so many different values in so many rows is an identifier or free text."""
    return distinct > MAX_CATEGORIES and distinct > ID_SHARE * rows


def coded(texts: pa.Array, categories: Sequence[str]) -> NDArray[np.int64]:
    """The place of each text among `categories`; one beyond the last is any other text, two beyond a missing one."""
    known = pa.array(categories, pa.large_string())
    places = pc.fill_null(pc.index_in(texts, value_set=known), len(categories)).to_numpy(zero_copy_only=False)
    return np.asarray(places + texts.is_null().to_numpy(zero_copy_only=False), dtype=np.int64)


def floats(part: pa.Array, name: str, origin: str, *, first_row: int = 0) -> NDArray[np.float64]:
    """Float64 with NaN for null; what a float cannot hold is refused with its row, the first being `first_row`."""
    value = _as_floats(part)
    size = np.abs(value)
    if pa.types.is_integer(part.type) and (size > checks.EXACT).any():
        whole = part.fill_null(0).to_numpy(zero_copy_only=False)
        if len(bad := np.flatnonzero(checks.inexact(whole))):
            refuse_number(origin, name, whole[bad[0]], first_row + int(bad[0]))
    if (large := size > checks.LARGEST).any():
        row = int(np.flatnonzero(large)[0])
        must = "finite" if np.isinf(value[row]) else f"numbers no larger than {checks.LARGEST:.2g}"
        got = f"{value[row]:.4g} in data row {first_row + row + 1}"
        raise InputError(f"The column '{name}' of {origin} must be {must}. Got {got} instead.")
    return value


def _as_floats(part: pa.Array) -> NDArray[np.float64]:
    if pa.types.is_timestamp(part.type):
        days = part.cast(pa.int64()).cast(pa.float64(), safe=False)
        return np.asarray(days.to_numpy(zero_copy_only=False)) / MICROSECONDS_A_DAY
    if pa.types.is_boolean(part.type):
        part = part.cast(pa.uint8())
    # A column without a single value has whatever type; it is all null.
    as_float = pa.nulls(len(part), pa.float64()) if kind_of(part) == "empty" else part.cast(pa.float64(), safe=False)
    return np.array(as_float.to_numpy(zero_copy_only=False), dtype=np.float64)


def encode(
    tables: Sequence[pa.Table], origins: Sequence[str], *, drop: Sequence[str] = ()
) -> tuple[list[Float[Tensor, "_ d"]], ColumnReport]:
    """Each table as float64 samples of one width, and the report. `drop` names columns to leave out."""
    names, notes = _aligned(tables, origins)
    unknown = sorted(set(drop) - set(names))
    if unknown:
        raise InputError(f"The 'drop' of files.encode must be columns of {origins[0]}. Got '{unknown[0]}' instead.")
    blocks: list[Tensor] = []
    columns: list[Column] = []
    rows, width, limit = sum(table.num_rows for table in tables), 0, memory_limit()
    for name in names:
        if name in drop:
            columns.append(Column(name, "any", "dropped on request"))
            continue
        parts = [plain(table.column(name), name, origin) for table, origin in zip(tables, origins, strict=True)]
        kind = joint_kind(name, parts, origins)
        widest = MAX_CATEGORIES + 2 if kind == "text" else 2
        # Twice, for the columns are put together at the end.
        require_memory(origins[0], 2 * FLOAT_BYTES * rows * (width + widest), limit)
        coded = _encode_text if kind == "text" else _encode_number
        encoded, column = coded(name, kind, parts, origins)
        columns.append(column)
        blocks.append(encoded)
        width += encoded.shape[1]
    report = ColumnReport(tuple(columns), notes)
    if not report.features:
        raise InputError(f"The columns of {origins[0]} must leave something to compare. Got only dropped ones instead.")
    return list(torch.cat(blocks, 1).split([table.num_rows for table in tables])), report


def _aligned(tables: Sequence[pa.Table], origins: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Column names in the order of the first table, once every table has the same ones."""
    first = tables[0].column_names
    known = set(first)
    notes = []
    for table, origin in zip(tables[1:], origins[1:], strict=True):
        here = table.column_names
        there = set(here)
        only_first = [name for name in first if name not in there]
        only_here = [name for name in here if name not in known]
        if only_first or only_here:
            sides = [(origins[0], only_first), (origin, only_here)]
            told = "; ".join(f"{listed(names)} only in {where}" for where, names in sides if names)
            raise InputError(f"The columns of {origins[0]} and {origin} must be the same. Got {told} instead.")
        if here != first:
            notes.append(f"the columns of {origin} stand in another order; they were matched by name")
    return first, tuple(notes)


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names between quotes, the first `most` of them."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _encode_number(name: str, kind: str, parts: list[pa.Array], origins: Sequence[str]) -> tuple[Tensor, Column]:
    """Numbers, booleans and dates of all tables: one feature, and an indicator where anything is missing."""
    values = [floats(part, name, origin) for part, origin in zip(parts, origins, strict=True)]
    pooled = np.concatenate(values)
    missing = np.isnan(pooled)
    if missing.all():
        return torch.empty(len(pooled), 0), Column(name, "empty", "dropped: no value in any table")
    present = pooled[~missing]
    treatment = {"boolean": "0 and 1", "date": "days since 1970"}.get(kind, "as it is")
    features: tuple[str, ...] = (name,)
    encoded = pooled[:, None]
    if missing.any():
        fill = float(np.median(present))
        told = ", ".join(f"{int(np.isnan(v).sum())} in {o}" for v, o in zip(values, origins, strict=True))
        treatment += f"; missing ({told}) set to the pooled median {fill:.6g} and marked in a column of its own"
        features = (name, f"{name} is missing")
        encoded = np.stack([np.where(missing, fill, pooled), missing], 1)
    notes: tuple[str, ...] = ()
    if (present == present[0]).all():
        notes = (f"constant ({present[0]:.6g}): it tells nothing",)
    elif len(present) > MAX_CATEGORIES and all(map(_counts_rows, parts)):
        notes = ("every value is different: if it is an identifier, drop it",)
    return torch.from_numpy(encoded), Column(name, kind, treatment, features, notes)


def _counts_rows(part: pa.Array) -> bool:
    return pa.types.is_integer(part.type) and pc.count_distinct(part).as_py() == len(part)


def _encode_text(name: str, kind: str, parts: list[pa.Array], origins: Sequence[str]) -> tuple[Tensor, Column]:
    """Text of all tables: one 0/1 feature a category, the commonest kept, the rest as one rare category."""
    parts = [part if pa.types.is_large_string(part.type) else pa.nulls(len(part), pa.large_string()) for part in parts]
    pooled = pa.chunked_array(parts).combine_chunks()
    by_rank = ranked(pooled)
    for part, origin in zip(parts, origins, strict=True):
        distinct, rows = pc.count_distinct(part).as_py(), len(part) - part.null_count
        if len(by_rank) > MAX_CATEGORIES and distinct > ID_SHARE * rows:
            why = f"dropped: {distinct} different texts in {rows} rows of {origin} are identifiers or free text"
            return torch.empty(len(pooled), 0), Column(name, kind, why)
    kept, rare = sorted(text for text, _ in by_rank[:MAX_CATEGORIES]), by_rank[MAX_CATEGORIES:]
    features = [f"{name} = {text}" for text in kept]
    codes = pc.fill_null(pc.index_in(pooled, value_set=pa.array(kept, pa.large_string())), len(kept))
    places = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    treatment = f"one-hot, {len(kept)} categories"
    if rare:
        features.append(f"{name} is rare")
        rows = sum(count for _, count in rare)
        treatment += f"; the {len(rare)} rarest ({rows} rows) share one column"
    if pooled.null_count:
        places[pooled.is_null().to_numpy(zero_copy_only=False)] = len(features)
        features.append(f"{name} is missing")
        told = ", ".join(f"{part.null_count} in {origin}" for part, origin in zip(parts, origins, strict=True))
        treatment += f"; missing ({told}) is a category"
    encoded = torch.nn.functional.one_hot(torch.from_numpy(places), len(features)).double()
    notes = [f"constant ('{kept[0]}'): it tells nothing"] if len(features) == 1 else []
    held = torch.stack([rows.any(0) for rows in encoded.split(list(map(len, parts)))])[:, : len(kept)]
    for i, origin in enumerate(origins if len(parts) > 1 else ()):
        elsewhere = torch.cat([held[:i], held[i + 1 :]]).any(0).tolist()
        alone = [text for text, there in zip(kept, elsewhere, strict=True) if not there]
        if alone:
            notes.append(f"only in {origin}: {listed(alone)}")
    return encoded, Column(name, kind, treatment, tuple(features), tuple(notes))
