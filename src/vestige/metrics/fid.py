"""Frechet distance between Gaussians fitted to two sets of features (FID: Heusel et al. 2017, Eq. 6), with weights.

|m_p - m_q|^2 + tr S_p + tr S_q - 2 tr (S_p S_q)^1/2, in float64, the last trace by `numerics.psd`. Covariances are
unbiased (n - 1; with weights the reliability form, divisor 1 - sum w^2 for weights that sum to one).

FID is biased upwards by a clean c/n. `extrapolate=True` removes that term as in Chong and Forsyth 2020 (FID-infinity).
Deviations: they fit a line over 15 random subset sizes of the model's samples; here both sets are cut in two halves,
which use every sample once, and the line goes through whole and halves (Richardson); n is the effective sample size,
so that weighted sets extrapolate too. The standard error is the delete-a-group jackknife's; the extrapolated value has
the same first-order terms, hence the same standard error.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, VestigeWarning, checks
from vestige.core.checks import ArrayLike, learnt, option
from vestige.core.numerics import Moments, psd_root, sqrt_trace_gram, sqrt_trace_psd
from vestige.metrics.base import Accumulator, WeightedRows, jackknife, measured, merged, two_sets

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


def _distance(p: Side, q: Side) -> float:
    return sum(_terms(p, q))


def _estimate(p: list[Side], q: list[Side], *, extrapolate: bool, std_error: bool) -> Estimate:
    """FID of two sets in equally many groups."""
    whole_p, whole_q = merged(p), merged(q)
    mean_term, covariance_term = _terms(whole_p, whole_q)
    value, size_p, size_q = mean_term + covariance_term, whole_p.ess, whole_q.ess
    details = {
        "mean_term": mean_term,
        "covariance_term": covariance_term,
        "ess_p": size_p,
        "ess_q": size_q,
        "form": "gram" if isinstance(whole_p, WeightedRows) or isinstance(whole_q, WeightedRows) else "moments",
        "extrapolated": extrapolate,
    }
    error = jackknife(p, q, _distance) if std_error else None
    if extrapolate:
        width = len(whole_p.mean) if isinstance(whole_p, Moments) else whole_p.x.shape[1]
        if min(size_p, size_q) <= width:
            warnings.warn(
                f"FID extrapolates poorly from fewer effective samples than features ({width}).", VestigeWarning, 3
            )
        middle = len(p) // 2
        halves = [(merged(p[part]), merged(q[part])) for part in (slice(middle), slice(middle, None))]
        mean_of_halves = sum(_distance(a, b) for a, b in halves) / 2
        # 1/n of a half over 1/n of the whole: 2 without weights.
        steps = [size_p / a.ess + size_q / b.ess for a, b in halves]
        bias = (mean_of_halves - value) / (sum(steps) / 4 - 1)
        details["bias_removed"] = bias
        value -= bias
    return measured("fid", value, error, details, biased=not extrapolate)


def fid(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    extrapolate: bool = False,
    std_error: bool = False,
    groups: int = 20,
) -> Estimate:
    """Frechet distance between real features `p` and the model's `q`; `extrapolate` removes its bias of order 1/n.

    `std_error=True` costs `groups` further distances.
    """
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "fid")
    groups = checks.whole(groups, "groups", "fid", low=4) if std_error else 2 if extrapolate else 1
    if groups > 1 and (least := min(len(x), len(y))) < 2 * groups:
        groups = 2 * (least // 4)
        if groups < 2 + 2 * std_error:
            checks.refuse("p and q", "fid", "at least 4 samples to extrapolate, 8 for a standard error", f"{least}")

    def grouped(rows: Tensor, weights: Tensor | None) -> list[Side]:
        summary = WeightedRows if len(rows) < rows.shape[1] else Moments.of
        w = rows.new_ones(len(rows)) if weights is None else weights
        return [summary(rows[g::groups], w[g::groups]) for g in range(groups)]

    return _estimate(grouped(x, x_w), grouped(y, y_w), extrapolate=extrapolate, std_error=std_error)


@dataclass(eq=False, kw_only=True)
class FID(Accumulator[Moments]):
    """The moments of one set of features; `real.compute(fake)`.

    Two groups allow extrapolation, four or more a standard error; each group keeps a matrix of the width squared.
    """

    groups: int = option(1, low=1)
    summaries_: list[Moments | None] = learnt()

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Moments:
        return Moments.of(x, weights)

    def compute(self, other: FID, *, extrapolate: bool = False, std_error: bool = False) -> Estimate:
        """Frechet distance from this set (`p`) to the other (`q`)."""
        self._must_match(other, "compute")
        need = 4 if std_error else 2 if extrapolate else 1
        p, q = (side._filled(need=need) for side in (self, other))
        return _estimate(list(p), list(q), extrapolate=extrapolate, std_error=std_error)
