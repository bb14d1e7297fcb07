"""Windows of time series and rotated sources: dependence that no correlation shows. Truth by Monte Carlo."""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks.zoo.laws import Law, pair_of
from benchmarks.zoo.pair import Pair, orthogonal


def autoregression(d: int, step, width=lambda past: 1.0) -> Law:
    """x_1 standard normal, then x_t = step(x_{t-1}) + width(x_{t-1}) noise."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal((n, d))
        for t in range(1, d):
            x[:, t] = step(x[:, t - 1]) + width(x[:, t - 1]) * x[:, t]
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        past, now = x[:, :-1], x[:, 1:]
        noise = (now - step(past)) / width(past)
        whole = stats.norm.logpdf(x[:, 0]) + stats.norm.logpdf(noise).sum(1)
        return whole - np.log(width(past) * np.ones_like(past)).sum(1)

    return Law(d, draw, log_density)


def sources(dist: object, A: np.ndarray) -> Law:
    """Independent columns of `dist` mixed by an orthogonal matrix."""
    return Law(
        len(A),
        lambda n, rng: dist.rvs(size=(n, len(A)), random_state=rng) @ A.T,
        lambda x: dist.logpdf(x @ A).sum(1),
    )


def turn(d: int, angle: float) -> np.ndarray:
    """Turns the first two coordinates."""
    A = np.eye(d)
    A[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return A


def between(p: Law, q: Law) -> Pair:
    return pair_of(p, q, lambda: {"reach_p": 1.0, "reach_q": 1.0})


def pairs() -> list[Pair]:
    linear = lambda a: lambda x: a * x  # noqa: E731
    swing = lambda x: np.sqrt(0.5 + 0.5 * x**2)  # noqa: E731
    found = {
        "series-linear-d10": between(autoregression(10, linear(0.7)), autoregression(10, linear(0.3))),
        "series-threshold-d5": between(
            autoregression(5, lambda x: np.where(x > 0, 0.9 * x, -0.6 * x)), autoregression(5, linear(0.3))
        ),
        "series-sine-d20": between(autoregression(20, lambda x: 0.6 * np.sin(2 * x)), autoregression(20, linear(0.0))),
        "series-volatility-d8": between(autoregression(8, linear(0.0), swing), autoregression(8, linear(0.0))),
        "series-map-d3": between(
            autoregression(3, lambda x: np.cos(2 * x), lambda past: 0.6), autoregression(3, linear(0.0))
        ),
        "sources-laplace-d2": between(
            sources(stats.laplace(), turn(2, np.pi / 4)), sources(stats.laplace(), np.eye(2))
        ),
        "sources-laplace-d8": between(sources(stats.laplace(), orthogonal(8, 8)), sources(stats.laplace(), np.eye(8))),
        "sources-t3-d3": between(sources(stats.t(3), orthogonal(3, 3)), sources(stats.t(3), np.eye(3))),
    }
    return [pair.named(name, "series" if name.startswith("series") else "sources") for name, pair in found.items()]
