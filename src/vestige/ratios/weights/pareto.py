"""The tail of the weights: generalised Pareto fit and smoothing (Vehtari, Simpson, Gelman, Yao and Gabry 2024, PSIS).

k is the shape of the upper tail: moments below 1/k exist. k < 0.5: finite variance; up to 0.7 an average still settles
at practical sample sizes; from 1 on there is no mean. The fit is that of Zhang and Stephens (2009) with the paper's
weak prior at 0.5; the tail is the largest min(n/5, 3 sqrt n) values.

Written here rather than taken from arviz-stats, which is the reference of the tests: that one costs seconds to import,
raises on equal weights, normalises what it returns and has no words for zero weights. Deviations from PSIS: smoothed
weights keep the scale of the raw ones; fewer than 25 positive weights, or a tail without spread, are left as they are
with k = None; a tail in which all but the very largest underflow beside the maximum has k = inf.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.checks import ArrayLike, Kind
from vestige.ratios.weights.transforms import log_weight_vector

# Fewer tail values than this say nothing about a shape.
SHORTEST_TAIL = 5
# Of the grid of Zhang and Stephens, and of the prior at k = 0.5.
PRIOR_SCALE, PRIOR_COUNT, PRIOR_K = 3.0, 10.0, 0.5


def gpd_fit(excess: Float[Tensor, " m"]) -> tuple[float, float]:
    """Shape k and scale sigma of a generalised Pareto law from its ascending, positive `excess` over the cutoff.

    The posterior mean of b = -k/sigma over a grid (Zhang and Stephens 2009); k is then drawn towards PRIOR_K as by
    PRIOR_COUNT further values.
    """
    m = len(excess)
    grid = 30 + math.isqrt(m)
    steps = torch.arange(1, grid + 1, dtype=torch.float64)
    quartile = excess[int(m / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - (grid / (steps - 0.5)).sqrt()) / (PRIOR_SCALE * quartile)
    k = torch.log1p(-b[:, None] * excess).mean(1)
    profile = m * ((-b / k).log() - k - 1)  # b = k = 0 has the limit 1/mean; the grid meets it with probability zero
    b_mean = float(torch.softmax(profile, 0) @ b)
    shape = float(torch.log1p(-b_mean * excess).mean())
    return (m * shape + PRIOR_COUNT * PRIOR_K) / (m + PRIOR_COUNT), -shape / b_mean


class _Tail(NamedTuple):
    order: Tensor  # positions of the tail in the input, ascending by value
    cutoff: float  # largest value below the tail, relative to the maximum
    k: float
    sigma: float


def _fit_tail(log_x: Float[Tensor, " n"]) -> _Tail | None:
    """The fitted upper tail of exp(log_x) / max; None where it is too short or flat."""
    positive = int((log_x > -math.inf).sum())
    size = int(min(positive / 5, 3 * math.sqrt(positive)))
    if size < SHORTEST_TAIL:
        return None
    top, order = torch.topk(log_x, size + 1)  # descending
    relative = (top - top[0]).exp().flip(0)
    excess = relative[1:] - relative[0]
    excess = excess[excess > 0]  # ties with the cutoff carry no shape
    if len(excess) == 0:
        return None
    k, sigma = gpd_fit(excess) if len(excess) >= SHORTEST_TAIL else (math.inf, math.nan)
    return _Tail(order[:size].flip(0), float(relative[0]), k, sigma)


def tail_index(log_x: Float[Tensor, " n"]) -> float | None:
    """Pareto k of the upper tail of exp(log_x); None where it is too short or flat, inf where one value is all."""
    tail = _fit_tail(log_x)
    return None if tail is None else tail.k


class Smoothed(NamedTuple):
    """Log weights with a smoothed upper tail, and the tail's shape."""

    log_weights: Any
    k: float | None


def pareto_smooth(log_weights: ArrayLike) -> Smoothed:
    """The largest weights replaced by the quantiles of their Pareto fit, none above the largest raw weight."""
    log_w = log_weight_vector(log_weights, "weights.pareto_smooth").clone()
    tail = _fit_tail(log_w)
    if tail is not None and math.isfinite(tail.k):
        top = log_w.max()
        m = len(tail.order)
        survival = 1 - (torch.arange(m, dtype=torch.float64) + 0.5) / m
        growth = torch.expm1(-tail.k * survival.log()) / tail.k if tail.k else -survival.log()
        log_w[tail.order] = top + (tail.cutoff + tail.sigma * growth).log().clamp_max(0.0)
    return Smoothed(Kind.of(log_weights).give(log_w), None if tail is None else tail.k)
