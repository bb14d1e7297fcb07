"""Kernels, and the squared maximum mean discrepancy as a weighted U-statistic with a standard error.

MMD^2 = sum_{i != j} w_i w_j k(x_i, x_j) / (1 - sum w^2) + the same for q - 2 sum_ij w_i v_j k(x_i, y_j), for weights
that sum to one: Gretton et al. 2012, Lemma 6, when all are equal. Without the diagonal it is unbiased, so it may be
negative; integer weights are not the same as repeated rows, since a repeated row is a pair of its own.

Standard error: with h(x) = E_p k(x, .) - E_q k(x, .), the influence of a row is 2 w (h - mean h). The sum of their
squares estimates V1 + 2 V2, where V1 and V2 are the variances of the linear and of the quadratic part (Hoeffding); V2,
all that is left when p = q, is read off the doubly centred kernel on a subsample, so V1 + V2 follows by subtraction.

For a kernel with a finite feature map, k(x, y) = phi(x).phi(y), all that MMD^2 needs of a set is sum w phi(x),
sum w^2 k(x, x), sum w and sum w^2 (`Embedding`). They add up, and they hold no row. Their standard error is the
delete-a-group jackknife's, which counts the quadratic part twice (Efron and Stein 1981): right when the sets differ,
too large by up to sqrt(2) when they are of one law.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate
from vestige.metrics.base import Accumulator, Sums, jackknife, measured, merged

# Rows in a block: a block of the kernel matrix is 8 MB, and nothing larger is held.
BLOCK = 1024
# Rows of each side on which the variance of the quadratic part is estimated.
SECOND_ORDER_ROWS = 1000


@runtime_checkable
class Kernel(Protocol):
    """A symmetric positive definite function of two rows."""

    def __call__(self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """The matrix k(x_i, y_j)."""
        ...

    def diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """k(x_i, x_i)."""
        ...


@dataclass(frozen=True)
class Polynomial:
    """(gamma x.y + offset)^degree, gamma = 1/d unless told: KID's kernel with degree 3 and offset 1."""

    degree: int = 3
    gamma: float | None = None
    offset: float = 1.0

    def __call__(self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """The matrix k(x_i, y_j)."""
        return (x @ y.mT).mul_(self.gamma or 1 / x.shape[1]).add_(self.offset).pow_(self.degree)

    def diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """k(x_i, x_i)."""
        return (x.square().sum(1) * (self.gamma or 1 / x.shape[1]) + self.offset) ** self.degree


@dataclass(frozen=True)
class RBF:
    """exp(-|x - y|^2 / (2 bandwidth^2)). Rows should be centred: the distance is taken from norms and products."""

    bandwidth: float

    def __call__(self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        """The matrix k(x_i, y_j)."""
        x, y = x / self.bandwidth, y / self.bandwidth
        log_k = (x @ y.mT).sub_(x.square().sum(1)[:, None] / 2).sub_(y.square().sum(1) / 2)
        return log_k.clamp_max_(0).exp_()  # above zero is rounding: a squared distance is not negative

    def diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """All ones."""
        return x.new_ones(len(x))


def uniform(n: int, weights: Float[Tensor, " n"] | None, like: Tensor) -> Float[Tensor, " n"]:
    """Weights that sum to one."""
    return like.new_full((n,), 1 / n) if weights is None else weights / weights.sum()


def _means_within(x: Float[Tensor, "n d"], w: Float[Tensor, " n"], kernel: Kernel) -> Float[Tensor, " n"]:
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


def _means_across(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], w: Float[Tensor, " n"], v: Float[Tensor, " m"], kernel: Kernel
) -> tuple[Float[Tensor, " n"], Float[Tensor, " m"]]:
    """sum_j v_j k(x_i, y_j) for each i, and sum_i w_i k(x_i, y_j) for each j."""
    of_x, of_y = torch.zeros_like(w), torch.zeros_like(v)
    for i in range(0, len(x), BLOCK):
        for j in range(0, len(y), BLOCK):
            block = kernel(x[i : i + BLOCK], y[j : j + BLOCK])
            of_x[i : i + BLOCK] += block @ v[j : j + BLOCK]
            of_y[j : j + BLOCK] += w[i : i + BLOCK] @ block
    return of_x, of_y


def quadratic_variance(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], w: Float[Tensor, " n"], v: Float[Tensor, " m"], kernel: Kernel
) -> float:
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


def mmd_squared(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], w: Float[Tensor, " n"], v: Float[Tensor, " m"], kernel: Kernel
) -> tuple[float, float]:
    """The whole U-statistic and its standard error, block by block; weights sum to one."""
    within_x, within_y = _means_within(x, w, kernel), _means_within(y, v, kernel)
    across_x, across_y = _means_across(x, y, w, v, kernel)
    value = w @ within_x / (1 - w.square().sum()) + v @ within_y / (1 - v.square().sum()) - 2 * (w @ across_x)
    influences = squared_influences(within_x / (1 - w) - across_x, w, w.square().sum())
    influences += squared_influences(within_y / (1 - v) - across_y, v, v.square().sum())
    return float(value), std_error(influences, quadratic_variance(x, y, w, v, kernel))


def mmd_squared_of_sums(p: Sums, q: Sums) -> float:
    """The weighted U-statistic from the sums of both sets."""
    within = sum((s["phi"] @ s["phi"] - s["diagonal"]) / (s["weight"].square() - s["weight_sq"]) for s in (p, q))
    return float(within - 2 * (p["phi"] @ q["phi"]) / (p["weight"] * q["weight"]))


class Embedding(Accumulator[Sums]):
    """The mean embedding of one set under a kernel with a finite feature map."""

    summaries_: list[Sums | None]

    @abstractmethod
    def _phi_sum(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
        """sum w phi(x)."""

    @abstractmethod
    def _diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """phi(x).phi(x) of each row."""

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> Sums:
        w = x.new_ones(len(x)) if weights is None else weights
        return Sums(
            {
                "phi": self._phi_sum(x, w),
                "diagonal": w.square() @ self._diagonal(x),
                "weight": w.sum(),
                "weight_sq": w.square().sum(),
            }
        )

    def compute(self, other: Self) -> Estimate:
        """MMD^2 between this set (`p`) and the other (`q`); the standard error needs 4 groups or more."""
        self._must_match(other, "compute")
        p, q = self._filled(), other._filled()
        whole_p, whole_q = merged(p), merged(q)
        # A group of one row, or two groups, leave nothing to judge a spread by.
        enough = self.groups >= 4 and min(self.n_, other.n_) >= 2 * self.groups
        error = jackknife(p, q, mmd_squared_of_sums) if enough else None
        details: dict[str, Any] = {"n_p": self.n_, "n_q": other.n_, "form": "embedding", **self.settings()}
        for name, s in (("ess_p", whole_p), ("ess_q", whole_q)):
            details[name] = float(s["weight"].square() / s["weight_sq"])
        return measured(type(self).__name__.lower(), mmd_squared_of_sums(whole_p, whole_q), error, details)
