"""Which columns of two sets of rows differ by themselves: a test of each, exact under permutations of the labels.

A column is coded by values of both sides together, which know nothing of the labels: a number by quantile bins (or its
values, where they are few), a category by its texts, a missing cell as a code of its own. Three kinds of function are
tested:

- the share of each code. Given the margins its count in p is hypergeometric (Fisher's exact test, two-sided by twice
  the smaller tail);
- of a number, the mean of the ranks u in (-1, 1) of cells that are there, and of u^2, which is their spread. Under
  permutations their difference has the variance S^2 (1/n + 1/m), S^2 the variance of the scores of all cells, and a
  normal tail.

The p-value of a column is that of Bonferroni with half of the level for all its k codes and a quarter for either score,
min(2 k p_code, 4 p_mean, 4 p_spread), and that of all columns is Holm's (1979): the chance that any column is named
that did not change is at most the level, whatever the columns have to do with each other
(`tests/vestiges/test_by_column.py`).

How columns go together is not tested column by column. `relations` says how far, in mean z^2, the covariances of a
column's scores with those of the others have changed.

The order of columns asks another question than the tests: if one column was changed, which? A column that is measured
in another way, or filled from other rows, keeps what the others are and changes what it is *given* them: for normal
columns and a shift along one of them that residual has the largest z of all columns', by Cauchy and Schwarz (the
innovated scores of Hall and Jin 2010, doi:10.1214/09-AOS764), and a relation that breaks widens the residual of its
own column most. Where shares of values change, neighbours among them may change together, each by less than chance:
`windows` looks at runs of neighbouring codes that hold about a quarter of the rows, which begin at every eighth. And
`given_others` regresses the scores of each column and their squares on those of all others, by
ridge regression and without the labels, and looks at the means of the residuals e and of e^2. Each of these is a kind
of evidence, with a p-value that is corrected for its own number by Bonferroni; `evidence` of a column is the logarithm
of the mean of 1/p over its kinds (the harmonic mean p-value, Wilson 2019, doi:10.1073/pnas.1814092116). The smallest p
itself is no fair order: a number has more kinds than a category, so where nothing has changed it comes first more
often, and a small change of a category is lost behind it. The mean of 1/p makes that less and does not end it: of three
numbers and three categories that have nothing to do with each other a number is first in 73 % of pairs without a
difference by the smallest p, in 60 % by the mean (`test_numbers_come_first_by_chance_less_often`). 1/p grows nearly as
the likelihood ratio of a change of that kind does, and the ratio of a column of which one kind has changed, each as
likely as another, is the mean of those of its kinds. It makes an order and no claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import hypergeom
from torch import Tensor

from vestige.vestiges.spelling import Write, between, least_gap, spelt

BINS, ROWS_A_BIN = 16, 25
COMMON, UNITS = 0.05, 3  # of a category: codes of at least this share enter relations, at most so many of them
RANKS, SPREAD = -1, -2  # functions that are no codes
MISSING = "missing"
RARE, OTHERS = 0.01, 8  # of a category: codes of at least this share enter residuals, at most so many of them
RIDGE = 0.01  # of regressions on other columns, in variances of a score
LEAST_P = 1e-300
LEAST_VARIANCE = 1e-6  # of a score, below which nothing is left of it
GROUPS = (0, 1, 2)  # of residuals
WINDOW, STEPS = 2, 8  # a window is so many of so many parts of the rows
MOST_GIVEN = 256  # scores that residuals are taken of; of more columns none


@dataclass(frozen=True, eq=False)
class CodedCells:
    """The code of each cell of a column, the names of the codes, and scores in (-1, 1) of a number that is there."""

    names: tuple[str, ...]
    codes: Int[np.ndarray, " n"]
    scores: Float[np.ndarray, " n"] | None  # NaN where a cell is missing


@dataclass(frozen=True)
class ColumnTested:
    """The function of a column that differs most: its place among the codes (or RANKS, SPREAD), z, and p-values."""

    place: int
    z: float  # of q less p
    p_value: float  # of this column alone
    log_p: tuple[float, ...]  # of each kind of evidence, for the order


def coded(x: Float[Tensor, " n"], categories: Sequence[str] | None, write: Write = spelt) -> CodedCells:
    """CodedCells of the cells `x` of both sides; `categories` are the texts of a category's codes, None of a number.

    `write` spells a number.
    """
    cells = x.double().numpy()
    there = ~np.isnan(cells)
    if categories is not None:
        names, codes = tuple(categories), np.where(there, np.nan_to_num(cells), len(categories)).astype(np.int64)
        return _with_missing(names, codes, there, None)
    # One sort for the values, their codes and their ranks; ties have the mean of their ranks.
    values, at, counts = np.unique(cells[there], return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    if len(values) <= BINS:
        names, of_values = tuple(write(float(v), least_gap(values)) for v in values), np.arange(len(values))
    else:
        k = min(BINS, max(int(there.sum()) // ROWS_A_BIN, 2))
        edges = np.unique(np.quantile(cells[there], np.arange(1, k) / k))
        of_values = np.searchsorted(edges, values, side="right")
        names = tuple(between(edges, i, write) for i in range(len(edges) + 1))
    codes, scores = np.zeros(len(cells), dtype=np.int64), np.full(len(cells), np.nan)
    codes[there], scores[there] = of_values[at], (2 * (ranks - 0.5) / max(int(there.sum()), 1) - 1)[at]
    return _with_missing(names, codes, there, scores)


def _with_missing(
    names: tuple[str, ...], codes: np.ndarray, there: Bool[np.ndarray, " n"], scores: np.ndarray | None
) -> CodedCells:
    if bool(there.all()):
        return CodedCells(names, codes, scores)
    return CodedCells((*names, MISSING), np.where(there, codes, len(names)), scores)


def examined(column: CodedCells, n_p: int) -> ColumnTested:
    """The test of a column, of which the first `n_p` cells are those of p."""
    n, k = len(column.codes), len(column.names)
    of_p = np.bincount(column.codes[:n_p], minlength=k)
    total = of_p + np.bincount(column.codes[n_p:], minlength=k)
    found: list[tuple[float, float, int]] = []  # p-value by Bonferroni, z, place
    logs: list[float] = []
    if k > 1:
        tails = hypergeom.cdf(of_p, n, total, n_p), hypergeom.sf(of_p - 1, n, total, n_p)
        p_codes = np.minimum(2 * np.minimum(*tails), 1.0)
        share = total / n
        scale = np.sqrt(share * (1 - share) * (1 / n_p + 1 / (n - n_p)))
        z = ((total - of_p) / (n - n_p) - of_p / n_p) / np.where(scale > 0, scale, np.inf)
        found += [(2 * k * float(p_codes[i]), float(z[i]), i) for i in range(k)]
        logs.append(min(math.log(max(float(p_codes.min()), LEAST_P)) + math.log(k if k > 2 else 1), 0.0))
    if column.scores is not None:
        for place, scores in ((RANKS, column.scores), (SPREAD, column.scores**2)):
            p_side, q_side = (s[~np.isnan(s)] for s in (scores[:n_p], scores[n_p:]))
            if min(len(p_side), len(q_side)) > 1:
                variance = np.concatenate([p_side, q_side]).var(ddof=1) * (1 / len(p_side) + 1 / len(q_side))
                z_score = float(q_side.mean() - p_side.mean()) / variance**0.5 if variance > 0 else 0.0
                found.append((4 * 2 * float(ndtr(-abs(z_score))), z_score, place))
                logs.append(log_p_of(z_score))
        there = k - (column.names[-1] == MISSING)
        logs += most_of(windows(of_p[:there], (total - of_p)[:there], (n_p, n - n_p)))
    if not found:
        return ColumnTested(0, 0.0, 1.0, ())
    p_value = min(one[0] for one in found)
    _, z_most, place = max(found, key=lambda one: (abs(one[1]), -one[0]))
    return ColumnTested(place, z_most, min(p_value, 1.0), tuple(logs))


def log_p_of(z: float, number: int = 1) -> float:
    """log of the two-sided p-value of `z`, the largest of `number`, by Bonferroni."""
    return min(math.log(2 * number) + float(log_ndtr(-abs(z))), 0.0)


def most_of(z: Sequence[float]) -> list[float]:
    """log of the p-value of the largest of these, by Bonferroni; none where there are none."""
    return [log_p_of(max(map(abs, z)), len(z))] if len(z) else []


def evidence_of(log_p: Sequence[float]) -> float:
    """log of the mean of 1/p over kinds of evidence, from log p of each; 0 where there are none.

    >>> round(evidence_of([math.log(0.01), 0.0, 0.0, 0.0]), 2), round(math.log(103 / 4), 2)
    (3.25, 3.25)
    """
    return float(logsumexp([-one for one in log_p])) - math.log(len(log_p)) if len(log_p) else 0.0


def windows(
    p_counts: Int[np.ndarray, " k"] | Float[np.ndarray, " k"],
    q_counts: Int[np.ndarray, " k"] | Float[np.ndarray, " k"],
    rows: tuple[float, float],
) -> list[float]:
    """z of the share of runs of neighbouring codes that hold about a quarter of the rows, codes being in order.

    >>> z = windows(np.full(8, 100), np.array([100, 100, 100, 150, 150, 100, 100, 100]), (800, 900))
    >>> len(z), round(max(z), 1)
    (7, 3.8)
    """
    both = np.concatenate([[0.0], np.cumsum(p_counts) + np.cumsum(q_counts)])
    if both[-1] == 0:
        return []
    ends = [int(np.abs(both / both[-1] - i / STEPS).argmin()) for i in range(STEPS + 1)]
    n, m = rows
    out = []
    for low, high in dict.fromkeys(zip(ends[:-WINDOW], ends[WINDOW:], strict=True)):
        share = (both[high] - both[low]) / (n + m)
        if 0 < share < 1:
            error = math.sqrt(share * (1 - share) * (1 / n + 1 / m))
            change = float(np.sum(q_counts[low:high])) / m - float(np.sum(p_counts[low:high])) / n
            out.append(change / error)
    return out


@dataclass(frozen=True, eq=False)
class Residuals:
    """What is left of the scores of columns given those of the others, and which column each is of."""

    values: Float[Tensor, "n r"]  # e and e^2, each less its mean
    column: Int[Tensor, " r"]
    group: Int[Tensor, " r"]  # 0: of e, 1: of e^2, 2: of e^2 of the square of a score

    def log_p(self, columns: int, n_p: int) -> list[list[float]]:
        """Of each column that of each group, the first `n_p` rows being those of p."""
        p, q = self.values[:n_p], self.values[n_p:]
        variance = self.values.square().sum(0) / max(len(self.values) - 1, 1)
        error = (variance * (1 / len(p) + 1 / len(q))).sqrt()
        z = torch.where(error > 0, (q.mean(0) - p.mean(0)) / error.clamp_min(1e-300), 0.0)
        of = [[(self.column == j) & (self.group == group) for group in GROUPS] for j in range(columns)]
        return [[log_p for mine in groups for log_p in most_of(z[mine].tolist())] for groups in of]


def given_others(columns: Sequence[CodedCells]) -> Residuals:
    """Residuals of each column's scores given the others'; the labels do not enter."""
    owner: list[int] = []
    squares: list[bool] = []
    scores: list[Float[np.ndarray, " n"]] = []
    for j, column in enumerate(columns):
        for unit in _scores(column):
            shapes = [unit] if _two_values(unit) else [unit, unit**2]
            scores += shapes
            owner += [j] * len(shapes)
            squares += [False, True][: len(shapes)]
    n = len(columns[0].codes)
    none = Residuals(torch.zeros(n, 0, dtype=torch.float64), torch.zeros(0).long(), torch.zeros(0).long())
    if len(set(owner)) < 2 or len(owner) > MOST_GIVEN:
        return none
    x = torch.from_numpy(np.stack(scores, 1))
    x = x - x.mean(0)
    variance = x.square().mean(0)
    x = x / variance.clamp_min(LEAST_VARIANCE).sqrt()
    precision = torch.linalg.inv(x.mT @ x / n + RIDGE * torch.eye(len(owner), dtype=x.dtype))
    own, square = torch.tensor(owner), torch.tensor(squares)
    values, column_of, group = [], [], []
    for j in sorted(set(owner)):
        mine = (own == j).nonzero()[:, 0]
        e = x @ torch.linalg.solve(precision[mine][:, mine], precision[mine]).mT
        for k, is_square in enumerate(square[mine].tolist()):
            parts = [(e[:, k].square(), 2)] if is_square else [(e[:, k], 0), (e[:, k].square(), 1)]
            for value, which in parts:
                values.append(value - value.mean())
                column_of.append(j)
                group.append(which)
    return Residuals(torch.stack(values, 1), torch.tensor(column_of), torch.tensor(group))


def margins(columns: Sequence[CodedCells]) -> Float[Tensor, "n f"]:
    """Scores of every column and their squares, as `given_others` sees them."""
    found = [unit for column in columns for unit in _scores(column)]
    shaped = [shape for unit in found for shape in ([unit] if _two_values(unit) else [unit, unit**2])]
    return torch.from_numpy(np.stack(shaped, 1)) if shaped else torch.zeros(len(columns[0].codes), 0).double()


def _two_values(x: Float[np.ndarray, " n"]) -> bool:
    """Whether there are no more than two different values."""
    return bool(((x == x.min()) | (x == x.max())).all())


def _scores(column: CodedCells) -> list[Float[np.ndarray, " n"]]:
    """Of a number its ranks and whether it is missing, of a category its codes that are not rare."""
    if column.scores is not None:
        missing = np.isnan(column.scores)
        ranks = np.nan_to_num(column.scores)
        return [ranks, missing.astype(np.float64)] if RARE < missing.mean() < 1 - RARE else [ranks]
    shares = np.bincount(column.codes, minlength=len(column.names)) / len(column.codes)
    usable = [k for k in np.argsort(-shares) if RARE <= shares[k] <= 1 - RARE]
    usable = usable[:1] if len(usable) == 2 else usable[:OTHERS]
    return [(column.codes == k).astype(np.float64) for k in usable]


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrected for their number (Holm 1979).

    >>> holm([0.01, 0.5, 0.02])
    [0.03, 0.5, 0.04]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    out, least = [1.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        least = max(least, min((len(p_values) - place) * p_values[i], 1.0))
        out[i] = least
    return out


def relations(columns: Sequence[CodedCells], n_p: int) -> list[tuple[float, int]]:
    """Of each column: the mean z^2 of changed covariances with other columns, and the column of the largest."""
    owner, units = [], []
    for j, column in enumerate(columns):
        for unit in _units(column):
            for rows in (slice(0, n_p), slice(n_p, None)):
                unit[rows] -= unit[rows].mean()  # a shift of its own is no change of a relation
            owner.append(j)
            units.append(unit)
    if len(set(owner)) < 2:
        return [(0.0, 0)] * len(columns)
    values = torch.from_numpy(np.stack(units))
    means, errors = [], []
    for side in (values[:, :n_p], values[:, n_p:]):
        n, square = side.shape[1], side.square()
        mean = side @ side.mT / n
        means.append(mean)
        errors.append((square @ square.mT / n - mean.square()).clamp_min(0) / n)
    z2 = (means[1] - means[0]).square() / (errors[0] + errors[1]).clamp_min(1e-12)
    own = torch.tensor(owner)
    z2[own[:, None] == own[None]] = torch.nan
    out = []
    for j in range(len(columns)):
        mine = z2[own == j]
        if not len(mine):
            out.append((0.0, j))
            continue
        most = int(mine.nan_to_num(-1.0).amax(0).argmax())
        out.append((float(mine.nanmean()), owner[most]))
    return out


def _units(column: CodedCells) -> list[Float[np.ndarray, " n"]]:
    """Scores of a column that enter relations: ranks of a number, indicators of the commonest codes of a category."""
    if column.scores is not None:
        return [np.nan_to_num(column.scores)]
    shares = np.bincount(column.codes, minlength=len(column.names)) / len(column.codes)
    usable = [k for k in np.argsort(-shares) if COMMON <= shares[k] <= 1 - COMMON]
    usable = usable[:1] if len(usable) == 2 else usable[:UNITS]  # of two that are all there is, one says it
    return [(column.codes == k).astype(np.float64) for k in usable]
