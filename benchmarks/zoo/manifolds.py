"""Rings, shells, rolls and sheets, thickened so that they have a density: maps of independent blocks."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from benchmarks.zoo.laws import gaussians, laplace, mixture, normal, pair_of, scipy_law
from benchmarks.zoo.pair import Pair, mapped, product, rotated, same
from benchmarks.zoo.skewed import of, unit

TURN = 2 * math.pi


def radius(mean: float, width: float) -> object:
    """A gamma law: positive, with this mean and standard deviation."""
    return stats.gamma((mean / width) ** 2, scale=width**2 / mean)


def ring(distance: Pair, angle: Pair) -> Pair:
    """(distance, angle / 2 pi) to the plane."""

    def forward(x: np.ndarray) -> np.ndarray:
        return x[:, :1] * np.stack([np.cos(TURN * x[:, 1]), np.sin(TURN * x[:, 1])], axis=1)

    def inverse(x: np.ndarray) -> np.ndarray:
        return np.stack([np.hypot(*x.T), np.arctan2(x[:, 1], x[:, 0]) / TURN % 1], axis=1)

    return mapped(product(distance, angle), forward, inverse)


def shell(distance: Pair, d: int) -> Pair:
    """A distance from 0 in a uniform direction."""

    def draw(of_distance):
        def points(n: int, rng: np.random.Generator) -> np.ndarray:
            x = rng.standard_normal((n, d))
            return of_distance(n, rng) * x / np.linalg.norm(x, axis=1, keepdims=True)

        return points

    return Pair(
        d,
        draw(distance.draw_p),
        draw(distance.draw_q),
        lambda x: distance.log_ratio(np.linalg.norm(x, axis=1, keepdims=True)),
        distance.exact,
    )


def sheet(base: Pair, noise: Pair, height) -> Pair:
    """(x, height(x) + noise)."""
    k = base.d
    return mapped(
        product(base, noise),
        lambda x: np.concatenate([x[:, :k], x[:, k:] + height(x[:, :k])], axis=1),
        lambda x: np.concatenate([x[:, :k], x[:, k:] - height(x[:, :k])], axis=1),
    )


def roll(along: Pair, off: Pair) -> Pair:
    """Distance `along + off` from 0 at the angle `along`, |off| < pi: a spiral with a thickness."""

    def forward(x: np.ndarray) -> np.ndarray:
        return (x[:, 0] + x[:, 1])[:, None] * np.stack([np.cos(x[:, 0]), np.sin(x[:, 0])], axis=1)

    def inverse(x: np.ndarray) -> np.ndarray:
        distance, angle = np.hypot(*x.T), np.arctan2(x[:, 1], x[:, 0])
        t = angle + TURN * np.round((distance - angle) / TURN)
        return np.stack([t, distance - t], axis=1)

    return mapped(product(along, off), forward, inverse)


def pairs() -> list[Pair]:
    noise = lambda d: same(normal(np.zeros(d), 1.0).draw, d)  # noqa: E731
    thin = lambda width: of(stats.norm(0, width), stats.norm(0, 0.3))  # noqa: E731
    around = pair_of(
        *(
            mixture([1, share], [scipy_law(stats.uniform(), (0, 1)), scipy_law(stats.beta(4, 4), (0, 1))])
            for share in (3, 0.2)
        )
    )
    long = of(stats.uniform(4, 10), stats.uniform(4, 10), 4.0, 14.0)
    bent = pair_of(*(scipy_law(stats.beta(*ab, loc=4, scale=10), (4.0, 14.0)) for ab in ((2, 1.2), (1.2, 1.6))))
    thick = scipy_law(stats.beta(3, 3, loc=-0.8, scale=1.6), (-0.8, 0.8))
    found = {
        "ring-radius-d2": ring(of(radius(2.1, 0.1), radius(2.0, 0.1), 0.0), unit(1)),
        "ring-width-d2": ring(of(radius(2.0, 0.1), radius(2.0, 0.25), 0.0), unit(1)),
        "ring-angle-d2": ring(of(radius(2.0, 0.1), radius(2.0, 0.1), 0.0), around),
        "ring-in-d10": rotated(product(ring(of(radius(3.2, 0.3), radius(3.0, 0.3), 0.0), around), noise(8)), 10),
        "shell-radius-d5": shell(of(radius(2.2, 0.3), radius(2.0, 0.3), 0.0), 5),
        "shell-width-d10": shell(of(radius(3.0, 0.1), radius(3.0, 0.3), 0.0), 10),
        "shell-in-d30": rotated(product(shell(of(radius(3.0, 0.5), radius(2.5, 0.5), 0.0), 3), noise(27)), 30),
        "sheet-sine-d3": sheet(noise(2), thin(0.15), lambda x: np.sin(2 * x).sum(1, keepdims=True)),
        "sheet-cone-d8": sheet(
            noise(7),
            pair_of(laplace(0.3, 0.3), laplace(0, 0.3)),
            lambda x: np.linalg.norm(x, axis=1, keepdims=True),
        ),
        "sheet-shift-d5": sheet(
            gaussians(np.full(4, 0.4), 1.0, np.zeros(4), 1.0), same(thin(0.2).draw_p, 1), lambda x: x[:, :1] * x[:, 1:2]
        ),
        "roll-along-d2": roll(bent, same(thick.draw, 1)),
        "roll-thin-d3": product(
            roll(
                same(long.draw_p, 1),
                of(stats.beta(8, 8, loc=-0.8, scale=1.6), stats.beta(3, 3, loc=-0.8, scale=1.6), -0.8, 0.8),
            ),
            noise(1),
        ),
    }
    return [pair.named(name, "manifold") for name, pair in found.items()]
