"""Whose rows they are: at most `max_rows` rows of a person count, chosen at random.

A person is protected as a whole if all that they add to a sum is bounded. Each row gets a random number of its own,
seeded by the operating system, and of a person those with the smallest count. So which rows count depends on that
person's rows and on chance alone, not on anybody else, nor on the order of the rows: with a person more or less the
rows of all others are chosen by the same law, and sums differ by at most `max_rows` rows (`statistics`).
"""

from __future__ import annotations

import secrets

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from vestige.core import InputError, checks
from vestige.vestiges.batches import Batches

ROW = "row"


def counted_rows(data: Batches, unit: str, max_rows: int) -> NDArray[np.bool_]:
    """Of every row whether it counts; one pass over the column `unit` alone."""
    parts = []
    for batch in data:
        assert isinstance(batch, pa.Table)
        checks.one_of(unit, batch.column_names, "unit", "keep")
        column = batch.column(unit)
        if column.null_count:
            raise InputError(f"The column '{unit}' must name a unit in every row. Got rows without one instead.")
        parts.append(pc.cast(column, pa.large_string()).combine_chunks())
    names = pa.chunked_array(parts).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return chosen(names.astype(np.int64), max_rows, np.random.default_rng(secrets.randbits(256)))


def chosen(units: NDArray[np.int64], max_rows: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """At most `max_rows` rows of each unit, each set of them with the same chance."""
    order = np.lexsort((generator.random(len(units)), units))
    ordered = units[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(units) else np.zeros(0, np.int64)
    place = np.arange(len(units)) - np.repeat(first, np.diff(np.r_[first, len(units)]))
    kept = np.zeros(len(units), bool)
    kept[order] = place < max_rows
    return kept
