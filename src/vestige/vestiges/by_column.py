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
column's scores with those of the others have changed, for an order of columns where none differs by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import ndtr
from scipy.stats import hypergeom, rankdata
from torch import Tensor

BINS, ROWS_A_BIN = 16, 25
COMMON, UNITS = 0.05, 3  # of a category: codes of at least this share enter relations, at most so many of them
RANKS, SPREAD = -1, -2  # functions that are no codes
MISSING = "missing"


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


def coded(x: Float[Tensor, " n"], categories: Sequence[str] | None) -> CodedCells:
    """CodedCells of the cells `x` of both sides; `categories` are the texts of a category's codes, None of a number."""
    cells = x.double().numpy()
    there = ~np.isnan(cells)
    if categories is not None:
        names, codes = tuple(categories), np.where(there, np.nan_to_num(cells), len(categories)).astype(np.int64)
        return _with_missing(names, codes, there, None)
    values = np.unique(cells[there])
    if len(values) <= BINS:
        names, codes = tuple(f"{v:.4g}" for v in values), np.searchsorted(values, cells)
    else:
        k = min(BINS, max(int(there.sum()) // ROWS_A_BIN, 2))
        edges = np.unique(np.quantile(cells[there], np.arange(1, k) / k))
        codes = np.searchsorted(edges, cells, side="right")
        names = tuple(_between(edges, i) for i in range(len(edges) + 1))
    scores = np.full(len(cells), np.nan)
    if len(values):
        scores[there] = 2 * (rankdata(cells[there]) - 0.5) / there.sum() - 1
    return _with_missing(names, codes, there, scores)


def _with_missing(
    names: tuple[str, ...], codes: np.ndarray, there: Bool[np.ndarray, " n"], scores: np.ndarray | None
) -> CodedCells:
    if bool(there.all()):
        return CodedCells(names, codes, scores)
    return CodedCells((*names, MISSING), np.where(there, codes, len(names)), scores)


def _between(edges: Float[np.ndarray, " e"], i: int) -> str:
    low = f"from {edges[i - 1]:.4g}" if i > 0 else ""
    high = f"below {edges[i]:.4g}" if i < len(edges) else ""
    return " ".join(filter(None, (low, high)))


def examined(column: CodedCells, n_p: int) -> ColumnTested:
    """The test of a column, of which the first `n_p` cells are those of p."""
    n, k = len(column.codes), len(column.names)
    of_p = np.bincount(column.codes[:n_p], minlength=k)
    total = of_p + np.bincount(column.codes[n_p:], minlength=k)
    found: list[tuple[float, float, int]] = []  # p-value by Bonferroni, z, place
    if k > 1:
        tails = hypergeom.cdf(of_p, n, total, n_p), hypergeom.sf(of_p - 1, n, total, n_p)
        p_codes = np.minimum(2 * np.minimum(*tails), 1.0)
        share = total / n
        scale = np.sqrt(share * (1 - share) * (1 / n_p + 1 / (n - n_p)))
        z = ((total - of_p) / (n - n_p) - of_p / n_p) / np.where(scale > 0, scale, np.inf)
        found += [(2 * k * float(p_codes[i]), float(z[i]), i) for i in range(k)]
    if column.scores is not None:
        for place, scores in ((RANKS, column.scores), (SPREAD, column.scores**2)):
            p_side, q_side = (s[~np.isnan(s)] for s in (scores[:n_p], scores[n_p:]))
            if min(len(p_side), len(q_side)) > 1:
                variance = np.concatenate([p_side, q_side]).var(ddof=1) * (1 / len(p_side) + 1 / len(q_side))
                z_score = float(q_side.mean() - p_side.mean()) / variance**0.5 if variance > 0 else 0.0
                found.append((4 * 2 * float(ndtr(-abs(z_score))), z_score, place))
    if not found:
        return ColumnTested(0, 0.0, 1.0)
    p_value = min(one[0] for one in found)
    _, z_most, place = max(found, key=lambda one: (abs(one[1]), -one[0]))
    return ColumnTested(place, z_most, min(p_value, 1.0))


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
