"""Distributions with a density, and the exact divergences of two of them where an integral or a sum gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import special, stats

from benchmarks.zoo.pair import Draw, Pair

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Law:
    """One distribution. `breaks` are the points of the line where a density in 1-d is not smooth."""

    d: int
    draw: Draw
    log_density: Callable[[np.ndarray], np.ndarray]  # (n, d) -> (n,)
    breaks: tuple[float, ...] = ()


def pair_of(p: Law, q: Law, exact: Callable[[], dict[str, float]] = dict) -> Pair:
    """Exact by quadrature in 1-d; `exact` says what is known beyond."""

    def log_ratio(x: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # -inf - -inf outside of both
            return p.log_density(x) - q.log_density(x)

    def on_the_line() -> dict[str, float]:
        return quadrature(
            lambda x: p.log_density(x[:, None]), lambda x: q.log_density(x[:, None]), (*p.breaks, *q.breaks)
        )

    return Pair(p.d, p.draw, q.draw, log_ratio, on_the_line if p.d == 1 else exact)


# --- exact divergences

FAR = 38.0  # the line is x = sinh(t), |t| <= FAR: 1e16 on both sides
PANEL = 0.1  # in t, with NODES Gauss-Legendre nodes each
NODES = 16
STILL_THERE = 1e-6  # nats that an outermost panel may give before the integral is called infinite


def quadrature(
    log_p: Callable, log_q: Callable, breaks: Sequence[float] = (), low: float = -np.inf
) -> dict[str, float]:
    """Of two densities on the line (from `low` on), smooth between `breaks`."""
    start = max(-FAR, math.asinh(low)) if math.isfinite(low) else -FAR
    marks = sorted({start, FAR, *(math.asinh(b) for b in breaks if math.asinh(b) > start)})
    edges = np.unique(np.concatenate([np.linspace(a, b, 1 + math.ceil((b - a) / PANEL)) for a, b in pairwise(marks)]))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges)[:, None] / 2
    t = edges[:-1, None] + half * (1 + nodes)
    measure = half * weights * np.cosh(t)
    with np.errstate(all="ignore"):
        at_p, at_q = (np.asarray(f(np.sinh(t).ravel()), dtype=float).reshape(t.shape) for f in (log_p, log_q))
    return divergences(at_p, at_q, measure, ends=(-1,) if math.isfinite(low) else (0, -1))


def divergences(
    log_p: np.ndarray, log_q: np.ndarray, measure: np.ndarray | float = 1.0, ends: tuple[int, ...] = ()
) -> dict[str, float]:
    """Sums of the densities times `measure`. A KL is infinite if a panel at infinity (`ends`) still gives to it."""
    with np.errstate(all="ignore"):
        mass_p, mass_q = np.exp(log_p) * measure, np.exp(log_q) * measure
        log_r = log_p - log_q
        log_m = np.logaddexp(log_p, log_q) - math.log(2)

        def total(mass: np.ndarray, value: np.ndarray) -> float:
            return float(np.where(mass > 0, mass * value, 0.0).sum())

        def kl(mass: np.ndarray, value: np.ndarray) -> float:
            terms = np.where(mass > 0, mass * value, 0.0)
            return float(terms.sum()) if all(abs(terms[end].sum()) < STILL_THERE for end in ends) else math.inf

        return {
            "kl": kl(mass_p, log_r),
            "reverse_kl": kl(mass_q, -log_r),
            "js": (total(mass_p, log_p - log_m) + total(mass_q, log_q - log_m)) / 2,
            # half of the integral of (sqrt p - sqrt q)^2
            "hellinger": float(((np.exp(log_p / 2) - np.exp(log_q / 2)) ** 2 * measure).sum() / 2),
            "reach_p": float(mass_p[log_q > -np.inf].sum() / mass_p.sum()),
            "reach_q": float(mass_q[log_p > -np.inf].sum() / mass_q.sum()),
        }


# --- continuous laws


def scipy_law(dist: object, breaks: Sequence[float] = ()) -> Law:
    """A frozen distribution of scipy.stats with a density on the line."""
    return Law(1, lambda n, rng: dist.rvs(size=(n, 1), random_state=rng), lambda x: dist.logpdf(x[:, 0]), tuple(breaks))


def normal(mean: np.ndarray | float, cov: np.ndarray | float) -> Law:
    """N(mean, cov); a number as `cov` is the variance of every coordinate."""
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    d = len(mean)
    L = np.linalg.cholesky(cov * np.eye(d) if np.ndim(cov) == 0 else cov)
    whiten = np.linalg.inv(L).T
    constant = -d * LOG_2PI / 2 - np.log(np.diag(L)).sum()
    return Law(
        d,
        lambda n, rng: mean + rng.standard_normal((n, d)) @ L.T,
        lambda x: constant - (((x - mean) @ whiten) ** 2).sum(1) / 2,
    )


def student(df: float, mean: np.ndarray | float, scale: np.ndarray | float = 1.0) -> Law:
    """Multivariate t with location `mean` and scale matrix `scale` (a number: times I)."""
    mean = np.atleast_1d(np.asarray(mean, dtype=float))
    d = len(mean)
    L = np.linalg.cholesky(scale * np.eye(d) if np.ndim(scale) == 0 else scale)
    whiten = np.linalg.inv(L).T
    constant = special.gammaln((df + d) / 2) - special.gammaln(df / 2) - d / 2 * math.log(df * math.pi)
    constant -= np.log(np.diag(L)).sum()

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        return mean + rng.standard_normal((n, d)) @ L.T / np.sqrt(rng.chisquare(df, (n, 1)) / df)

    def log_density(x: np.ndarray) -> np.ndarray:
        return constant - (df + d) / 2 * np.log1p((((x - mean) @ whiten) ** 2).sum(1) / df)

    return Law(d, draw, log_density)


def mixture(weights: Sequence[float], laws: Sequence[Law]) -> Law:
    weights = np.asarray(weights, dtype=float) / np.sum(weights)
    breaks = tuple({b for law in laws for b in law.breaks})

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        counts = rng.multinomial(n, weights)
        return rng.permutation(np.concatenate([law.draw(m, rng) for law, m in zip(laws, counts, strict=True)]))

    def log_density(x: np.ndarray) -> np.ndarray:
        return special.logsumexp([law.log_density(x) for law in laws], axis=0, b=weights[:, None])

    return Law(laws[0].d, draw, log_density, breaks)


def laplace(mean: float, scale: float) -> Law:
    return Law(
        1,
        lambda n, rng: rng.laplace(mean, scale, (n, 1)),
        lambda x: -np.abs(x[:, 0] - mean) / scale - math.log(2 * scale),
        (mean,),
    )


# --- pairs of them


def gaussians(mean_p: np.ndarray | float, cov_p: np.ndarray | float, mean_q: np.ndarray | float, cov_q) -> Pair:
    """Closed forms; js too where one direction holds the whole difference."""
    p, q = normal(mean_p, cov_p), normal(mean_q, cov_q)

    def exact() -> dict[str, float]:
        d = p.d
        S_p, S_q = (c * np.eye(d) if np.ndim(c) == 0 else np.asarray(c) for c in (cov_p, cov_q))
        L = np.linalg.cholesky(S_q)
        whiten = np.linalg.inv(L)
        values, vectors = np.linalg.eigh(whiten @ S_p @ whiten.T)
        # In these coordinates q is N(0, I) and p is N(shift, diag(values)).
        shift = vectors.T @ whiten @ np.broadcast_to(np.atleast_1d(mean_p) - np.atleast_1d(mean_q), (d,))
        middle = (1 + values) / 2
        found = {
            "kl": float((values + shift**2 - 1 - np.log(values)).sum() / 2),
            "reverse_kl": float(((1 + shift**2) / values - 1 + np.log(values)).sum() / 2),
            # BC = prod values^(1/4) / middle^(1/2) exp(-shift^2 / (8 middle))
            "hellinger": float(-np.expm1((np.log(values) / 4 - np.log(middle) / 2 - shift**2 / (8 * middle)).sum())),
            "reach_p": 1.0,
            "reach_q": 1.0,
        }
        scaled = np.abs(values - 1) > 1e-12
        if not scaled.any():
            line = stats.norm(np.linalg.norm(shift), 1)
        elif scaled.sum() == 1 and np.abs(shift[~scaled]).max(initial=0) < 1e-12:
            line = stats.norm(shift[scaled][0], values[scaled][0] ** 0.5)
        else:
            return found
        return found | {"js": quadrature(line.logpdf, stats.norm.logpdf)["js"]}

    return pair_of(p, q, exact) if p.d > 1 else Pair(1, p.draw, q.draw, pair_of(p, q).log_ratio, exact)


def radial(p: Law, q: Law) -> Pair:
    """Two laws that depend on the distance from 0 alone: the distances hold every divergence."""
    sphere = math.log(2) + p.d / 2 * math.log(math.pi) - special.gammaln(p.d / 2)  # log of its area

    def of_distance(law: Law) -> Callable[[np.ndarray], np.ndarray]:
        def log_density(rho: np.ndarray) -> np.ndarray:
            x = np.zeros((len(rho), law.d))
            x[:, 0] = rho
            return law.log_density(x) + sphere + (law.d - 1) * np.log(rho)

        return log_density

    return pair_of(p, q, lambda: quadrature(of_distance(p), of_distance(q), low=0.0))


def counts(p: object, q: object, largest: int) -> Pair:
    """Two frozen discrete distributions of scipy.stats on 0 .. `largest` (what lies beyond has no weight)."""
    values = np.arange(largest + 1)
    log_p, log_q = p.logpmf(values), q.logpmf(values)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        return p.logpmf(x[:, 0]) - q.logpmf(x[:, 0])

    def draw(dist: object) -> Draw:
        return lambda n, rng: dist.rvs(size=(n, 1), random_state=rng).astype(float)

    return Pair(1, draw(p), draw(q), log_ratio, lambda: divergences(log_p, log_q))


def categories(p: Sequence[float], q: Sequence[float]) -> Pair:
    """One-hot codes."""
    p, q = (np.asarray(w, dtype=float) / np.sum(w) for w in (p, q))
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)

    def draw(w: np.ndarray) -> Draw:
        return lambda n, rng: np.eye(len(w))[rng.choice(len(w), size=n, p=w)]

    return Pair(len(p), draw(p), draw(q), lambda x: (log_p - log_q)[x.argmax(1)], lambda: divergences(log_p, log_q))
