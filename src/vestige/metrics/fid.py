"""Frechet distance between Gaussians fitted to two sets of features (FID: Heusel et al. 2017, Eq. 6), with weights.

|m_p - m_q|^2 + tr S_p + tr S_q - 2 tr (S_p S_q)^1/2, in float64, the last trace by `numerics.psd`. Covariances are
unbiased (n - 1; with weights the reliability form, divisor 1 - sum w^2 for weights that sum to one).

FID is biased upwards by a clean c/n. `extrapolate=True` removes that term as in Chong and Forsyth 2020 (FID-infinity).
Deviations: they fit a line over 15 random subset sizes of the model's samples; here both sets are cut in two halves,
which use every sample once, and the line goes through whole and halves (Richardson); n is the effective sample size,
so that weighted sets extrapolate too.

The standard error is the delta method's. With T = S_q^1/2 (S_q^1/2 S_p S_q^1/2)^-1/2 S_q^1/2, which turns one Gaussian
into the other (T S_p T = S_q), the distance changes with S_p by tr (I - T) dS_p, and with S_q by tr (I - T^-1) dS_q.
So a row x of p weighs 2 (m_p - m_q)'a + a'(I - T)a with a = x - m_p, and the variance of these over n_p is p's part.
T is never formed: for roots S_p = R_p'R_p, S_q = R_q'R_q and R_p S_q R_p' = E s^2 E', a'Ta = |s^-3/2 E'R_p S_q a|^2 and
b'T^-1 b = |s^-1/2 E'R_p b|^2, also where fewer samples than features leave both singular. The test holds it against
the jackknife. The extrapolated value has the same first-order terms, hence the same standard error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, VestigeWarning, checks
from vestige.core.checks import ArrayLike, learnt, option
from vestige.core.numerics import RANK_TOLERANCE, Moments, psd_root, sqrt_trace_gram, sqrt_trace_psd, weighted_mean
from vestige.metrics.base import Accumulator, WeightedRows, measured, merged, two_sets

BLOCK = 8192  # rows in float64 at once
SLOPE_ROWS = 4096  # that the standard error is read from: it is known to about 2 % then


# Of fewer samples than features, the rows themselves are a smaller summary than their covariance.
Side: TypeAlias = Moments | WeightedRows


def _mean_and_root(side: Side) -> tuple[Float[Tensor, " d"], Float[Tensor, "r d"]]:
    """The mean, and R with R'R = the unbiased covariance."""
    if isinstance(side, Moments):
        return side.mean, psd_root(side.covariance())
    w = side.weights / side.weights.sum()
    mean = w @ side.x
    return mean, (side.x - mean) * (w / (1 - w.square().sum())).sqrt()[:, None]


def _terms(p: Side, q: Side) -> tuple[float, float]:
    """The squared distance of the means, and that of the covariances."""
    if isinstance(p, Moments) and isinstance(q, Moments):
        s_p, s_q = p.covariance(), q.covariance()
        apart = s_p.trace() + s_q.trace() - 2 * sqrt_trace_psd(s_p, s_q)
        return float((p.mean - q.mean).square().sum()), float(apart)
    (mean_p, root_p), (mean_q, root_q) = _mean_and_root(p), _mean_and_root(q)
    apart = root_p.square().sum() + root_q.square().sum() - 2 * sqrt_trace_gram(root_p, root_q)
    return float((mean_p - mean_q).square().sum()), float(apart)


@dataclass(frozen=True)
class Slope:
    """The change of the distance with one side's rows x: gap'a + |a|^2 - |pull a|^2, where a = x - mean."""

    mean: Float[Tensor, " d"]
    gap: Float[Tensor, " d"]
    pull: Float[Tensor, "r d"]

    def variance(
        self, rows: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None, stand_for: int | None = None
    ) -> float:
        """This side's part of the variance of the distance, from at most SLOPE_ROWS of its rows.

        Of rows that are not its own, but stand for so many of them, the weighted variance is divided by that number.
        """
        some = slice(None, None, -(-len(rows) // SLOPE_ROWS))
        slope = torch.cat([self._of(block.to(torch.float64) - self.mean) for block in rows[some].split(BLOCK)])
        w = torch.full_like(slope, 1 / len(rows)) if weights is None else weights[some] / weights.sum()
        squares = (slope - weighted_mean(slope, w)).square()
        if stand_for is not None:
            return float(weighted_mean(squares, w)) / stand_for
        spread = w.square() @ squares
        return float(spread) * len(rows) / (len(slope) - 1)

    def variance_of_normal(self, covariance: Float[Tensor, "d d"], n: int) -> float:
        """The same for n normal rows of covariance S: gap' S gap + 2 tr (M S M S) over n, with M = 1 - pull' pull."""
        m = torch.eye(len(covariance), dtype=covariance.dtype) - self.pull.mT @ self.pull
        ms = m @ covariance
        return float(self.gap @ covariance @ self.gap + 2 * (ms * ms.mT).sum()) / n

    def _of(self, a: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return a @ self.gap + a.square().sum(1) - (a @ self.pull.mT).square().sum(1)

    def variance_of_groups(self, groups: list[Moments]) -> float:
        """The same from the moments of groups of rows."""
        pull = self.pull.mT @ self.pull
        total = sum(group.weight for group in groups)
        parts = []
        for group in groups:
            a = group.mean - self.mean
            second = group.scatter / group.weight + torch.outer(a, a)
            slope = a @ self.gap + second.trace() - (pull * second).sum()
            parts.append(group.weight / total * slope)
        parts_ = torch.stack(parts)
        shares = torch.tensor([group.weight / total for group in groups], dtype=torch.float64)
        return float((parts_ - shares * parts_.sum()).square().sum() * len(groups) / (len(groups) - 1))


def _gradient(p: Side, q: Side) -> tuple[list[Slope], float]:
    """What each side's rows add to the distance, to first order, and the distance of the covariances."""
    (mean_p, root_p), (mean_q, root_q) = _mean_and_root(p), _mean_and_root(q)
    joint = root_p @ root_q.mT
    squares, vectors = torch.linalg.eigh(joint @ joint.mT)
    kept = squares > squares[-1:].clamp_min(0) * (RANK_TOLERANCE * len(squares))  # none where a side is one point
    s, vectors = squares[kept].sqrt()[:, None], vectors[:, kept].mT
    gap = mean_p - mean_q
    to_q, to_p = s**-1.5 * (vectors @ joint @ root_q), s**-0.5 * (vectors @ root_p)
    apart = root_p.square().sum() + root_q.square().sum() - 2 * s.sum()
    return [Slope(mean_p, 2 * gap, to_q), Slope(mean_q, -2 * gap, to_p)], float(apart)


def _estimate(
    whole: tuple[Side, Side],
    halves: Sequence[tuple[Side, Side]] | None,
    variance: Callable[[list[Slope]], float] | None,
) -> Estimate:
    """FID of two sets, extrapolated where their halves are given."""
    p, q = whole
    error = None
    if variance is None:
        mean_term, covariance_term = _terms(p, q)
    else:
        slopes, covariance_term = _gradient(p, q)
        mean_term = float(slopes[0].gap.square().sum() / 4)
        error = variance(slopes) ** 0.5
    value = mean_term + covariance_term
    details = {
        "mean_term": mean_term,
        "covariance_term": covariance_term,
        "ess_p": p.ess,
        "ess_q": q.ess,
        "form": "gram" if isinstance(p, WeightedRows) or isinstance(q, WeightedRows) else "moments",
        "extrapolated": halves is not None,
    }
    if halves is not None:
        width = len(p.mean) if isinstance(p, Moments) else p.x.shape[1]
        if min(p.ess, q.ess) <= width:
            warnings.warn(
                f"FID extrapolates poorly from fewer effective samples than features ({width}).", VestigeWarning, 3
            )
        mean_of_halves = sum(sum(_terms(a, b)) for a, b in halves) / 2
        # 1/n of a half over 1/n of the whole: 2 without weights.
        steps = [p.ess / a.ess + q.ess / b.ess for a, b in halves]
        bias = (mean_of_halves - value) / (sum(steps) / 4 - 1)
        details["bias_removed"] = bias
        value -= bias
    return measured("fid", value, error, details, biased=halves is None)


def fid(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    extrapolate: bool = False,
    std_error: bool = False,
) -> Estimate:
    """Frechet distance between real features `p` and the model's `q`; `extrapolate` removes its bias of order 1/n."""
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "fid", dtype=None)
    least = min(len(x), len(y))
    if (extrapolate or std_error) and least < 4 + 4 * std_error:
        checks.refuse("p and q", "fid", "at least 4 samples to extrapolate, 8 for a standard error", f"{least}")

    def halves(rows: Tensor, weights: Tensor | None) -> list[Side]:
        count = 2 if extrapolate else 1
        parts = [(rows[g::count], None if weights is None else weights[g::count]) for g in range(count)]
        return [_side(*part, thin=len(rows) < rows.shape[1]) for part in parts]

    def variance(slopes: list[Slope]) -> float:
        return sum(slope.variance(*side) for slope, side in zip(slopes, ((x, x_w), (y, y_w)), strict=True))

    of_p, of_q = halves(x, x_w), halves(y, y_w)
    pairs = list(zip(of_p, of_q, strict=True)) if extrapolate else None
    return _estimate((merged(of_p), merged(of_q)), pairs, variance if std_error else None)


def fid_to(p: Moments, q: Float[Tensor, "n d"], *, n_p: int | None) -> tuple[float, float, float]:
    """FID of rows from moments: its value, its bias by the number of rows of q, and its standard error.

    Of p's own error is known what normal features would have if `n_p` rows were behind the moments; nothing without.
    """
    thin = len(q) < q.shape[1]
    whole = _side(q, None, thin=thin)
    slopes, apart = _gradient(p, whole)
    value = float(slopes[0].gap.square().sum() / 4) + apart
    halves = [sum(_terms(p, _side(q[g::2], None, thin=thin))) for g in range(2)]
    variance = slopes[1].variance(q, None)
    variance += 0.0 if n_p is None else slopes[0].variance_of_normal(p.covariance(), n_p)
    return value, sum(halves) / 2 - value, variance**0.5


def _side(rows: Tensor, weights: Tensor | None, *, thin: bool) -> Side:
    """The summary of the rows, in blocks: float64 copies of a large set would not fit in memory."""
    if thin:
        x = rows.to(torch.float64)
        return WeightedRows(x, x.new_ones(len(x)) if weights is None else weights)
    if weights is None:
        return merged(Moments.of(block) for block in rows.split(BLOCK))
    return merged(Moments.of(*block) for block in zip(rows.split(BLOCK), weights.split(BLOCK), strict=True))


@dataclass(eq=False, kw_only=True)
class FID(Accumulator[Moments]):
    """The moments of one set of features; `real.compute(fake)`.

    Two groups allow extrapolation, four or more a standard error; each group keeps a matrix of the width squared.
    """

    groups: int = option(1, low=1)
    summaries_: list[Moments | None] = learnt()

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> Moments:
        return Moments.of(x, weights)

    def whole(self) -> Moments:
        """The moments of all rows that were seen."""
        return merged(self._filled())

    def compute(
        self,
        other: FID,
        *,
        extrapolate: bool = False,
        std_error: bool = False,
        rows: tuple[WeightedRows, WeightedRows] | None = None,
    ) -> Estimate:
        """Frechet distance from this set (`p`) to the other (`q`).

        Its standard error comes from the groups, or from `rows`: some that stand for those of p, and those of q.
        """
        self._must_match(other, "compute")
        by_groups = std_error and rows is None
        sides = [side._filled(need=4 if by_groups else 2 if extrapolate else 1) for side in (self, other)]
        halves = [(merged(sides[0][g::2]), merged(sides[1][g::2])) for g in range(2)] if extrapolate else None

        def variance(slopes: list[Slope]) -> float:
            if rows is not None:
                p, q = rows
                return slopes[0].variance(p.x, p.weights, stand_for=self.n_) + slopes[1].variance(q.x, q.weights)
            return sum(slope.variance_of_groups(side) for slope, side in zip(slopes, sides, strict=True))

        whole = merged(sides[0]), merged(sides[1])
        return _estimate(whole, halves, variance if std_error else None)
