"""Gaussian pairs: a shift, a scale, correlations, in 1 to 50 dimensions; and pairs that are equal or nearly so."""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks.zoo import laws
from benchmarks.zoo.laws import gaussians
from benchmarks.zoo.pair import Pair, orthogonal, product, same


def ar1(d: int, rho: float) -> np.ndarray:
    """Correlation rho^|i - j|."""
    return rho ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))


def equal(d: int, rho: float) -> np.ndarray:
    """Every correlation rho."""
    return (1 - rho) * np.eye(d) + rho


def shift(d: int, distance: float, cov: np.ndarray | float = 1.0) -> Pair:
    """Means apart by `distance` along the diagonal."""
    return gaussians(np.full(d, distance / d**0.5), cov, np.zeros(d), cov)


def some_scaled(d: int, columns: int, scale: float) -> np.ndarray:
    """The identity with `columns` random directions of standard deviation `scale`."""
    Q = orthogonal(d, d)
    return Q @ np.diag(np.where(np.arange(d) < columns, scale**2, 1.0)) @ Q.T


def pairs() -> list[Pair]:
    found = {
        "gauss-shift-d1": shift(1, 1.0),
        "gauss-shift-d2": shift(2, 0.5),
        "gauss-shift-d3": shift(3, 2.4),
        "gauss-shift-d5": shift(5, 2.0, ar1(5, 0.6)),
        "gauss-shift-d10": shift(10, 1.0),
        "gauss-shift-d20": shift(20, 1.5, ar1(20, 0.5)),
        "gauss-shift-d50": shift(50, 2.0),
        "gauss-scale-d1": gaussians(0.0, 1.0, 0.0, 4.0),
        "gauss-scale-d3": gaussians(np.zeros(3), 0.25, np.zeros(3), 1.0),
        "gauss-scale-d10": gaussians(np.zeros(10), some_scaled(10, 3, 1.6), np.zeros(10), 1.0),
        "gauss-scale-d30": gaussians(np.zeros(30), 1.0, np.zeros(30), 1.25**2),
    }
    correlations = {
        "gauss-corr-d2": gaussians(np.zeros(2), equal(2, 0.8), np.zeros(2), 1.0),
        "gauss-corr-d5": gaussians(np.zeros(5), ar1(5, 0.5), np.zeros(5), ar1(5, -0.2)),
        "gauss-corr-d8": gaussians(np.zeros(8), equal(8, 0.3), np.zeros(8), 1.0),
        "gauss-corr-d10": gaussians(np.zeros(10), ar1(10, 0.65), np.zeros(10), 1.0),
        "gauss-corr-d20": gaussians(np.zeros(20), ar1(20, 0.35), np.zeros(20), 1.0),
        "gauss-corr-d30": gaussians(np.full(30, 0.1), equal(30, 0.15), np.zeros(30), 1.0),
        "gauss-corr-d50": gaussians(np.zeros(50), ar1(50, 0.3), np.zeros(50), 1.0),
    }
    t3 = laws.student(3, np.zeros(3))
    three = laws.mixture([1, 2, 3], [laws.normal(np.full(5, m), 1.0) for m in (-3.0, 0.0, 2.0)])
    near = {
        "near-same-d1": same(laws.normal(0.0, 1.0).draw, 1),
        "near-same-d10": same(laws.normal(np.zeros(10), ar1(10, 0.7)).draw, 10),
        "near-same-d50": same(laws.normal(np.zeros(50), 1.0).draw, 50),
        "near-same-t3-d3": same(t3.draw, 3),
        "near-same-mixture-d5": same(three.draw, 5),
        "near-shift-d2": shift(2, 0.1),
        "near-shift-d20": shift(20, 0.14),
        "near-scale-d5": gaussians(np.zeros(5), 1.04**2, np.zeros(5), 1.0),
        "near-corr-d8": gaussians(np.zeros(8), ar1(8, 0.04), np.zeros(8), 1.0),
        "near-logistic-d1": laws.pair_of(
            laws.scipy_law(stats.logistic(0.15, 1)), laws.scipy_law(stats.logistic(0, 1.02))
        ),
        "near-counts-d3": product(
            laws.counts(stats.poisson(3), stats.poisson(3.2), 60),
            same(laws.normal(np.zeros(2), 1.0).draw, 2),
        ),
    }
    return [
        *(pair.named(name, "gauss") for name, pair in found.items()),
        *(pair.named(name, "correlation") for name, pair in correlations.items()),
        *(pair.named(name, "near") for name, pair in near.items()),
    ]
