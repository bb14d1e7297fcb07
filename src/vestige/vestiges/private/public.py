"""What is public: the way from rows to numbers, made of declared bounds and of public rows, never of the rows.

A declaration has a line for each column:

    age = [0, 100]                       # a number, or dates: [1900-01-01, 2020-12-31]
    job = ["cook", "smith"]              # the categories that have a code; all other texts are "other"
    smoker = [false, true]               # booleans

A number is clipped to its bounds, a missing one counts as the middle of them, and in the drift test as missing. A
category that was not declared is "other", a missing one "missing". Bins are BINS equal parts between the bounds.
Without bounds all of this is read off public rows, as `vestige.vestiges.schema` and the drift test do.

Features are what the schema makes of cells: within [-1, 1] under bounds, in public standard deviations otherwise.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import InputError, checks
from vestige.core.numerics import two_digits
from vestige.data.readers.columns import listed
from vestige.store import regular
from vestige.vestiges.batches import Batches, batches, survey
from vestige.vestiges.drift_test.columns import CodedColumn
from vestige.vestiges.schema import BOOLEANS, Schema, SchemaColumn

OWNER = "keep"
BINS = 16
MOST_CATEGORIES = 100  # of a column
MOST_BYTES = 1 << 20  # of a declaration
Bounds: TypeAlias = "Mapping[str, Any] | Sequence[Any] | str | Path"


def read_bounds(path: str | Path) -> dict[str, Any]:
    """A declaration from a .toml file."""
    where = regular(path)
    if where.stat().st_size > MOST_BYTES:
        raise InputError(f"The file '{path}' must be at most {MOST_BYTES} bytes. Got {where.stat().st_size} instead.")
    try:
        return tomllib.loads(where.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"The file '{path}' must be TOML, such as 'age = [0, 100]'. Got {error} instead.") from None


def declared_schema(bounds: Mapping[str, Any]) -> Schema:
    """The schema of declared columns.

    >>> declared_schema({"age": (0, 100), "job": ["cook", "smith"]}).feature_names
    ('age', 'job = cook', 'job = smith', 'job is other', 'job is missing')
    """
    if not bounds:
        checks.refuse("bounds", OWNER, "given for at least one column", "none")
    return Schema(tuple(_column(str(name), values) for name, values in bounds.items()))


def _column(name: str, values: Any) -> SchemaColumn:  # noqa: ANN401 - as in a .toml
    if isinstance(values, Sequence) and not isinstance(values, str) and len(values):
        kinds = {type(value) for value in values}
        if kinds == {bool} and sorted(values) == [False, True]:
            return _category(name, "boolean", BOOLEANS)
        if kinds == {str} and len(set(values)) == len(values) <= MOST_CATEGORIES:
            return _category(name, "text", tuple(values))
        if len(values) == 2 and all(map(_is_number, values)):
            dates = [isinstance(value, datetime.date) for value in values]
            low, high = map(_number, values)
            if low < high and math.isfinite(high - low) and dates[0] == dates[1]:
                kind = "date" if dates[0] else "number"
                return SchemaColumn(name, kind, centres=((low + high) / 2,), spreads=((high - low) / 2,))
    must = f"(low, high) with low < high, or at most {MOST_CATEGORIES} different categories, for the column '{name}'"
    checks.refuse("bounds", OWNER, must, repr(values))


def _is_number(value: object) -> bool:
    return isinstance(value, datetime.date) or (isinstance(value, int | float) and not isinstance(value, bool))


def _number(value: Any) -> float:  # noqa: ANN401 - a number or a date
    """Dates as days since 1970."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.UTC).timestamp() / 86_400
    if isinstance(value, datetime.date):
        return float((value - datetime.date(1970, 1, 1)).days)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _category(name: str, kind: str, categories: tuple[str, ...]) -> SchemaColumn:
    many = len(categories) + 2  # "other" and "missing"
    return SchemaColumn(name, kind, categories, True, True, (0.0,) * many, (1.0,) * many)


def public_schema(public: Any, drop: Sequence[str], seed: int) -> tuple[Schema, pa.Table]:  # noqa: ANN401 - rows
    """The schema of public rows, and a sample of them."""
    data = in_tables(public)
    first = next(iter(data))
    assert isinstance(first, pa.Table)
    told = survey(data, drop=[name for name in drop if name in first.column_names], seed=seed)
    assert told.schema is not None
    assert isinstance(told.sample, pa.Table)
    return told.schema, told.sample


def in_tables(rows: Any) -> Batches:  # noqa: ANN401 - whatever `keep` takes
    """Rows in batches that are tables; the columns of an array are x0, x1 ..."""
    data = batches(rows)
    if data.kind == "table":
        return data
    if data.shape is not None and len(data.shape) > 1:
        must = "a table or an array of columns with an epsilon (of images the features of a public map)"
        checks.refuse("rows", OWNER, must, data.origin)
    return Batches("table", data.origin, None, lambda: (as_columns(x) for x in data if isinstance(x, Tensor)))


def as_columns(x: Float[Tensor, "n d"]) -> pa.Table:
    """A table of numbers with the columns x0, x1 ..."""
    return pa.table({f"x{j}": column.to(torch.float64).numpy() for j, column in enumerate(x.mT.contiguous().cpu())})


def check_columns(names: Sequence[str], schema: Schema, drop: Sequence[str], *, declared: bool) -> None:
    """Every column of the rows is declared or dropped: one that is overlooked is a mistake, not a wish."""
    known = {column.name for column in schema.columns} | set(drop)
    missing = [name for name in names if name not in known]
    if missing:
        source = "bounds" if declared else "public"
        raise InputError(
            f"The '{source}' of keep must have every column that is not dropped (drop). Got none for {listed(missing)} "
            "instead."
        )
    for name in drop:
        checks.one_of(name, names, "drop", OWNER)


def limits(schema: Schema, *, declared: bool) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """The least and the largest value of each cell; infinite where nothing was declared."""
    lows, highs = [], []
    for column in schema.used:
        bounded = declared and not column.is_category
        half = column.spreads[0] if bounded else math.inf
        lows.append(column.centres[0] - half if bounded else -math.inf)
        highs.append(column.centres[0] + half if bounded else math.inf)
    return torch.tensor(lows, dtype=torch.float64), torch.tensor(highs, dtype=torch.float64)


def coded_columns(schema: Schema, cells: Float[Tensor, "n c"] | None) -> tuple[CodedColumn, ...]:
    """The bins of each column: equal parts of its bounds, or those of public `cells`."""
    made = []
    for j, column in enumerate(schema.used):
        if column.is_category:
            codes = torch.arange(len(column.categories) + 1, dtype=torch.float64)
            made.append(_bins("category", codes.new_zeros(0), codes))
        elif cells is None:
            steps = torch.linspace(-1, 1, BINS + 1, dtype=torch.float64)[1:-1]
            made.append(_bins("number", column.centres[0] + column.spreads[0] * steps, steps.new_zeros(0)))
        else:
            found = CodedColumn.fit(cells[:, j].contiguous(), "number", BINS)
            made.append(_bins("number", found.edges, found.atoms))
    return tuple(made)


def _bins(kind: str, edges: Float[Tensor, " e"], atoms: Float[Tensor, " a"]) -> CodedColumn:
    size = (len(edges) + 1 if kind == "number" else 0) + len(atoms) + 2
    nothing = edges.new_zeros(size)
    return CodedColumn(kind, edges, atoms, 0.0, 1.0, nothing, nothing)


def ball(schema: Schema, features: Float[Tensor, "n d"] | None) -> tuple[float, float]:
    """The radius that features are clipped to, and the bandwidth of the kernel in this radius.

    Of public rows the norm that one in twenty exceeds, and the median distance. Under bounds a number that is spread
    evenly has the mean square 1/3 and a category 1: the square of the radius is 2/5 a number and 1 a category.
    """
    if features is None:
        categories = sum(column.is_category for column in schema.used)
        plain = len(schema.used) - categories
        radius = math.sqrt(0.4 * plain + categories)
        return radius, math.sqrt(plain / 3 + categories) / radius
    norms = features.square().sum(1).sqrt()
    radius = two_digits(max(float(norms.quantile(0.95)), 1e-6))
    points = into_ball(features, radius)
    far = torch.pdist(points[:: -(-len(points) // 1000)]).median()
    return radius, two_digits(float(far)) if float(far) > 0 else 1.0


def into_ball(features: Float[Tensor, "n d"], radius: float) -> Float[Tensor, "n d"]:
    """Features over the radius; those that are longer than it are moved to the sphere."""
    norms = features.square().sum(1, keepdim=True).sqrt()
    return features / norms.clamp_min(radius)
