"""The distribution of one column: atoms, bins between rounded edges, tails without extremes, and a rate of missing.

A column is turned into an ordered row of *codes*, each with its share of the rows:

- an **atom** is a value that at least max(rows_a_bin, n / 200) rows share, such as zero or a small whole number. Where
  values are multiples of a decimal step, bins can be as narrow as one value, and only those are atoms that stand out,
  unless atoms have most of the rows. Fewer rows than `rows_a_bin` between two atoms count with the nearest;
- all other numbers fall into **bins** of at least `rows_a_bin` rows, cut at quantiles that are rounded to a grid. The
  step of the grid is the largest of 1, 2, 5 times a power of ten that is at most 1/50 of the interquartile range.
  Within a bin the density is constant;
- the outermost bins have no outer edge. Beyond the inner one is a generalised Pareto tail, whose scale and shape follow
  from the rounded median and upper quartile of what lies beyond (Pickands 1975: with r = q75 / q50 the shape is
  log2(r - 1); -1 is a uniform tail, 0 an exponential one), within `SHAPES`. It ends at 0 where values are not negative,
  and at 1 where they are from 0 to 1, a few (`exceptions`) excepted, so that no single value decides;
- a **category** of fewer than `rows_a_bin` rows is counted with the last code;
- the share of **missing** values; fewer than `rows_a_bin` of them count as none, or as so many (`rounded_rate`).

Positions: each code occupies a part of [0, 1] that is as wide as its share. A number in a bin has the position there
that it has between the edges; an atom stands in the middle of its part. Values that are all whole numbers, or have at
most three decimals, are drawn as such.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from numpy.typing import NDArray
from torch import Tensor

from vestige.core.rounding import ROWS_TOGETHER

MOST_BINS = 128
MOST_ATOMS = 200
FEW_VALUES = 32  # so few values of a lattice are atoms, if rows enough have them
MOSTLY = 0.97  # of the rows: a lattice on which atoms have so many has atoms alone
STANDS_OUT = 4  # times as many rows as the median of all values: an atom on any other lattice
STEPS = 50  # of the grid within the interquartile range, at least
SHAPES = (-1.0, 0.4)  # of the tails
DECIMALS = (0, 1, 2, 3)  # that make a resolution
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Margin:
    """Codes of one column in order; `low` and `high` are equal at an atom, and at a category its code."""

    share: Float64[Tensor, " m"]  # of those rows that are not missing
    low: Float64[Tensor, " m"]
    high: Float64[Tensor, " m"]
    missing: float
    resolution: float  # what values are multiples of; 0: of nothing
    scale: Float64[Tensor, " 2"]  # of the lower and the upper tail; 0: none
    shape: Float64[Tensor, " 2"]
    reach: Float64[Tensor, " 2"]  # how far the tails go beyond their inner edges

    def __len__(self) -> int:
        return len(self.share)

    def sound(self) -> bool:
        """Whether its parts, read from a file, go together."""
        parts = (self.share, self.low, self.high, self.scale, self.shape, self.reach)
        lengths = [len(part) for part in parts]
        finite = all(bool(part.isfinite().all()) for part in parts) and 0 <= self.missing <= 1
        shares = bool((self.share > 0).all()) and abs(float(self.share.sum()) - 1) < 1e-6
        tails = bool((self.scale >= 0).all()) and (self.resolution == 0 or 1e-9 < self.resolution < 1e9)
        same = lengths[0] > 0 and lengths == [lengths[0]] * 3 + [2] * 3
        return same and finite and shares and tails and bool((self.low <= self.high).all())


def grid_step(values: FloatArray) -> float:
    """The step of the column's grid; 0 where it does not vary."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    spread = float(high - low)
    if not spread > 0:  # half of the values are one: of the others it is how far they are from it
        away = np.abs(values - middle)[values != middle]
        spread = float(np.median(away)) if len(away) >= ROWS_TOGETHER else 0.0
    if not spread > 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(spread / STEPS))
    return float(max(m * power for m in (1, 2, 5) if m * power <= spread / STEPS * (1 + 1e-9)))


def rows_of_all(least: int, n: int) -> int:
    """The fewest rows of a bin or leaf of `n`: a hundredth, and at least `least`."""
    return max(least, math.ceil(n / 100))


def exceptions(n: int) -> int:
    """Of `n` rows fewer than so many may break a rule that the others keep: a twentieth, at most ROWS_TOGETHER."""
    return min(ROWS_TOGETHER, max(n // 20, 1))


def resolution_of(values: FloatArray) -> float:
    """The coarsest of 1, .1, .01, .001 that the values are multiples of, all but a few, or 0."""
    for digits in DECIMALS:
        others = int((np.abs(values - np.round(values, digits)) > 1e-12 * np.abs(values)).sum())
        if others < exceptions(len(values)):
            return 10.0**-digits
    return 0.0


def rounded_rate(count: int, n: int, least: int) -> float:
    """A share of `n` rows; fewer than `least` that have it, or lack it, count as none or as `least`."""
    few = min(count, n - count)
    if few >= least:
        return count / n
    told = min(least if 2 * few >= least else 0, n // 2)
    return told / n if count < n - count else 1 - told / n


def margin_of(column: FloatArray, kind: str, rows_a_bin: int) -> Margin:
    """The margin of a column in which NaN is missing."""
    known = column[~np.isnan(column)]
    missing = rounded_rate(len(column) - len(known), len(column), rows_a_bin)
    if len(known) < rows_a_bin:  # nothing is said about the few values
        known, missing = np.zeros(1), 1.0
    return categories(known, missing, rows_a_bin) if kind == "category" else numbers(known, missing, rows_a_bin)


def categories(known: FloatArray, missing: float, rows_a_bin: int) -> Margin:
    """Codes with enough rows, by their share."""
    counts = np.bincount(known.astype(np.int64))
    rare = counts < rows_a_bin
    counts[-1] += counts[:-1][rare[:-1]].sum()
    counts[:-1][rare[:-1]] = 0
    if 0 < counts[-1] < rows_a_bin and len(counts) > 1 and counts[:-1].max() > 0:
        counts[counts[:-1].argmax()] += counts[-1]
        counts[-1] = 0
    codes = np.flatnonzero(counts).astype(np.float64)
    return _margin(counts[counts > 0], codes, codes, missing, 1.0, np.zeros((3, 2)))


def numbers(known: FloatArray, missing: float, rows_a_bin: int) -> Margin:
    """Atoms, and bins between them, in order."""
    x, resolution = np.sort(known), resolution_of(known)
    atoms = atoms_of(x, rows_a_bin, resolution)
    first, last = np.searchsorted(x, atoms, side="left"), np.searchsorted(x, atoms, side="right")
    rest = x[~np.isin(x, atoms)] if len(atoms) else x
    step = max(grid_step(rest), resolution) if len(rest) else 0.0
    few = exceptions(len(x)) - 1
    limits = (0.0 if x[few] >= 0 else -math.inf, 1.0 if x[few] >= 0 and x[-1 - few] <= 1 else math.inf)
    shared = last - first
    low: list[float] = []
    high: list[float] = []
    held: list[int] = []
    tails = np.zeros((3, 2))
    for i in range(len(atoms) + 1):
        gap = x[last[i - 1] if i else 0 : first[i] if i < len(atoms) else len(x)]
        ends = (atoms[i - 1] + resolution if i else -math.inf, atoms[i] if i < len(atoms) else math.inf)
        if len(gap) >= rows_a_bin:
            share = len(gap) / len(rest)
            found = bins(gap, ends, step, rows_a_bin, resolution, max(round(share * MOST_BINS), 1), limits)
            low, high, held = [*low, *found.low], [*high, *found.high], [*held, *found.rows]
            tails = np.where(found.tails[0] > 0, found.tails, tails)
        elif len(gap):  # too few to be told apart: they count with the nearest atom
            shared = shared + np.bincount(nearest_atom(gap, atoms), minlength=len(atoms))
        if i < len(atoms):
            low, high, held = [*low, atoms[i]], [*high, atoms[i]], [*held, 0]
    counts = np.array(held)
    counts[np.array(low) == np.array(high)] = shared
    return _margin(counts, np.array(low), np.array(high), missing, resolution, tails)


def atoms_of(x: FloatArray, rows_a_bin: int, resolution: float) -> FloatArray:
    """Values that many rows share. On a lattice of many values only those that stand out: bins can be as narrow."""
    values, counts = np.unique(x, return_counts=True)
    many = counts >= max(rows_a_bin, len(x) / MOST_ATOMS)
    if resolution > 0 and len(values) > FEW_VALUES and counts[many].sum() < MOSTLY * len(x):
        many &= counts >= STANDS_OUT * np.median(counts)
    if not many.any() and len(x) < rows_a_bin:
        many = counts == counts.max()
    return values[many]


def nearest_atom(values: FloatArray, atoms: FloatArray) -> IntArray:
    """The index of the atom nearest to each value."""
    return np.searchsorted((atoms[1:] + atoms[:-1]) / 2, values)


@dataclass(frozen=True)
class Bins:
    """Edges of neighbouring bins, their rows, and (scale, shape, reach) of a lower and an upper tail."""

    low: FloatArray
    high: FloatArray
    rows: IntArray
    tails: FloatArray


def bins(
    values: FloatArray,
    ends: tuple[float, float],
    step: float,
    rows_a_bin: int,
    resolution: float,
    most: int,
    limits: tuple[float, float],
) -> Bins:
    """Bins of sorted values between two atoms; where an end is infinite there is none, and the outermost is a tail."""
    tails, many = np.zeros((3, 2)), min(most, len(values) // rows_a_bin)
    edges = np.empty(0)
    if many > 1 and step > 0:
        edges = np.unique(on_grid(np.quantile(values, np.arange(1, many) / many), step))
        edges = wide_enough(values, edges[(edges > ends[0]) & (edges < ends[1])], rows_a_bin)
    inner = [*([ends[0]] if ends[0] > -math.inf else []), *edges, *([ends[1]] if ends[1] < math.inf else [])]
    if not inner:  # one bin: a uniform one with the median and the quartiles of the values
        first, middle, last = np.quantile(values, [0.25, 0.5, 0.75])
        step = step or grid_step(np.array([0.0, abs(middle) or 1.0]))
        half = max(float(last - first), step)
        low, high = on_grid(np.array([middle - half, middle + half]), step)
        low, high = max(low, limits[0]), min(high, limits[1])
        return Bins(np.array([low]), np.array([max(high, low + step)]), np.array([len(values)]), tails)
    whole = np.array(inner)
    if ends[0] == -math.inf:
        excess = whole[0] - values[values < whole[0]] - resolution / 2
        tails[:, 0] = tail(excess, step, whole[0] - limits[0])
        whole = np.concatenate([[whole[0] - tails[2, 0]], whole])
    if ends[1] == math.inf:
        excess = values[values >= whole[-1]] - whole[-1] + resolution / 2
        tails[:, 1] = tail(excess, step, limits[1] - whole[-1])
        whole = np.concatenate([whole, [whole[-1] + tails[2, 1]]])
    rows = np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1)
    return Bins(whole[:-1], whole[1:], rows, tails)


def on_grid(values: FloatArray, step: float) -> FloatArray:
    """The nearest multiples of the step; decimal, without the dust of the product."""
    digits = max(0, -math.floor(math.log10(step)))
    return np.round(np.round(values / step) * step, min(digits, 300))


def wide_enough(values: FloatArray, edges: FloatArray, rows_a_bin: int) -> FloatArray:
    """Those edges between which at least so many rows lie, and beyond which, too."""
    below = np.searchsorted(np.sort(values), edges, side="left")
    kept: list[int] = []
    start = 0
    for i, count in enumerate(below):
        if count - start >= rows_a_bin and len(values) - count >= rows_a_bin:
            kept.append(i)
            start = int(count)
    return edges[kept]


def tail(excess: FloatArray, step: float, limit: float) -> tuple[float, float, float]:
    """Scale, shape and reach of the generalised Pareto tail with the rounded median and upper quartile of `excess`."""
    half, most = np.maximum(on_grid(np.quantile(excess, [0.5, 0.75]), step), step).tolist()
    shape = min(max(math.log2(max(most / half - 1, 1e-3)), SHAPES[0]), SHAPES[1])
    scale = half * shape / math.expm1(shape * math.log(2)) if abs(shape) > 1e-6 else half / math.log(2)
    end = -scale / shape if shape < 0 else math.inf
    farthest = scale * (math.expm1(shape * math.log(1000)) / shape if abs(shape) > 1e-6 else math.log(1000))
    return scale, shape, min(end, limit, farthest)


def _margin(
    counts: IntArray, low: FloatArray, high: FloatArray, missing: float, resolution: float, tails: FloatArray
) -> Margin:
    share = counts / counts.sum()
    given = [torch.from_numpy(np.ascontiguousarray(part, dtype=np.float64)) for part in (share, low, high, *tails)]
    return Margin(given[0], given[1], given[2], missing, resolution, given[3], given[4], given[5])


class Codes:
    """A margin as arrays, for reading a column into codes, and back."""

    def __init__(self, margin: Margin, kind: str) -> None:
        self.margin, self.kind = margin, kind
        self.share, self.low, self.high = margin.share.numpy(), margin.low.numpy(), margin.high.numpy()
        self.centre = np.cumsum(self.share) - self.share / 2  # position of the middle of each code
        self.is_atom = self.low == self.high
        self.atoms, self.bins = np.flatnonzero(self.is_atom), np.flatnonzero(~self.is_atom)

    def __len__(self) -> int:
        return len(self.share)

    def read(self, column: FloatArray) -> IntArray:
        """Code of each value; len(self) where it is missing, or where too few rows have any."""
        missing = np.isnan(column) | (self.margin.missing == 1)
        x = np.where(missing, self.low[0], column)
        code = np.zeros(len(x), dtype=np.int64)
        if self.kind == "category":  # one without a share of its own counts as the last
            place = np.minimum(np.searchsorted(self.low, x), len(self) - 1)
            return np.where(missing, len(self), np.where(self.low[place] == x, place, len(self) - 1))
        if len(self.atoms):
            code = self.atoms[nearest_atom(x, self.low[self.atoms])]
        if len(self.bins):
            found = self.bins[np.searchsorted(self.low[self.bins][1:], x, side="right")]
            inside = (x >= self.low[found]) | (found == 0)
            inside &= (x < self.high[found]) | (found == len(self) - 1)
            if len(self.atoms):
                inside &= x != self.low[code]
            else:
                inside[:] = True
            code = np.where(inside, found, code)
        return np.where(missing, len(self), code)

    def values(self, code: IntArray, within: FloatArray) -> FloatArray:
        """A value of each code, at the share `within` of it; NaN of what is missing."""
        known = np.minimum(code, len(self) - 1)
        x = self.low[known] + within * (self.high - self.low)[known]
        for side, tail_code in ((0, 0), (1, len(self) - 1)):
            if float(self.margin.scale[side]) > 0:
                rows = known == tail_code
                far = self._beyond(1 - within[rows] if side == 0 else within[rows], side)
                x[rows] = self.high[tail_code] - far if side == 0 else self.low[tail_code] + far
        if self.margin.resolution > 0:
            free = ~self.is_atom[known]
            whole = np.floor(x[free] / self.margin.resolution + 1e-9) * self.margin.resolution
            x[free] = np.round(whole, round(-math.log10(self.margin.resolution)))
        return np.where(code == len(self), np.nan, x)

    def below(self, code: IntArray, column: FloatArray) -> FloatArray:
        """The share of each code that lies below a number: the inverse of `values` on no lattice."""
        known = np.minimum(code, len(self) - 1)
        low, wide = self.low[known], np.where(self.is_atom, 1.0, self.high - self.low)[known]
        share = np.clip((column - low) / wide, 0.0, 1.0)
        for side, tail_code in ((0, 0), (1, len(self) - 1)):
            if float(self.margin.scale[side]) > 0:
                rows = known == tail_code
                x = column[rows]
                far = self._nearer(self.high[tail_code] - x if side == 0 else x - self.low[tail_code], side)
                share[rows] = 1 - far if side == 0 else far
        return share

    def positions(self, code: IntArray, column: FloatArray) -> tuple[FloatArray, FloatArray]:
        """From where to where in [0, 1] each value stands; both are one where no value has a chance of its own."""
        start, share = (np.cumsum(self.share) - self.share)[code], self.share[code]
        atom, step = self.is_atom[code], self.margin.resolution
        x = np.floor(column / step + 1e-9) * step if step > 0 else column
        low = np.where(atom, 0.0, self.below(code, x))
        high = np.where(atom, 1.0, self.below(code, x + step))
        return start + low * share, start + high * share

    def log_within(self, code: IntArray, column: FloatArray) -> FloatArray:
        """log of the density of a number within its code; of atoms, categories and missing values 0.

        On a lattice it is the chance of the number, to which draws are rounded down.
        """
        found, free = np.zeros(len(code)), (code < len(self)) & ~self.is_atom[np.minimum(code, len(self) - 1)]
        rows, x, step = code[free], column[free], self.margin.resolution
        with np.errstate(divide="ignore"):
            if step > 0:
                start = np.floor(x / step + 1e-9) * step
                found[free] = np.log(np.maximum(self.below(rows, start + step) - self.below(rows, start), 0.0))
                return found
            low, high = self.low[rows], self.high[rows]
            inside = np.where((x >= low) & (x <= high), -np.log(high - low), -np.inf)
            for side, tail_code in ((0, 0), (1, len(self) - 1)):
                scale, shape, reach = (
                    float(p[side]) for p in (self.margin.scale, self.margin.shape, self.margin.reach)
                )
                if scale > 0:
                    own = rows == tail_code
                    far = high[own] - x[own] if side == 0 else x[own] - low[own]
                    left = np.log(np.maximum(1 + shape * far / scale, 1e-300))
                    slope = -(1 + 1 / shape) * left if abs(shape) > 1e-6 else -far / scale
                    whole = np.log(scale * (1 - survival(reach, scale, shape)))
                    inside[own] = np.where((far >= 0) & (far <= reach), slope - whole, -np.inf)
        found[free] = inside
        return found

    def _nearer(self, far: FloatArray, side: int) -> FloatArray:
        """The share of a tail that lies nearer to its inner edge: the inverse of `_beyond`."""
        scale, shape, reach = (float(part[side]) for part in (self.margin.scale, self.margin.shape, self.margin.reach))
        x = np.clip(far, 0.0, reach)
        log_left = -np.log1p(shape * x / scale) / shape if abs(shape) > 1e-6 else -x / scale
        return -np.expm1(log_left) / (1 - survival(reach, scale, shape))

    def _beyond(self, share: FloatArray, side: int) -> FloatArray:
        """How far beyond the inner edge of a tail that share of it lies that is nearer."""
        scale, shape, reach = (float(part[side]) for part in (self.margin.scale, self.margin.shape, self.margin.reach))
        log_left = np.log1p(-np.clip(share * (1 - survival(reach, scale, shape)), 0.0, 1 - 1e-12))
        far = scale * (np.expm1(-shape * log_left) / shape if abs(shape) > 1e-6 else -log_left)
        return np.minimum(far, reach)


def survival(x: float, scale: float, shape: float) -> float:
    """1 - F of the generalised Pareto distribution."""
    if abs(shape) <= 1e-6:
        return math.exp(-x / scale)
    return max(1 + shape * x / scale, 0.0) ** (-1 / shape)


def group_codes(share: FloatArray, most: int, ordered: bool) -> IntArray:
    """Codes in at most `most` groups: neighbours of about equal share, or the largest alone and one for the rest."""
    if len(share) <= most:
        return np.arange(len(share))
    if ordered:
        middle = np.cumsum(share) - share / 2
        return np.unique((middle * most).astype(np.int64), return_inverse=True)[1].astype(np.int64)
    place = np.empty(len(share), dtype=np.int64)
    place[np.argsort(-share, kind="stable")] = np.arange(len(share))
    return np.minimum(place, most - 1)
