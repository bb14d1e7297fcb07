"""Drifts with known truth: one p, and models q_1 .. q_T that move away from it.

`DRIFTS["t5-location-d8"].draw_q(t, n, rng)` draws from the model of step t = 1 .. T. Each step is a `Pair` with the
same p, whose truth stands in truth.json as "NAME@t". Families are those of the zoo, so that a family left out there can
be left out here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from benchmarks.zoo.gaussians import ar1, equal
from benchmarks.zoo.heavy import located
from benchmarks.zoo.laws import Law, categories, counts, gaussians, mixture, normal, radial, student
from benchmarks.zoo.manifolds import radius
from benchmarks.zoo.maps import spiral
from benchmarks.zoo.mixtures import between, blobs, modes
from benchmarks.zoo.pair import Pair, product, same, swapped
from benchmarks.zoo.skewed import skewed
from benchmarks.zoo.support import restricted

STEPS = 6


@dataclass(frozen=True)
class Drift:
    """p and the models q_1 .. q_T."""

    name: str
    family: str
    d: int
    steps: tuple[Pair, ...]

    def draw_p(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return self.steps[0].draw_p(n, rng)

    def draw_q(self, t: int, n: int, rng: np.random.Generator) -> np.ndarray:
        """Of step t = 1 .. T."""
        return self.steps[t - 1].draw_q(n, rng)

    def log_ratio(self, t: int, x: np.ndarray) -> np.ndarray:
        """log p/q_t."""
        return self.steps[t - 1].log_ratio(x)

    def truth(self, t: int) -> dict[str, float]:
        """As `Pair.truth`, of p and q_t."""
        return self.steps[t - 1].truth()


def drift(name: str, family: str, step: Callable[[int], Pair]) -> Drift:
    steps = tuple(step(t).named(f"{name}@{t}", family) for t in range(1, STEPS + 1))
    return Drift(name, family, steps[0].d, steps)


def ring_law(mean: float, width: float) -> Law:
    """A ring in the plane whose distance from 0 has a gamma law."""
    distance = radius(mean, width)

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        angle = 2 * math.pi * rng.random(n)
        return distance.rvs(size=(n, 1), random_state=rng) * np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def log_density(x: np.ndarray) -> np.ndarray:
        rho = np.hypot(*x.T)
        return distance.logpdf(rho) - np.log(2 * math.pi * rho)

    return Law(2, draw, log_density)


def _all() -> list[Drift]:
    ten, six = modes(10, 5, 1.0, 11), modes(6, 3, 1.2, 6)
    toward = np.array([0.02, 0.08, 0.2, 0.3, 0.4])
    falling = (0.25, 0.18, 0.12, 0.07, 0.03, 0.01)
    ring = ring_law(2.0, 0.4)
    numbers = same(normal(np.zeros(4), ar1(4, 0.5)).draw, 4)
    away_and_back = (0.0, 0.5, 1.0, 1.0, 0.5, 0.0)

    def mixed(t: int) -> Pair:
        return product(
            counts(stats.poisson(2), stats.poisson(2 + 0.25 * t), 80),
            categories([3, 2, 1], [3, 2, 1 + 0.3 * t]),
            numbers,
        )

    def cut(t: int) -> Pair:
        share = 1 - 0.08 * t
        return restricted(normal(np.zeros(5), 1.0).draw, 5, lambda x: x[:, 0] < special.ndtri(share), share)

    return [
        drift("t5-location-d8", "student", lambda t: swapped(located(5, 8, 0.25 * t))),
        drift("weights-d10", "mixture", lambda t: between(blobs(ten), blobs(ten, (1 - t / 6) * 0.2 + t / 6 * toward))),
        drift(
            "correlation-d20", "correlation", lambda t: gaussians(np.zeros(20), 1.0, np.zeros(20), ar1(20, 0.07 * t))
        ),
        drift(
            "ring-fills-d2",
            "manifold",
            lambda t: radial(ring, mixture([1 - 0.1 * t, 0.1 * t], [ring, normal(np.zeros(2), 0.6)])),
        ),
        drift(
            "shift-shrink-d4",
            "gauss",
            lambda t: gaussians(np.zeros(4), 1.0, np.full(4, 0.1 * t), (1 - 0.04 * t) ** 2),
        ),
        drift("skew-d5", "skewed", lambda t: swapped(skewed(np.full(5, 0.08 * t), ar1(5, 0.4)))),
        drift(
            "lost-mode-d6",
            "mixture",
            lambda t: between(blobs(six), blobs(six, [1, 1, 2 * falling[t - 1] / (1 - falling[t - 1])])),
        ),
        drift("rates-d8", "mixed", mixed),
        drift("half-space-d5", "support", cut),
        drift("lighter-tails-d5", "student", lambda t: radial(student(4, np.zeros(5)), student(4 + t**2, np.zeros(5)))),
        drift("spiral-d3", "map", lambda t: spiral(gaussians(np.zeros(3), 1.0, [0.2 * t, 0.0, 0.0], 1.0), 0.4)),
        drift(
            "there-and-back-d10",
            "correlation",
            lambda t: gaussians(np.zeros(10), equal(10, 0.2), np.full(10, 0.3 * away_and_back[t - 1]), equal(10, 0.2)),
        ),
        drift("none-d8", "near", lambda t: same(normal(np.zeros(8), ar1(8, 0.5)).draw, 8)),
    ]


DRIFTS: dict[str, Drift] = {one.name: one for one in _all()}
