"""What `compare` and `weigh` are given: two sides of any kind that `batches` takes, as rows of numbers of one width.

Two tables are coded together, column by column (`data.readers.columns`), whether they come from files or from memory;
two files are read as `data.readers.read_pair` reads them. A table beside an array is coded by itself, and must come out
as wide. Whatever was done stands in the report of the columns and in the notes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import Kind
from vestige.data.readers import ColumnReport, encode, read_pair
from vestige.data.readers.frames import is_frame
from vestige.data.readers.read import plain_report
from vestige.vestiges.batches import Held, held, is_path


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows of one side as numbers, beside those of the other side."""

    x: Float[Tensor, "n d"]
    columns: ColumnReport  # the same of both sides
    like: Kind = Kind("numpy")  # noqa: RUF009 - frozen; the kind that they came in
    drawn: Any = None  # the rows as they came, where nobody else has them
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def sides(
    p: Any,  # noqa: ANN401 - what `batches` takes
    q: Any,  # noqa: ANN401
    *,
    drop: Sequence[str] = (),
    n: int | None = None,
    seed: int = 0,
    names: tuple[str, str] = ("p", "q"),
    owner: str = "compare",
) -> tuple[GivenRows, GivenRows]:
    """Both sides; `drop` names columns of tables to leave out, `n` and `seed` are of what draws rows."""
    if isinstance(p, GivenRows) and isinstance(q, GivenRows):
        return p, q
    if is_path(p) and is_path(q):
        x, y, report = read_pair(p, q, drop=drop)
        return GivenRows(x, report, notes=report.notes), GivenRows(y, report)
    found = [opened(one, side, n=n, seed=seed, owner=owner) for one, side in ((p, "p"), (q, "q"))]
    tables = [isinstance(one.rows, pa.Table) for one in found]
    if drop and not all(tables):
        checks.refuse("drop", owner, "given for tables alone", f"'{drop[0]}' beside an array")
    if all(tables):
        coded, report = encode([one.rows for one in found], names, drop=drop)
    else:
        alone = [encode([one.rows], [name])[0][0] if isinstance(one.rows, pa.Table) else one.rows
                 for one, name in zip(found, names, strict=True)]  # fmt: skip
        coded = list(checks.pair(alone[0], alone[1], owner, dtype=None))
        width, given = coded[0].shape[1], tuple(getattr(p, "shape", ()))[1:]
        report = plain_report(given if math.prod(given) == width else (width,), "number", ())
    notes = [f"{name}: {note}" for one, name in zip(found, names, strict=True) for note in one.notes]
    made = [
        GivenRows(x, report, one.like, drawn_rows(given, one), warnings=one.warnings)
        for x, one, given in zip(coded, found, (p, q), strict=True)
    ]
    first, second = made
    return GivenRows(first.x, report, first.like, None, (*report.notes, *notes), first.warnings), second


def opened(x: Any, side: str, *, n: int | None, seed: int, owner: str) -> Held:  # noqa: ANN401 - what `batches` takes
    """The rows of one side in memory; what draws them is given a seed of the side's own."""
    return held(x, n=n, seed=rng.child_seed(seed, "rows", side) % 2**32, name=side, owner=owner)


def drawn_rows(given: Any, found: Held) -> Any:  # noqa: ANN401 - the kind that came in
    """The rows as they came, where they were drawn or read here, so that the caller has them too; else None."""
    if is_path(given) or is_frame(given) or isinstance(given, np.ndarray | Tensor | list | tuple):
        return None
    return found.rows if isinstance(found.rows, pa.Table) else found.like.give(found.rows)
