"""Keep rows with an epsilon: sums of bounded functions over at most `max_rows` rows of a unit, noise, and nothing else.

Rows are read once, and once more for the column that names the unit. What is said to the caller while that happens, an
error about a column of another kind among it, is for whoever holds the rows. The promise is about the file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import VestigeWarning, checks
from vestige.vestiges.lines import some_rows
from vestige.vestiges.private.noise import noise_scale, released
from vestige.vestiges.private.public import (
    Bounds,
    check_columns,
    declared_schema,
    in_tables,
    public_schema,
    read_bounds,
)
from vestige.vestiges.private.released import Guarantee, Released
from vestige.vestiges.private.statistics import GRID, Query
from vestige.vestiges.private.units import ROW, counted_rows
from vestige.vestiges.private.vestige import PrivateVestige

OWNER = "keep"
BASE_ROWS = 4000  # public rows that are stored, to stand for the data once they are balanced
MOST_ROWS = 1_000_000  # of a unit


def keep_privately(
    rows: Any,  # noqa: ANN401 - whatever `keep` takes
    *,
    epsilon: float,
    delta: float,
    bounds: Bounds | None,
    public: Any,  # noqa: ANN401 - rows
    unit: str,
    max_rows: int | None,
    drop: Sequence[str],
    like: PrivateVestige | None,
    seed: int,
    on_step: Callable[[str], None],
) -> PrivateVestige:
    """What `keep` with an epsilon leaves."""
    on_step("sample")
    most = _most_rows(unit, max_rows)
    data = in_tables(rows)
    aside = (*drop, *(() if unit == ROW or unit in drop else (unit,)))
    if like is not None:
        if bounds is not None or public is not None:
            checks.refuse("like", OWNER, "given without 'bounds' and 'public', which it has", "both")
        query, base, declared = like.released.query, like.base, True
    else:
        query, base, declared = _made_public(bounds, public, aside, seed)
    size = sum(query.sizes.values())
    scale = noise_scale(size, most * GRID, epsilon, delta)  # before a row is read: it refuses what it cannot promise
    on_step("moments")
    counted = None if unit == ROW else torch.from_numpy(counted_rows(data, unit, most))
    total, seen = torch.zeros(size, dtype=torch.int64), 0
    for batch in data:
        assert isinstance(batch, pa.Table)
        if seen == 0:
            check_columns(batch.column_names, query.schema, aside, declared=declared)
        cells = query.schema.cells(batch, data.origin).cells
        total += query.sums(cells if counted is None else cells[counted[seen : seen + len(cells)]])
        seen += len(cells)
    on_step("noise")
    guarantee = Guarantee(float(epsilon), float(delta), unit, most)
    kept = PrivateVestige(Released(query, guarantee, released(total, scale, delta), scale**2), base, seed)
    if delta >= 1 / kept.n:
        told = f"The delta of {delta:g} is not below one over the rows, about {kept.n}: it may give one of them away."
        warnings.warn(told, VestigeWarning, 3)
    return kept


def _most_rows(unit: str, max_rows: int | None) -> int:
    if not isinstance(unit, str) or not unit:
        checks.refuse("unit", OWNER, "'row', or the name of a column", repr(unit))
    if unit == ROW:
        if max_rows not in (None, 1):
            checks.refuse("max_rows", OWNER, "given with a 'unit' that is a column", max_rows)
        return 1
    if max_rows is None:
        checks.refuse("max_rows", OWNER, f"given where the unit is '{unit}': how many rows of one may count", "None")
    return checks.whole(max_rows, "max_rows", OWNER, low=1, high=MOST_ROWS)


def _made_public(
    bounds: Bounds | None,
    public: Any,  # noqa: ANN401 - rows
    drop: Sequence[str],
    seed: int,
) -> tuple[Query, Float[Tensor, "b c"] | None, bool]:
    """The query, the cells of public rows, and whether bounds were declared."""
    if bounds is None and public is None:
        checks.refuse(
            "bounds", OWNER, "given with an epsilon, or 'public' rows: nothing may be read off the rows", "None"
        )
    schema = None
    if bounds is not None:
        read = read_bounds(bounds) if isinstance(bounds, str | Path) else bounds
        if not isinstance(read, Mapping):
            checks.refuse("bounds", OWNER, "a mapping from columns to (low, high) or to categories", repr(read))
        schema = declared_schema(read)
    if public is None:
        assert schema is not None
        return Query.of(schema, None, declared=True, seed=seed), None, True
    known, sample = public_schema(public, drop, seed)
    chosen = known if schema is None else schema
    cells = chosen.cells(sample, "public").cells
    query = Query.of(chosen, cells, declared=schema is not None, seed=seed)
    return query, cells[some_rows(len(cells), BASE_ROWS, seed, "public")], schema is not None
