"""Squared maximum mean discrepancy (MMD^2; Gretton et al. 2012) and KID, its form under a cubic kernel, with weights.

MMD^2 = sum_{i != j} w_i w_j k(x_i, x_j) / (1 - sum w^2) + the same for q - 2 sum_ij w_i v_j k(x_i, y_j), for weights
that sum to one: Gretton et al. 2012, Lemma 6, when all are equal. Without the diagonal it is unbiased, so it may be
negative; integer weights are not the same as repeated rows, since a repeated row is a pair of its own. It is computed
block by block. The bandwidth of the RBF kernel is the median distance between pooled rows (of a subsample) unless it is
given.

Standard error: with h(x) = E_p k(x, .) - E_q k(x, .), the influence of a row is 2 w (h - mean h). The sum of their
squares estimates V1 + 2 V2, where V1 and V2 are the variances of the linear and of the quadratic part (Hoeffding); V2,
all that is left when p = q, is read off the doubly centred kernel on a subsample, so V1 + V2 follows by subtraction.

**Accumulators.** For a kernel with a finite feature map, k(x, y) = phi(x).phi(y), all that MMD^2 needs of a set is
sum w phi(x), sum w^2 k(x, x), sum w and sum w^2 (`Embedding`). They add up, and they hold no row. Their standard error
is the delete-a-group jackknife's, which counts the quadratic part twice (Efron and Stein 1981): right when the sets
differ, too large by up to sqrt(2) when they are of one law.

No accumulator can hold an RBF kernel exactly in finite space. `MMD` keeps random Fourier features (Rahimi and Recht
2007): an unbiased kernel whose error falls as 1/sqrt(frequencies) and is the same for both sets, so equal sets still
give zero. Bandwidth, number of frequencies and seed must agree between sets. The cubic kernel streams exactly: `KID`.

**KID** is MMD^2 under (x.y/d + 1)^3 (Binkowski et al. 2018, section 4). Deviation: they average over random subsets of
1000; here it is the whole U-statistic, which has no subset noise, and `std_error` is its standard error, not the spread
of subsets. For small d the kernel's own feature map, the third moments of (x / sqrt d, 1), gives the same number in
O(n d^3) without any pair of rows: it streams and it merges.

The feature map of the cubic kernel: (x.y/d + 1)^3 = phi(x).phi(y), with z = (x / sqrt d, 1) and phi the products
z_i z_j z_k, j <= k <= i, each times the root of the number of orders in which it occurs (1, 3 or 6).

Sums of phi over rows are matrix products of z with its pairs z_j z_k. Pairs are taken in strips of the larger index
k, and a strip meets only z_i with i >= the strip's first k: a third of the work of all pairs with all z.
"""

from __future__ import annotations

import copy
import functools
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.core.checks import ArrayLike, option
from vestige.core.rounding import rounded
from vestige.metrics.base import BLOCK, Accumulator, Sums, jackknife, measured, merged, sizes, two_sets, uniform

# Rows and weights of the two sides.
X: TypeAlias = Float[Tensor, "n d"]
Y: TypeAlias = Float[Tensor, "m d"]
W: TypeAlias = Float[Tensor, " n"]
V: TypeAlias = Float[Tensor, " m"]
# Rows of each side on which the variance of the quadratic part is estimated.
SECOND_ORDER_ROWS = 1000
# Pooled rows from which the median distance is taken.
MEDIAN_ROWS = 1000
KERNELS = ("rbf", "polynomial")
# Third moments of wider features would fill gigabytes (about width^3 / 5 numbers a group).
MAX_MOMENT_WIDTH = 256
# Unweighted rows of each side from which the error of the moment form is taken: enough for 2 % of it. Weighted sets
# use every row, since their weight may sit on few.
ERROR_ROWS = 2000
# Larger indices k in a strip: narrower ones waste less on i < k, wider ones make better matrix products.
STRIP = 8


@dataclass(frozen=True)
class Polynomial:
    """(gamma x.y + offset)^degree, gamma = 1/d unless told: KID's kernel with degree 3 and offset 1."""

    degree: int = 3
    gamma: float | None = None
    offset: float = 1.0

    def __call__(self, x: X, y: Y) -> Float[Tensor, "n m"]:
        """The matrix k(x_i, y_j)."""
        return (x @ y.mT).mul_(self.gamma or 1 / x.shape[1]).add_(self.offset).pow_(self.degree)

    def diagonal(self, x: X) -> W:
        """k(x_i, x_i)."""
        return (x.square().sum(1) * (self.gamma or 1 / x.shape[1]) + self.offset) ** self.degree


@dataclass(frozen=True)
class RBF:
    """exp(-|x - y|^2 / (2 bandwidth^2)). Rows should be centred: the distance is taken from norms and products."""

    bandwidth: float

    def __call__(self, x: X, y: Y) -> Float[Tensor, "n m"]:
        """The matrix k(x_i, y_j)."""
        x, y = x / self.bandwidth, y / self.bandwidth
        log_k = (x @ y.mT).sub_(x.square().sum(1)[:, None] / 2).sub_(y.square().sum(1) / 2)
        return log_k.clamp_max_(0).exp_()  # above zero is rounding: a squared distance is not negative

    def diagonal(self, x: X) -> W:
        """All ones."""
        return x.new_ones(len(x))


Kernel: TypeAlias = Polynomial | RBF
# KID's
CUBIC = Polynomial(degree=3, offset=1.0)


def _means_within(x: X, w: W, kernel: Kernel) -> W:
    """sum_{j != i} w_j k(x_i, x_j) for each i; each block above the diagonal serves both of its sides."""
    sums = torch.zeros_like(w)
    for i in range(0, len(x), BLOCK):
        block = kernel(x[i : i + BLOCK], x[i : i + BLOCK]).fill_diagonal_(0)
        sums[i : i + BLOCK] += block @ w[i : i + BLOCK]
        for j in range(i + BLOCK, len(x), BLOCK):
            block = kernel(x[i : i + BLOCK], x[j : j + BLOCK])
            sums[i : i + BLOCK] += block @ w[j : j + BLOCK]
            sums[j : j + BLOCK] += w[i : i + BLOCK] @ block
    return sums


def _means_across(x: X, y: Y, w: W, v: V, kernel: Kernel) -> tuple[W, V]:
    """sum_j v_j k(x_i, y_j) for each i, and sum_i w_i k(x_i, y_j) for each j."""
    of_x, of_y = torch.zeros_like(w), torch.zeros_like(v)
    for i in range(0, len(x), BLOCK):
        for j in range(0, len(y), BLOCK):
            block = kernel(x[i : i + BLOCK], y[j : j + BLOCK])
            of_x[i : i + BLOCK] += block @ v[j : j + BLOCK]
            of_y[j : j + BLOCK] += w[i : i + BLOCK] @ block
    return of_x, of_y


def quadratic_variance(x: X, y: Y, w: W, v: V, kernel: Kernel) -> float:
    """V2: 2 sum w^2 w'^2 k~(x, x')^2 + the same for y + 4 sum w^2 v^2 k~(x, y)^2 with the doubly centred kernel k~."""
    step_x, step_y = -(-len(x) // SECOND_ORDER_ROWS), -(-len(y) // SECOND_ORDER_ROWS)
    # Every step-th row; a sum over pairs of them stands for step^2 times as many.
    sides = {"x": (x[::step_x], w[::step_x], len(x) / len(x[::step_x]))}
    sides["y"] = (y[::step_y], v[::step_y], len(y) / len(y[::step_y]))
    total = 0.0
    for first, second, times in (("x", "x", 2), ("y", "y", 2), ("x", "y", 4)):
        (a, a_w, a_scale), (b, b_w, b_scale) = sides[first], sides[second]
        k = kernel(a, b)
        rows, columns = k @ (b_w / b_w.sum()), (a_w / a_w.sum()) @ k
        k += (rows @ (a_w / a_w.sum()) - rows)[:, None] - columns
        k.square_()
        if first == second:
            k.fill_diagonal_(0)
        total += times * a_scale * b_scale * float(a_w.square() @ k @ b_w.square())
    return total


def squared_influences(h: Float[Tensor, " n"], weights: Float[Tensor, " n"], square: Float[Tensor, ""]) -> float:
    """sum (2 w (h - mean h))^2 of one side, unbiased (n - 1 for equal weights); `square` is sum w^2 of all its rows."""
    centred = h - (weights @ h) / weights.sum()
    return float(4 * (weights * centred).square().sum() / (1 - square))


def std_error(influences: float, quadratic: float) -> float:
    """The root of V1 + V2, from V1 + 2 V2 (`influences`) and V2 (`quadratic`); no less than that of V2."""
    return float(max(influences - quadratic, quadratic) ** 0.5)


def mmd_squared(x: X, y: Y, w: W, v: V, kernel: Kernel) -> tuple[float, float]:
    """The whole U-statistic and its standard error, block by block; weights sum to one."""
    within_x, within_y = _means_within(x, w, kernel), _means_within(y, v, kernel)
    across_x, across_y = _means_across(x, y, w, v, kernel)
    value = w @ within_x / (1 - w.square().sum()) + v @ within_y / (1 - v.square().sum()) - 2 * (w @ across_x)
    influences = squared_influences(within_x / (1 - w) - across_x, w, w.square().sum())
    influences += squared_influences(within_y / (1 - v) - across_y, v, v.square().sum())
    return float(value), std_error(influences, quadratic_variance(x, y, w, v, kernel))


def mmd(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    kernel: str = "rbf",
    bandwidth: float | None = None,
    degree: int = 3,
    gamma: float | None = None,
    offset: float = 1.0,
) -> Estimate:
    """MMD^2 between real features `p` and the model's `q`; unbiased, so it may be negative.

    `bandwidth` belongs to "rbf" (None: the median distance), `degree`, `gamma` (None: 1/d) and `offset` to
    "polynomial", (gamma x.y + offset)^degree.
    """
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "mmd")
    details: dict[str, Any] = {**sizes(x, y, x_w, y_w), "kernel": checks.one_of(kernel, KERNELS, "kernel", "mmd")}
    k: Kernel
    if kernel == "rbf":
        centre = (x.mean(0) + y.mean(0)) / 2  # distances know no origin, but their rounding does
        x, y = x - centre, y - centre
        details["bandwidth"] = bandwidth_of(bandwidth, x, y)
        k = RBF(details["bandwidth"])
    else:
        gamma = 1 / x.shape[1] if gamma is None else checks.number(gamma, "gamma", "mmd", low=0, open_low=True)
        offset = checks.number(offset, "offset", "mmd", low=0)  # below zero it is no kernel
        k = Polynomial(checks.whole(degree, "degree", "mmd", low=1), gamma, offset)
        details |= {"degree": degree, "gamma": gamma, "offset": offset}
    value, error = mmd_squared(x, y, uniform(x, x_w), uniform(y, y_w), k)
    return measured("mmd", value, error, details)


def bandwidth_of(bandwidth: float | None, x: Tensor, y: Tensor) -> float:
    """What was given, or the median distance between distinct rows of both sets, on every k-th row of each."""
    if bandwidth is not None:
        return checks.number(bandwidth, "bandwidth", "mmd", low=0, open_low=True)
    rows = torch.cat([side[:: -(-2 * len(side) // MEDIAN_ROWS)] for side in (x, y)])
    median = float(torch.pdist(rows).median())
    if not median > 0:
        raise NotEstimable(
            "More than half of the rows of mmd are equal, so the median distance is 0: give 'bandwidth'."
        )
    return median


def mmd_squared_of_sums(p: Sums, q: Sums) -> float:
    """The weighted U-statistic from the sums of both sets."""
    within = sum((s["phi"] @ s["phi"] - s["diagonal"]) / (s["weight"].square() - s["weight_sq"]) for s in (p, q))
    return float(within - 2 * (p["phi"] @ q["phi"]) / (p["weight"] * q["weight"]))


class Embedding(Accumulator[Sums]):
    """The mean embedding of one set under a kernel with a finite feature map."""

    summaries_: list[Sums | None]

    @abstractmethod
    def _embedded(self, x: X, weights: W) -> tuple[Float[Tensor, " f"], W]:
        """sum w phi(x), and phi(x).phi(x) of each row."""

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Sums:
        phi, own = self._embedded(x, weights)
        return Sums.of(weights, phi=phi, diagonal=weights.square() @ own)

    def compute(self, other: Self) -> Estimate:
        """MMD^2 between this set (`p`) and the other (`q`); the standard error needs 4 groups or more."""
        self._must_match(other, "compute")
        p, q = self._filled(), other._filled()
        whole_p, whole_q = merged(p), merged(q)
        error = jackknife(p, q, mmd_squared_of_sums) if self._error_rests_on_enough(other) else None
        details: dict[str, Any] = {"n_p": self.n_, "n_q": other.n_, "form": "embedding", **self.settings()}
        details |= {"ess_p": whole_p.ess, "ess_q": whole_q.ess}
        return measured(type(self).__name__.lower(), mmd_squared_of_sums(whole_p, whole_q), error, details)


@dataclass(eq=False, kw_only=True)
class MMD(Embedding):
    """Random Fourier features of one set, for the RBF kernel; `real.compute(fake)`.

    The bandwidth must be given, since it has to be the same for every chunk of both sets.
    """

    bandwidth: float = option(above=0)
    frequencies: int = option(2048, low=1)
    seed: int = option(0)
    groups: int = option(20, low=1)

    @functools.cached_property
    def _directions(self) -> Float[Tensor, "d f"]:
        """The frequencies, drawn once the width is known."""
        generator = rng.fork(self.seed, "fourier")
        normal = torch.randn(self.width_ or 0, self.frequencies, generator=generator, dtype=torch.float64)
        return normal / self.bandwidth

    def _embedded(self, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        angles = x @ self._directions
        phi = torch.cat([weights @ angles.cos(), weights @ angles.sin()]) / self.frequencies**0.5
        return phi, x.new_ones(len(x))  # cos^2 + sin^2


@functools.lru_cache(maxsize=8)
def _root_orders(width: int) -> Float[Tensor, " f"]:
    """The scale of every product in the order of `cubic_sum`; zero where a strip holds a product twice (i < k)."""
    scales = []
    for low in range(0, width, STRIP):
        k = torch.cat([torch.full((b + 1,), b) for b in range(low, min(low + STRIP, width))])
        j = torch.cat([torch.arange(b + 1) for b in range(low, min(low + STRIP, width))])
        i = torch.arange(low, width)[:, None]
        orders = 6 // (1 + (j == k).long() + (k == i).long()).where((j != k) | (k != i), torch.tensor(6))
        scales.append((orders * (i >= k)).flatten())
    return torch.cat(scales).to(torch.float64).sqrt()


def _strips(z: Float[Tensor, "e n"]) -> Iterator[tuple[int, Float[Tensor, "s n"]]]:
    """The first index of each strip, and its pairs z_j z_k, j <= k."""
    width = len(z)
    for low in range(0, width, STRIP):
        high = min(low + STRIP, width)
        pairs, start = z.new_empty((high * (high + 1) - low * (low + 1)) // 2, z.shape[1]), 0
        for k in range(low, high):
            torch.mul(z[: k + 1], z[k], out=pairs[start : start + k + 1])
            start += k + 1
        yield low, pairs


def _lifted(x: Float[Tensor, "n d"]) -> Iterator[tuple[slice, Float[Tensor, "e n2"]]]:
    """z of some rows at a time, a column a row."""
    for first in range(0, len(x), BLOCK):
        rows = slice(first, first + BLOCK)
        part = x[rows]
        yield rows, torch.cat([part.mT / x.shape[1] ** 0.5, x.new_ones(1, len(part))])


def cubic_sum(x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
    """sum w phi(x)."""
    sums: list[Tensor] = []
    for rows, z in _lifted(x):
        weighted = z * weights[rows]
        parts = [weighted[low:] @ pairs.mT for low, pairs in _strips(z)]
        sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else parts
    return torch.cat([part.flatten() for part in sums]) * _root_orders(x.shape[1] + 1)


def cubic_product(phi: Float[Tensor, " f"], x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """phi . phi(x) for each row."""
    scaled, width, result = phi * _root_orders(x.shape[1] + 1), x.shape[1] + 1, x.new_zeros(len(x))
    for rows, z in _lifted(x):
        start = 0
        for low, pairs in _strips(z):
            size = (width - low) * len(pairs)
            block = scaled[start : start + size].reshape(width - low, len(pairs))
            result[rows] += (z[low:] * (block @ pairs)).sum(0)
            start += size
    return result


def _by_moments(x: X, y: Y, w: W, v: V, weighted: bool) -> tuple[float, float]:
    """The U-statistic and its standard error from third moments, without any pair of rows for the value."""
    phi_p, phi_q = cubic_sum(x, w), cubic_sum(y, v)
    value, influences = -2 * float(phi_p @ phi_q), 0.0
    for rows, weights, phi, sign in ((x, w, phi_p, 1), (y, v, phi_q, -1)):
        own, square = CUBIC.diagonal(rows), weights.square().sum()
        within = (phi @ phi - weights.square() @ own) / (1 - square)
        value += float(within)
        step = 1 if weighted else -(-len(rows) // ERROR_ROWS)
        h = cubic_product((phi_p - phi_q) * sign, rows[::step])
        # A row is no neighbour of itself; the mean over its neighbours in this term is taken as that over all pairs.
        h += (weights * (within - own) / (1 - weights))[::step]
        influences += len(rows) / len(h) * squared_influences(h, weights[::step], square)
    return value, std_error(influences, quadratic_variance(x, y, w, v, CUBIC))


def kid(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    form: str = "auto",
) -> Estimate:
    """KID between real features `p` and the model's `q`. `form`: "moments", "blocks", or "auto", the cheaper one."""
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "kid")
    checks.one_of(form, ("auto", "moments", "blocks"), "form", "kid")
    d, n = x.shape[1], len(x) + len(y)
    if form == "auto":
        # Multiplications: about n (d+1)^3 / 2 by moments, with their making; n^2 (d + ~10 for the cube) by pairs.
        form = "moments" if d <= MAX_MOMENT_WIDTH and (d + 1) ** 3 < 2 * n * (d + 10) else "blocks"
    w, v = uniform(x, x_w), uniform(y, y_w)
    if form == "moments":
        value, error = _by_moments(x, y, w, v, x_w is not None or y_w is not None)
    else:
        value, error = mmd_squared(x, y, w, v, CUBIC)
    return measured("kid", value, error, {**sizes(x, y, x_w, y_w), "form": form})


@dataclass(eq=False, kw_only=True)
class KID(Embedding):
    """Third moments of one set of features, exact for the whole U-statistic; `real.compute(fake)`.

    Each group keeps about width^3 / 5 numbers, so features wider than `MAX_MOMENT_WIDTH` are refused: use `kid`.
    """

    groups: int = option(20, low=1)

    def _checked(self, x: Float[Tensor, "n d"], owner: str) -> Float[Tensor, "n d"]:
        if x.shape[1] > MAX_MOMENT_WIDTH:
            checks.refuse("features", owner, f"at most {MAX_MOMENT_WIDTH} wide (kid() takes any width)", x.shape[1])
        return x

    def _embedded(self, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return cubic_sum(x, weights), CUBIC.diagonal(x)

    def rounded(self, some: Float[Tensor, "n d"]) -> KID:
        """The same with sums to a hundredth of their standard errors, which are those of `some` of the rows.

        The square of a product of coordinates is the product of their squares, so that the variance of phi needs third
        moments alone.
        """
        even, orders = some.new_full((len(some),), 1 / len(some)), _root_orders(some.shape[1] + 1)
        mean = cubic_sum(some, even)
        deviation = (cubic_sum(some.square() / some.shape[1] ** 0.5, even) * orders - mean.square()).clamp_min(0).sqrt()
        own = CUBIC.diagonal(some).std()
        made = copy.copy(self)
        made.summaries_ = [None if sums is None else _rounded_sums(sums, deviation, own) for sums in self.summaries_]
        return made


def _rounded_sums(sums: Sums, deviation: Float[Tensor, " f"], own: Float[Tensor, ""]) -> Sums:
    root = sums["weight"].sqrt()
    phi, diagonal = (rounded(sums[key], spread * root) for key, spread in (("phi", deviation), ("diagonal", own)))
    return Sums({**sums.parts, "phi": phi, "diagonal": diagonal})
