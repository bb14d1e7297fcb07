"""Log weights and what may be done to them: LFIW Eqs. 6 to 8, and tempering. Every function composes.

A log weight is log r = log p(x)/q(x) of a sample x of q. One scale throughout: an expectation under p is the *mean* of
w f, so raw weights average about one. -inf (a weight of zero) is allowed; NaN, +inf and all -inf are refused.

Deviations: `self_normalise` scales to mean one where Eq. 6 scales to sum one and drops the 1/T in front; the estimate
is the same and the other transforms keep their meaning after it. `clip` is Eq. 8, a floor and not a ceiling. `temper`
is no part of the paper: the largest flattening exponent that leaves a wanted effective sample size.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import NotEstimable, checks
from vestige.core.checks import ArrayLike, Kind

BISECTIONS = 60  # of the exponent that `temper` looks for: to the last bit


def log_weight_vector(value: object, owner: str, *, length: int | None = None) -> Float[Tensor, " n"]:
    """`value` as (n,) float64 log weights: not NaN, below +inf, above -inf somewhere."""
    log_w = checks.vector(value, "log_weights", owner, length=length, finite=False)
    bad = int((torch.isnan(log_w) | (log_w == math.inf)).sum())
    if bad:
        checks.refuse("log_weights", owner, "below +inf and not NaN", f"{bad} such values among {len(log_w)}")
    if not bool((log_w > -math.inf).any()):
        checks.refuse("log_weights", owner, "above -inf somewhere", "weights that are all zero")
    return log_w


def from_log_ratio(log_ratio: ArrayLike) -> Any:  # noqa: ANN401 - the kind that came in
    """Log-ratios of q samples as log weights: the same numbers, once they are checked."""
    return Kind.of(log_ratio).give(log_weight_vector(log_ratio, "weights.from_log_ratio").clone())


def self_normalise(log_weights: ArrayLike) -> Any:  # noqa: ANN401
    """Eq. 6: divided by their mean, so that the normaliser of the ratio no longer matters."""
    log_w = log_weight_vector(log_weights, "weights.self_normalise")
    return Kind.of(log_weights).give(log_w - torch.logsumexp(log_w, 0) + math.log(len(log_w)))


def flatten(log_weights: ArrayLike, alpha: float) -> Any:  # noqa: ANN401
    """Eq. 7: w^alpha. One keeps the weights, zero makes all of them one, those of zero too."""
    alpha = checks.number(alpha, "alpha", "weights.flatten", low=0, high=math.inf, open_high=True)
    log_w = log_weight_vector(log_weights, "weights.flatten")
    return Kind.of(log_weights).give(_powered(log_w, alpha))


def clip(log_weights: ArrayLike, beta: float) -> Any:  # noqa: ANN401
    """Eq. 8: max(w, beta), a floor. Zero keeps the weights."""
    beta = checks.number(beta, "beta", "weights.clip", low=0, high=math.inf, open_high=True)
    log_w = log_weight_vector(log_weights, "weights.clip")
    return Kind.of(log_weights).give(log_w.clamp_min(math.log(beta)) if beta > 0 else log_w.clone())


class Tempered(NamedTuple):
    """Flattened log weights, the exponent that was needed, and the effective fraction it leaves."""

    log_weights: Any
    alpha: float
    ess_fraction: float


def temper(log_weights: ArrayLike, min_ess: float = 0.1) -> Tempered:
    """w^alpha with the largest alpha in [0, 1] whose ESS is at least `min_ess` of n, by bisection.

    The ESS falls as alpha grows (log ESS = 2 L(alpha) - L(2 alpha), L convex), so there is one such alpha. Zero weights
    stay zero; where they alone push the ESS below `min_ess` there is none, and that is refused.
    """
    owner = "weights.temper"
    min_ess = checks.number(min_ess, "min_ess", owner, low=0, high=1, open_low=True)
    log_w = log_weight_vector(log_weights, owner)
    positive = log_w[log_w > -math.inf]
    wanted = min_ess * len(log_w) * (1 - 1e-12)  # equal weights have an ESS of n up to rounding
    if len(positive) < wanted:
        share = len(positive) / len(log_w)
        raise NotEstimable(
            f"No tempering reaches an ESS of {min_ess:g} n: only {share:.3g} of the weights are positive."
        )
    low, high = 0.0, 1.0
    if kish(positive) >= wanted:
        low = 1.0
    else:
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if kish(middle * positive) >= wanted else (low, middle)
    tempered = torch.where(log_w > -math.inf, _powered(log_w, low), -math.inf)
    return Tempered(Kind.of(log_weights).give(tempered), low, kish(tempered) / len(log_w))


def kish(log_w: Float[Tensor, " n"]) -> float:
    """Kish's effective sample size (sum w)^2 / sum w^2, of checked log weights."""
    return float((2 * torch.logsumexp(log_w, 0) - torch.logsumexp(2 * log_w, 0)).exp())


def _powered(log_w: Float[Tensor, " n"], alpha: float) -> Float[Tensor, " n"]:
    return alpha * log_w if alpha > 0 else torch.zeros_like(log_w)  # 0 * -inf is NaN
