"""What is handed to a monitor: rows of any kind that `vestiges.batches` takes, as arrays for the feature map.

Nothing here keeps a row. Samples of a model that repeat rows of the data (`vestiges.copies`) are refused unless that is
meant: where generated samples are kept, the data would be kept through the back door.

Tables of mixed columns become numbers in one coding for all steps, which knows generated rows alone. `vestige compare`
encodes two tables together; a monitor must encode next month's table like the first. The coding is made at the first
step from the model's tables: categories, the medians that stand for missing numbers, and which columns are identifiers
come from generated rows, so no text and no median of real rows is kept; a text needs 50 of them, since a generator may
repeat a name, and medians are rounded. A category that the model did not generate at the first step counts as "other",
in real rows too. Of the real tables one thing is kept: which columns 50 rows or more miss. A column of which 50 values
are first missing at a later step is refused; fewer are filled.

Otherwise as in `data.readers.columns`: one 0/1 feature a category, at most 32 of them; booleans are 0 and 1, dates days
since 1970, text that is nearly unique is left out; columns go by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.report import Task
from vestige.core import InputError, VestigeWarning, checks, rng
from vestige.core.rounding import ROWS_TOGETHER
from vestige.data.readers.columns import (
    MAX_CATEGORIES,
    coded,
    floats,
    joint_kind,
    kind_of,
    nearly_unique,
    plain,
    ranked,
)
from vestige.data.readers.columns import opened as opened_column
from vestige.features.rows import admit, numbers, shape_of
from vestige.vestiges.batches import held
from vestige.vestiges.copies import copies_of_rows
from vestige.vestiges.rare import scale_of

Given: TypeAlias = Any  # rows as `vestiges.batches` takes them
Arrays: TypeAlias = "dict[Task, Any]"
LEFT_OUT = "left out"


def opened(given: Mapping[Task, Given], side: str, *, n: int | None, seed: int, step: int) -> Arrays:
    """Tables and arrays; what draws rows is given a seed of its own for each step, side and task."""
    found: Arrays = {}
    for task, x in given.items():
        own = rng.child_seed(seed, "rows", step, side, repr(task)) % 2**32
        taken = held(x, n=n, seed=own, name=f"{side}[{task!r}]", owner="Monitor.step")
        for text in taken.warnings:
            warnings.warn(text, VestigeWarning, stacklevel=4)
        found[task] = taken.rows
    return found


def read(
    real: Arrays, model: Arrays, coding: TableCoding | None, drop: Sequence[str]
) -> tuple[Arrays, Arrays, TableCoding | None]:
    """Both sides as arrays; tables in the given coding, or in one made here if there is none and there are tables."""
    sides = real, model
    tables = [[x for x in side.values() if isinstance(x, pa.Table)] for side in sides]
    if coding is None and tables[1]:
        coding = TableCoding.of(tables[1], tables[0], drop)
    elif coding is None and tables[0]:
        raise InputError("The 'model' of Monitor.step must be tables where 'real' is. Got arrays instead.")
    elif coding is None and drop and (real or model):
        raise InputError(f"The samples of a monitor that drops '{drop[0]}' must be tables. Got arrays instead.")
    coded = [
        {t: coding.encode(x, f"{name}[{t!r}]") if coding and isinstance(x, pa.Table) else x for t, x in side.items()}
        for name, side in zip(("real", "model"), sides, strict=True)
    ]
    return coded[0], coded[1], coding


def without(given: Arrays, drop: Sequence[str], *, real: bool) -> Arrays:
    """Tables without the columns of `drop`, which real ones must have."""
    found = dict(given)
    for task, x in found.items() if drop else ():
        if not isinstance(x, pa.Table):
            raise InputError(f"The samples of a monitor that drops '{drop[0]}' must be tables. Got an array instead.")
        for name in drop if real else ():
            checks.one_of(name, x.column_names, "drop", "Monitor")
        found[task] = x.drop_columns([name for name in drop if name in x.column_names])
    return found


def admitted(
    real: Arrays, model: Arrays, shape: tuple[int, ...] | None, min_rows: int
) -> tuple[dict[Task, Tensor], dict[Task, Tensor]]:
    """Finite rows of one width, enough of them; samples are of `shape` or, at the first step, of the first one's."""
    owner, both = "Monitor.step", (("real", real), ("model", model))
    found: tuple[dict[Task, Tensor], dict[Task, Tensor]] = ({}, {})
    for into, (name, side) in zip(found, both, strict=True):
        for task, x in side.items():
            label = f"{name}[{task!r}]"
            shape = shape_of(x, label, owner) if shape is None else shape
            into[task] = admit(x, label, owner, shape, min_rows=min_rows)
    for task in set(real) & set(model) if shape is not None and len(shape) > 1 else ():
        _one_scale(found[0][task], found[1][task], task)
    return found


def _one_scale(p: Tensor, q: Tensor, task: Task) -> None:
    """Pixels of the data and of the model must both run to 1, or both beyond."""
    p, q = numbers(p, torch.float64), numbers(q, torch.float64)
    top = [float(x.max()) for x in (p, q)]
    if min(top) <= 1 and max(top) > 2 and min(float(p.min()), float(q.min())) >= 0:
        told = f"largest values of {top[0]:g} and {top[1]:g}"
        checks.refuse("model", "Monitor.step", f"on the scale of the pixels of 'real' in task {task!r}", told)


def repeated(real: Arrays, model: Arrays, *, allowed: bool, seed: int) -> int:
    """How many rows of `model` repeat rows of `real`, task by task; refused with their places unless `allowed`."""
    total = 0
    for task in [task for task in real if task in model]:
        found = copies_of_rows(real[task], model[task], seed=seed)
        if not allowed:
            found.refuse(f"samples of task {task!r}", "Monitor.step")
        total += len(found)
    return total


@dataclass(frozen=True)
class ColumnCoding:
    """How one column becomes numbers."""

    name: str
    kind: str  # number, boolean, date, text, or left out
    categories: tuple[str, ...] = ()
    fill: float = 0.0  # what stands for a missing number
    marks_missing: bool = False


@dataclass(frozen=True)
class TableCoding:
    """How a table becomes numbers."""

    columns: tuple[ColumnCoding, ...]

    @classmethod
    def of(cls, model: Sequence[pa.Table], real: Sequence[pa.Table], drop: Sequence[str] = ()) -> TableCoding:
        """The coding that the model's tables ask for."""
        names = model[0].column_names
        for name in drop:
            if name not in names:
                raise InputError(f"The 'drop' of Monitor must name columns of the tables. Got '{name}' instead.")
        for table in (*model, *real):
            _same_columns(names, table)
        codes = [ColumnCoding(name, LEFT_OUT) if name in drop else _code(name, model, real) for name in names]
        if all(code.kind == LEFT_OUT for code in codes):
            raise InputError("The columns of the tables must leave something to compare. Got none instead.")
        return cls(tuple(codes))

    def encode(self, table: pa.Table, origin: str) -> Float[Tensor, "n d"]:
        """The rows of `table` as float64."""
        _same_columns([code.name for code in self.columns], table)
        blocks = [_encode(code, table, origin) for code in self.columns if code.kind != LEFT_OUT]
        return torch.from_numpy(np.concatenate(blocks, 1))


def _same_columns(names: Sequence[str], table: pa.Table) -> None:
    alone = sorted(set(names) ^ set(table.column_names))
    if alone:
        told = f"'{alone[0]}' in some tables alone"
        raise InputError(f"The columns of a monitor's tables must be the same at every step. Got {told} instead.")


def _code(name: str, model: Sequence[pa.Table], real: Sequence[pa.Table]) -> ColumnCoding:
    parts = [plain(table.column(name), name, "the model's table") for table in model]
    kind = joint_kind(name, parts, ["the model's table"] * len(parts))
    if all(kind_of(part) == "empty" for part in parts):
        return ColumnCoding(name, LEFT_OUT)
    told = [part.null_count for part in (*parts, *(opened_column(name, t, "the real table")[1] for t in real))]
    missing = sum(told) >= ROWS_TOGETHER
    if kind != "text":
        values = np.concatenate([floats(part, name, "the model's table") for part in parts])
        return ColumnCoding(name, kind, fill=scale_of(values[~np.isnan(values)])[0], marks_missing=missing)
    words = pa.chunked_array([part.cast(pa.large_string()) for part in parts]).drop_null().combine_chunks()
    counted = list(ranked(words))
    if nearly_unique(len(counted), len(words)):
        return ColumnCoding(name, LEFT_OUT)
    commonest = [word for word, rows in counted if rows >= ROWS_TOGETHER]
    return ColumnCoding(name, kind, categories=tuple(sorted(commonest[:MAX_CATEGORIES])))


def _encode(code: ColumnCoding, table: pa.Table, origin: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    kind, part = opened_column(code.name, table, origin)
    if kind not in ("empty", code.kind) and not {kind, code.kind} <= {"number", "boolean"}:
        told = f"{kind} in {origin}"
        raise InputError(f"The column '{code.name}' must be {code.kind}, as at the first step. Got {told} instead.")
    if code.kind == "text":
        words = pa.nulls(len(part), pa.large_string()) if kind == "empty" else part
        return np.eye(len(code.categories) + 2)[coded(words, code.categories)]
    values = floats(part, code.name, origin)
    missing = np.isnan(values)
    if missing.sum() >= ROWS_TOGETHER and not code.marks_missing:
        told = f"{int(missing.sum())} missing values in {origin}"
        raise InputError(f"The column '{code.name}' must be complete, as at the first step. Got {told} instead.")
    filled = np.where(missing, code.fill, values)
    return np.stack([filled, missing], 1) if code.marks_missing else filled[:, None]
