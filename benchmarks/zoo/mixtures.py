"""Gaussian mixtures: weights that change, modes that move, are lost or new; and mixtures of correlations."""

from __future__ import annotations

import numpy as np

from benchmarks.zoo.gaussians import ar1, equal
from benchmarks.zoo.laws import Law, mixture, normal, pair_of
from benchmarks.zoo.pair import Pair


def modes(d: int, k: int, apart: float, seed: int) -> np.ndarray:
    """k means, normal with standard deviation `apart` a coordinate."""
    return apart * np.random.default_rng(seed).standard_normal((k, d))


def blobs(means: np.ndarray, weights: list[float] | None = None, cov: np.ndarray | float = 1.0) -> Law:
    return mixture(np.ones(len(means)) if weights is None else weights, [normal(mean, cov) for mean in means])


def between(p: Law, q: Law) -> Pair:
    return pair_of(p, q, lambda: {"reach_p": 1.0, "reach_q": 1.0})


def pairs() -> list[Pair]:
    two, five, ten, twenty = modes(2, 3, 2.0, 2), modes(5, 4, 1.2, 5), modes(10, 5, 1.0, 10), modes(20, 4, 0.7, 20)
    eight, thirty = modes(8, 3, 1.0, 8), modes(30, 3, 0.5, 30)
    moved = five.copy()
    moved[0] += np.array([1.5, -1.0, 0.5, 0.0, 0.0])
    signs = [equal(3, 0.45), equal(3, -0.45)]
    found = {
        "mix-weights-d1": between(
            blobs(np.array([[-2.0], [0.0], [2.5]]), [1, 1, 4], 0.5),
            blobs(np.array([[-2.0], [0.0], [2.5]]), [3, 1, 1], 0.5),
        ),
        "mix-weights-d2": between(blobs(two, [5, 2, 1]), blobs(two, [1, 2, 5])),
        "mix-weights-d10": between(blobs(ten, [4, 1, 1, 1, 1]), blobs(ten)),
        "mix-weights-d20": between(
            blobs(twenty, [5, 3, 1, 1], ar1(20, 0.4)), blobs(twenty, [1, 1, 3, 5], ar1(20, 0.4))
        ),
        "mix-moved-d2": between(
            blobs(two, None, 0.4), blobs(two + np.array([[0.0, 0.0], [0.7, 0.0], [0.0, -0.5]]), None, 0.4)
        ),
        "mix-moved-d5": between(blobs(moved), blobs(five)),
        "mix-lost-d3": between(blobs(modes(3, 3, 1.3, 3)), blobs(modes(3, 3, 1.3, 3)[:2])),
        "mix-lost-d10": between(blobs(1.2 * ten), blobs(1.2 * ten[:4])),
        "mix-new-d8": between(blobs(eight[:2]), blobs(eight)),
        "mix-new-d30": between(blobs(thirty[:2]), blobs(thirty)),
        "mix-narrow-d2": between(
            mixture([0.9, 0.1], [normal(np.zeros(2), 1.0), normal(np.ones(2), 0.01)]), normal(np.zeros(2), 1.0)
        ),
        "mix-signs-d3": between(mixture([1, 1], [normal(np.zeros(3), s) for s in signs]), normal(np.zeros(3), 1.0)),
        "mix-one-d5": between(
            blobs(0.7 * five), normal(0.7 * five.mean(0), np.eye(5) + np.cov(0.7 * five.T, bias=True))
        ),
    }
    return [pair.named(name, "mixture") for name, pair in found.items()]
