"""Calibration of log-ratios on held-out rows: is a classifier that says 0.8 right four times in five?

The chance that a row is from p rather than q, at equal class mass, is sigmoid(log r). `platt` fits
log r -> slope * log r + offset, `temperature` the slope alone, by the log-loss on rows that training has not seen.
`reliability` is the table of LFIW App. C.1 (10 bins) and `expected_calibration_error` its summary.

Targets are smoothed as in Platt (1999), (n + 1) / (n + 2) and 1 / (n + 2) instead of 1 and 0, so that rows that happen
to be separable do not send the slope to infinity; with weights n is the effective sample size. A slope below zero
would turn the ranking round on the word of the held-out rows alone: it is replaced by slope 0, offset 0 (r = 1).

Isotonic calibration is not offered: its plateaus at 0 and 1 are ratios of zero and infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from vestige.ratios.base import OnP, OnQ
from vestige.ratios.newton import newton_logistic

METHODS = ("platt", "temperature")


@dataclass(frozen=True)
class Affine:
    """log r -> slope * log r + offset."""

    slope: float
    offset: float
    converged: bool = True

    def __call__(self, log_ratio: Tensor) -> Tensor:
        """The calibrated log-ratio."""
        return self.slope * log_ratio + self.offset


def platt(log_p: OnP, log_q: OnQ, w_p: OnP, w_q: OnQ, *, intercept: bool = True) -> Affine:
    """Slope and offset by the balanced log-loss on held-out log-ratios of p and of q; or the slope alone."""
    w_p, w_q = w_p / w_p.sum(), w_q / w_q.sum()
    n_p, n_q = 1 / float(w_p.square().sum()), 1 / float(w_q.square().sum())
    miss_p, miss_q = 1 / (n_p + 2), 1 / (n_q + 2)  # Platt's targets: a row counts a little for the other side
    x = torch.cat([log_p, log_q, log_p, log_q])
    weights = torch.cat([w_p * (1 - miss_p), w_q * miss_q, w_p * miss_p, w_q * (1 - miss_q)]) / 2
    sign = torch.ones_like(x)
    sign[len(x) // 2 :] = -1
    # The rows above are ordered p+, q+, p-, q-: the first half pulls towards p, the second towards q.
    size = x.abs().max().clamp_min(1e-12)  # Newton in units of the largest log-ratio
    columns = [torch.ones_like(x), x / size] if intercept else [x / size]
    fit = newton_logistic(torch.stack(columns, 1), sign, weights, ridge=1e-9, tolerance=1e-12)
    slope = float(fit.head[-1] / size)
    if slope <= 0:
        return Affine(0.0, 0.0, fit.converged)
    return Affine(slope, float(fit.head[0]) if intercept else 0.0, fit.converged)


def calibrate(method: str | None, log_p: OnP, log_q: OnQ, w_p: OnP, w_q: OnQ) -> Affine:
    """The map that `method` fits; None is the identity. "temperature" leaves log r = 0 where it is."""
    if method is None:
        return Affine(1.0, 0.0)
    return platt(log_p, log_q, w_p, w_q, intercept=method == "platt")


def two_fold(method: str | None, log_p: OnP, log_q: OnQ, w_p: OnP, w_q: OnQ) -> tuple[OnP, OnQ]:
    """Calibrated log-ratios of rows in random order, each half by the map of the other; r = 1 where that has none."""
    new_p, new_q = torch.zeros_like(log_p), torch.zeros_like(log_q)
    for fit, judge in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        if min(float(w_p[fit].sum()), float(w_q[fit].sum())) > 0:
            affine = calibrate(method, log_p[fit], log_q[fit], w_p[fit], w_q[fit])
            new_p[judge], new_q[judge] = affine(log_p[judge]), affine(log_q[judge])
    return new_p, new_q


@dataclass(frozen=True)
class Reliability:
    """In each bin of the stated chance: its mass, the mean stated chance, and how often the row was from p."""

    mass: Float[Tensor, " b"]
    stated: Float[Tensor, " b"]
    found: Float[Tensor, " b"]

    def as_rows(self) -> list[dict[str, Any]]:
        """One plain dict a bin that is not empty, for reports."""
        rows = zip(self.mass.tolist(), self.stated.tolist(), self.found.tolist(), strict=True)
        return [{"bin": i, "mass": m, "stated": s, "found": f} for i, (m, s, f) in enumerate(rows) if m > 0]


def reliability(log_p: OnP, log_q: OnQ, w_p: OnP, w_q: OnQ, *, bins: int = 10) -> Reliability:
    """Bins of equal width of sigmoid(log r), with p and q at half of the mass each; empty bins hold zeros."""
    chance = torch.sigmoid(torch.cat([log_p, log_q]))
    weights = torch.cat([w_p / w_p.sum(), w_q / w_q.sum()]) / 2
    from_p = torch.cat([torch.ones_like(log_p), torch.zeros_like(log_q)])
    bin_of = (chance * bins).long().clamp_max(bins - 1)
    mass, stated, found = (
        torch.zeros(bins, dtype=weights.dtype).index_add_(0, bin_of, w)
        for w in (weights, weights * chance, weights * from_p)
    )
    share = torch.where(mass > 0, mass, 1.0)
    return Reliability(mass, stated / share, found / share)


def expected_calibration_error(table: Reliability) -> float:
    """sum over bins of mass * |found - stated|."""
    return float((table.mass * (table.found - table.stated).abs()).sum())


def held_out_figures(log_p: OnP, log_q: OnQ, w_p: OnP, w_q: OnQ) -> dict[str, Any]:
    """Balanced log-loss and accuracy, calibration error and the reliability table."""
    w_p, w_q = w_p / w_p.sum(), w_q / w_q.sum()
    table = reliability(log_p, log_q, w_p, w_q)
    # One above zero, one half at it: a coin is thrown where the classifier has no opinion.
    right = w_p @ (torch.sign(log_p) + 1) / 2 + w_q @ (1 - torch.sign(log_q)) / 2
    return {
        "log_loss": float(w_p @ softplus(-log_p) + w_q @ softplus(log_q)) / 2,
        "accuracy": min(1.0, float(right) / 2),  # sums of shares exceed 1 by rounding only
        "ece": expected_calibration_error(table),
        "reliability": table.as_rows(),
    }
