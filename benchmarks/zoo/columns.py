"""Tables: counts, one-hot categories beside numbers, columns with many zeros."""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from benchmarks.zoo.gaussians import ar1, shift
from benchmarks.zoo.laws import Law, categories, counts, divergences, gaussians, normal
from benchmarks.zoo.pair import Pair, copies, product, same
from benchmarks.zoo.skewed import of


def given_category(weights_p, weights_q, laws_p: list[Law], laws_q: list[Law]) -> Pair:
    """A one-hot category, then numbers whose law it chooses."""
    k, d = len(laws_p), laws_p[0].d

    def draw(weights, laws: list[Law]):
        share = np.asarray(weights, dtype=float) / np.sum(weights)

        def rows(n: int, rng: np.random.Generator) -> np.ndarray:
            which = rng.choice(k, size=n, p=share)
            x = np.concatenate([np.eye(k)[which], np.empty((n, d))], axis=1)
            for j, law in enumerate(laws):
                x[which == j, k:] = law.draw(int((which == j).sum()), rng)
            return x

        return rows

    def log_density(x: np.ndarray, weights, laws: list[Law]) -> np.ndarray:
        which = x[:, :k].argmax(1)
        value = np.log(np.asarray(weights, dtype=float) / np.sum(weights))[which]
        for j, law in enumerate(laws):
            value[which == j] += law.log_density(x[which == j, k:])
        return value

    return Pair(
        k + d,
        draw(weights_p, laws_p),
        draw(weights_q, laws_q),
        lambda x: log_density(x, weights_p, laws_p) - log_density(x, weights_q, laws_q),
        lambda: {"reach_p": 1.0, "reach_q": 1.0},
    )


def zero_inflated(share_p: float, share_q: float, positive: Pair) -> Pair:
    """0 with probability `share`, else a positive number."""

    def draw(share: float, of_positive):
        return lambda n, rng: np.where(rng.random((n, 1)) < share, 0.0, of_positive(n, rng))

    log_zero, log_rest = math.log(share_p / share_q), math.log((1 - share_p) / (1 - share_q))

    def log_ratio(x: np.ndarray) -> np.ndarray:
        value = np.full(len(x), log_zero)
        rest = x[:, 0] != 0
        value[rest] = log_rest + positive.log_ratio(x[rest])
        return value

    def exact() -> dict[str, float]:
        a, b, part = 1 - share_p, 1 - share_q, positive.exact()
        # KL: of the indicator, and of the rest where it is positive; Bhattacharyya coefficients add up.
        indicator = divergences(np.log([share_p, a]), np.log([share_q, b]))
        affinity = (share_p * share_q) ** 0.5 + (a * b) ** 0.5 * (1 - part["hellinger"])
        return {
            "kl": indicator["kl"] + a * part["kl"],
            "reverse_kl": indicator["reverse_kl"] + b * part["reverse_kl"],
            "hellinger": 1 - affinity,
            "reach_p": 1.0,
            "reach_q": 1.0,
        }

    return Pair(1, draw(share_p, positive.draw_p), draw(share_q, positive.draw_q), log_ratio, exact)


def bits(d: int, coupling: float, field: float) -> Law:
    """0/1 columns, a chain in which each equals the one before with logit `coupling`; the first has logit `field`."""
    stay = special.expit(coupling)

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        first = rng.random((n, 1)) < special.expit(field)
        flips = rng.random((n, d - 1)) >= stay
        return ((np.concatenate([first, flips], axis=1).cumsum(1)) % 2).astype(float)

    def log_density(x: np.ndarray) -> np.ndarray:
        kept = (x[:, 1:] == x[:, :-1]).sum(1)
        sign = 2 * x[:, 0] - 1
        return special.log_expit(sign * field) + kept * np.log(stay) + (d - 1 - kept) * np.log1p(-stay)

    return Law(d, draw, log_density)


def chains(p: tuple[float, float], q: tuple[float, float], d: int) -> Pair:
    law_p, law_q = bits(d, *p), bits(d, *q)
    every = (np.arange(2**d)[:, None] >> np.arange(d) & 1).astype(float)
    return Pair(
        d,
        law_p.draw,
        law_q.draw,
        lambda x: law_p.log_density(x) - law_q.log_density(x),
        lambda: divergences(law_p.log_density(every), law_q.log_density(every)),
    )


def pairs() -> list[Pair]:
    rows = lambda d: same(normal(np.zeros(d), ar1(d, 0.5)).draw, d)  # noqa: E731
    ages = of(stats.gamma(4, scale=1.2), stats.gamma(4), 0.0)
    spend = of(stats.lognorm(1.0, scale=1.5), stats.lognorm(0.8), 0.0)
    three = [normal(np.full(3, m), 1.0) for m in (-1.0, 0.0, 1.0)]
    moved = [normal(np.full(3, m), v) for m, v in ((-1.0, 1.0), (0.6, 1.0), (1.0, 0.5))]
    counted = {
        "counts-poisson-d1": counts(stats.poisson(5), stats.poisson(3), 80),
        "counts-poisson-d3": copies(counts(stats.poisson(2), stats.poisson(1.4), 60), 3),
        "counts-overdispersed-d2": copies(counts(stats.nbinom(3, 0.5), stats.poisson(3), 300), 2),
        "counts-binomial-d8": copies(counts(stats.binom(6, 0.5), stats.binom(6, 0.4), 6), 8),
        "counts-bits-d10": chains((1.5, 0.0), (0.0, 0.5), 10),
        "counts-large-d5": product(counts(stats.poisson(110), stats.poisson(100), 400), rows(4)),
    }
    mixed = {
        "mixed-category-d5": product(categories([4, 2, 1], [1, 2, 4]), rows(2)),
        "mixed-given-d6": given_category([3, 2, 1], [2, 2, 2], three, moved),
        "mixed-table-d10": product(
            categories([5, 3, 1, 1], [4, 2, 2, 2]),
            counts(stats.poisson(2.5), stats.poisson(2), 60),
            ages,
            shift(4, 0.6, ar1(4, 0.3)),
        ),
        "mixed-zeros-d1": zero_inflated(0.6, 0.4, ages),
        "mixed-zeros-d5": product(zero_inflated(0.5, 0.3, spend), zero_inflated(0.8, 0.7, ages), rows(3)),
        "mixed-interaction-d3": given_category(
            [1, 1],
            [1, 1],
            [normal(np.array([m]), 1.0) for m in (-1.0, 1.0)],
            [normal(np.array([m]), 1.0) for m in (1.0, -1.0)],
        ),
        "mixed-wide-d20": product(
            categories([3, 2, 2, 1, 1], [2, 2, 2, 2, 2]),
            copies(counts(stats.bernoulli(0.4), stats.bernoulli(0.3), 1), 5),
            gaussians(np.full(10, 0.15), ar1(10, 0.3), np.zeros(10), 1.0),
        ),
    }
    return [
        *(pair.named(name, "counts") for name, pair in counted.items()),
        *(pair.named(name, "mixed") for name, pair in mixed.items()),
    ]
