"""The second unseen set: pairs and drifts with known truth, in kinds that neither the zoo nor the first set has.

It was written without a look at the estimator or at any result, its own or another set's. Coverage on it is therefore
that of distributions nobody tuned for. Whoever changes a constant after having seen its results has chosen on it and
must write a new set.

Kinds: insurance claims, patients, weather by season, vines, one-factor models, random effects, gaps between events,
rankings, autoregressive flows of bases that are not normal, skew t, random matrices, random fields, Gaussian processes,
contaminated tables, censored survival, returns with jumps, heaped readings, extremes, and parts that are lost or new.
Names begin with "second-"; the truth stands in truth.json (`python -m benchmarks.zoo --truth second-`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

from benchmarks.zoo.columns import given_category
from benchmarks.zoo.drifts import Drift, drift
from benchmarks.zoo.gaussians import ar1, equal
from benchmarks.zoo.laws import Law, categories, divergences, gaussians, mixture, normal, pair_of, quadrature, student
from benchmarks.zoo.mixtures import between
from benchmarks.zoo.pair import DIVERGENCES, Draw, Pair, copies, mapped, product, same, swapped
from benchmarks.zoo.skewed import log_normal, of, skew_normal, unit
from benchmarks.zoo.support import restricted
from benchmarks.zoo.unseen import copulas, enumerated, flat, frank

WHOLE = {"reach_p": 1.0, "reach_q": 1.0}


# --- tables, column after column


@dataclass(frozen=True)
class Where:
    """A law of scipy.stats where `there`, and 0 elsewhere."""

    there: np.ndarray
    dist: object

    def rvs(self, size: int, random_state: np.random.Generator) -> np.ndarray:
        return np.where(self.there, self.dist.rvs(size=size, random_state=random_state), 0.0)

    def logpdf(self, x: np.ndarray) -> np.ndarray:
        return np.where(self.there, self.dist.logpdf(np.where(self.there, x, 1.0)), 0.0)


def table(*columns: Callable[[np.ndarray], object]) -> Law:
    """Each column says the law of its values (frozen, of scipy.stats) given the columns before it."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        x = np.empty((n, len(columns)))
        for j, column in enumerate(columns):
            x[:, j] = column(x[:, :j]).rvs(size=n, random_state=rng)
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        laws = [column(x[:, :j]) for j, column in enumerate(columns)]
        return sum((law.logpmf if hasattr(law, "logpmf") else law.logpdf)(x[:, j]) for j, law in enumerate(laws))

    return Law(len(columns), draw, log_density)


def policy(by_age: float, urban: float, rate: float, amount: float) -> Law:
    """Age, town or not, the number of claims, and their sum, a gamma variable for each."""
    return table(
        lambda x: stats.gamma(16, scale=2.8),
        lambda x: stats.bernoulli(urban),
        lambda x: stats.poisson(rate * np.exp(0.5 * x[:, 1] - by_age * (x[:, 0] - 45) / 10)),
        lambda x: Where(x[:, 2] > 0, stats.gamma(1.5 * np.maximum(x[:, 2], 1), scale=amount)),
    )


def patients(responders: float, by_indication: float, effect: float) -> Law:
    """Age, treated or not, the dose (0 if not), and two log-normal markers; responders are not marked as such."""

    def group(change: float) -> Law:
        return table(
            lambda x: stats.norm(60, 12),
            lambda x: stats.bernoulli(special.expit(by_indication * (x[:, 0] - 60) / 12)),
            lambda x: Where(x[:, 1] > 0, stats.lognorm(0.4, scale=np.exp((x[:, 0] - 60) / 60))),
            lambda x: stats.lognorm(0.5, scale=np.exp(0.3 - change * x[:, 1])),
            lambda x: stats.lognorm(0.6, scale=x[:, 3] ** 0.7),
        )

    return mixture([responders, 1 - responders], [group(effect), group(0.0)])


def rain(swing: float, late: float, amount: float) -> Law:
    """A day of the year as an angle, whether it rained, and how much."""
    return table(
        lambda x: stats.vonmises(0.4, loc=late),
        lambda x: stats.bernoulli(special.expit(swing * np.cos(x[:, 0] - late))),
        lambda x: Where(x[:, 1] > 0, stats.gamma(0.9, scale=amount * np.exp(0.4 * np.sin(x[:, 0])))),
    )


def on_the_circle(pair: Pair) -> Pair:
    """The first column, an angle, as (cos, sin)."""
    return mapped(
        pair,
        lambda x: np.concatenate([np.cos(x[:, :1]), np.sin(x[:, :1]), x[:, 1:]], axis=1),
        lambda x: np.concatenate([np.arctan2(x[:, 1:2], x[:, :1]), x[:, 2:]], axis=1),
        pair.d + 1,
    )


def tweedie(p: tuple[float, float], q: tuple[float, float]) -> Pair:
    """Sums of a Poisson number of exponential amounts, (rate, mean amount) each: Tweedie's law of power 3/2."""

    def log_mass(y: np.ndarray, rate: float, mean: float) -> np.ndarray:
        above = np.where(y > 0, y, 1.0)
        z = 2 * np.sqrt(rate * above / mean)
        positive = np.log(rate / (mean * above)) / 2 + z + np.log(special.ive(1, z)) - above / mean
        return np.where(y > 0, positive, 0.0) - rate

    def draw(rate: float, mean: float) -> Draw:
        def sums(n: int, rng: np.random.Generator) -> np.ndarray:
            number = rng.poisson(rate, (n, 1))
            return np.where(number > 0, rng.gamma(np.maximum(number, 1), mean), 0.0)

        return sums

    def exact() -> dict[str, float]:
        zero = divergences(-np.array(p[:1]), -np.array(q[:1]))
        rest = quadrature(lambda y: log_mass(y, *p), lambda y: log_mass(y, *q), low=0.0)
        return {key: zero[key] + rest[key] for key in DIVERGENCES} | WHOLE

    return Pair(1, draw(*p), draw(*q), lambda x: log_mass(x[:, 0], *p) - log_mass(x[:, 0], *q), exact)


def censored(slope: Sequence[float], end: float) -> Law:
    """Two covariates, the time until an event or its censoring at rate `end`, and whether it was the event."""

    def hazard(x: np.ndarray) -> np.ndarray:
        return np.exp(x[:, :2] @ slope)

    return table(
        lambda x: stats.norm(),
        lambda x: stats.norm(0.5 * x[:, 0]),
        lambda x: stats.expon(scale=1 / (hazard(x) + end)),
        lambda x: stats.bernoulli(hazard(x) / (hazard(x) + end)),
    )


# --- vines: Clayton's copula by its conditional distribution


def clayton_given(v: np.ndarray, u: np.ndarray, theta: float) -> np.ndarray:
    """P(V < v | U = u)."""
    return (1 + u**theta * (v**-theta - 1)) ** (-1 / theta - 1)


def clayton_back(w: np.ndarray, u: np.ndarray, theta: float) -> np.ndarray:
    """The v with P(V < v | U = u) = w."""
    return (1 + u**-theta * np.expm1(-theta / (1 + theta) * np.log(w))) ** (-1 / theta)


def hung_on_a_root(base: Pair, thetas: Sequence[float]) -> Pair:
    """A C-vine: uniform leaves given the root (last) become leaves with Clayton's copula with it; t margins."""
    thetas = np.asarray(thetas)

    def forward(u: np.ndarray) -> np.ndarray:
        leaves = clayton_back(u[:, :-1], u[:, -1:], thetas)
        return special.stdtrit(4, np.concatenate([leaves, u[:, -1:]], axis=1))

    def inverse(x: np.ndarray) -> np.ndarray:
        u = special.stdtr(4, x)
        return np.concatenate([clayton_given(u[:, :-1], u[:, -1:], thetas), u[:, -1:]], axis=1)

    return mapped(base, forward, inverse)


# --- factors and random effects


def defaults(d: int, p: tuple[float, float], q: tuple[float, float]) -> Pair:
    """Vasicek's portfolio of (chance of a default, asset correlation): their number holds every divergence."""
    k = np.arange(d + 1)

    def score(z: np.ndarray, chance: float, rho: float) -> np.ndarray:
        return (special.ndtri(chance) + rho**0.5 * z) / (1 - rho) ** 0.5

    def draw(chance: float, rho: float) -> Draw:
        def rows(n: int, rng: np.random.Generator) -> np.ndarray:
            return 1.0 * (rng.standard_normal((n, d)) < score(rng.standard_normal((n, 1)), chance, rho))

        return rows

    def log_mass(chance: float, rho: float) -> np.ndarray:
        z, step = np.linspace(-9, 9, 721, retstep=True)  # the factor, integrated out by trapezoids
        up, down = (special.log_ndtr(sign * score(z, chance, rho)) for sign in (1, -1))
        terms = k[:, None] * up + (d - k)[:, None] * down + stats.norm.logpdf(z)
        return special.logsumexp(terms, axis=1) + math.log(step)

    log_p, log_q = log_mass(*p), log_mass(*q)
    return Pair(
        d,
        draw(*p),
        draw(*q),
        lambda x: (log_p - log_q)[x.sum(1).astype(int)],
        lambda: divergences(log_p, log_q, special.binom(d, k)),
    )


def one_factor(loadings: Sequence[float], width: float, df: float) -> Law:
    """loadings times a normal factor, which trapezoids integrate out, and independent t noise."""
    loadings, d = np.asarray(loadings, dtype=float), len(loadings)
    factor, step = np.linspace(-6, 6, 49, retstep=True)
    start = stats.norm.logpdf(factor) + math.log(step) + d * (stats.t(df).logpdf(0) - math.log(width))

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((n, 1)) * loadings + width * rng.standard_t(df, (n, d))

    def log_density(x: np.ndarray) -> np.ndarray:
        far = np.ones((len(x), len(factor)))
        for j, loading in enumerate(loadings):
            far *= 1 + ((x[:, j : j + 1] - loading * factor) / width) ** 2 / df
        return special.logsumexp(start - (df + 1) / 2 * np.log(far), axis=1)

    return Law(d, draw, log_density)


def frailties(rates: Sequence[float], p: tuple[float, float], q: tuple[float, float]) -> Pair:
    """Counts of visits that share a gamma frailty of (shape, mean): their total holds every divergence."""
    rates = np.asarray(rates, dtype=float)
    total_p, total_q = (stats.nbinom(shape, shape / (shape + mean * rates.sum())) for shape, mean in (p, q))

    def draw(shape: float, mean: float) -> Draw:
        return lambda n, rng: rng.poisson(rng.gamma(shape, mean / shape, (n, 1)) * rates).astype(float)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        return total_p.logpmf(x.sum(1)) - total_q.logpmf(x.sum(1))

    def exact() -> dict[str, float]:
        return divergences(total_p.logpmf(np.arange(3000)), total_q.logpmf(np.arange(3000)))

    return Pair(len(rates), draw(*p), draw(*q), log_ratio, exact)


# --- gaps between events


def hawkes(d: int, base: float, jump: float, decay: float) -> Law:
    """The d gaps after an event, where the rate is `base` and `jump` exp(-decay age) for this and every later one."""

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        gaps, excess = rng.exponential(1 / base, (n, d)), np.full(n, jump)
        for j in range(d):
            # The excess gives an event at all with chance 1 - exp(-excess / decay) (Dassios and Zhao 2013).
            left = 1 - decay * rng.exponential(size=n) / excess
            caused = np.where(left > 0, -np.log(np.where(left > 0, left, 1.0)) / decay, np.inf)
            gaps[:, j] = np.minimum(gaps[:, j], caused)
            excess = excess * np.exp(-decay * gaps[:, j]) + jump
        return gaps

    def log_density(x: np.ndarray) -> np.ndarray:
        value, excess = np.zeros(len(x)), np.full(len(x), jump)
        for gap in x.T:
            after = excess * np.exp(-decay * gap)
            value += np.log(base + after) - base * gap - (excess - after) / decay
            excess = after + jump
        return value

    return Law(d, draw, log_density)


# --- rankings and readings, listed


def finite(rows: np.ndarray, log_p: Callable, log_q: Callable) -> Pair:
    """Weights of listed rows that need not add up to 1."""

    def law(log_weight: Callable) -> tuple[Callable, Draw]:
        log_total = special.logsumexp(log_weight(rows))
        chances = special.softmax(log_weight(rows))
        return lambda x: log_weight(x) - log_total, lambda n, rng: rows[rng.choice(len(rows), size=n, p=chances)]

    (mass_p, draw_p), (mass_q, draw_q) = law(log_p), law(log_q)
    return enumerated(rows, mass_p, mass_q, draw_p, draw_q)


def rankings(k: int) -> np.ndarray:
    """The ranks 1 .. k of k items in every order."""
    return np.array(list(itertools.permutations(range(1, k + 1))), dtype=float)


def plackett(worths: Sequence[float]) -> Callable:
    """Luce's choice of the best, then of the best of the others (Plackett 1975)."""

    def log_mass(ranks: np.ndarray) -> np.ndarray:
        worth = np.asarray(worths, dtype=float)[ranks.argsort(1)]
        return (np.log(worth) - np.log(worth[:, ::-1].cumsum(1)[:, ::-1])).sum(1)

    return log_mass


def mallows(centre: Sequence[float], theta: float) -> Callable:
    """-theta for each two items in another order than in `centre`."""
    pairs = list(itertools.combinations(range(len(centre)), 2))
    return lambda ranks: -theta * sum((ranks[:, i] > ranks[:, j]) == (centre[i] < centre[j]) for i, j in pairs)


def heaped(law: Law, heap: float) -> Callable:
    """Whole numbers of `law`; those that end in 0 are exp(heap) times as frequent as they should be."""
    return lambda x: law.log_density(x) + heap * (x % 10 == 0).sum(1)


# --- autoregressive flows


@dataclass(frozen=True)
class Flow:
    """x_j = tanh(x M_j) + exp(tanh(x S_j) / 2) z_j, where M_j and S_j read x_1 .. x_{j-1} alone."""

    M: np.ndarray
    S: np.ndarray

    def forward(self, z: np.ndarray) -> np.ndarray:
        x = np.zeros_like(z)
        for j in range(z.shape[1]):
            x[:, j] = np.tanh(x @ self.M[:, j]) + np.exp(np.tanh(x @ self.S[:, j]) / 2) * z[:, j]
        return x

    def inverse(self, x: np.ndarray) -> np.ndarray:
        return (x - np.tanh(x @ self.M)) * np.exp(-np.tanh(x @ self.S) / 2)

    def of(self, base: Law) -> Law:
        return Law(
            base.d,
            lambda n, rng: self.forward(base.draw(n, rng)),
            lambda x: base.log_density(self.inverse(x)) - np.tanh(x @ self.S).sum(1) / 2,
        )


def flow(d: int, seed: int, strength: float = 1.0) -> Flow:
    rng = np.random.default_rng(seed)
    return Flow(*(np.triu(strength * rng.standard_normal((d, d)), 1) for _ in range(2)))


def pushed(pair: Pair, by: Flow) -> Pair:
    return mapped(pair, by.forward, by.inverse)


# --- skew t


def skew_t(df: float, slant: Sequence[float], cov: np.ndarray | float = 1.0) -> Law:
    """Azzalini and Capitanio 2003: a skew normal divided as t is."""
    slant, d = np.asarray(slant, dtype=float), len(slant)
    precision = np.linalg.inv(cov * np.eye(d) if np.ndim(cov) == 0 else cov)
    symmetric, skew = student(df, np.zeros(d), cov), skew_normal(slant, cov)

    def log_density(x: np.ndarray) -> np.ndarray:
        far = ((x @ precision) * x).sum(1)
        leaning = special.stdtr(df + d, x @ slant * np.sqrt((df + d) / (df + far)))
        return math.log(2) + symmetric.log_density(x) + np.log(leaning)

    return Law(d, lambda n, rng: skew.draw(n, rng) / np.sqrt(rng.chisquare(df, (n, 1)) / df), log_density)


# --- random matrices


def wisharts(p: tuple[float, np.ndarray], q: tuple[float, np.ndarray]) -> Pair:
    """Wishart's laws of (degrees of freedom, scale): the factors of Cholesky's, logs of the diagonal first."""
    m = len(p[1])
    (n_p, P), (n_q, Q) = ((df, np.linalg.inv(scale)) for df, scale in (p, q))

    def log_partition(df: float, precision: np.ndarray) -> float:
        return df * m / 2 * math.log(2) - df / 2 * np.linalg.slogdet(precision)[1] + special.multigammaln(df / 2, m)

    def kl(df: float, precision: np.ndarray, other_df: float, other: np.ndarray) -> float:
        mean = df * np.linalg.inv(precision)
        mean_log = special.digamma((df - np.arange(m)) / 2).sum() + m * math.log(2) - np.linalg.slogdet(precision)[1]
        value = (df - other_df) / 2 * mean_log - np.trace((precision - other) @ mean) / 2
        return float(value - log_partition(df, precision) + log_partition(other_df, other))

    def exact() -> dict[str, float]:
        ends = (log_partition(n_p, P) + log_partition(n_q, Q)) / 2
        hellinger = -math.expm1(log_partition((n_p + n_q) / 2, (P + Q) / 2) - ends)
        return {"kl": kl(n_p, P, n_q, Q), "reverse_kl": kl(n_q, Q, n_p, P), "hellinger": hellinger} | WHOLE

    below, on = np.tril_indices(m, -1), np.diag_indices(m)

    def draw(df: float, scale: np.ndarray) -> Draw:
        def rows(n: int, rng: np.random.Generator) -> np.ndarray:
            C = np.tril(rng.standard_normal((n, m, m)), -1)  # Bartlett's factor
            C[:, *on] = np.sqrt(rng.chisquare(df - np.arange(m), (n, m)))
            C = np.linalg.cholesky(scale) @ C
            return np.concatenate([np.log(C[:, *on]), C[:, *below]], axis=1)

        return rows

    def log_ratio(x: np.ndarray) -> np.ndarray:
        C = np.zeros((len(x), m, m))
        C[:, *on], C[:, *below] = np.exp(x[:, :m]), x[:, m:]
        value = (n_p - n_q) * x[:, :m].sum(1) - (C * ((P - Q) @ C)).sum((1, 2)) / 2
        return value - log_partition(n_p, P) + log_partition(n_q, Q)

    return Pair(m * (m + 1) // 2, draw(*p), draw(*q), log_ratio, exact)


# --- random fields and processes


def distances(side: int) -> np.ndarray:
    """Of the pixels of a square."""
    at = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    return np.linalg.norm(at[:, None] - at, axis=2)


def images(side: int, reach_p: float, reach_q: float) -> Pair:
    """Fields with correlation exp(-distance / reach), as pixels between 0 and 1."""
    cov_p, cov_q = (np.exp(-distances(side) / reach) for reach in (reach_p, reach_q))
    pair = gaussians(np.zeros(side**2), cov_p, np.zeros(side**2), cov_q)
    return mapped(pair, special.expit, special.logit)


def blots(side: int, share: float, height: float) -> Pair:
    """A share of p's images has a bright blot around one of the pixels; none of q's has."""
    cov = np.exp(-distances(side) / 3)
    bumps, clean = height * np.exp(-(distances(side) ** 2) / 2), normal(np.zeros(side**2), cov)
    whitened = bumps @ np.linalg.inv(cov)
    half = (whitened * bumps).sum(1) / 2

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        return clean.draw(n, rng) + (rng.random((n, 1)) < share) * bumps[rng.integers(len(bumps), size=n)]

    def log_ratio(x: np.ndarray) -> np.ndarray:
        blotted = special.logsumexp(x @ whitened.T - half, axis=1) - math.log(len(bumps))
        return np.logaddexp(math.log1p(-share), math.log(share) + blotted)

    return Pair(side**2, draw, clean.draw, log_ratio, lambda: dict(WHOLE))


def curves(d: int, kernel: Callable, noise: float) -> np.ndarray:
    """Covariance at d times that grow sparser, of a process with this kernel of the lag, and noise."""
    times = np.linspace(0, 2, d) ** 1.5
    return kernel(np.abs(times[:, None] - times)) + noise * np.eye(d)


def matern(lag: np.ndarray) -> np.ndarray:
    return (1 + 2.5 * lag) * np.exp(-2.5 * lag)


def jumps(d: int, rate: float, mean: float, width: float) -> Law:
    """Returns of d correlated shares that jump together a Poisson number of times (Merton 1976), at most eight."""
    k = np.arange(9)
    laws = [normal(np.full(d, mean * j), equal(d, 0.3) + j * width**2) for j in k]
    return mixture(stats.poisson(rate).pmf(k), laws)


# --- what is lost


def wards(p: Sequence[float], q: Sequence[float], laws_p: list[Law], laws_q: list[Law]) -> Pair:
    """A one-hot ward, and log-normal numbers whose law it chooses; a weight of 0 is a ward that one side lacks."""
    table, codes, k = given_category(p, q, laws_p, laws_q), categories(p, q), len(p)

    def log_ratio(x: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return table.log_ratio(x)

    def exact() -> dict[str, float]:
        # Where the numbers follow the same laws, the ward holds every divergence.
        return codes.exact() if laws_p is laws_q else {key: codes.exact()[key] for key in WHOLE}

    return mapped(
        replace(table, log_ratio=log_ratio, exact=exact),
        lambda x: np.concatenate([x[:, :k], np.exp(x[:, k:])], axis=1),
        lambda x: np.concatenate([x[:, :k], np.log(x[:, k:])], axis=1),
    )


def half_space(rest: Pair, share: float, seed: int) -> Pair:
    """Of a logistic column q has the lower `share` alone; it and `rest` go through a flow, which bends the border."""
    line = restricted(lambda n, rng: rng.logistic(size=(n, 1)), 1, lambda x: x[:, 0] < special.logit(share), share)
    return pushed(product(rest, line), flow(rest.d + 1, seed, 0.7))


# --- the set

CENTRES = ([0.0, 0.0, 0.0], [0.8, -0.5, 0.0], [-0.5, 0.6, 0.3], [0.3, 0.5, 1.2])
IN_WARDS = [normal(centre, 0.5 * equal(3, 0.4)) for centre in CENTRES]


def _pairs() -> dict[str, list[tuple[str, Pair]]]:
    leaves = product(copulas(frank(6.0), flat(2)), copulas(frank(3.0), flat(2)), unit(1))
    visits = [1, 1, 1, 2, 2, 3]
    worths = plackett([6, 4, 3, 2, 1.5, 1])
    two_humps = [mixture([a, 1 - a], [normal(-1.2, 0.3), normal(1.2, 0.3)]) for a in (0.7, 0.4)]
    logistic = of(stats.logistic(0.7), stats.logistic())
    logistics = Law(5, lambda n, rng: rng.logistic(size=(n, 5)), lambda x: stats.logistic.logpdf(x).sum(1))
    cov = equal(4, 0.3)
    process_p, process_q = curves(16, matern, 0.1), curves(16, lambda lag: np.exp(-4 * lag**2), 0.2)
    rates = normal(np.zeros(24), curves(24, matern, 0.05))
    account, fraud = normal(np.zeros(6), equal(6, 0.4)), normal([2.5, 2.0, 0, 0, 0, -1.5], 0.2)
    dose, wrong_unit = (normal([mean, 0, 0], 0.3 * ar1(3, 0.6)) for mean in (0.0, math.log(10)))
    calm = normal(np.full(10, -0.3), equal(10, 0.3) + 0.2 * (1.5**2 + 1.2**2))
    readings = np.stack(np.meshgrid(np.arange(70.0, 191), np.arange(40.0, 121)), axis=-1).reshape(-1, 2)
    pressure = normal([128.0, 79.0], np.array([[225.0, 90.0], [90.0, 100.0]]))
    moved = [normal(np.add(centre, 0.2), 0.6 * equal(3, 0.2)) for centre in CENTRES]
    return {
        "claims": [
            ("tweedie-d1", tweedie((1.5, 1.0), (0.9, 1.8))),
            ("policy-d4", between(policy(0.5, 0.4, 0.8, 1.0), policy(0.1, 0.5, 1.1, 1.4))),
        ],
        "patients": [
            ("subgroups-d5", between(patients(0.6, 1.5, 1.8), patients(0.1, 0.2, 1.8))),
            ("close-d5", between(patients(0.45, 0.6, 1.0), patients(0.4, 0.5, 0.9))),
        ],
        "season": [("rain-d4", on_the_circle(between(rain(1.8, 0.0, 1.0), rain(0.6, 0.8, 1.6))))],
        "vine": [("root-d5", hung_on_a_root(leaves, [2.0, 0.8, 1.5, 3.0]))],
        "factor": [
            ("defaults-d20", defaults(20, (0.1, 0.4), (0.12, 0.05))),
            ("close-d30", defaults(30, (0.05, 0.2), (0.055, 0.17))),
            ("heavy-d8", between(one_factor([0.9] * 8, 0.7, 5), one_factor([0.9] * 4 + [0.2] * 4, 0.8, 5))),
        ],
        "frailty": [
            ("visits-d6", frailties(visits, (1.2, 1.0), (5.0, 1.3))),
            ("same-d6", same(frailties(visits, (2.0, 1.0), (2.0, 1.0)).draw_p, 6)),
        ],
        "gaps": [
            ("hawkes-d10", between(hawkes(10, 0.5, 1.2, 2.0), hawkes(10, 0.9, 0.1, 2.0))),
            ("close-d8", between(hawkes(8, 0.6, 0.8, 1.6), hawkes(8, 0.65, 0.7, 1.6))),
        ],
        "ranking": [
            ("mallows-d5", finite(rankings(5), plackett([8, 5, 3, 2, 1]), mallows([1, 2, 4, 3, 5], 0.5))),
            ("lost-d6", finite(rankings(6), worths, lambda x: np.where(x[:, 2] < x[:, 5] + 2, worths(x), -np.inf))),
        ],
        "flow": [
            ("humps-d12", pushed(product(copies(pair_of(*two_humps), 6), unit(6)), flow(12, 12, 0.6))),
            ("layers-d5", between(flow(5, 5).of(logistics), flow(5, 5, 0.2).of(logistics))),
        ],
        "skew-t": [
            ("tails-d1", pair_of(skew_t(4, [4.0]), skew_t(12, [1.0]))),
            ("slant-d4", between(skew_t(6, [2.0, 0, 0, -1.5], cov), student(6, np.full(4, 0.1), cov))),
        ],
        "matrix": [
            ("wishart-d6", wisharts((8.0, equal(3, 0.5)), (6.0, 1.4 * np.eye(3)))),
            ("close-d15", wisharts((14.0, ar1(5, 0.3)), (14.2, 0.99 * ar1(5, 0.285)))),
        ],
        "field": [("reach-d36", images(6, 3.0, 1.6))],
        "process": [
            ("kernels-d16", gaussians(np.zeros(16), process_p, np.full(16, 0.8), process_q)),
            ("same-d24", same(lambda n, rng: np.logaddexp(0.0, 3 * rates.draw(n, rng)), 24)),
        ],
        "contaminated": [
            ("fraud-d6", log_normal(between(mixture([0.96, 0.04], [account, fraud]), account))),
            ("units-d3", log_normal(between(dose, mixture([0.98, 0.02], [dose, wrong_unit])))),
            ("blots-d49", blots(7, 0.05, 3.0)),
        ],
        "survival": [("censored-d4", between(censored([1.0, -0.5], 0.5), censored([0.3, 0.0], 0.8)))],
        "jumps": [("merton-d10", between(jumps(10, 0.2, -1.5, 1.2), calm))],
        "heaped": [("pressure-d2", finite(readings, heaped(pressure, 0.9), pressure.log_density))],
        "extremes": [("infinite-d1", of(stats.genpareto(1.1), stats.gamma(0.8, scale=4), 0.0))],
        "lost": [
            ("half-space-d6", half_space(product(copies(logistic, 2), unit(3)), 0.65, 6)),
            ("half-space-new-d4", swapped(half_space(product(logistic, unit(2)), 0.75, 4))),
            ("ward-d7", wards([4, 3, 2, 2], [3, 4, 3, 0], IN_WARDS, moved)),
        ],
    }


def _drifts() -> list[Drift]:
    correlations = (0.15, 0.25, 0.4, 0.55, 0.3, 0.12)
    ages = same(lambda n, rng: rng.gamma(16, 2.8, (n, 1)), 1)

    def inflation(t: int) -> Pair:
        return product(tweedie((1.0, 1.0), (1.0, 1 + 0.1 * t)), tweedie((0.4, 2.0), (0.4 + 0.03 * t, 2.0)), ages)

    def calmer(t: int) -> Pair:
        return between(hawkes(8, 0.5, 1.2, 2.0), hawkes(8, 0.5 + 0.05 * t, 1.2 - 0.17 * t, 2.0))

    def popularity(t: int) -> Pair:
        return finite(rankings(5), plackett([6, 4, 3, 2, 1]), plackett([6 - 0.6 * t, 4, 3, 2, 1 + 0.5 * t]))

    return [
        drift("second-inflation-d3", "claims", inflation),
        drift("second-contagion-d20", "factor", lambda t: defaults(20, (0.1, 0.1), (0.1, correlations[t - 1]))),
        drift("second-calmer-d8", "gaps", calmer),
        drift("second-popularity-d5", "ranking", popularity),
        drift("second-blurred-d36", "field", lambda t: images(6, 2.0, 2.0 + 0.2 * t)),
        drift("second-new-ward-d7", "lost", lambda t: wards([4, 3, 2, 0], [4, 3, 2, 0.5 * t], IN_WARDS, IN_WARDS)),
    ]


PAIRS: dict[str, Pair] = {
    f"second-{kind}-{name}": pair.named(f"second-{kind}-{name}", kind)
    for kind, found in _pairs().items()
    for name, pair in found
}
DRIFTS: dict[str, Drift] = {one.name: one for one in _drifts()}
