"""Sums of z^2 that were drawn from a pool of few units, without the variance that the pool adds to them.

A sum of k squares whose correlation matrix is R has the variance 2 tr R^2 = 2 sum_ij R_ij^2. Drawn from a pool of N
units it has that of the pool's own correlations r_ij, whose squares are too large by their sampling variance:

    E sum_ij r_ij^2 = sum_ij R_ij^2 + sum_(i != j) Var(r_ij),
    N Var(r_ij) = mean of (f_i f_j - r_ij (f_i^2 + f_j^2) / 2)^2   (the influence function of a correlation),

with f standardised. Of independent normal functions that is k (k - 1) / N, much where many functions hardly depend on
each other. It is more where their squares grow together, as products of scores of one row do (k^2 / N is then too
little, and the test too careful), and less where functions nearly determine each other (it is then too much, and the
test finds too often). The draws are moved towards their mean by the root of the share that is left, at least a half.
Tests: `test_draws_from_a_small_pool_*`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.vestiges.drift_test.null import SUM

MOST_NARROWED = 0.5
MOST_UNITS = 1000  # by which that variance is judged
FLAT = 1e-6  # deviation below which a function does not vary


def pool_excess(pool: Float[Tensor, "f k"], shares: Float[Tensor, " f"]) -> float:
    """The sum over pairs of functions of the sampling variance of their correlation over the units of a pool.

    `shares` are those of the variance of each function that are drawn from the pool; 0 leaves a function out.
    """
    units = pool.shape[1]
    pool, shares = pool[shares > 0][:, :: -(-units // MOST_UNITS)], shares[shares > 0].to(pool.dtype)
    f = pool - pool.mean(1, keepdim=True)
    deviation = f.square().mean(1, keepdim=True).sqrt()
    f = torch.where(deviation > FLAT, f / deviation.clamp_min(FLAT), 0.0)
    n, square = f.shape[1], f.square()
    r, products, cubes = f @ f.T / n, square @ square.T / n, (f * square) @ f.T / n
    fourth = products.diagonal()
    variance = products - r * (cubes + cubes.T) + r.square() * (fourth[:, None] + fourth + 2 * products) / 4
    variance.fill_diagonal_(0.0)
    return float((shares @ variance @ shares).clamp_min(0)) / units


def excesses(pool: Float[Tensor, "f k"], spans: dict[str, slice], shares: Float[Tensor, " f"]) -> dict[str, float]:
    """That of each family."""
    return {name: pool_excess(pool[span], shares[span]) for name, span in spans.items()}


def narrowed(
    draws: Float[Tensor, "b s"], families: Sequence[str], kinds: Sequence[str], excess: dict[str, float]
) -> Float[Tensor, "b s"]:
    """Draws of the statistics of `families`, sums without twice the `excess` of theirs in their variance."""
    draws = draws.clone()
    for s, (name, kind) in enumerate(zip(families, kinds, strict=True)):
        if kind == SUM:
            mean = draws[:, s].mean()
            added = 2 * excess[name] / float(draws[:, s].var().clamp_min(1e-30))
            draws[:, s] = mean + (draws[:, s] - mean) * max(1 - added, MOST_NARROWED**2) ** 0.5
    return draws
