"""A Gaussian copula: the columns' own distributions, and one correlation for every pair.

Each column is read into codes (`densities.margins`). Code c stands for an interval of positions [a_c, b_c], and its
score is the mean of a standard normal there, (phi(A) - phi(B)) / (b_c - a_c) with A and B the normal quantiles of a_c
and b_c. A column with missing values has a second latent one, which says whether they are missing. Correlations of
scores are taken over the rows in which both columns have a value, drawn towards zero by `pseudo_rows` rows (None: as
many as there are latent columns), rounded to a hundredth of their standard errors, and made those of a distribution:
eigenvalues below `FLOOR` are raised to it.

    z ~ N(0, R),   x_j = quantile_j(Phi(z_j)),   missing where Phi(z'_j) < rate_j

The density at a row is the product of the columns' own with the mean of the Gaussian copula density over the cell of
positions that the row occupies: a point where numbers are on no lattice, an interval where a value has a chance of its
own, all of [0, 1] where it is missing. Over cells the mean is that of `POINTS` quasi-random positions.

Categories are ordered by their codes, for a Gaussian knows order alone; dependence on them beyond that is lost, as is
any that is not monotone. Use sequential trees where that matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float64
from scipy.special import logsumexp, ndtr, ndtri
from scipy.stats import qmc
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import learnt, option
from vestige.core.rounding import ROWS_TOGETHER, rounded, semi_definite
from vestige.densities.base import Density
from vestige.densities.margins import Codes, FloatArray, Margin, margin_of, rows_of_all

FLOOR = 1e-4  # of eigenvalues
POINTS, BLOCK = 64, 1024  # of a cell; rows at a time
EDGE = 1e-9  # the smallest position, whose normal quantile is finite


def mean_scores(share: FloatArray) -> FloatArray:
    """The mean of a standard normal over neighbouring intervals of these shares."""
    ends = np.clip(np.concatenate([[0.0], np.cumsum(share)]), 0.0, 1.0)
    ends[-1] = 1.0
    density = np.exp(-(ndtri(ends) ** 2) / 2) / math.sqrt(2 * math.pi)
    return (density[:-1] - density[1:]) / np.maximum(share, 1e-300)


def correlations(scores: FloatArray, pseudo_rows: float) -> FloatArray:
    """Of all pairs of columns, over rows where neither is NaN; positive definite."""
    known = ~np.isnan(scores)
    count = np.maximum(known.sum(0), 1)
    filled = np.where(known, scores, 0.0)
    centred = np.where(known, filled - filled.sum(0) / count, 0.0)
    deviation = np.sqrt(np.square(centred).sum(0) / count)
    z = centred / np.where(deviation > 0, deviation, 1.0)
    both = known.T.astype(np.float64) @ known
    found = np.where(both >= ROWS_TOGETHER, z.T @ z / (np.maximum(both, 1) + pseudo_rows), 0.0)
    np.fill_diagonal(found, 1.0)
    told = torch.from_numpy(np.clip(found, -1.0, 1.0))
    error = (1 - told.square()) / torch.from_numpy(np.maximum(both, 1.0)).sqrt()
    whole = semi_definite(rounded(told, error), FLOOR).numpy()
    scale = np.sqrt(whole.diagonal())
    return whole / scale[:, None] / scale


@dataclass(eq=False)
class GaussianCopula(Density):
    """The columns' own distributions under a Gaussian dependence."""

    name: ClassVar[str] = "copula"
    joins: ClassVar[bool] = True
    keeps: ClassVar[str] = (
        "for each column shares of bins, atoms and categories of at least 50 rows between rounded edges, and one "
        "correlation for each pair of columns"
    )

    rows_a_bin: int = option(ROWS_TOGETHER, low=ROWS_TOGETHER)  # at least, and a hundredth of all rows
    pseudo_rows: float | None = option(None, low=0, below=math.inf)

    margins_: tuple[Margin, ...] = learnt(())
    missing_: tuple[int, ...] = learnt(())  # columns with a latent one that says whether they are missing
    correlation_: Float64[Tensor, "l l"] = learnt()

    def _fit(self, cells: Float64[Tensor, "n c"], kinds: tuple[str, ...], seed: int) -> dict[str, Any]:
        table = cells.numpy()
        least = rows_of_all(self.rows_a_bin, len(table))
        self.margins_ = tuple(margin_of(table[:, j], kind, least) for j, kind in enumerate(kinds))
        self.missing_ = tuple(j for j, margin in enumerate(self.margins_) if 0 < margin.missing < 1)
        scores = []
        for j, (margin, kind) in enumerate(zip(self.margins_, kinds, strict=True)):
            codes = Codes(margin, kind)
            scores.append(np.append(mean_scores(codes.share), np.nan)[codes.read(table[:, j])])
        for j in self.missing_:
            rate = self.margins_[j].missing
            scores.append(mean_scores(np.array([rate, 1 - rate]))[(~np.isnan(table[:, j])).astype(np.int64)])
        pseudo = float(len(scores)) if self.pseudo_rows is None else self.pseudo_rows
        self.correlation_ = torch.from_numpy(correlations(np.stack(scores, 1), pseudo))
        return {"latent": len(scores)}

    def _sound(self, columns: int) -> bool:
        latent = columns + len(self.missing_)
        shapes = len(self.margins_) == columns and self.correlation_.shape == (latent, latent)
        named = all(0 <= j < columns for j in self.missing_)
        definite = not int(torch.linalg.cholesky_ex(self.correlation_).info)
        return shapes and named and definite and all(margin.sound() for margin in self.margins_)

    def _draw(self, n: int, seed: int) -> Float64[Tensor, "n c"]:
        columns = len(self._kinds)
        noise = rng.fork_numpy(seed, "draw").standard_normal((n, columns + len(self.missing_)))
        position = ndtr(noise @ np.linalg.cholesky(self.correlation_.numpy()).T)
        drawn = np.empty((n, columns))
        for j, (margin, kind) in enumerate(zip(self.margins_, self._kinds, strict=True)):
            codes = Codes(margin, kind)
            upper = np.cumsum(codes.share)
            code = np.minimum(np.searchsorted(upper, position[:, j], side="right"), len(codes) - 1)
            within = np.clip((position[:, j] - upper[code]) / codes.share[code] + 1, 0.0, 1.0)
            drawn[:, j] = codes.values(code, within) if margin.missing < 1 else np.nan
        for latent, j in enumerate(self.missing_):
            drawn[position[:, columns + latent] < self.margins_[j].missing, j] = np.nan
        return torch.from_numpy(drawn)

    def _log_density(self, cells: Float64[Tensor, "n c"]) -> Float64[Tensor, " n"]:
        table, latent = cells.numpy(), len(self._kinds) + len(self.missing_)
        low, high, own = np.zeros((len(table), latent)), np.ones((len(table), latent)), np.zeros(len(table))
        for j, (margin, kind) in enumerate(zip(self.margins_, self._kinds, strict=True)):
            codes = Codes(margin, kind)
            code = codes.read(table[:, j])
            known = code < len(codes)
            low[known, j], high[known, j] = codes.positions(code[known], table[known, j])
            chance = np.log(codes.share[code[known]]) + codes.log_within(code[known], table[known, j])
            own[known] += np.where(np.isnan(chance), -np.inf, chance)
        for place, j in enumerate(self.missing_, len(self._kinds)):
            gone, rate = np.isnan(table[:, j]), self.margins_[j].missing
            low[:, place], high[:, place] = np.where(gone, 0.0, rate), np.where(gone, rate, 1.0)
            own += np.log(np.where(gone, rate, 1 - rate))
        return torch.from_numpy(own + log_copula(low, high, self.correlation_.numpy()))


def log_copula(low: FloatArray, high: FloatArray, correlation: FloatArray) -> FloatArray:
    """log of the mean over the cell from `low` to `high` of each row of the density of a Gaussian copula."""
    whole = bool((high > low).any())
    points = (
        qmc.Halton(low.shape[1], scramble=False).random(POINTS + 1)[1:] if whole else np.full((1, low.shape[1]), 0.5)
    )
    precision, (_, size) = np.linalg.inv(correlation) - np.eye(len(correlation)), np.linalg.slogdet(correlation)
    found = np.empty(len(low))
    for start in range(0, len(low), BLOCK):
        rows = slice(start, start + BLOCK)
        a, b = low[rows, None], high[rows, None]
        z = ndtri(np.clip(a + (b - a) * points, EDGE, 1 - EDGE))
        found[rows] = logsumexp(-np.einsum("npl,lk,npk->np", z, precision, z) / 2, axis=1) - np.log(len(points))
    return found - size / 2
