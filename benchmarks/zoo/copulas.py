"""Copulas (Gaussian, Clayton, t) against independence: KL is the mutual information, whatever the marginals."""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from benchmarks.zoo.gaussians import ar1, equal
from benchmarks.zoo.laws import gaussians, student
from benchmarks.zoo.pair import Pair, mapped, product, same


def _whole() -> dict[str, float]:
    return {"reach_p": 1.0, "reach_q": 1.0}


def clayton(theta: float, d: int) -> Pair:
    """Uniform marginals; density prod (1 + k theta) prod u^(-theta - 1) (sum u^-theta - d + 1)^(-d - 1/theta)."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        # Marshall and Olkin 1988: frailty of Gamma(1/theta), u = (1 + e / frailty)^(-1/theta)
        return (1 + rng.exponential(size=(n, d)) / rng.gamma(1 / theta, size=(n, 1))) ** (-1 / theta)

    def log_ratio(u: np.ndarray) -> np.ndarray:
        log_u = np.log(u)
        # log(sum u^-theta - (d - 1)), its largest term taken out
        top = (-theta * log_u).max(1)
        inside = np.exp(-theta * log_u - top[:, None]).sum(1) - (d - 1) * np.exp(-top)
        start = np.log1p(theta * np.arange(d)).sum()
        return start - (theta + 1) * log_u.sum(1) - (d + 1 / theta) * (top + np.log(inside))

    return Pair(d, draw, lambda n, rng: rng.random((n, d)), log_ratio, _whole)


def t_copula(df: float, scale: np.ndarray) -> Pair:
    """With t marginals of the same degrees of freedom; q has the marginals alone."""
    law, d = student(df, np.zeros(len(scale)), scale), len(scale)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        return law.log_density(x) - stats.t(df).logpdf(x).sum(1)

    return Pair(d, law.draw, lambda n, rng: rng.standard_t(df, (n, d)), log_ratio, _whole)


def exponential(pair: Pair) -> Pair:
    """Normal marginals to exponential ones."""
    return mapped(pair, lambda z: -special.log_ndtr(-z), lambda y: -special.ndtri_exp(-y))


def gauss(d: int, cov: np.ndarray) -> Pair:
    return gaussians(np.zeros(d), cov, np.zeros(d), 1.0)


def pairs() -> list[Pair]:
    def heavy(z: np.ndarray) -> np.ndarray:
        return np.sinh(1.5 * z)

    found = {
        "copula-gauss-uniform-d2": mapped(gauss(2, equal(2, 0.7)), special.ndtr, special.ndtri),
        "copula-gauss-exponential-d5": exponential(gauss(5, ar1(5, 0.6))),
        "copula-gauss-heavy-d10": mapped(gauss(10, ar1(10, 0.4)), heavy, lambda x: np.arcsinh(x) / 1.5),
        "copula-gauss-bimodal-d2": mapped(gauss(2, equal(2, 0.75)), *_bimodal()),
        "copula-clayton-uniform-d2": clayton(2.0, 2),
        "copula-clayton-logistic-d3": mapped(clayton(1.0, 3), special.logit, special.expit),
        "copula-clayton-exponential-d5": mapped(clayton(0.7, 5), lambda u: -np.log(u), lambda y: np.exp(-y)),
        "copula-t3-d2": t_copula(3, np.eye(2)),
        "copula-t5-d5": t_copula(5, equal(5, 0.3)),
        "copula-t3-asinh-d8": mapped(t_copula(3, np.eye(8)), np.arcsinh, np.sinh),
        "copula-gauss-in-d20": product(gauss(5, equal(5, 0.6)), same(gauss(15, np.eye(15)).draw_p, 15)),
    }
    return [pair.named(name, "copula") for name, pair in found.items()]


def _bimodal():
    """A monotone map that pushes mass away from 0, and its inverse."""

    def forward(z: np.ndarray) -> np.ndarray:
        return z + 2 * np.tanh(2 * z)

    def inverse(x: np.ndarray) -> np.ndarray:
        low, high = x - 2, x + 2
        for _ in range(60):  # bisection: 4 / 2^60 is below the last digit
            z = (low + high) / 2
            above = forward(z) > x
            low, high = np.where(above, low, z), np.where(above, z, high)
        return (low + high) / 2

    return forward, inverse
