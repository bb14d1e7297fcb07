"""Invertible maps of Gaussian pairs: every f-divergence is the one of the Gaussians."""

from __future__ import annotations

import numpy as np
from scipy import special

from benchmarks.zoo.gaussians import ar1, equal, shift
from benchmarks.zoo.laws import gaussians
from benchmarks.zoo.pair import Pair, mapped, product, same


def spiral(pair: Pair, speed: float) -> Pair:
    """Turns neighbouring coordinates by `speed` |x|^2; the length stays."""

    def turn(x: np.ndarray, sign: int) -> np.ndarray:
        angle = sign * speed * (x**2).sum(1, keepdims=True)
        a, b, rest = x[:, 0 : pair.d - 1 : 2], x[:, 1 : pair.d : 2], x[:, pair.d - pair.d % 2 :]
        turned = np.empty_like(x)
        turned[:, 0 : pair.d - 1 : 2] = np.cos(angle) * a - np.sin(angle) * b
        turned[:, 1 : pair.d : 2] = np.sin(angle) * a + np.cos(angle) * b
        turned[:, pair.d - pair.d % 2 :] = rest
        return turned

    return mapped(pair, lambda x: turn(x, 1), lambda x: turn(x, -1))


def shear(pair: Pair, strength: float) -> Pair:
    """Adds `strength` times the square of the coordinate before: a banana."""

    def forward(x: np.ndarray) -> np.ndarray:
        y = x.copy()
        y[:, 1:] += strength * x[:, :-1] ** 2
        return y

    def inverse(y: np.ndarray) -> np.ndarray:
        x = y.copy()
        for j in range(1, pair.d):
            x[:, j] -= strength * x[:, j - 1] ** 2
        return x

    return mapped(pair, forward, inverse)


def cdf(pair: Pair) -> Pair:
    return mapped(pair, special.ndtr, special.ndtri)


def sinh(pair: Pair) -> Pair:
    return mapped(pair, np.sinh, np.arcsinh)


def asinh(pair: Pair) -> Pair:
    return mapped(pair, np.arcsinh, np.sinh)


def half_cube(pair: Pair) -> Pair:
    """sign(x) |x|^(3/2)."""
    return mapped(pair, lambda x: np.sign(x) * np.abs(x) ** 1.5, lambda x: np.sign(x) * np.abs(x) ** (2 / 3))


def pairs() -> list[Pair]:
    def corr(d: int, rho: float) -> Pair:
        return gaussians(np.zeros(d), equal(d, rho), np.zeros(d), 1.0)

    wide = gaussians(np.zeros(3), np.diag([3.0, 0.5, 1.0]), np.zeros(3), 1.0)
    found = {
        "map-spiral-d2": spiral(shift(2, 1.2), 0.6),
        "map-spiral-d3": spiral(wide, 0.5),
        "map-spiral-d6": spiral(corr(6, 0.4), 0.25),
        "map-sinh-d5": sinh(corr(5, 0.45)),
        "map-sinh-d10": sinh(shift(10, 1.1, ar1(10, 0.3))),
        "map-asinh-d8": asinh(gaussians(np.full(8, 0.2), ar1(8, 0.5), np.zeros(8), ar1(8, 0.1))),
        "map-shear-d2": shear(shift(2, 1.0), 1.0),
        "map-shear-d5": shear(gaussians(np.zeros(5), 0.6, np.zeros(5), 1.0), 0.5),
        "map-cdf-d3": cdf(corr(3, 0.6)),
        "map-cdf-d20": cdf(gaussians(np.zeros(20), ar1(20, 0.4), np.zeros(20), 1.0)),
        "map-half-cube-d3": half_cube(shift(3, 1.5, equal(3, 0.3))),
        "map-half-cube-d30": half_cube(product(corr(5, 0.5), same(corr(25, 0.0).draw_p, 25))),
    }
    return [pair.named(name, "map") for name, pair in found.items()]
