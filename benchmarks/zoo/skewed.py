"""Skewed pairs (skew normal, sinh-arcsinh, Gumbel, log-normal, gamma) and kinked or bounded ones (Laplace, beta)."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from benchmarks.zoo.gaussians import ar1, equal, shift
from benchmarks.zoo.laws import Law, gaussians, laplace, normal, pair_of, scipy_law
from benchmarks.zoo.pair import Pair, copies, mapped, product, rotated, same


def skew_normal(slant: np.ndarray, cov: np.ndarray | float = 1.0) -> Law:
    """Density 2 N(x; 0, cov) Phi(slant . x) (Azzalini and Dalla Valle 1996): x where noise < slant . x, else -x."""
    base = normal(np.zeros(len(slant)), cov)

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        x = base.draw(n, rng)
        return np.where((rng.standard_normal(n) < x @ slant)[:, None], x, -x)

    return Law(
        base.d, draw, lambda x: math.log(2) + base.log_density(x) + special.log_ndtr(x @ np.asarray(slant, float))
    )


def skewed(slant: np.ndarray, cov: np.ndarray | float = 1.0) -> Pair:
    """Against the normal without slant: the projection on the slant holds the whole difference."""
    slant = np.asarray(slant, dtype=float)
    d = len(slant)
    width = float((slant @ (cov * np.eye(d) if np.ndim(cov) == 0 else cov) @ slant) ** 0.5)
    line = pair_of(skew_normal(np.array([width])), normal(0.0, 1.0))
    pair = pair_of(skew_normal(slant, cov), normal(np.zeros(d), cov))
    return Pair(d, pair.draw_p, pair.draw_q, pair.log_ratio, line.exact)


def sinh_arcsinh(skew: float, tail: float) -> Law:
    """sinh((asinh z + skew) / tail) of a normal z (Jones and Pewsey 2009)."""

    def log_density(x: np.ndarray) -> np.ndarray:
        t = tail * np.arcsinh(x[:, 0]) - skew
        # z = sinh t, dz/dx = cosh(t) tail / sqrt(1 + x^2)
        return stats.norm.logpdf(np.sinh(t)) + np.log(np.cosh(t)) + math.log(tail) - np.log1p(x[:, 0] ** 2) / 2

    return Law(1, lambda n, rng: np.sinh((np.arcsinh(rng.standard_normal((n, 1))) + skew) / tail), log_density)


def of(p: object, q: object, *breaks: float) -> Pair:
    """Two frozen distributions of scipy.stats."""
    return pair_of(scipy_law(p, breaks), scipy_law(q, breaks))


def log_normal(pair: Pair) -> Pair:
    return mapped(pair, np.exp, np.log)


def pairs() -> list[Pair]:
    noise = normal(0.0, 1.0)
    found = {
        "skew-normal-d1": pair_of(skew_normal(np.array([3.0])), normal(0.0, 1.0)),
        "skew-normal-d5": skewed(np.full(5, 0.8), ar1(5, 0.5)),
        "skew-normal-d20": skewed(np.linspace(-1, 1, 20)),
        "skew-normals-d3": copies(pair_of(skew_normal(np.array([2.0])), skew_normal(np.array([-0.5]))), 3),
        "skew-sinh-d3": product(
            pair_of(sinh_arcsinh(0.5, 1.0), sinh_arcsinh(0.0, 1.0)),
            pair_of(sinh_arcsinh(0.3, 0.8), sinh_arcsinh(0.3, 1.0)),
            same(sinh_arcsinh(0.2, 0.9).draw, 1),
        ),
        "skew-gumbel-d1": of(stats.gumbel_r(0.8), stats.gumbel_r(0)),
        "skew-gumbel-d2": rotated(copies(of(stats.gumbel_r(0.5, 1.2), stats.gumbel_r()), 2), 1),
        "skew-lognormal-d2": log_normal(gaussians([0.5, 0.0], equal(2, 0.5), np.zeros(2), 1.0)),
        "skew-lognormal-d10": log_normal(shift(10, 0.8, ar1(10, 0.4))),
        "skew-gamma-d8": product(
            copies(of(stats.gamma(3, scale=1.2), stats.gamma(2.5), 0.0), 5),
            same(stats_draw(stats.gamma(2), 3), 3),
        ),
    }
    kinked = {
        "laplace-shift-d1": pair_of(laplace(0.7, 1), laplace(0, 1)),
        "laplace-scale-d5": copies(pair_of(laplace(0, 1.5), laplace(0, 1)), 5),
        "laplace-normal-d10": copies(pair_of(laplace(0, 0.5**0.5), noise), 10),
        "laplace-turned-d8": rotated(copies(pair_of(laplace(0.4, 1), laplace(0, 1)), 8), 2),
        "logistic-shift-d3": copies(of(stats.logistic(0.9), stats.logistic(0)), 3),
        "logistic-normal-d2": copies(of(stats.logistic(0.3), stats.norm(0, 1.9)), 2),
        "beta-uniform-d1": of(stats.beta(2, 2), stats.uniform(0, 1), 0.0, 1.0),
        "beta-beta-d5": copies(of(stats.beta(2, 3), stats.beta(3, 3), 0.0, 1.0), 5),
        "uniform-sum-d2": rotated(product(of(stats.triang(0.5), stats.uniform(0, 1), 0.0, 0.5, 1.0), unit(1)), 3),
        "uniform-soft-d3": product(soft_uniform(0.25), same(noise.draw, 1), unit(1)),
    }
    return [
        *(pair.named(name, "skewed") for name, pair in found.items()),
        *(pair.named(name, "kinked") for name, pair in kinked.items()),
    ]


def stats_draw(dist: object, d: int):
    return lambda n, rng: dist.rvs(size=(n, d), random_state=rng)


def unit(d: int) -> Pair:
    """The same uniform on both sides."""
    return same(lambda n, rng: rng.random((n, d)), d)


def soft_uniform(by: float, blur: float = 0.1) -> Pair:
    """Uniform on [by, 1 + by] and on [0, 1], both blurred by normal noise: most of the overlap is flat."""

    def law(low: float) -> Law:
        def log_density(x: np.ndarray) -> np.ndarray:
            u, v = (x[:, 0] - low) / blur, (x[:, 0] - low - 1) / blur
            upper = u > 5  # the difference of two cdfs near 1 is taken of the upper tails
            a, b = np.where(upper, -v, u), np.where(upper, -u, v)
            return special.log_ndtr(a) + np.log(-np.expm1(special.log_ndtr(b) - special.log_ndtr(a)))

        return Law(1, lambda n, rng: low + rng.random((n, 1)) + blur * rng.standard_normal((n, 1)), log_density)

    return pair_of(law(by), law(0.0))
