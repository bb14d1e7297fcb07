"""Expectations under p from weighted samples of q, with intervals; and resampling by weight (LFIW Eqs. 5 to 8).

`normalise=True` is Eq. 6, the ratio of sum w f to sum w; its standard error is the delta method's,
se^2 = sum w^2 (f - mean)^2 / (1 - sum w^2) with weights that sum to one, the last factor being the reliability form of
n - 1. `normalise=False` is Eqs. 5, 7 and 8, the plain mean of w f. Intervals are normal for the delta method and
percentiles for the bootstrap. Both take the weights as given: what the ratio itself does not know is not in them.

Where q does not reach a share m of p, weighted rows speak for the rest alone: E_p[f] = (1 - m) E_rest[f] + m E_m[f],
and of the last term the samples say nothing. Such an average is refused; with bounds of f the last term is bounded by
them (Manski 2003), and the interval holds what m and f may be.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.core.checks import ArrayLike, Kind
from vestige.core.estimate import share_in_words
from vestige.ratios.weights.transforms import kish, log_weight_vector

# Memory that the bootstrap's count matrix may take, in numbers.
BOOTSTRAP_CELLS = 4_000_000


def expectation(
    f_values: ArrayLike,
    log_weights: ArrayLike,
    interval: float = 0.95,
    *,
    normalise: bool = True,
    method: str = "delta",
    n_boot: int = 1000,
    seed: int = 0,
    missed: Estimate | None = None,
    bounds: tuple[float, float] | None = None,
) -> Estimate:
    """E_p[f] from f on samples of q, one value or one row a sample, and the log weights of those samples.

    Vectors where f was one. `missed` is the share of p that q does not reach (of a `Reach`; `Weighing.expectation`
    fills it in); above zero the average is refused, unless `bounds`, the least and the largest value of f, are given.
    """
    owner = "weights.expectation"
    level = checks.number(interval, "interval", owner, low=0, high=1, open_low=True, open_high=True)
    checks.one_of(method, ("delta", "bootstrap"), "method", owner)
    f = checks.samples(f_values, "f_values", owner, min_rows=2)
    log_w = log_weight_vector(log_weights, owner, length=len(f))
    scalar = getattr(f_values, "ndim", None) == 1 or (isinstance(f_values, list | tuple) and f.shape[1] == 1)
    shift = float(torch.logsumexp(log_w, 0)) if normalise else math.log(len(f))
    w = (log_w - shift).exp()  # sums to one, or carries the 1/n of the plain mean
    if not bool(torch.isfinite(w).all()):
        raise NotEstimable("Weights that overflow have no plain mean; ask for normalise=True.")
    value = w @ f
    if method == "delta":
        n = len(f)
        plain = (n * w[:, None] * f - value).square().sum(0) / (n * (n - 1))
        error = (ratio_variance(f, w) if normalise else plain).sqrt()
        z = float(ndtri((1 + level) / 2))
        low, high = value - z * error, value + z * error
    else:
        n_boot = checks.whole(n_boot, "n_boot", owner, low=2)
        draws = bootstrap_means(f, w, n_boot, normalise=normalise, generator=rng.fork(seed, "expectation"))
        error = draws.std(0)
        low, high = draws.quantile((1 - level) / 2, 0), draws.quantile((1 + level) / 2, 0)
    notes: tuple[str, ...] = ()
    if missed is not None and missed.value > 0:
        told = f"The {unreached(missed)}"
        if bounds is None:
            return Estimate.refused(
                f"{told}, and an average over its rows says nothing of that part: give the 'bounds' of f to have "
                "bounds of the average.",
                level=level,
            )
        least, largest = _bounds(bounds, f, owner)
        value = (1 - missed.value) * value + missed.value * (least + largest) / 2
        low, high = (
            pick(torch.stack([(1 - m) * end + m * limit for m in (missed.low, missed.high)]), 0)
            for pick, end, limit in ((torch.amin, low, least), (torch.amax, high, largest))
        )
        notes = (f"{told}; its part of the average is anything from {least:g} to {largest:g}.",)
    columns = f_values.columns if isinstance(f_values, pd.DataFrame) else pd.RangeIndex(f.shape[1])
    give = float if scalar else dataclasses.replace(Kind.of(f_values), index=columns).give
    return Estimate(give(value), give(low), give(high), level, give(error), n=len(f), ess=kish(log_w), notes=notes)


def unreached(missed: Estimate, real: str = "the data", fake: str = "model") -> str:
    """As in "model does not reach about 48 % of the data", and "a part of the data, at least 12 %"."""
    if missed.verdict == "at least":
        return f"{fake} does not reach a part of {real}, {share_in_words(missed)}"
    return f"{fake} does not reach {share_in_words(missed)} of {real}"


def _bounds(bounds: tuple[float, float], f: Float[Tensor, "n k"], owner: str) -> tuple[float, float]:
    """The bounds of f, which no value of f may break."""
    least = checks.number(bounds[0], "bounds", owner, open_low=True)
    largest = checks.number(bounds[1], "bounds", owner, low=least, open_high=True)
    if float(f.min()) < least or float(f.max()) > largest:
        found = f"values from {float(f.min()):g} to {float(f.max()):g}"
        checks.refuse("bounds", owner, "such that f lies within them", found)
    return least, largest


def ratio_variance(f: Float[Tensor, "n *k"], w: Float[Tensor, " n"]) -> Float[Tensor, "*k"]:
    """Delta-method variance of sum w f under weights that sum to one; infinite when one weight is all of them."""
    spare = 1 - w.square().sum()
    variance = torch.tensordot(w.square(), (f - torch.tensordot(w, f, dims=1)).square(), dims=1) / spare
    return torch.where(spare > 1e-12, variance, math.inf)


def bootstrap_means(
    f: Float[Tensor, "n k"], w: Float[Tensor, " n"], n_boot: int, *, normalise: bool, generator: torch.Generator
) -> Float[Tensor, "b k"]:
    """`n_boot` weighted means, each over n samples drawn with replacement together with their weights."""
    n = len(f)
    terms = torch.cat([w[:, None] * f, w[:, None]], 1)
    rows = max(1, BOOTSTRAP_CELLS // n)
    out = []
    for start in range(0, n_boot, rows):
        b = min(rows, n_boot - start)
        drawn = torch.randint(n, (b, n), generator=generator)
        counts = torch.zeros(b, n, dtype=torch.float64).scatter_add_(1, drawn, torch.ones(b, n, dtype=torch.float64))
        out.append(counts @ terms)
    sums = torch.cat(out)
    return sums[:, :-1] / sums[:, -1:] if normalise else sums[:, :-1]


def resample(n: int, log_weights: ArrayLike, seed: int = 0, *, method: str = "systematic") -> Any:  # noqa: ANN401
    """`n` positions drawn in proportion to the weights: ascending if "systematic" (least noise), else independent."""
    owner = "weights.resample"
    n = checks.whole(n, "n", owner, low=1)
    checks.one_of(method, ("systematic", "multinomial"), "method", owner)
    log_w = log_weight_vector(log_weights, owner)
    cumulative = torch.softmax(log_w, 0).cumsum(0)
    draws = 1 if method == "systematic" else n
    u = torch.rand(draws, dtype=torch.float64, generator=rng.fork(seed, "resample"))
    points = (torch.arange(n, dtype=torch.float64) + u) / n if method == "systematic" else u
    index = torch.searchsorted(cumulative, points * cumulative[-1], right=True)
    last = int(torch.nonzero(log_w > -math.inf)[-1])  # rounding must not step past the last positive weight
    return dataclasses.replace(Kind.of(log_weights), index=pd.RangeIndex(n)).give(index.clamp_max(last))
