"""What is left of a column given the others, from stored means of products.

The rank score of a number, or the indicator of a common code, is regressed on the scores of all other columns. Where a
column is filled from other rows, or measured in another way, its residual e = w.x gets another mean or variance, and
more so than that of any other column (`by_column`). The mean of e follows from the means of scores, which all n rows
tell of; with m new rows its change has the variance var e (1/m + 1/n). The mean of e^2 is a sum of means of products
of two scores,

    E e^2 = w' C w,   C the second moments of the scores about their mean over both samples,

and those of the reference are kept: of all rows for a score with itself, and for two codes of one column, which never
meet; of the rows that the dictionary was not fitted on for scores of two columns. Of products that are not kept, or
rest on few rows, nothing is known, and they are left out of the sum on both sides. With n rows, n' of them for
products, and m new ones, f = e^2 without the products that are not known, and g the part of it that all rows tell of,

    var(w' (C_q - C_p) w) = var f (1/m + 1/n') + (1/n' - 1/n) (var g - 2 cov(f, g)),

because the mean of g over n rows stands for that over n'; variances and covariances are those of the new rows. Any w
makes a test: it comes of the moments of both together, by ridge regression. About one mean for both e^2 of a code that
has nothing to do with the others is its share over again; about their own it would be a ratio of small numbers where
that is near a half.

The square of a residual of less than a tenth of the variance of its score is not looked at: there e is mostly rounding,
as of codes of columns that exclude each other.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.vestiges.by_column import RIDGE
from vestige.vestiges.drift_test.dictionary import RANK, Dictionary

LEFT = 0.1  # of the variance of a score, that a residual has at least
MOST_SCORES = 64  # beyond which nothing is said
VARIANCE_ROWS = 2000  # new rows that variances are taken of


def residual_z(
    dictionary: Dictionary,
    mean: Float[Tensor, " f"],
    square: Float[Tensor, " f"],
    unknown: Bool[Tensor, " f"],
    units: tuple[float, float],
    cells: Float[Tensor, "m c"],
    block: int = 1,
) -> dict[int, tuple[list[float], list[float]]]:
    """z of the change of mean e of each score, and of mean e^2, by column.

    `mean` and `square` are those of every function and of its square over the reference, `unknown` says of which they
    are not kept, and `units` how many rows (or blocks) there were, and how many of them for products.
    """
    scores, first, second = _scores(dictionary, mean, square, unknown)
    if not 2 <= len(scores) <= MOST_SCORES:
        return {}
    owner = dictionary.unit_column[scores]
    x = dictionary.units(cells)[scores]
    (n, n_products), m = units, x.shape[1] / block
    p_mean = (first - dictionary.unit_mean[scores]) / dictionary.unit_scale[scores]
    middle = (n * p_mean + m * x.mean(1)) / (n + m)
    x = x - middle[:, None]
    c_q = x @ x.mT / x.shape[1]
    c_p, of_all = _covariance(dictionary, scores, first, second, mean, unknown)
    c_p = c_p + (p_mean - middle)[:, None] * (p_mean - middle)
    apart = c_p.isnan()
    c_p = torch.where(apart, c_q, c_p)
    values, vectors = torch.linalg.eigh((n_products * c_p + m * c_q) / (n_products + m))
    pooled = vectors @ (values[:, None] * vectors.mT)
    precision = vectors @ (vectors.mT / (values.clamp_min(0) + RIDGE)[:, None])
    some = x[:, : max(VARIANCE_ROWS // block, 1) * block]
    some = some[:, : some.shape[1] // block * block]
    shift = x.mean(1) - (p_mean - middle)
    out: dict[int, tuple[list[float], list[float]]] = {}
    for column in owner.unique().tolist():
        mine = (owner == column).nonzero()[:, 0]
        weights = torch.linalg.solve(precision[mine][:, mine], precision[mine])
        means, squares = out.setdefault(column, ([], []))
        for place, w in zip(mine.tolist(), weights, strict=True):
            terms = w[:, None] * some
            e = terms.sum(0)
            means.append(_z(float(w @ shift), _variance(e, block) * (1 / m + 1 / n)))
            if float(w @ pooled @ w) < LEFT * float(pooled[place, place]):
                continue
            f = e.square() - _products(terms, apart)
            g = _products(terms, of_all)
            f, g = ((one - one.mean()).reshape(-1, block).mean(1) for one in (f, g))
            overlap = (1 / n_products - 1 / n) * float((g.square() - 2 * f * g).mean())
            variance = float(f.square().mean()) * (1 / m + 1 / n_products) + overlap
            squares.append(_z(float(w @ (c_q - c_p) @ w), variance))
    return out


def _z(change: float, variance: float) -> float:
    return change / math.sqrt(variance) if variance > 0 else 0.0


def _variance(values: Float[Tensor, " m"], block: int) -> float:
    """Of means over blocks of rows that follow each other."""
    return float((values - values.mean()).reshape(-1, block).mean(1).square().mean())


def _products(terms: Float[Tensor, "k m"], chosen: Bool[Tensor, "k k"]) -> Float[Tensor, " m"]:
    """Of each row the sum of products of two terms that are `chosen`."""
    return (terms * (chosen.to(terms.dtype) @ terms)).sum(0)


def _scores(
    dictionary: Dictionary, mean: Float[Tensor, " f"], square: Float[Tensor, " f"], unknown: Bool[Tensor, " f"]
) -> tuple[Int[Tensor, " k"], Float[Tensor, " k"], Float[Tensor, " k"]]:
    """The scores of pairs whose mean is known, and that of them and of their squares: no squares of rank scores."""
    codes = {(column, code): i for i, (column, code) in enumerate(dictionary.indicators.mT.tolist())}
    ranks = {column: len(codes) + i for i, column in enumerate(dictionary.scored.tolist())}
    found = []
    for unit in dictionary.pairs.unique().tolist():
        column, code = int(dictionary.unit_column[unit]), int(dictionary.unit_code[unit])
        if code == RANK:
            place = ranks[column]
            found.append((unit, float(mean[place]), float(square[place])))
        elif code >= 0:
            shares = dictionary.columns[column].shares
            others = [i for (j, k), i in codes.items() if j == column and k != code and shares[k] > 0]
            place = codes.get((column, code), others[0] if len(others) == 1 else -1)
            if place >= 0 and not unknown[place]:  # of two codes that are all there is, one is counted
                share = float(mean[place]) if (column, code) in codes else 1 - float(mean[place])
                found.append((unit, share, share))
    units, first, second = zip(*found, strict=True) if found else ((), (), ())
    return (
        torch.tensor(units, dtype=torch.int64),
        torch.tensor(first, dtype=torch.float64),
        torch.tensor(second, dtype=torch.float64),
    )


def _covariance(
    dictionary: Dictionary,
    scores: Int[Tensor, " k"],
    first: Float[Tensor, " k"],
    second: Float[Tensor, " k"],
    mean: Float[Tensor, " f"],
    unknown: Bool[Tensor, " f"],
) -> tuple[Float[Tensor, "k k"], Bool[Tensor, "k k"]]:
    """Of standardised scores of the reference, NaN where a product is not known; and which are known of all rows."""
    k, centre, scale = len(scores), dictionary.unit_mean[scores], dictionary.unit_scale[scores]
    owner, is_code = dictionary.unit_column[scores], dictionary.unit_code[scores] >= 0
    itself = torch.eye(k, dtype=torch.bool)
    never = (owner[:, None] == owner) & is_code[:, None] & is_code & ~itself  # two codes of one column do not meet
    raw = torch.where(itself, second, torch.where(never, 0.0, torch.nan))
    products = raw - centre[:, None] * first - first[:, None] * centre + centre[:, None] * centre
    products = products / (scale[:, None] * scale)
    place = torch.full((len(dictionary.unit_column),), -1)
    place[scores] = torch.arange(k)
    span = dictionary.spans["pairs"]
    a, b = place[dictionary.pairs]
    kept = (a >= 0) & (b >= 0) & ~unknown[span]
    products[a[kept], b[kept]] = products[b[kept], a[kept]] = mean[span][kept]
    standard = (first - centre) / scale
    return products - standard[:, None] * standard, itself | never
