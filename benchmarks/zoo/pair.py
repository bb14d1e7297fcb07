"""A pair of distributions whose log-ratio is known, and the ways to make one from others.

`p` is the numerator (the real data), `q` the denominator (the model). Divergences are in nats, in the conventions of
`vestige.ratios.divergences.family`: js is at most log 2, hellinger is the squared one, 1 - BC in [0, 1]. `reach_p` is
the share of p's mass where q > 0, which is E_q[p/q]; `reach_q` is the share of q's mass where p > 0, E_p[q/p].

What a pair knows exactly travels with it: independent blocks add their KLs and multiply their Bhattacharyya
coefficients, and an invertible map keeps every f-divergence.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

Draw = Callable[[int, np.random.Generator], np.ndarray]
DIVERGENCES = ("kl", "reverse_kl", "js", "hellinger")
KEYS = (*DIVERGENCES, "reach_p", "reach_q")
TRUTH = Path(__file__).with_name("truth.json")
EQUAL = dict(zip(KEYS, (0.0, 0.0, 0.0, 0.0, 1.0, 1.0), strict=True))


@cache
def stored() -> dict[str, dict]:
    """What `python -m benchmarks.zoo --truth` wrote: by name, the values and under "se" their standard errors."""
    return json.loads(TRUTH.read_text())


@dataclass(frozen=True)
class Pair:
    """Two distributions that can be drawn from, and their exact log p/q."""

    d: int
    draw_p: Draw  # (n, rng) -> (n, d), float64
    draw_q: Draw
    log_ratio: Callable[[np.ndarray], np.ndarray]  # (n, d) -> (n,), +-inf where one side has no support
    exact: Callable[[], dict[str, float]] = dict  # those of KEYS that are known without Monte Carlo
    name: str = ""
    family: str = ""

    def named(self, name: str, family: str) -> Pair:
        return dataclasses.replace(self, name=name, family=family)

    def truth(self) -> dict[str, float]:
        """kl, reverse_kl, js, hellinger, reach_p and reach_q; infinite where they are."""
        return {key: stored()[self.name][key] for key in KEYS}

    def standard_errors(self) -> dict[str, float]:
        """Of the truth; 0 where it is exact to the digits of its quadrature."""
        return dict(stored()[self.name]["se"])


def same(draw: Draw, d: int) -> Pair:
    """p = q."""
    return Pair(d, draw, draw, lambda x: np.zeros(len(x)), lambda: dict(EQUAL))


def swapped(pair: Pair) -> Pair:
    other = {"kl": "reverse_kl", "reverse_kl": "kl", "reach_p": "reach_q", "reach_q": "reach_p"}
    return Pair(
        pair.d,
        pair.draw_q,
        pair.draw_p,
        lambda x: -pair.log_ratio(x),
        lambda: {other.get(key, key): value for key, value in pair.exact().items()},
    )


def mapped(pair: Pair, forward: Callable, inverse: Callable, d: int | None = None) -> Pair:
    """Both sides through an invertible map."""
    return Pair(
        pair.d if d is None else d,
        lambda n, rng: forward(pair.draw_p(n, rng)),
        lambda n, rng: forward(pair.draw_q(n, rng)),
        lambda x: pair.log_ratio(inverse(x)),
        pair.exact,
    )


def rotated(pair: Pair, seed: int) -> Pair:
    """Both sides turned by one random orthogonal matrix."""
    Q = orthogonal(pair.d, seed)
    return mapped(pair, lambda x: x @ Q, lambda x: x @ Q.T)


def orthogonal(d: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def product(*pairs: Pair) -> Pair:
    """Independent blocks of columns."""
    edges = np.cumsum([0, *(pair.d for pair in pairs)])

    def draw(side: str) -> Draw:
        return lambda n, rng: np.concatenate([getattr(pair, side)(n, rng) for pair in pairs], axis=1)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        return sum(pair.log_ratio(x[:, a:b]) for pair, a, b in zip(pairs, edges, edges[1:], strict=False))

    def exact() -> dict[str, float]:
        parts = [part for part in (pair.exact() for pair in pairs) if part != EQUAL]
        if len(parts) < 2:
            return parts[0] if parts else dict(EQUAL)
        found: dict[str, float] = {}
        for key in KEYS:
            values = [part[key] for part in parts if key in part]
            if len(values) == len(parts) and key != "js":
                combine = {"kl": sum, "reverse_kl": sum, "hellinger": _hellinger}.get(key, math.prod)
                found[key] = combine(values)
        return found

    return Pair(int(edges[-1]), draw("draw_p"), draw("draw_q"), log_ratio, exact)


def copies(pair: Pair, times: int) -> Pair:
    return product(*[pair] * times)


def _hellinger(values: list[float]) -> float:
    return 1 - math.prod(1 - value for value in values)
