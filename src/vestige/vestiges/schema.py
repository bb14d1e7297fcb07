"""What a table looks like, frozen: its columns, their kinds, the categories that have a code, and scales.

A vestige is made once and asked for years, so the next table must be read exactly as the first was. `Schema.of` looks
at a table; from then on `cells` turns any table with these columns into numbers, one cell a column:

- a *number* (also a date, as days since 1970) is its value;
- a *category* (text, and booleans) is a code 0 .. k-1, the last of which is "other";
- NaN is a missing value of either.

`features` expands cells for metrics: a number v becomes (v - c) / s, where v is missing it becomes 0 and, if the first
table had missing values in this column, an indicator says so; a category becomes one 0/1 feature a code and one for
"missing", each as (x - c) / s too. All are clipped at +-20. The constants are frozen with the schema. A *sparse*
column, which fewer than 50 rows leave (`rare`), has 0 and 1 as its cells: equal to its usual value, or not.

**Nothing of a single row is kept.**
- Only a text that at least 50 rows have gets a code, at most 32 of a column; all other texts are "other". False and
  true always have their codes. Nearly unique text (more than 32 different ones, in more than half of the rows) is left
  out, as is a column without a value. A constant column stays: a new value in it is drift.
- c is the median and s the median distance from it of the rows that differ, as of a Gaussian (`rare.scale_of`), s
  rounded to two significant digits and c to a multiple of s's second digit: neither is the value of a row, except where
  values are that coarse themselves. Of a sparse column its mode is kept, which nearly all rows have.
- The share of a code is c of its feature, with s = sqrt(c (1 - c)), at least 1/20, rounded alike; a code that fewer
  than 50 rows have, or lack, has c = 0, or 1, and s = 1, however many they are. Fewer than 50 missing cells count as
  none, and fewer than 50 numbers that are not whole make no column of fractions.

**New tables** are aligned where that is safe, with a note: columns in another order, columns that are new, names that
differ in capitals or blanks, whole numbers where texts were and all of which are known as texts, 0 and 1 for booleans.
Columns that are gone, have another name or another kind are refused with their names and the nearest name there is.
Unknown texts count as "other" (a note), and so do missing values where there were none; of numbers these are filled
and leave no trace in `features`, which is a warning, but the cells are NaN, which the drift test sees. Notes may be
stored (a monitor does), so they repeat no text of a new row, and of fewer than 50 rows say only that.

**Larger than memory**: kinds, missing values and numbers of rows of each text are `SchemaCounts`, which are added up
batch by batch and merge exactly; medians come from a random sample of rows (`batches.survey` draws 20 000 in the same
pass). Texts are counted in bounded memory: of more than `MOST_TEXTS` different ones the counts are reduced by the
(MOST_TEXTS + 1)-th largest (Misra and Gries; merging as in Agarwal et al. 2013, "Mergeable summaries", section 2). They
are then too small by at most n / MOST_TEXTS, never too large, so no code stands for fewer than 50 rows.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import InputError, checks
from vestige.core.numerics import on_grid, two_digits
from vestige.core.rounding import ROWS_TOGETHER
from vestige.data.readers.columns import (
    MAX_CATEGORIES,
    MICROSECONDS_A_DAY,
    Column,
    ColumnReport,
    coded,
    floats,
    joint_kind,
    kind_of,
    listed,
    nearly_unique,
    plain,
    ranked,
)
from vestige.store import newer
from vestige.vestiges.rare import CLIP, scale_of, sparse_mode

FEWEST = ROWS_TOGETHER  # rows that a schema is made from, that a text needs for a code, and that a scale needs
MOST_TEXTS = 50_000  # different texts of a column that are counted
NEAR = 0.6  # how alike a name must be to be suggested
LEFT_OUT = "left out"
BOOLEANS = ("false", "true")
OTHER = "(other)"
KINDS = ("number", "boolean", "date", "text", LEFT_OUT)


@dataclass(frozen=True)
class ColumnCounts:
    """What was counted in one column."""

    kind: str  # number, boolean, date, text or empty
    rows: int
    missing: int
    fractions: int = 0  # values that are no whole number, or no whole day
    dates: bool = False  # it is text, all of it ISO 8601 dates
    texts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, part: pa.Array, name: str, origin: str, first_row: int = 0) -> ColumnCounts:
        """Of one plain column, whose first row is row `first_row` of all."""
        kind, rows, missing = kind_of(part), len(part), part.null_count
        if kind == "text":
            parts = [part]
            dates = joint_kind(name, parts, [origin]) == "date"
            fractions = _fractions(floats(parts[0], name, origin)) if dates else 0
            return cls(kind, rows, missing, fractions, dates, _reduced(dict(ranked(part))))
        if kind == "boolean":
            return cls(kind, rows, missing, texts=dict(ranked(part.cast(pa.large_string()))))
        return cls(kind, rows, missing, _fractions(floats(part, name, origin, first_row=first_row)))

    @property
    def final(self) -> str:
        """The kind that the column has when all rows were seen."""
        return "date" if self.dates else self.kind

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers, or whole days; a few others do not count."""
        return self.fractions < FEWEST and (not self.fractions or 2 * self.fractions < self.rows - self.missing)

    def merge(self, other: ColumnCounts, name: str) -> ColumnCounts:
        """Of the rows of both; a column that is text here and numbers there is refused."""
        rows, missing = self.rows + other.rows, self.missing + other.missing
        fractions = self.fractions + other.fractions
        told = [one for one in (self, other) if one.kind != "empty"]
        kinds = {one.kind for one in told}
        dates = bool(told) and all(one.dates or one.kind == "date" for one in told) and "text" in kinds
        if len(kinds) > 1 and kinds != {"number", "boolean"} and not dates:
            got = " and ".join(f"{kind} in {_rows(told, kind)} rows" for kind in sorted(kinds))
            raise InputError(f"The column '{name}' must be of one kind in all batches. Got {got} instead.")
        kind = "empty" if not kinds else "number" if kinds == {"number", "boolean"} else max(kinds)  # text over date
        both = {**self.texts, **other.texts} if kind in ("text", "boolean") else {}
        texts = {text: self.texts.get(text, 0) + other.texts.get(text, 0) for text in both}
        return ColumnCounts(kind, rows, missing, fractions, dates, _reduced(texts))


def _rows(counts: Sequence[ColumnCounts], kind: str) -> int:
    return sum(one.rows - one.missing for one in counts if one.kind == kind)


def _fractions(values: NDArray[np.float64]) -> int:
    return int((np.floor(values) != values)[~np.isnan(values)].sum())


def _reduced(texts: dict[str, int]) -> dict[str, int]:
    """At most MOST_TEXTS of them, each count lowered by the largest that is given up."""
    if len(texts) <= MOST_TEXTS:
        return texts
    cut = sorted(texts.values(), reverse=True)[MOST_TEXTS]
    return {text: count - cut for text, count in texts.items() if count > cut}


@dataclass(frozen=True)
class SchemaCounts:
    """What was counted in a table, or in the batches of one; sums of such counts are counts of all rows."""

    columns: Mapping[str, ColumnCounts]
    rows: int

    @classmethod
    def of(
        cls, table: pa.Table, origin: str = "the table", *, drop: Sequence[str] = (), first_row: int = 0
    ) -> SchemaCounts:
        """Of one batch, which begins at `first_row`; columns in `drop` are not looked at."""
        n = table.num_rows
        counts = {
            name: ColumnCounts("empty", n, n)
            if name in drop
            else ColumnCounts.of(plain(table.column(name), name, origin), name, origin, first_row)
            for name in table.column_names
        }
        return cls(counts, n)

    def merge(self, other: SchemaCounts) -> SchemaCounts:
        """Of the rows of both."""
        alone = sorted(set(self.columns) ^ set(other.columns))
        if alone:
            raise InputError(f"The columns of all batches must be the same. Got {listed(alone)} in some alone instead.")
        merged = {name: one.merge(other.columns[name], name) for name, one in self.columns.items()}
        return SchemaCounts(merged, self.rows + other.rows)


@dataclass(frozen=True)
class SchemaColumn:
    """How one column becomes a cell and features."""

    name: str
    kind: str = checks.option("number", among=KINDS)
    categories: tuple[str, ...] = ()  # texts with a code of their own, in the order of the codes
    whole: bool = False  # its values were whole numbers, or whole days
    has_missing: bool = False
    centres: tuple[float, ...] = ()  # of its features
    spreads: tuple[float, ...] = checks.option((), above=0)
    why: str = ""  # it was left out, or is of little use
    mode: float | None = newer(None)  # of a sparse column: cells are 0 where they equal it, and 1 elsewhere

    def __post_init__(self) -> None:
        checks.declared(self)
        if not len(self.features) == len(self.centres) == len(self.spreads):
            told = f"{len(self.centres)} and {len(self.spreads)}"
            checks.refuse("centres", "SchemaColumn", f"{len(self.features)}, and as many spreads", told)

    @property
    def is_category(self) -> bool:
        """Whether its cells are codes."""
        return self.kind in ("text", "boolean")

    @property
    def features(self) -> tuple[str, ...]:
        """What its features are called."""
        if self.kind == LEFT_OUT:
            return ()
        marks = (f"{self.name} is missing",)
        if self.is_category:
            return *(f"{self.name} = {text}" for text in self.categories), f"{self.name} is other", *marks
        return (self.name, *marks) if self.has_missing else (self.name,)

    @property
    def fill(self) -> float:
        """What stands for a missing number."""
        return self.centres[0] if self.mode is None else self.mode

    def expand(self, cells: Float64[Tensor, " n"]) -> Float64[Tensor, "n d"]:
        """The features of this column."""
        missing = cells.isnan()
        if self.is_category:
            codes = torch.where(missing, len(self.categories) + 1, cells).long()
            raw = torch.nn.functional.one_hot(codes, len(self.features)).to(cells.dtype)
        else:
            filled = torch.where(missing, self.centres[0], cells)
            raw = torch.stack([filled, missing.to(cells.dtype)], 1) if self.has_missing else filled[:, None]
        centre, spread = (cells.new_tensor(constants) for constants in (self.centres, self.spreads))
        return ((raw - centre) / spread).clamp(-CLIP, CLIP)

    def column(self, cells: Float64[Tensor, " n"]) -> pa.Array:
        """Values that a person can read: of "other" there is only the word."""
        missing = cells.isnan().numpy()
        if self.is_category:
            codes = pa.array(np.where(missing, 0, cells.numpy()).astype(np.int64), mask=missing)
            if self.kind == "boolean":
                return pc.take(pa.array([False, True, None]), codes)
            return pc.take(pa.array([*self.categories, OTHER], pa.string()), codes)
        if self.mode is not None:  # of another value is only known that it is another
            cells = torch.where(cells == 0, self.mode, torch.nan)
            missing = cells.isnan().numpy()
        values = (cells.round() if self.whole else cells).numpy()
        if self.kind == "date":
            scale, type_ = (1, pa.date32()) if self.whole else (MICROSECONDS_A_DAY, pa.timestamp("us"))
            whole = np.rint(np.where(missing, 0, values * scale)).astype(np.int64)
            return pa.array(whole.astype(np.int32) if self.whole else whole, mask=missing).cast(type_)
        if self.whole and (np.abs(values[~missing]) <= checks.EXACT).all():
            return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing)
        return pa.array(values, mask=missing)


@dataclass(frozen=True)
class Aligned:
    """A table as cells of a schema, and what had to be done for it."""

    cells: Float64[Tensor, "n c"]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """The columns of a table, frozen: from now on every table is read in this manner.

    >>> import pyarrow as pa
    >>> first = pa.table({"age": [20.0, 30, 40] * 50, "job": ["smith", "cook", None] * 50})
    >>> schema = Schema.of(first)
    >>> schema.kinds
    ('number', 'category')
    >>> schema.feature_names
    ('age', 'job = cook', 'job = smith', 'job is other', 'job is missing')
    >>> schema.cells(pa.table({"JOB": ["pilot"], "age": [25]})).cells.tolist()
    [[25.0, 2.0]]
    """

    columns: tuple[SchemaColumn, ...]

    def __str__(self) -> str:
        out = [column.name for column in self.columns if column.kind == LEFT_OUT]
        told = f"{len(self.used)} columns, {len(self.feature_names)} features"
        return told + (f"; left out: {listed(out)}" if out else "")

    @classmethod
    def of(
        cls,
        table: pa.Table,
        *,
        drop: Sequence[str] = (),
        origin: str = "the table",
        counts: SchemaCounts | None = None,
    ) -> Schema:
        """The schema of a table, or of one that `table` is a random sample of and `counts` counted every row of.

        Raises
        ------
        InputError
            There are fewer than 50 rows, `drop` names a column that there is not, or no column is left.
        """
        for name in drop:
            checks.one_of(name, table.column_names, "drop", "Schema.of")
        counts = SchemaCounts.of(table, origin, drop=drop) if counts is None else counts
        if counts.rows < FEWEST:
            raise InputError(f"The rows of {origin} must be at least {FEWEST}. Got {counts.rows} instead.")
        columns = [
            SchemaColumn(name, LEFT_OUT, why="dropped on request")
            if name in drop
            else _column(name, table.column(name), counts.columns[name], origin)
            for name in table.column_names
        ]
        if all(column.kind == LEFT_OUT for column in columns):
            told = "; ".join(f"'{column.name}' {column.why}" for column in columns[:3]) or "none"
            raise InputError(f"The columns of {origin} must leave something to compare. Got {told} instead.")
        return cls(tuple(columns))

    @property
    def used(self) -> tuple[SchemaColumn, ...]:
        """The columns that have a cell, in the order of the cells."""
        return tuple(column for column in self.columns if column.kind != LEFT_OUT)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of each cell: "number" or "category"."""
        return tuple("category" if column.is_category else "number" for column in self.used)

    @property
    def cell_names(self) -> tuple[str, ...]:
        """The names of the columns that have a cell."""
        return tuple(column.name for column in self.used)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the features are called."""
        return tuple(name for column in self.used for name in column.features)

    def report(self) -> ColumnReport:
        """What becomes of each column, for people."""
        return ColumnReport(tuple(map(_reported, self.columns)))

    def cells(self, table: pa.Table, origin: str = "the new rows") -> Aligned:
        """The rows of `table` as cells.

        Raises
        ------
        InputError
            A column is not there or is of another kind; names both it and the nearest column that is there.
        """
        names, notes = self._matched(table.column_names, origin)
        parts, warnings = [], []
        for column in self.used:
            cells, told, warned = _cells(column, plain(table.column(names[column.name]), column.name, origin), origin)
            parts.append(cells)
            notes += told
            warnings += warned
        return Aligned(torch.from_numpy(np.stack(parts, 1)), tuple(notes), tuple(warnings))

    def features(self, cells: Float[Tensor, "n c"]) -> Float64[Tensor, "n d"]:
        """What metrics are taken of: standardised by the frozen scales, clipped at +-20, never missing."""
        cells = self._checked(cells, "features")
        return torch.cat([column.expand(cells[:, i]) for i, column in enumerate(self.used)], 1)

    def table(self, cells: Float[Tensor, "n c"]) -> pa.Table:
        """Cells as a table with the names and kinds of the first one."""
        cells = self._checked(cells, "table")
        return pa.table({column.name: column.column(cells[:, i]) for i, column in enumerate(self.used)})

    def _checked(self, cells: Float[Tensor, "n c"], owner: str) -> Float64[Tensor, "n c"]:
        used = self.used
        if cells.shape[1] != len(used):
            checks.refuse("cells", f"Schema.{owner}", f"{len(used)} wide", cells.shape[1])
        for i, column in enumerate(used):
            codes = cells[:, i][~cells[:, i].isnan()]
            if column.is_category and not bool(((codes >= 0) & (codes <= len(column.categories))).all()):
                wrong = f"{float(codes.min()):g} to {float(codes.max()):g} in '{column.name}'"
                checks.refuse("cells", f"Schema.{owner}", f"codes from 0 to {len(column.categories)}", wrong)
        return cells.double()

    def _matched(self, names: Sequence[str], origin: str) -> tuple[dict[str, str], list[str]]:
        """The name that each column has in the new table, and notes."""
        wanted = self.cell_names
        known = {column.name for column in self.columns}
        free = [name for name in names if name not in known]
        found = {name: name for name in wanted if name in names}
        alike = {name: [other for other in free if _folded(other) == _folded(name)] for name in wanted}
        notes = []
        for name in wanted:
            rivals = [other for other in wanted if other not in names and _folded(other) == _folded(name)]
            if name not in found and len(alike[name]) == len(rivals) == 1:
                found[name] = alike[name][0]
                notes.append(f"'{found[name]}' of {origin} was taken for '{name}'")
        extra = [name for name in free if name not in found.values()]
        gone = [name for name in wanted if name not in found]
        if gone:
            told = ", ".join(f"no '{name}'{_nearest(name, extra)}" for name in gone[:5])
            more = f" and {len(gone) - 5} more" if len(gone) > 5 else ""
            raise InputError(f"The columns of {origin} must hold those of the data. Got {told}{more} instead.")
        if extra:
            notes.append(f"{origin} has columns that the data had not, which were left out: {listed(extra)}")
        positions = [list(names).index(found[name]) for name in wanted]
        if positions != sorted(positions):
            notes.append(f"the columns of {origin} stand in another order; they were matched by name")
        return found, notes


def _folded(name: str) -> str:
    return "".join(name.casefold().split())


def _nearest(name: str, others: Sequence[str]) -> str:
    by_folded = {_folded(other): other for other in others}
    near = difflib.get_close_matches(_folded(name), by_folded, n=1, cutoff=NEAR)
    return f" (the nearest is '{by_folded[near[0]]}')" if near else ""


def _column(name: str, sample: pa.ChunkedArray, counts: ColumnCounts, origin: str) -> SchemaColumn:
    kind, has_missing = counts.final, counts.missing >= FEWEST
    if kind == "empty":
        return SchemaColumn(name, LEFT_OUT, why="no value in any row")
    if kind == "boolean":
        return _category(name, kind, BOOLEANS, counts)
    part = plain(sample, name, origin)
    if kind == "text":
        distinct, rows = pc.count_distinct(part).as_py(), len(part) - part.null_count
        if nearly_unique(distinct, rows):
            return SchemaColumn(name, LEFT_OUT, why=f"{distinct} different texts in {rows} rows are identifiers")
        common = sorted((-rows, text) for text, rows in counts.texts.items() if rows >= FEWEST)[:MAX_CATEGORIES]
        return _category(name, kind, sorted(text for _, text in common), counts)
    parts = [part]
    joint_kind(name, parts, [origin])  # dates that are spelt become dates
    values = floats(parts[0], name, origin)
    known = values[~np.isnan(values)]
    mode = sparse_mode(known)
    centre, spread = scale_of(known) if mode is None else (0.0, 1.0)
    share, deviation = share_scale(counts.missing, counts.rows)
    marked = 2 if has_missing else 1
    centres, spreads = (centre, share)[:marked], (spread, deviation)[:marked]
    return SchemaColumn(name, kind, (), counts.whole, has_missing, centres, spreads, mode=mode)


def _category(name: str, kind: str, categories: Sequence[str], counts: ColumnCounts) -> SchemaColumn:
    kept = [counts.texts.get(text, 0) for text in categories]
    rows = [*kept, counts.rows - counts.missing - sum(kept), counts.missing]
    centres, spreads = zip(*(share_scale(count, counts.rows) for count in rows), strict=True)
    why = "" if categories else f"no text in at least {FEWEST} rows: only whether it is missing can be told"
    return SchemaColumn(name, kind, tuple(categories), True, counts.missing >= FEWEST, centres, spreads, why)


def share_scale(count: int, n: int) -> tuple[float, float]:
    """Share of a 0/1 feature and its standard deviation, rounded; see the docstring of the module."""
    if min(count, n - count) < FEWEST:
        return float(count >= FEWEST), 1.0
    share = count / n
    spread = two_digits(max(math.sqrt(share * (1 - share)), 1 / CLIP))
    return on_grid(share, spread), spread


def _reported(column: SchemaColumn) -> Column:
    if column.kind == LEFT_OUT:
        return Column(column.name, "any", f"left out: {column.why}")
    if column.is_category:
        treatment = f"one of {len(column.categories)} categories, other or missing"
    else:
        treatment = "days since 1970" if column.kind == "date" else "as it is"
        treatment += (
            f", minus {column.fill:.6g}, over {column.spreads[0]:.6g}"
            if column.mode is None
            else f", but only whether it is {column.mode:.6g}, as in all rows but fewer than {FEWEST}"
        )
        treatment += "; missing ones are marked" if column.has_missing else ""
    return Column(column.name, column.kind, treatment, column.features, (column.why,) if column.why else ())


def _cells(column: SchemaColumn, part: pa.Array, origin: str) -> tuple[NDArray[np.float64], list[str], list[str]]:
    """The cells of one column, notes, and warnings."""
    values, notes = (_codes if column.is_category else _numbers)(column, part, origin)
    missing = int(np.isnan(values).sum())
    if not missing or column.has_missing:
        return values, notes, []
    seldom = f"and was so in fewer than {FEWEST} rows of the data"
    told = f"'{column.name}' is missing in {_few(missing)} of {len(values)} rows of {origin}, {seldom}"
    if column.is_category:
        return values, [*notes, told], []
    blind = (
        f"{told}: it was filled with {column.fill:.6g}; metrics and divergences cannot see that, the drift test does"
    )
    return values, notes, [blind]


def _numbers(column: SchemaColumn, part: pa.Array, origin: str) -> tuple[NDArray[np.float64], list[str]]:
    parts = [part]
    kind = kind_of(part)
    if column.kind == "date" and kind == "text":
        kind = joint_kind(column.name, parts, [origin])
    if kind not in ("empty", column.kind) and not (column.kind == "number" and kind == "boolean"):
        _refuse_kind(column, part, kind, origin)
    values = floats(parts[0], column.name, origin)
    if column.mode is None:
        return values, []
    return np.where(np.isnan(values), np.nan, values != column.mode), []


def _few(count: int) -> str:
    """A number of rows, or that they are few."""
    return str(count) if count >= FEWEST else f"fewer than {FEWEST}"


def _codes(column: SchemaColumn, part: pa.Array, origin: str) -> tuple[NDArray[np.float64], list[str]]:
    kind, notes = kind_of(part), []
    if kind == "empty":
        return np.full(len(part), np.nan), []
    if kind == "number":  # whole numbers may be meant for texts, and 0 and 1 for booleans
        numbers = floats(part, column.name, origin)
        known = {"0": "false", "1": "true"} if column.kind == "boolean" else {text: text for text in column.categories}
        spelt = [None if math.isnan(x) else known.get(f"{x:.0f}" if x.is_integer() else "") for x in numbers.tolist()]
        if sum(text is None for text in spelt) > part.null_count:
            _refuse_kind(column, part, kind, origin)
        part = pa.array(spelt, pa.large_string())
        notes.append(f"the numbers of '{column.name}' of {origin} were taken for {column.kind}s")
    elif kind == "boolean" == column.kind:
        part = part.cast(pa.large_string())
    elif kind != column.kind:
        _refuse_kind(column, part, kind, origin)
    codes = coded(part, column.categories)
    k = len(column.categories)
    if others := int((codes == k).sum()):
        told = f"{_few(others)} of {len(codes)} rows of {origin} count as 'other' in '{column.name}'"
        notes.append(f"{told}: their texts have no code of their own")
    return np.where(codes > k, np.nan, codes.astype(np.float64)), notes


def _refuse_kind(column: SchemaColumn, part: pa.Array, kind: str, origin: str) -> NoReturn:
    example = next(str(value) for value in part if value.is_valid)[:40]
    told = f"{kind}, such as '{example}', in {origin}"
    raise InputError(f"The column '{column.name}' must be {column.kind}, as in the data. Got {told} instead.")
