"""What is handed to a monitor: arrays, tables, or files of either, as arrays for the feature map.

Nothing here keeps a row. `copies` counts model samples that equal a real one in single precision: generated samples are
kept, so a generator that hands out its training data would have it kept through the back door.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from vestige.chains.report import Task
from vestige.core import InputError, checks, rng
from vestige.core.checks import ArrayLike
from vestige.data import readers as files
from vestige.data.readers.address import locate
from vestige.data.readers.tables import read_table
from vestige.features.rows import admit, numbers, shape_of
from vestige.monitor.table_coding import TableCoding

# An array, a DataFrame (text and missing values allowed), or a file as `vestige compare` takes it.
Given: TypeAlias = "ArrayLike | os.PathLike[str] | str"
Arrays: TypeAlias = "dict[Task, Any]"


def read(
    real: Mapping[Task, Given], model: Mapping[Task, Given], coding: TableCoding | None, drop: Sequence[str]
) -> tuple[Arrays, Arrays, TableCoding | None]:
    """Both sides as arrays; tables in the given coding, or in one made here if there is none and there are tables."""
    sides = [{task: _opened(x) for task, x in side.items()} for side in (real, model)]
    tables = [[x for x in side.values() if isinstance(x, pa.Table)] for side in sides]
    if coding is None and tables[1]:
        coding = TableCoding.of(tables[1], tables[0], drop)
    elif coding is None and tables[0]:
        raise InputError("The 'model' of Monitor.step must be tables where 'real' is. Got arrays instead.")
    elif coding is None and drop and (real or model):
        raise InputError(f"The samples of a monitor that drops '{drop[0]}' must be tables. Got arrays instead.")
    coded: list[Arrays] = []
    for name, side in zip(("real", "model"), sides, strict=True):
        labels = {task: f"{name}[{task!r}]" for task in side}
        encode = None if coding is None else coding.encode
        coded.append({t: encode(x, labels[t]) if encode and isinstance(x, pa.Table) else x for t, x in side.items()})
    return coded[0], coded[1], coding


def _opened(x: Given) -> Any:  # noqa: ANN401 - an Arrow table, or any array
    if isinstance(x, str | os.PathLike):
        at = locate(x)
        if at.kind == "table":
            return read_table(at)[0]
        found = files.read(x)
        return found.x.reshape(-1, *found.shape)
    if isinstance(x, pd.DataFrame):
        named = x.set_axis([str(name) for name in x.columns], axis=1)
        try:
            return pa.Table.from_pandas(named, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"The tables of Monitor.step must have plain columns. Got {error} instead.") from None
    return x


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


def copies(real: Mapping[Task, Tensor], model: Mapping[Task, Tensor]) -> int:
    """How many rows of `model` are rows of `real`."""
    if not real:
        return 0
    seen, drawn = (np.concatenate([_hashed(x) for x in side.values()]) for side in (real, model))
    return int(np.isin(drawn, seen).sum())


def _hashed(x: Tensor) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """One number a row, of its values in single precision: equal rows are equal wherever they stand.

    The bits of each value are mixed first (splitmix64): those of whole numbers end in zeros, which no factor removes.
    """
    rows = numbers(x, torch.float32).double().numpy() + 0.0  # bytes as v / 255; -0.0 becomes 0.0
    bits = np.ascontiguousarray(rows).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    factors = rng.fork_numpy(0, "copies").integers(1, 2**64, rows.shape[1], dtype=np.uint64) | np.uint64(1)
    return ((bits ^ (bits >> np.uint64(31))) * factors).sum(1, dtype=np.uint64)
