"""Coordinates in which heavy tails, atoms and bent margins are tame: each column through a monotone map of its own.

`rank` takes a column through the cdf of the even mixture of p and q and on through the normal quantile, so that what is
left to learn is how columns hang together; `arcsinh` keeps distances in the middle and takes logarithms of those far
out. To the ranked columns comes the distance from the middle of all, in the metric of the pooled covariance, ranked
too: on shells, rings and laws with elliptical tails it is half of what there is to know, and a network finds it late.
All this knows nothing of the labels. Any invertible map of single columns leaves log p/q as it is.

The cdf is kept as knots at fixed normal quantiles, rounded to a hundredth of the column's width, so that none is a
value of a row. Beyond the outermost ones the map goes on with the logarithm of the distance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import weighted_mean
from vestige.ratios.base import Sample

KNOTS, REACH = 41, 3.0  # knots, evenly in normal deviations from -REACH to REACH
GRID = 0.01  # of a column's width: what knots are rounded to
DOUBLINGS, TAIL_STEP = 12, 0.35  # knots beyond each end, each twice as far out as the one before; their distance in z
NORMAL_WIDTH = 1.349  # between the quartiles of a standard normal
FARTHEST, JITTER = 50.0, 1e-4  # of the distance: where scaled columns are clamped; added to their variances


def weighted_quantiles(
    column: Float[Tensor, " n"], weights: Float[Tensor, " n"], levels: Float[Tensor, " k"]
) -> Float[Tensor, " k"]:
    """Quantiles of a weighted column, linear between the middles of the rows' steps."""
    order = torch.argsort(column, stable=True)
    value, mass = column[order], weights[order]
    middle = (mass.cumsum(0) - mass / 2) / mass.sum()
    i = torch.searchsorted(middle, levels).clamp(1, len(value) - 1)
    share = ((levels - middle[i - 1]) / (middle[i] - middle[i - 1]).clamp_min(1e-300)).clamp(0, 1)
    return value[i - 1] + share * (value[i] - value[i - 1])


@dataclass(frozen=True, eq=False)
class Columns:
    """A monotone map for each column."""

    middle: Float[Tensor, " d"]
    width: Float[Tensor, " d"]
    knots: Float[Tensor, "d k"]  # ascending, in units of `width` from `middle`
    heights: Float[Tensor, "d k"]

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Columns:
        """Learn the maps from weighted rows."""
        z = torch.linspace(-REACH, REACH, KNOTS, dtype=torch.float64)
        beyond = torch.arange(1, DOUBLINGS + 1, dtype=torch.float64)
        far, step = 2.0**beyond - 1, TAIL_STEP * beyond
        quartiles = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
        maps = []
        for column in x.mT.contiguous():
            low, middle, high = weighted_quantiles(column, weights, quartiles)
            width = (high - low) / NORMAL_WIDTH
            if not bool(width > 0):  # one value has half of the rows
                width = weighted_mean((column - weighted_mean(column, weights)).square(), weights).sqrt()
            width = width if bool(width > 0) else torch.ones_like(width)
            inner = (weighted_quantiles(column, weights, torch.special.ndtr(z)) - middle) / width
            inner = (inner / GRID).round() * GRID
            _, group = torch.unique(inner, return_inverse=True)  # knots that fall together share one height
            level = (torch.zeros_like(z).index_add(0, group, z) / torch.bincount(group, minlength=KNOTS))[group]
            knots = torch.cat([inner[0] - far.flip(0), inner, inner[-1] + far])
            maps.append((middle, width, knots, torch.cat([level[0] - step.flip(0), level, level[-1] + step])))
        return cls(*(torch.stack(part) for part in zip(*maps, strict=True)))

    def without_extremes(self, share: float) -> Columns:
        """The same up to the knots beyond which a `share` of the rows lies; farther out as a normal of this width."""
        z = torch.linspace(-REACH, REACH, KNOTS, dtype=torch.float64)
        level = torch.special.ndtr(z)
        known = (torch.minimum(level, 1 - level) >= min(share, 0.49)).nonzero()[:, 0]
        low, high = int(known[0]), int(known[-1])
        inside = slice(DOUBLINGS, DOUBLINGS + KNOTS)
        inner, heights = self.knots[:, inside], self.heights[:, inside]
        nearest = torch.arange(KNOTS).clamp(low, high)  # of the knots that stay
        inner, heights = (x[:, nearest] + (z - z[nearest]) for x in (inner, heights))
        far = 2.0 ** torch.arange(1, DOUBLINGS + 1, dtype=torch.float64) - 1
        step = TAIL_STEP * torch.arange(1, DOUBLINGS + 1, dtype=torch.float64)
        knots = torch.cat([inner[:, :1] - far.flip(0), inner, inner[:, -1:] + far], 1)
        heights = torch.cat([heights[:, :1] - step.flip(0), heights, heights[:, -1:] + step], 1)
        return replace(self, knots=knots, heights=heights)

    def scaled(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Distance from the median in units of a normal's deviation."""
        return (x - self.middle) / self.width

    def rank(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Normal quantiles of the rows' places in each column; ends that lie 2^12 widths out are the last."""
        v = self.scaled(x).mT.contiguous()
        i = torch.searchsorted(self.knots, v).clamp(1, self.knots.shape[1] - 1)
        below, above = self.knots.gather(1, i - 1), self.knots.gather(1, i)
        share = ((v - below) / (above - below)).clamp(0, 1)
        low, high = self.heights.gather(1, i - 1), self.heights.gather(1, i)
        return (low + share * (high - low)).mT.contiguous()


class Tame(NamedTuple):
    """Rows in tame coordinates."""

    rank: Float[Tensor, "n d"]
    arcsinh: Float[Tensor, "n d"]
    distance: Float[Tensor, "n 1"]


@dataclass(frozen=True, eq=False)
class Marginals:
    """The maps of the columns and of the distance from their middle."""

    columns: Columns
    mean: Float[Tensor, " d"]  # of scaled, clamped columns
    root: Float[Tensor, "d d"]  # the inverse of the Cholesky factor of their covariance
    radius: Columns

    @classmethod
    def of(cls, sample: Sample, *, p_share: float = 0.5) -> Marginals:
        """Learn the maps from rows of which those of p have `p_share` of the mass."""
        x, weights = sample.q, sample.w_q
        if p_share:
            x = torch.cat([sample.p, sample.q])
            weights = torch.cat([p_share * sample.w_p, (1 - p_share) * sample.w_q])
        columns = Columns.of(x, weights)
        z = columns.scaled(x).clamp(-FARTHEST, FARTHEST)
        mean = weighted_mean(z, weights)
        covariance = (z - mean).mT @ ((z - mean) * weights[:, None]) / weights.sum()
        covariance = covariance + JITTER * torch.eye(x.shape[1], dtype=x.dtype)
        identity = torch.eye(x.shape[1], dtype=x.dtype)
        root = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), identity, upper=False)
        distance = ((z - mean) @ root.mT).norm(dim=1, keepdim=True)
        return cls(columns, mean, root, Columns.of(distance, weights))

    def __call__(self, x: Float[Tensor, "n d"]) -> Tame:
        """Rows in tame coordinates; each row's depend on itself alone."""
        scaled = self.columns.scaled(x)
        distance = ((scaled.clamp(-FARTHEST, FARTHEST) - self.mean) @ self.root.mT).norm(dim=1, keepdim=True)
        return Tame(self.columns.rank(x), torch.asinh(scaled), self.radius.rank(distance))
