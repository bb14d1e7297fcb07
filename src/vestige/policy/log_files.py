"""Logs on disk, in formats that every language writes: .npz, .parquet, .csv. Nothing in a file is ever executed.

An .npz holds the arrays `observations`, `actions`, `rewards`, `episodes` and, where they are known,
`next_observations`, `steps`, `terminated`, `log_probs`, `action_low`, `action_high`. A table has a row a transition
with the columns `observation_0` ..., `action_0` ..., `reward`, `episode` and, where they are known,
`next_observation_0` ..., `step`, `terminated`, `log_prob`. Other arrays and columns are left alone.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from vestige import store
from vestige.core.checks import refuse
from vestige.data.formats import open_npz
from vestige.data.readers.address import locate, refuse_file
from vestige.data.readers.columns import floats, kind_of, plain
from vestige.data.readers.tables import read_table
from vestige.policy.logs import Logs

if TYPE_CHECKING:
    from vestige.data.readers.address import Address

NEEDED = ("observations", "actions", "rewards", "episodes")
OPTIONAL = ("next_observations", "steps", "terminated", "log_probs", "action_low", "action_high")
WIDE = ("observations", "actions", "next_observations")  # several columns of a table each
EXACT = ("episode", "step")  # no float holds every integer
ENDINGS = (".npz", ".parquet", ".csv")


def read(path: str | Path) -> Logs:
    """The logs in a file; a missing array or column is named."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        told = "a folder" if path.is_dir() else f"the ending '{path.suffix}'"
        refuse_file(path, f"logs that end in {', '.join(ENDINGS)}", told)
    at = locate(path)
    if at.kind == "images":
        refuse_file(path, f"logs that end in {', '.join(ENDINGS)}", "a folder")
    arrays = _read_npz(at) if at.suffix == ".npz" else _read_table(at)
    return Logs.of(**({"next_observations": None} | arrays), owner=at.path.name)


def _read_npz(at: Address) -> dict[str, Any]:
    with open_npz(at.path) as file:
        return {key: file.array(key) for key in (*NEEDED, *(key for key in OPTIONAL if key in file))}


def _read_table(at: Address) -> dict[str, Any]:
    table, _ = read_table(at)
    found: dict[str, Any] = {}
    for key in (*NEEDED, *OPTIONAL):
        names = _wide(key, table.column_names, at) if key in WIDE else [key.removesuffix("s")]
        if key in NEEDED or all(name in table.column_names for name in names):
            columns = [_column(table, name, at) for name in names]
            found[key] = np.stack(columns, 1) if key in WIDE else columns[0]
    return found


def _wide(key: str, names: list[str], at: Address) -> list[str]:
    """`observation_0`, `observation_1`, ... as far as they go; one that is left out in between is named."""
    stem = key.removesuffix("s")
    numbers = {int(found[1]) for name in names if (found := re.fullmatch(rf"{stem}_(\d+)", name))}
    columns = [f"{stem}_{i}" for i in range(max(numbers, default=0) + 1)]
    if numbers:
        for column in columns:
            _require(column, names, at)
    return columns


def _require(column: str, names: list[str], at: Address) -> None:
    if column not in names:
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        refuse(column, at.path.name, "a column of the table", f"only {shown}")


def _column(table: pa.Table, name: str, at: Address) -> NDArray[Any]:
    """A column as numbers; episodes may be named by texts, which become 0, 1, 2 ... Ids and steps stay integers."""
    _require(name, table.column_names, at)
    column = plain(table.column(name), name, at.path.name)
    if kind_of(column) == "text":
        if name != "episode":
            refuse(name, at.path.name, "numbers", f"text such as '{column.drop_null()[0]}'")
        column = column.dictionary_encode().indices
    if name in EXACT and pa.types.is_integer(column.type) and not column.null_count:
        whole = column.to_numpy(zero_copy_only=False)
        return np.unique(whole, return_inverse=True)[1] if name == "episode" else whole
    return floats(column)


def write(logs: Logs, path: str | Path) -> Path:
    """`logs` to a file, by its ending."""
    path = Path(path)
    if path.suffix not in ENDINGS:
        refuse("path", "Logs.write", f"a name that ends in {', '.join(ENDINGS)}", path.name)
    held = {key: getattr(logs, key) for key in (*NEEDED, *OPTIONAL)}
    arrays = {key: value.cpu().numpy() for key, value in held.items() if value is not None}
    buffer = io.BytesIO()
    if path.suffix == ".npz":
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
    else:
        table = _table(arrays)
        if path.suffix == ".csv":
            pa_csv.write_csv(table, buffer)
        else:
            pa_parquet.write_table(table, buffer)
    store.write_bytes(path, buffer.getvalue())
    return path


def _table(arrays: dict[str, NDArray[Any]]) -> pa.Table:
    columns: dict[str, NDArray[Any]] = {}
    for key, array in arrays.items():
        stem = key.removesuffix("s")
        if key in WIDE:
            columns |= {f"{stem}_{i}": np.ascontiguousarray(array[:, i]) for i in range(array.shape[1])}
        elif not key.startswith("action_"):
            columns[stem] = array
    return pa.table(columns)
