"""A test of "no difference" between deleted rows and new ones, from stored moments of a fixed dictionary.

Kept of the reference are n and, for every function f of the `Dictionary`, sum f and sum f^2. For m new rows

    z = (mean_p f - mean_q f) / sqrt(v (1/n + 1/m)),   v = ((n - 1) s_p^2 + (m - 1) s_q^2) / (n + m - 2),

with the *pooled* variance: with that of the reference alone the level of a 5 % test is .09-.10. A family's statistics
are the sum of its z^2 and the largest of them, and the families are combined by the smallest p-value (`null`).

Nothing that is stored belongs to fewer than 50 rows. Of an indicator that fewer than 50 rows have, or lack, it is only
known that they are from 0 to 50 (`hidden`), and of a product that rests on so few rows, nothing. Such a mean is known
up to an interval, and mean_q f counts by how far it lies outside of it: what is new must be more than 50/n of the new
rows to be seen, and the level holds wherever in the interval the mean is. An indicator that is hidden has no variance
to be held against: it counts with that of a share of max(50/n, .01). Sums are rounded to a hundredth of their standard
error, those of squares as if f were normal.

Learnt families have an n of their own: `of` sets rows aside on which the dictionary is fitted, which only the other
families count. Fewer than 300 such rows learn nothing, and every family is then taken of all rows.

With `block` = b rows are taken b at a time, in the order in which they come: every f is replaced by its mean over a
block, and n and m count blocks. That is the moving-block variance of autocorrelated rows with blocks side by side, and
the bootstrap draws whole blocks; it holds for b well above the time in which rows forget (Künsch 1989). Rows left over
at the end of a batch are not counted, so batches should be multiples of b.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from scipy.stats import chi2
from torch import Tensor

from vestige.core import InputError, checks, rng
from vestige.core.checks import refuse
from vestige.core.rounding import rounded
from vestige.store import encode, newer
from vestige.vestiges.by_column import LEAST_P, evidence_of, most_of, windows
from vestige.vestiges.drift_test.columns import MIN_ROWS, MIN_SHARE
from vestige.vestiges.drift_test.dictionary import FAMILIES, LEARN_ROWS, Dictionary
from vestige.vestiges.drift_test.given import residual_z
from vestige.vestiges.drift_test.narrowing import excesses, narrowed
from vestige.vestiges.drift_test.null import DRAWS, MAX, SUM, Null

MIN_NEW_ROWS, MIN_NEW_BLOCKS = 30, 10
SIZES = (30, 100, 300, 1000, 3000, 10_000)
BLOCK_SIZES = (10, 30, 100, 300, 1000)
LEARN_SHARE, MOST_LEARN_ROWS = 0.3, 5000
POOL = 3000  # units that the null is drawn from
MOST_WORK = 4e9  # functions x units x draws of one product
CHUNK = 2048  # rows at a time
KINDS = ("number", "category")


@dataclass(frozen=True)
class ColumnShift:
    """The function of one column whose mean differs most, and its p-value corrected for all functions and columns.

    `before` and `after` are the means of that function. `relation` is the mean z^2 of all products of the column's
    scores with those of others, and `partner` the column of the largest: how far it goes together with others in
    another way than before. It has no p-value of its own; the family "pairs" has.

    `evidence`, by which columns are put in order, is the logarithm of the mean of 1/p (`by_column.evidence_of`) over
    the kinds of evidence that there are: each of its scores; its codes, and runs of neighbouring ones
    (`by_column.windows`), with Bonferroni's correction for their number; its relations: the sum over the other columns
    of the mean z^2 of their products, by a chi-squared distribution of half as many degrees as there are columns, and
    half of that sum, because products with one column depend on each other; what is left of it given the others
    (`given`).
    """

    column: int
    what: str
    z: float
    p_value: float
    before: float = math.nan
    after: float = math.nan
    relation: float = 0.0
    partner: int = 0
    evidence: float = math.nan


@dataclass(frozen=True)
class DriftFound:
    """The p-value of "no difference", that of each family, and the strongest difference of each column."""

    p_value: float
    families: dict[str, float]
    columns: tuple[ColumnShift, ...]
    n: int
    m: int


@dataclass(frozen=True)
class FunctionSums:
    """Sums over units (rows, or blocks of them) of every function and of its square."""

    units: int
    units_learnt: int  # of the learnt families
    total: Float[Tensor, " f"]
    squares: Float[Tensor, " f"]
    hidden: Float[Tensor, " f"] | None = newer(None)  # by how much `total` may be too small; infinite: it is not known

    def __add__(self, other: FunctionSums) -> FunctionSums:
        return FunctionSums(
            self.units + other.units,
            self.units_learnt + other.units_learnt,
            self.total + other.total,
            self.squares + other.squares,
            self.slack() + other.slack(),
        )

    def slack(self) -> Float[Tensor, " f"]:
        """`hidden`, which is none where nothing is said."""
        return torch.zeros_like(self.total) if self.hidden is None else self.hidden

    def told(self, counted: Bool[Tensor, " f"], n: Float[Tensor, " f"], block: int) -> FunctionSums:
        """Without those over few of `n` units: `counted` are numbers of rows, what is not known counts as 0."""
        unknown, least = self.slack().isinf(), MIN_ROWS / block
        below, above = counted & (self.total < least), counted & (self.total > n - least)
        total = torch.where(below | unknown, 0.0, torch.where(above, (n - least).clamp_min(0), self.total))
        squares = torch.where(below | above | unknown, total, self.squares)
        hidden = torch.where(below | above, self.slack().clamp_min(least), self.slack())
        return replace(self, total=total, squares=squares, hidden=hidden)

    def rounded(self, n: Float[Tensor, " f"]) -> FunctionSums:
        """To a hundredth of the standard errors over `n` units."""
        mean, square = self.total / n, self.squares / n
        error = ((square - mean**2).clamp_min(0) / n).sqrt()
        return replace(self, total=rounded(mean, error) * n, squares=rounded(square, square * (2 / n).sqrt()) * n)


def in_blocks(values: Float[Tensor, "f n"], block: int) -> Float[Tensor, "f k"]:
    """Values of rows, or their means over blocks of so many."""
    return values if block == 1 else values.reshape(len(values), -1, block).mean(2)


def moments(dictionary: Dictionary, cells: Float[Tensor, "n c"], block: int) -> FunctionSums:
    """Of all functions over `cells`, some rows at a time."""
    units = len(cells) // block
    f = sum(dictionary.sizes.values())
    total, squares = torch.zeros(f, dtype=torch.float64), torch.zeros(f, dtype=torch.float64)
    step = max(CHUNK // block, 1) * block
    for start in range(0, units * block, step):
        place = 0
        for part in dictionary.parts(cells[start : min(start + step, units * block)]):
            values = in_blocks(part, block)
            total[place : place + len(part)] += values.sum(1)
            squares[place : place + len(part)] += torch.linalg.vecdot(values, values)
            place += len(part)
    return FunctionSums(units, units, total, squares)


def squared_z(
    p_mean: Tensor,
    p_square: Tensor,
    n: Tensor,
    q_mean: Tensor,
    q_square: Tensor,
    m: Tensor,
    floor: Tensor,
    hidden: Tensor | float = 0.0,
) -> Tensor:
    """z^2 of every function from means of f and of f^2; `floor` is the least variance. Shapes broadcast.

    The mean of p lies between `p_mean` and `p_mean + hidden`.
    """
    within = n * (p_square - p_mean**2).clamp_min(0) + m * (q_square - q_mean**2).clamp_min(0)
    variance = torch.maximum(within / (n + m - 2), floor)
    gap = torch.maximum(p_mean - q_mean, q_mean - p_mean - hidden).clamp_min(0)
    gap = torch.where(torch.isinf(torch.as_tensor(hidden)), 0.0, gap).square()
    return torch.where(gap > 0, gap / (variance * (1 / n + 1 / m)).clamp_min(1e-30), torch.zeros_like(gap))


def statistics(z2: Float[Tensor, "b f"], spans: dict[str, slice]) -> Float[Tensor, "b s"]:
    """Sum and maximum of each family."""
    parts = []
    for name, span in spans.items():
        family = z2[:, span]
        parts += [family.sum(1)] if name == "random" else [family.sum(1), family.amax(1)]
    return torch.stack(parts, 1)


def _layout(spans: dict[str, slice]) -> tuple[list[str], list[str]]:
    """Family and kind of each statistic, in the order of `statistics`."""
    pairs = [(name, kind) for name in spans for kind in ((SUM,) if name == "random" else (SUM, MAX))]
    return [name for name, _ in pairs], [kind for _, kind in pairs]


def _spans(dictionary: Dictionary) -> dict[str, slice]:
    return {name: span for name, span in dictionary.spans.items() if span.stop > span.start}


def _counts(dictionary: Dictionary, units: float, units_learnt: float, dtype: torch.dtype) -> Float[Tensor, " f"]:
    """The n of every function."""
    n = torch.full((sum(dictionary.sizes.values()),), float(units), dtype=dtype)
    n[dictionary.learnt] = float(units_learnt)
    return n


def _floor(hidden: Float[Tensor, " f"], rows: int, block: int) -> Float[Tensor, " f"]:
    """The least variance: that of a small share for what is hidden, nearly none for the others."""
    share = min(max(MIN_ROWS / rows, MIN_SHARE), 0.5)
    return torch.where(hidden > 0, share * (1 - share) / block, 1e-12)


def drawn_null(
    dictionary: Dictionary,
    pool: Float[Tensor, "f k"],
    sums: FunctionSums,
    *,
    rows: int,
    block: int,
    seed: int,
) -> Null:
    """The null of the reference of these sums, both sides drawn from `pool`."""
    spans, k, units, units_learnt = _spans(dictionary), pool.shape[1], sums.units, sums.units_learnt
    draws = max(min(DRAWS, int(MOST_WORK / pool.numel())), 300)
    centred = (pool - pool.mean(1, keepdim=True)).to(torch.float32)
    both = torch.cat([centred, centred.square()])
    generator = rng.fork(seed, "null")
    floor = _floor(sums.slack(), rows, block).float()[:, None]

    def means(size: int) -> tuple[Tensor, Tensor]:
        """Means of f and f^2 over `size` units drawn with replacement; huge samples are drawn smaller and shrunk."""
        drawn = min(size, 2 * k)
        counts = torch.zeros(draws, k)
        picked = torch.randint(k, (draws, drawn), generator=generator)
        counts.scatter_add_(1, picked, torch.ones(draws, drawn))
        found = both @ counts.T / drawn
        if drawn < size:
            whole = both.mean(1, keepdim=True)
            found = whole + (found - whole) * (drawn / size) ** 0.5
        return found[: len(pool)], found[len(pool) :]

    n = _counts(dictionary, units, units_learnt, torch.float32)[:, None]
    hidden = sums.slack().float()[:, None] / n
    p_mean, p_square = means(units_learnt)
    shrink = (units_learnt / n) ** 0.5
    p_mean, p_square = p_mean * shrink, both[len(pool) :].mean(1, keepdim=True) * (1 - shrink) + p_square * shrink
    sizes = SIZES if block == 1 else BLOCK_SIZES
    excess = excesses(centred, spans, (sums.slack() == 0).float())  # of what is hidden little enters a sum
    found = []
    for size in sizes:
        q_mean, q_square = means(size)
        z2 = squared_z(p_mean - hidden / 2, p_square, n, q_mean, q_square, torch.tensor(float(size)), floor, hidden)
        found.append(narrowed(statistics(z2.T.double(), spans), *_layout(spans), excess))
    return Null.fit(torch.stack(found), sizes, *_layout(spans))


@dataclass(frozen=True)
class DriftTest:
    """FunctionSums of a reference sample under a frozen dictionary, and the null of their differences to new rows."""

    version: ClassVar[int] = 3  # 2: nothing of fewer than 50 rows; 3: the smallest p has its level
    dictionary: Dictionary
    block: int
    moments: FunctionSums
    null: Null

    @classmethod
    def of(
        cls,
        cells: Float[Tensor, "n c"],
        kinds: Sequence[str] | None = None,
        *,
        block: int = 1,
        seed: int = 0,
        dictionary: Dictionary | None = None,
    ) -> DriftTest:
        """The test of the rows `cells`.

        Parameters
        ----------
        cells
            Numbers and codes of categories, NaN where they are missing; at least 50 rows (50 blocks).
        kinds
            "number" or "category" for each column; None: all numbers.
        block
            Rows that are taken together because they depend on each other, in the order in which they come.
        seed
            Of what is drawn: rows set aside, random features, the null.
        dictionary
            Functions that were fitted on *other* rows: every row then counts for every family, and tests under one
            dictionary merge.
        """
        owner = "DriftTest.of"
        kinds = tuple(kinds) if kinds is not None else ("number",) * cells.shape[1]
        cells = _checked(cells, kinds, owner)
        checks.whole(block, "block", owner, low=1)
        units = len(cells) // block
        if units < MIN_ROWS:
            per = "" if block == 1 else f" (50 blocks of {block})"
            refuse("cells", owner, f"at least {MIN_ROWS * block} rows{per}", len(cells))
        if dictionary is not None:
            if dictionary.kinds != kinds:
                refuse("dictionary", owner, "one of columns of the same kinds", "others")
            fitted_on, rest = cells[:0], cells
        else:
            learn, counted = _set_aside(units, block, seed)
            fitted_on, rest = _rows(cells, learn, block), _rows(cells, counted, block)
            learns = len(fitted_on) >= LEARN_ROWS
            dictionary = Dictionary.fit(fitted_on if learns else cells, kinds, seed=seed, learn=learns)
            fitted_on, rest = (fitted_on, rest) if learns else (cells[:0], cells)
        found = moments(dictionary, rest, block)
        few = dictionary.rests_on_few(rest)
        if len(fitted_on):
            aside = moments(dictionary, fitted_on, block)
            total, squares = aside.total.clone(), aside.squares.clone()
            total[dictionary.learnt], squares[dictionary.learnt] = 0, 0
            found = found + FunctionSums(aside.units, 0, total, squares)
        order = torch.randperm(len(rest) // block, generator=rng.fork(seed, "pool"))[:POOL]
        pool = in_blocks(dictionary.evaluate(_rows(rest, order.sort().values, block)), block)
        found = replace(found, hidden=torch.where(few, torch.inf, 0.0).double())
        n = _counts(dictionary, found.units, found.units_learnt, torch.float64)
        told = found.told(dictionary.counted(), n, block)
        null = drawn_null(dictionary, pool, told, rows=len(cells), block=block, seed=seed)
        return cls(dictionary, block, found, null)

    def _told(self) -> tuple[FunctionSums, Float[Tensor, " f"]]:
        """The sums without those over few rows, and the n of each."""
        n = _counts(self.dictionary, self.moments.units, self.moments.units_learnt, torch.float64)
        return self.moments.told(self.dictionary.counted(), n, self.block), n

    def kept(self) -> DriftTest:
        """What may be kept when the rows are gone: sums over few rows are left out, the others rounded."""
        told, n = self._told()
        return replace(self, moments=told.rounded(n), null=self.null.rounded())

    @property
    def n(self) -> int:
        """Rows of the reference."""
        return self.moments.units * self.block

    def updated(self, cells: Float[Tensor, "n c"]) -> DriftTest:
        """With more rows of the reference, under the same dictionary; the null stays as it is."""
        cells = _checked(cells, self.dictionary.kinds, "DriftTest.updated")
        return replace(self, moments=self.moments + moments(self.dictionary, cells, self.block))

    def merge(self, other: DriftTest) -> DriftTest:
        """Of both references; their dictionaries must be one, and null tables are averaged by rows."""
        if self.block != other.block or not _same(self.dictionary, other.dictionary):
            raise InputError(
                "Two drift tests merge only under one dictionary and block: "
                "make the second with DriftTest.of(rows, dictionary=first.dictionary, block=first.block)."
            )
        share = self.moments.units / (self.moments.units + other.moments.units)
        return replace(self, moments=self.moments + other.moments, null=self.null.averaged(other.null, share))

    def test(self, new: Float[Tensor, "m c"]) -> DriftFound:
        """Whether the rows `new` come from the distribution of the reference; at least 30 rows (10 blocks)."""
        cells, q = self._new(new, "DriftTest.test")
        z2, sign = self._squared_z(q)
        whole, families = self._judged(z2, q)
        return DriftFound(whole, families, self._columns(z2, sign, q, cells), self.n, len(cells))

    def p_values(self, new: Float[Tensor, "m c"]) -> tuple[float, dict[str, float]]:
        """The p-value of "no difference" and that of each family alone, without a look at single columns."""
        _, q = self._new(new, "DriftTest.p_values")
        return self._judged(self._squared_z(q)[0], q)

    def _new(self, new: Float[Tensor, "m c"], owner: str) -> tuple[Float[Tensor, "m c"], FunctionSums]:
        """New rows that are enough, and their sums."""
        cells = _checked(new, self.dictionary.kinds, owner)
        least = MIN_NEW_ROWS if self.block == 1 else MIN_NEW_BLOCKS * self.block
        if len(cells) < least:
            refuse("new", owner, f"at least {least} rows", len(cells))
        return cells, moments(self.dictionary, cells, self.block)

    def _judged(self, z2: Float[Tensor, " f"], q: FunctionSums) -> tuple[float, dict[str, float]]:
        whole, families, _ = self.null.p_values(statistics(z2[None], _spans(self.dictionary)), q.units)
        return float(whole[0]), dict(zip(self.null.names, families[0].tolist(), strict=True))

    def _squared_z(self, q: FunctionSums) -> tuple[Float[Tensor, " f"], Float[Tensor, " f"]]:
        """z^2 of every function, and the sign of new less old."""
        p, n = self._told()
        m = torch.tensor(float(q.units), dtype=torch.float64)
        p_mean, q_mean = p.total / n, q.total / m
        floor = _floor(p.slack(), self.n, self.block)
        z2 = squared_z(p_mean, p.squares / n, n, q_mean, q.squares / m, m, floor, p.slack() / n)
        return z2, (q_mean - p_mean).sign()

    def _columns(
        self, z2: Float[Tensor, " f"], sign: Float[Tensor, " f"], q: FunctionSums, cells: Float[Tensor, "m c"]
    ) -> tuple[ColumnShift, ...]:
        """The strongest function of each column, against the null of the strongest of all."""
        owner, of_columns = self.dictionary.owner, z2[self.dictionary.spans["columns"]]
        place = [(f, k) for f, k in zip(*_layout(_spans(self.dictionary)), strict=True)].index(("columns", MAX))
        best = []
        for column in owner.unique().tolist():
            mine = (owner == column).nonzero()[:, 0]
            best.append(int(mine[of_columns[mine].argmax()]))
        strongest = torch.zeros(len(best), len(self.null.family), dtype=torch.float64)
        strongest[:, place] = of_columns[best]
        p_values = self.null.p_values(strongest, q.units)[2][:, place].tolist()
        z = (of_columns[best].sqrt() * sign[best]).tolist()
        means = (self.moments.total[best] / self.moments.units).tolist(), (q.total[best] / q.units).tolist()
        p, n = self._told()
        counts = float(self.moments.units), float(self.moments.units_learnt)
        left = residual_z(self.dictionary, p.total / n, p.squares / n, p.slack() > 0, counts, cells, self.block)
        out = []
        for i, k in enumerate(best):
            column = int(owner[k])
            what = self.dictionary.what(k)
            before, after = means[0][i], means[1][i]
            relation, partner, together = self._relation(z2, column)
            codes = self._in_order(column, p)
            runs = windows(p.total[codes].numpy(), q.total[codes].numpy(), (p.units, q.units))
            log_p = self._log_p(of_columns, owner == column) + together + most_of(runs)
            evidence = evidence_of([*log_p, *(one for z in left.get(column, ()) for one in most_of(z))])
            out.append(ColumnShift(column, what, z[i], p_values[i], before, after, relation, partner, evidence))
        return tuple(out)

    def _log_p(self, of_columns: Float[Tensor, " f"], mine: Bool[Tensor, " f"]) -> list[float]:
        """Of what a column is by itself: that of its codes together, and of each of its scores."""
        codes = torch.arange(len(mine)) < self.dictionary.indicators.shape[1]
        groups = [of_columns[mine & codes], *of_columns[mine & ~codes][:, None]]
        return [log_p for z2 in groups for log_p in most_of(z2.sqrt().tolist())]

    def _in_order(self, column: int, p: FunctionSums) -> list[int]:
        """Indicators of the codes of a number whose rows are known, in the order of its values; none of a category."""
        coded, indicators = self.dictionary.columns[column], self.dictionary.indicators
        mine = (indicators[0] == column) & (p.slack()[: indicators.shape[1]] == 0)
        known = [i for i in mine.nonzero()[:, 0].tolist() if indicators[1, i] < coded.size - 2]
        return sorted(known, key=lambda i: float(coded.linear[indicators[1, i]])) if coded.kind == "number" else []

    def _relation(self, z2: Float[Tensor, " f"], column: int) -> tuple[float, int, list[float]]:
        """The mean z^2 of the pairs that a column is in, the other column of the largest, and log p of their sum."""
        of_pairs, owners = z2[self.dictionary.spans["pairs"]], self.dictionary.unit_column[self.dictionary.pairs]
        mine = (owners == column).any(0).nonzero()[:, 0]
        if not len(mine):
            return 0.0, column, []
        pairs, others = of_pairs[mine], owners[:, mine].sum(0) - column
        each = torch.stack([pairs[others == other].mean() for other in others.unique().tolist()])
        log_p = float(chi2.logsf(float(each.sum()) / 2, len(each) / 2))
        return float(pairs.mean()), int(others[pairs.argmax()]), [max(log_p, math.log(LEAST_P))]


def _checked(cells: Tensor, kinds: tuple[str, ...], owner: str) -> Float[Tensor, "n c"]:
    """Cells at the door: finite or NaN, one column a kind."""
    if cells.ndim != 2 or cells.shape[1] != len(kinds):
        refuse("cells", owner, f"{len(kinds)} columns wide", f"shape {tuple(cells.shape)}")
    for kind in kinds:
        checks.one_of(kind, KINDS, "kinds", owner)
    cells = cells.to(torch.float64)
    if bool(cells.isinf().any()):
        refuse("cells", owner, "finite, or NaN where a cell is missing", "infinite values")
    return cells


def _set_aside(units: int, block: int, seed: int) -> tuple[Tensor, Tensor]:
    """Units to learn from, and the others: drawn at random; of blocks, whole runs of neighbours."""
    take = min(int(LEARN_SHARE * units), max(MOST_LEARN_ROWS // block, 1))
    generator = rng.fork(seed, "set aside")
    if block == 1:
        order = torch.randperm(units, generator=generator)
        return order[:take].sort().values, order[take:].sort().values
    start = int(torch.randint(units, (1,), generator=generator))
    turned = (torch.arange(units) + start) % units  # one run, which may pass the end
    return turned[:take].sort().values, turned[take:].sort().values


def _rows(cells: Float[Tensor, "n c"], units: Tensor, block: int) -> Float[Tensor, "k c"]:
    """The rows of these units."""
    whole = cells[: len(cells) // block * block]
    return whole.reshape(-1, block, cells.shape[1])[units].reshape(-1, cells.shape[1])


def _same(one: Dictionary, other: Dictionary) -> bool:
    """Whether two dictionaries are the same functions."""
    (a, a_tensors), (b, b_tensors) = encode(one), encode(other)
    return a == b and all(torch.equal(a_tensors[key], b_tensors[key]) for key in a_tensors)


__all__ = ["FAMILIES", "ColumnShift", "DriftFound", "DriftTest", "FunctionSums"]
