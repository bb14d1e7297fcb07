"""Supports that differ: a half-space, a quarter, a cluster or a disc that one side lacks, boxes that overlap in part.

`-lost` pairs: the model q lacks what p has (KL is infinite). `-extra` pairs: q makes what p lacks (reverse KL is).
"""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from benchmarks.zoo.gaussians import ar1, shift
from benchmarks.zoo.laws import categories, counts, divergences, normal
from benchmarks.zoo.manifolds import ring, shell
from benchmarks.zoo.pair import Draw, Pair, mapped, product, rotated, same, swapped
from benchmarks.zoo.skewed import of, unit


def restricted(draw: Draw, d: int, inside, share: float) -> Pair:
    """q is p where `inside`, which holds `share` of p."""

    def draw_inside(n: int, rng: np.random.Generator) -> np.ndarray:
        kept = np.empty((0, d))
        while len(kept) < n:
            x = draw(int((n - len(kept)) / share * 1.1) + 10, rng)
            kept = np.concatenate([kept, x[inside(x)]])
        return kept[:n]

    def log_ratio(x: np.ndarray) -> np.ndarray:
        return np.where(inside(x), np.log(share), np.inf)

    def exact() -> dict[str, float]:
        with np.errstate(divide="ignore"):
            return divergences(np.log([share, 1 - share]), np.log([1.0, 0.0]))

    return Pair(d, draw, draw_inside, log_ratio, exact)


def box(side: float, by: float) -> Pair:
    """Uniform on [0, side] against uniform on [by, 1 + by]."""
    return of(stats.uniform(0, side), stats.uniform(by, 1), 0.0, side, by, 1 + by)


def clusters(d: int, k: int, apart: float, width: float) -> Pair:
    """k clusters, balls around points on a line, of which q lacks the last."""
    ball = shell(same(lambda n, rng: width * rng.random((n, 1)) ** (1 / d), 1), d)

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        x = ball.draw_p(n, rng)
        x[:, 0] += apart * rng.integers(k, size=n)
        return x

    return restricted(draw, d, lambda x: x[:, 0] < apart * (k - 1.5), (k - 1) / k)


def pairs() -> list[Pair]:
    def round_(d: int) -> Draw:
        return normal(np.zeros(d), 1.0).draw

    half = {d: restricted(round_(d), d, lambda x: x[:, 0] < 0, 0.5) for d in (1, 5, 20)}
    quarter = restricted(round_(3), 3, lambda x: (x[:, 0] < 0) | (x[:, 1] < 0), 0.75)
    tail = restricted(round_(2), 2, lambda x: x[:, 0] < special.ndtri(0.95), 0.95)
    turned = rotated(product(half[5], shift(5, 1.0, ar1(5, 0.4))), 7)
    hole = ring(of(stats.uniform(1, 1), stats.uniform(0, 2), 0.0, 1.0, 2.0), unit(1))
    # The disc fills evenly: a distance sqrt(u).
    filled = ring(mapped(of(stats.uniform(0.5, 0.5), stats.uniform(0, 1), 0.0, 0.5, 1.0), np.sqrt, np.square), unit(1))
    found = {
        "half-lost-d1": half[1],
        "half-extra-d1": swapped(half[1]),
        "half-lost-d5": half[5],
        "half-lost-d20": rotated(half[20], 5),
        "half-shift-lost-d10": turned,
        "half-shift-extra-d10": swapped(turned),
        "quarter-lost-d3": quarter,
        "quarter-extra-d3": swapped(quarter),
        "tail-lost-d2": tail,
        "cluster-lost-d2": clusters(2, 5, 3.0, 1.0),
        "cluster-extra-d2": swapped(clusters(2, 5, 3.0, 1.0)),
        "cluster-lost-d10": rotated(clusters(10, 5, 3.0, 1.0), 6),
        "ring-fills-extra-d2": filled,
        "ring-hole-lost-d2": swapped(hole),
        "box-part-d1": box(1.0, 0.3),
        "box-part-d3": product(box(1.0, 0.1), box(1.0, 0.2), unit(1)),
        "box-inside-d5": product(box(1.0, 0.0), box(0.8, 0.0), box(0.7, 0.0), unit(2)),
        "category-lost-d8": product(categories([4, 3, 2, 1], [1, 1, 1, 0]), same(round_(4), 4)),
        "counts-cut-extra-d2": product(counts(stats.binom(4, 0.4), stats.poisson(1.6), 40), same(round_(1), 1)),
    }
    return [pair.named(f"support-{name}", "support") for name, pair in found.items()]
