"""Are these weights fit to compute with? Effective sample size, mean, largest share, tail; and a verdict in words.

A healthy ESS is not health when the classifier behind the weights is almost always right: all weights are then tiny
and equal, and their ESS is near n. So the accuracy and the mean raw weight (which should be near one) are read beside
it. The limits are fields of `WeightLimits`.

The tail: generalised Pareto fit and smoothing (Vehtari, Simpson, Gelman, Yao and Gabry 2024, PSIS).

k is the shape of the upper tail: moments below 1/k exist. k < 0.5: finite variance; up to 0.7 an average still settles
at practical sample sizes; from 1 on there is no mean. The fit is that of Zhang and Stephens (2009) with the paper's
weak prior at 0.5; the tail is the largest min(n/5, 3 sqrt n) values.

Written here rather than taken from arviz-stats, which is the reference of the tests: that one costs seconds to import,
raises on equal weights, normalises what it returns and has no words for zero weights. Deviations from PSIS: smoothed
weights keep the scale of the raw ones; fewer than 25 positive weights, or a tail without spread, are left as they are
with k = None. Where so many values are tied that fewer than five lie above the cutoff, as of laws on few points, those
few are all that there is to know: k = inf if they are a tenth of the sum, None if they are less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, Kind
from vestige.ratios.weights.transforms import kish, log_weight_vector

# Fewer tail values than this say nothing about a shape, unless they are such a share of the sum.
SHORTEST_TAIL, HEAVY_SHARE = 5, 0.1
# Of the grid of Zhang and Stephens, and of the prior at k = 0.5.
PRIOR_SCALE, PRIOR_COUNT, PRIOR_K = 3.0, 10.0, 0.5


def gpd_fit(excess: Float[Tensor, " m"]) -> tuple[float, float]:
    """Shape k and scale sigma of a generalised Pareto law from its ascending, positive `excess` over the cutoff.

    The posterior mean of b = -k/sigma over a grid (Zhang and Stephens 2009); k is then drawn towards PRIOR_K as by
    PRIOR_COUNT further values.
    """
    m = len(excess)
    grid = 30 + math.isqrt(m)
    steps = torch.arange(1, grid + 1, dtype=torch.float64)
    quartile = excess[int(m / 4 + 0.5) - 1]
    b = 1 / excess[-1] + (1 - (grid / (steps - 0.5)).sqrt()) / (PRIOR_SCALE * quartile)
    k = torch.log1p(-b[:, None] * excess).mean(1)
    profile = m * ((-b / k).log() - k - 1)  # b = k = 0 has the limit 1/mean; the grid meets it with probability zero
    b_mean = float(torch.softmax(profile, 0) @ b)
    shape = float(torch.log1p(-b_mean * excess).mean())
    return (m * shape + PRIOR_COUNT * PRIOR_K) / (m + PRIOR_COUNT), -shape / b_mean


class _Tail(NamedTuple):
    order: Tensor  # positions of the tail in the input, ascending by value
    cutoff: float  # largest value below the tail, relative to the maximum
    k: float
    sigma: float


def _fit_tail(log_x: Float[Tensor, " n"]) -> _Tail | None:
    """The fitted upper tail of exp(log_x) / max; None where it is too short or flat."""
    positive = int((log_x > -math.inf).sum())
    size = int(min(positive / 5, 3 * math.sqrt(positive)))
    if size < SHORTEST_TAIL:
        return None
    top, order = torch.topk(log_x, size + 1)  # descending
    relative = (top - top[0]).exp().flip(0)
    excess = relative[1:] - relative[0]
    excess = excess[excess > 0]  # ties with the cutoff carry no shape
    few = len(excess) < SHORTEST_TAIL
    if few and float(relative[size + 1 - len(excess) :].sum()) < HEAVY_SHARE * float((log_x - top[0]).exp().sum()):
        return None
    k, sigma = (math.inf, math.nan) if few else gpd_fit(excess)
    return _Tail(order[:size].flip(0), float(relative[0]), k, sigma)


def tail_index(log_x: Float[Tensor, " n"]) -> float | None:
    """Pareto k of the upper tail of exp(log_x); None where it is too short or flat, inf where one value is all."""
    tail = _fit_tail(log_x)
    return None if tail is None else tail.k


class Smoothed(NamedTuple):
    """Log weights with a smoothed upper tail, and the tail's shape."""

    log_weights: Any
    k: float | None


def pareto_smooth(log_weights: ArrayLike) -> Smoothed:
    """The largest weights replaced by the quantiles of their Pareto fit, none above the largest raw weight."""
    log_w = log_weight_vector(log_weights, "weights.pareto_smooth").clone()
    tail = _fit_tail(log_w)
    if tail is not None and math.isfinite(tail.k):
        top = log_w.max()
        m = len(tail.order)
        survival = 1 - (torch.arange(m, dtype=torch.float64) + 0.5) / m
        growth = torch.expm1(-tail.k * survival.log()) / tail.k if tail.k else -survival.log()
        log_w[tail.order] = top + (tail.cutoff + tail.sigma * growth).log().clamp_max(0.0)
    return Smoothed(Kind.of(log_weights).give(log_w), None if tail is None else tail.k)


@dataclass(frozen=True)
class WeightLimits:
    """Where a warning begins; `k_bad`, `ess_bad` and `accuracy` make the verdict "unreliable"."""

    ess_low: float = 0.1  # of n
    ess_bad: float = 10.0  # samples
    k_high: float = 0.5  # the variance of the weights is infinite from here on
    k_bad: float = 0.7  # averages settle too slowly to be of use
    share: float = 0.1  # of the total, by one sample
    mean_low: float = 0.5
    mean_high: float = 2.0
    accuracy: float = 0.95
    ece: float = 0.1


@dataclass(frozen=True)
class Diagnosis:
    """What there is to know about a set of weights before they are used."""

    n: int
    ess: float
    ess_fraction: float
    mean_weight: float
    max_share: float
    pareto_k: float | None
    accuracy: float | None
    log_loss: float | None
    ece: float | None
    verdict: str
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        k = "none" if self.pareto_k is None else f"{self.pareto_k:.2f}"
        head = f"{self.verdict}: n {self.n}, ESS {self.ess:.1f} ({self.ess_fraction:.1%}), Pareto k {k}, "
        head += f"mean weight {self.mean_weight:.3g}, largest share {self.max_share:.1%}"
        return "\n".join([head, *(f"- {w}" for w in self.warnings)])


def ess(log_weights: ArrayLike) -> float:
    """Kish's effective sample size, (sum w)^2 / sum w^2."""
    return kish(log_weight_vector(log_weights, "weights.ess"))


def mean_weight(log_weights: ArrayLike) -> float:
    """Mean of the raw weights, which estimates E_q[r] = 1; inf where it overflows."""
    log_w = log_weight_vector(log_weights, "weights.mean_weight")
    return float((torch.logsumexp(log_w, 0) - math.log(len(log_w))).exp())


def max_share(log_weights: ArrayLike) -> float:
    """The part of the total that the largest weight holds."""
    log_w = log_weight_vector(log_weights, "weights.max_share")
    return float((log_w.max() - torch.logsumexp(log_w, 0)).exp())


def diagnose(
    log_weights: ArrayLike,
    accuracy: float | None = None,
    log_loss: float | None = None,
    ece: float | None = None,
    *,
    limits: WeightLimits | None = None,
) -> Diagnosis:
    """Judge raw log weights; `accuracy`, `log_loss` and `ece` are the classifier's on held-out, balanced data."""
    owner, limits = "weights.diagnose", limits or WeightLimits()
    log_w = log_weight_vector(log_weights, owner)
    for name, value, high in (("accuracy", accuracy, 1.0), ("log_loss", log_loss, math.inf), ("ece", ece, 1.0)):
        if value is not None:
            checks.number(value, name, owner, low=0, high=high)
    n, size, mean, share, k = len(log_w), kish(log_w), mean_weight(log_w), max_share(log_w), tail_index(log_w)
    bad, care = [], []
    if accuracy is not None and accuracy > limits.accuracy:
        bad.append(
            f"The classifier tells real from generated with accuracy {accuracy:.3f}: the weights cannot mend that gap, "
            "and an ESS that looks healthy only says that all weights are about equally tiny."
        )
    if k is not None and k >= limits.k_bad:
        bad.append(f"Pareto k is {k:.2f}: a few weights decide every average, and more samples hardly help.")
    elif k is not None and k >= limits.k_high:
        care.append(f"Pareto k is {k:.2f}: the variance of the weights is infinite; averages settle slowly.")
    if size < limits.ess_bad:
        bad.append(f"The weights are worth {size:.1f} samples.")
    elif size < limits.ess_low * n:
        care.append(f"The weights are worth {size:.1f} of {n} samples; consider tempering.")
    if share > limits.share and n > 1 / limits.share:
        care.append(f"One sample holds {share:.1%} of the total weight.")
    if not limits.mean_low <= mean <= limits.mean_high:
        care.append(f"The mean raw weight is {mean:.3g} and should be near 1: the ratio is off, or q misses much of p.")
    if log_loss is not None and log_loss > math.log(2):
        care.append(f"The held-out log-loss {log_loss:.3f} is above log 2: the classifier is worse than a coin.")
    if ece is not None and ece > limits.ece:
        care.append(f"The calibration error is {ece:.3f}: probabilities, and so weights, are off.")
    verdict = "unreliable" if bad else "usable with care" if care else "good"
    return Diagnosis(n, size, size / n, mean, share, k, accuracy, log_loss, ece, verdict, (*bad, *care))
