"""What the statistics of the test are worth: p-values from draws under "no difference", down to about 1e-4.

A statistic is a sum of z^2 over functions of a family, or the largest of them. Its null is drawn by the bootstrap for a
few numbers m of new rows: n rows and m rows, both with replacement, from rows of the reference. Each statistic is
first put on the scale -log p of a simple law matched to the draws,

    sum:  a gamma distribution shifted to three cumulants (Pearson type III), exact for sums of few independent z^2,
    max:  1 - (1 - P(z^2 > q))^k, k from the draws' median,

on which the null is close to an exponential of mean one whatever m and the family are. What is left is corrected by a
table of quantiles and, above the one at `TAIL`, by an exponential tail whose mean is half that of the draws beyond it
and half that of the draws of all m. Between the m of the tables log p is linear in log m; beyond them the nearest is
used.

The smallest p of the statistics of a family, and the smallest p of all families, are statistics of the second kind, and
have tables of their own from the same draws, so that their dependence is in them. Such a table holds for new rows if
draws are judged as new rows are: by tables that have not seen them. So the p-values of which the smallest is taken come
from tables of the other nine tenths of the draws. Tables that have seen them would find too often; those of one half,
which are less exact than what new rows meet, too seldom (.032 at 5 % for nine independent statistics and 1000 draws).
Of the p-values of families the smallest is taken by their matched laws alone: their tables were learnt from p-values
that were judged by tables which know the draw, and to judge draws by them once more makes the smallest too small (.044
instead of .049). Test: `test_the_smallest_of_many_p_values_has_its_level`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from vestige.core.rounding import rounded
from vestige.store import newer

DRAWS = 1000
FOLDS = 10  # by which draws are judged by tables of others
TAIL = 0.1  # share of draws that are its tail
LEVELS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, TAIL)
MIN_TAIL_MEAN, MAX_TAIL_MEAN = 0.7, 3.0
LEAST_P = 1e-12
QUIET, SILENT = 1e-4, 1e6  # a statistic whose median is so near its least value is silent: quantiles make its p one
SUM, MAX, SMALLEST = "sum", "max", "smallest"
_Array = NDArray[np.float64]


def _log_p_of_max(log_p: _Array, k: _Array | float) -> _Array:
    """log(1 - (1 - p)^k) for the smallest p of k."""
    p = np.exp(np.minimum(log_p, -1e-300))
    small = log_p + np.log(k)
    with np.errstate(divide="ignore"):
        exact = np.log(-np.expm1(k * np.log1p(-np.minimum(p, 1 - 1e-15))))
    return np.where(k * p < 1e-12, small, exact)


def _log_p_of_square(q: _Array) -> _Array:
    """log P(z^2 > q) of a standard normal z."""
    return math.log(2) + special.log_ndtr(-np.sqrt(q))


def _matched_count(q: _Array, kind: str) -> _Array:
    """k at which the largest of k, or the smallest p of k, has the median of these, along the last axis."""
    median = np.exp(_single(np.median(q, -1), kind))
    return np.maximum(math.log(0.5) / np.log1p(-np.clip(median, 1e-300, 1 - 1e-9)), 0.1)


def _log_p_of_sum(q: _Array, shape: _Array | float, scale: _Array | float, start: _Array | float) -> _Array:
    """log of the upper tail of a shifted gamma distribution."""
    x = np.maximum((q - start) / scale, 0.0)
    p = special.gammaincc(shape, x)
    # far out: x^(a-1) e^-x / gamma(a) / (1 - (a-1)/x)
    far = (shape - 1) * np.log(np.maximum(x, 1e-300)) - x - special.gammaln(shape)
    far = far - np.log(np.maximum(1 - (shape - 1) / np.maximum(x, 1e-300), 0.1))
    with np.errstate(divide="ignore"):
        return np.where(p > 1e-250, np.log(np.maximum(p, 1e-300)), far)


def _matched_gamma(q: _Array) -> _Array:
    """Shape, scale and start with the mean, variance and skewness of `q` along the last axis."""
    mean, deviation = q.mean(-1, keepdims=True), q.std(-1, keepdims=True)
    alike = ~(deviation > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = np.clip((((q - mean) / deviation) ** 3).mean(-1, keepdims=True), 0.05, 4.0)
    shape = np.where(alike, 1.0, 4 / skewness**2)
    scale = np.where(alike, 1.0, deviation / np.sqrt(shape))
    return np.concatenate([shape, scale, np.where(alike, mean, mean - shape * scale)], -1)


@dataclass(frozen=True)
class Tables:
    """Null tables of several statistics at several sizes."""

    kinds: tuple[str, ...]  # a statistic: "sum", "max", or "smallest"
    matched: Float[Tensor, "g s 3"]  # of the matched law
    quantiles: Float[Tensor, "g s l"]  # of -log p under it, at LEVELS
    tail: Float[Tensor, "g s"]  # mean excess beyond the last quantile

    @classmethod
    def fit(cls, draws: Float[Tensor, "g b s"], kinds: Sequence[str]) -> Tables:
        """From `b` draws of each statistic at each size."""
        sizes, _, count = draws.shape
        matched, quantiles = np.zeros((sizes, count, 3)), np.zeros((sizes, count, len(LEVELS)))
        tail = np.ones((sizes, count))
        each = np.ascontiguousarray(draws.double().numpy().transpose(0, 2, 1))
        for kind in dict.fromkeys(kinds):
            of_kind = [s for s, other in enumerate(kinds) if other == kind]
            q = each[:, of_kind]
            quiet = np.median(q, -1) - q.min(-1) < QUIET  # nearly all is hidden, and the rest says nothing
            law = np.zeros((*quiet.shape, 3))
            law[...] = _matched_gamma(q) if kind == SUM else _matched_count(q, kind)[..., None] * [1.0, 0.0, 0.0]
            law[quiet] = 1.0, 1.0, 0.0
            # -log p grows with q, so its quantiles are at those of q
            at = np.moveaxis(np.quantile(q, 1 - np.array(LEVELS), axis=-1), 0, -1)
            knots = -_log_p(at, kind, law[..., None, :])
            knots[quiet] = SILENT * np.arange(1, len(LEVELS) + 1)
            matched[:, of_kind], quantiles[:, of_kind] = law, knots
            far = q > at[..., -1:]
            g, s, _ = far.nonzero()
            beyond = -_log_p(q[far], kind, law[g, s]) - knots[g, s, -1]
            of_each = np.split(beyond, far.sum(-1).ravel().cumsum()[:-1])
            means = np.array([one.mean() if len(one) else 1.0 for one in of_each]).reshape(quiet.shape)
            tail[:, of_kind] = np.where(quiet, 1.0, means)
        tail = ((tail + tail.mean(0)) / 2).clip(MIN_TAIL_MEAN, MAX_TAIL_MEAN)
        return cls(tuple(kinds), *map(torch.as_tensor, (matched, quantiles, tail)))

    def rounded(self) -> Tables:
        """To what DRAWS draws can support: a hundredth of 1/30 of a number, or of 1/30 where it is smaller than one."""
        matched, quantiles, tail = (
            rounded(x, x.abs().clamp_min(least) / DRAWS**0.5)
            for x, least in ((self.matched, 1e-300), (self.quantiles, 1.0), (self.tail, 1.0))
        )
        return Tables(self.kinds, matched, quantiles, tail)

    def log_p(self, q: Float[Tensor, "b s"], at: int) -> Float[Tensor, "b s"]:
        """log p of statistics at the size of place `at`."""
        found = [self._one(q[:, s].double().numpy(), at, s) for s in range(len(self.kinds))]
        return torch.as_tensor(np.stack(found, 1))

    def matched_log_p(self, q: Float[Tensor, "b s"], at: int) -> Float[Tensor, "b s"]:
        """log p by the matched laws alone, without tables."""
        laws = self.matched[at].numpy()
        found = [_log_p(q[:, s].double().numpy(), kind, laws[s]) for s, kind in enumerate(self.kinds)]
        return torch.as_tensor(np.stack(found, 1))

    def _one(self, q: _Array, at: int, s: int) -> _Array:
        surprise = -_log_p(q, self.kinds[s], self.matched[at, s].numpy())
        knots = np.maximum.accumulate(np.concatenate([[0.0], self.quantiles[at, s].numpy()]))
        knots = knots + 1e-12 * np.arange(len(knots))  # ties of statistics that take few values
        logs = np.log(np.concatenate([[1.0], LEVELS]))
        beyond = math.log(TAIL) - (surprise - knots[-1]) / float(self.tail[at, s])
        return np.where(surprise > knots[-1], beyond, np.interp(surprise, knots, logs))

    def averaged(self, other: Tables, share: float) -> Tables:
        """With weight `share` on this one."""

        def mean(a: Tensor, b: Tensor) -> Tensor:
            return share * a + (1 - share) * b

        matched, quantiles = mean(self.matched, other.matched), mean(self.quantiles, other.quantiles)
        return Tables(self.kinds, matched, quantiles, mean(self.tail, other.tail))


def _single(q: _Array, kind: str) -> _Array:
    """log p of the largest z^2 if it were the only one; a smallest p is given as -log p already."""
    return _log_p_of_square(q) if kind == MAX else -q


def _log_p(q: _Array, kind: str, law: _Array) -> _Array:
    """log p of `q` by the matched law, whose three numbers stand along the last axis."""
    return _log_p_of_sum(q, *np.moveaxis(law, -1, 0)) if kind == SUM else _log_p_of_max(_single(q, kind), law[..., 0])


def _crossed(draws: Float[Tensor, "g b s"], kinds: Sequence[str]) -> Float[Tensor, "g b s"]:
    """log p of a tenth of the draws by tables of the others, as new rows will meet tables that have not seen them."""
    found = torch.empty(draws.shape, dtype=torch.float64)
    fold = torch.arange(draws.shape[1]) % FOLDS
    for k in range(FOLDS):
        tables = Tables.fit(draws[:, fold != k], kinds)
        for g in range(len(draws)):
            found[g, fold == k] = tables.log_p(draws[g, fold == k], g)
    return found


@dataclass(frozen=True)
class Null:
    """The null of all statistics, of the families and of the whole."""

    sizes: tuple[int, ...]  # of the new sample, ascending
    family: tuple[str, ...]  # of each statistic
    statistics: Tables
    families: Tables
    whole: Tables
    by_matched: bool = newer(False)  # whether the whole is the smallest p by the matched laws of the families alone

    @classmethod
    def fit(
        cls, draws: Float[Tensor, "g b s"], sizes: Sequence[int], family: Sequence[str], kinds: Sequence[str]
    ) -> Null:
        """From draws of every statistic at each of `sizes`."""
        names = list(dict.fromkeys(family))
        logs = _crossed(draws, kinds)
        smallest = torch.stack([-logs[:, :, [f == name for f in family]].amin(2) for name in names], 2)
        second = [SMALLEST] * len(names)
        statistics, families = Tables.fit(draws, kinds), Tables.fit(smallest, second)
        matched = torch.stack([families.matched_log_p(smallest[g], g) for g in range(len(draws))])
        whole = Tables.fit(-matched.amin(2, keepdim=True), [SMALLEST])
        return cls(tuple(sizes), tuple(family), statistics, families, whole, by_matched=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The families."""
        return tuple(dict.fromkeys(self.family))

    def p_values(self, q: Float[Tensor, "b s"], m: float) -> tuple[Tensor, Tensor, Tensor]:
        """p of the whole (b), of the families (b, f) and of each statistic (b, s), for `m` new units."""
        statistics = self._between(Tables.log_p, self.statistics, q, m)
        smallest = [-statistics[:, [f == name for f in self.family]].amin(1) for name in self.names]
        families = self._between(Tables.log_p, self.families, torch.stack(smallest, 1), m)
        each = Tables.matched_log_p if self.by_matched else Tables.log_p
        lowest = self._between(each, self.families, torch.stack(smallest, 1), m).amin(1, keepdim=True)
        whole = self._between(Tables.log_p, self.whole, -lowest, m)
        least = math.log(LEAST_P)
        return tuple(logs.clamp_min(least).exp() for logs in (whole[:, 0], families, statistics))  # type: ignore[return-value]

    def _between(
        self, log_p: Callable[[Tables, Tensor, int], Tensor], tables: Tables, q: Float[Tensor, "b s"], m: float
    ) -> Float[Tensor, "b s"]:
        place = float(np.interp(math.log(m), np.log(self.sizes), np.arange(len(self.sizes))))
        low, share = int(place), place - int(place)
        logs = log_p(tables, q, low)
        return logs if share == 0 else (1 - share) * logs + share * log_p(tables, q, low + 1)

    def rounded(self) -> Null:
        """With rounded tables."""
        return replace(
            self, statistics=self.statistics.rounded(), families=self.families.rounded(), whole=self.whole.rounded()
        )

    def averaged(self, other: Null, share: float) -> Null:
        """With weight `share` on this one; both have the same statistics and sizes."""
        return replace(
            self,
            statistics=self.statistics.averaged(other.statistics, share),
            families=self.families.averaged(other.families, share),
            whole=self.whole.averaged(other.whole, share),
        )
