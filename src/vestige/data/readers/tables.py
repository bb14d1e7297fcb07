"""Tables on disk (.csv, .parquet) and their mixed columns as numbers, with a report of each column.

There is one encoding for every table that is compared. Text becomes one column a category, the categories being what
the tables hold together; the rarest beyond a cap share one column, and columns of (nearly) unique text are dropped,
because an identifier has no distribution to compare. Missing text is a category; a missing number is an indicator
column and the pooled median. Dates are days since 1970, booleans 0 and 1. Columns are matched by name; a column that
only one table has, or that is text in one and numbers in the other, is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pa_parquet
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import InputError
from vestige.data.readers.address import Address, refuse_file, require_memory
from vestige.data.readers.columns import floats, joint_kind, plain
from vestige.data.readers.delimited import check_names, csv_batches, csv_table, first_line

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
    """What was done to each column; `notes` concern the files as a whole."""

    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the numbers that came out, in their order."""
        return tuple(feature for column in self.columns for feature in column.features)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON."""
        lines = [{**vars(c), "features": list(c.features), "notes": list(c.notes)} for c in self.columns]
        return {"columns": lines, "notes": list(self.notes)}


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


def encode(
    tables: Sequence[pa.Table],
    origins: Sequence[str],
    *,
    drop: Sequence[str] = (),
) -> tuple[list[Float[Tensor, "_ d"]], ColumnReport]:
    """Each table as float64 samples of one width, and the report. `drop` names columns to leave out."""
    names, notes = _aligned(tables, origins)
    unknown = [name for name in drop if name not in names]
    if unknown:
        raise InputError(f"The 'drop' of files.encode must be columns of {origins[0]}. Got '{unknown[0]}' instead.")
    blocks: list[list[Tensor]] = [[] for _ in tables]
    columns = []
    for name in names:
        if name in drop:
            columns.append(Column(name, "any", "dropped on request"))
            continue
        parts = [plain(table.column(name), name, origin) for table, origin in zip(tables, origins, strict=True)]
        kind = joint_kind(name, parts, origins)
        if kind == "text":
            encoded, column = _encode_text(name, parts, origins)
        else:
            encoded, column = _encode_number(name, kind, parts, origins)
        columns.append(column)
        for block, part in zip(blocks, encoded, strict=True):
            block.append(part)
    report = ColumnReport(tuple(columns), notes)
    if not report.features:
        raise InputError(f"The columns of {origins[0]} must leave something to compare. Got only dropped ones instead.")
    return [torch.cat(block, 1) for block in blocks], report


def _aligned(tables: Sequence[pa.Table], origins: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Column names in the order of the first table, once every table has the same ones."""
    first = tables[0].column_names
    notes = []
    for table, origin in zip(tables[1:], origins[1:], strict=True):
        only_first = [name for name in first if name not in set(table.column_names)]
        only_here = [name for name in table.column_names if name not in set(first)]
        if only_first or only_here:
            sides = [(origins[0], only_first), (origin, only_here)]
            told = "; ".join(f"{_listed(names)} only in {where}" for where, names in sides if names)
            raise InputError(f"The columns of {origins[0]} and {origin} must be the same. Got {told} instead.")
        if table.column_names != first:
            notes.append(f"the columns of {origin} stand in another order; they were matched by name")
    return first, tuple(notes)


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _encode_number(name: str, kind: str, parts: list[pa.Array], origins: Sequence[str]) -> tuple[list[Tensor], Column]:
    """Numbers, booleans and dates: one feature, and an indicator where anything is missing."""
    values = [floats(part) for part in parts]
    for value, origin in zip(values, origins, strict=True):
        bad = np.flatnonzero(np.isinf(value))
        if len(bad):
            raise InputError(
                f"The column '{name}' of {origin} must be finite. Got {value[bad[0]]} in data row {bad[0] + 1} instead."
            )
    pooled = np.concatenate(values)
    missing = [np.isnan(value) for value in values]
    n_missing = int(sum(m.sum() for m in missing))
    if n_missing == len(pooled):
        return [torch.empty(len(v), 0, dtype=torch.float64) for v in values], Column(
            name, "empty", "dropped: no value in any table"
        )
    treatment = {"boolean": "0 and 1", "date": "days since 1970"}.get(kind, "as it is")
    features: tuple[str, ...] = (name,)
    if n_missing:
        fill = float(np.nanmedian(pooled))
        values = [np.where(m, fill, v) for m, v in zip(missing, values, strict=True)]
        told = ", ".join(f"{int(m.sum())} in {o}" for m, o in zip(missing, origins, strict=True))
        treatment += f"; missing ({told}) set to the pooled median {fill:.6g} and marked in a column of its own"
        features = (name, f"{name} is missing")
        values = [np.stack([v, m], 1) for v, m in zip(values, missing, strict=True)]
    else:
        values = [v[:, None] for v in values]
    notes = _number_notes(parts, pooled)
    return [torch.from_numpy(np.ascontiguousarray(v)) for v in values], Column(name, kind, treatment, features, notes)


def _number_notes(parts: list[pa.Array], pooled: NDArray[Any]) -> tuple[str, ...]:
    present = pooled[~np.isnan(pooled)]
    if len(present) and (present == present[0]).all():
        return (f"constant ({present[0]:.6g}): it tells nothing",)
    whole = all(pa.types.is_integer(part.type) for part in parts)
    if whole and len(present) > MAX_CATEGORIES and all(pc.count_distinct(p).as_py() == len(p) for p in parts):
        return ("every value is different: if it is an identifier, drop it",)
    return ()


def _encode_text(name: str, parts: list[pa.Array], origins: Sequence[str]) -> tuple[list[Tensor], Column]:
    """Text: one 0/1 feature a category of any table, commonest first kept, the rest as one rare category."""
    parts = [part if pa.types.is_large_string(part.type) else pa.nulls(len(part), pa.large_string()) for part in parts]
    pooled = pa.chunked_array(parts).drop_null()
    counts = pc.value_counts(pooled.combine_chunks())
    ranked = sorted(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True), key=_commonest)
    for part, origin in zip(parts, origins, strict=True):
        distinct, rows = pc.count_distinct(part).as_py(), len(part) - part.null_count
        if len(ranked) > MAX_CATEGORIES and distinct > ID_SHARE * rows:
            nothing = [torch.empty(len(part), 0, dtype=torch.float64) for part in parts]
            why = f"dropped: {distinct} different texts in {rows} rows of {origin} are identifiers or free text"
            return nothing, Column(name, "text", why)
    kept = sorted(text for text, _ in ranked[:MAX_CATEGORIES])
    other = len(ranked) > MAX_CATEGORIES
    some_missing = any(part.null_count for part in parts)
    features = [f"{name} = {text}" for text in kept]
    features += [f"{name} is rare"] * other + [f"{name} is missing"] * some_missing
    value_set = pa.array(kept, pa.large_string())
    encoded = []
    for part in parts:
        codes = pc.fill_null(pc.index_in(part, value_set=value_set), len(kept)).to_numpy(zero_copy_only=False)
        if some_missing:
            codes = np.where(part.is_null().to_numpy(zero_copy_only=False), len(features) - 1, codes)
        encoded.append(torch.nn.functional.one_hot(torch.from_numpy(codes.astype(np.int64)), len(features)).double())
    treatment = f"one-hot, {len(kept)} categories"
    if other:
        rows = sum(count for _, count in ranked[MAX_CATEGORIES:])
        treatment += f"; the {len(ranked) - MAX_CATEGORIES} rarest ({rows} rows) share one column"
    if some_missing:
        told = ", ".join(f"{part.null_count} in {origin}" for part, origin in zip(parts, origins, strict=True))
        treatment += f"; missing ({told}) is a category"
    notes = [f"constant ('{kept[0]}'): it tells nothing"] if len(features) == 1 else []
    for i, origin in enumerate(origins if len(parts) > 1 else ()):
        alone = [text for j, text in enumerate(kept) if not _held_elsewhere(encoded, i, j)]
        if alone:
            notes.append(f"only in {origin}: {_listed(alone)}")
    return encoded, Column(name, "text", treatment, tuple(features), tuple(notes))


def _commonest(item: tuple[str, int]) -> tuple[int, str]:
    text, count = item
    return -count, text


def _held_elsewhere(encoded: list[Tensor], i: int, j: int) -> bool:
    """Whether category `j` occurs in any table but the `i`-th."""
    return any(bool(part[:, j].any()) for k, part in enumerate(encoded) if k != i)
