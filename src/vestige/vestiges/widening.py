"""Widening: from an interval of D(d, q), d what stands for the data p, to one of D(p, q).

Draws d of a vestige are near the data and not equal to it. How far was measured when the rows were here: e, an upper
limit of D(p, d). What follows for the distance of the data itself depends on the divergence.

- The square roots of JS (Endres and Schindelin 2003), of hellinger2 = 1 - BC and of MMD^2 (KID among them) satisfy the
  triangle inequality, so sqrt D(p, q) is within sqrt e of sqrt D(d, q), and the interval becomes
  [(sqrt low - sqrt e)^2, (sqrt high + sqrt e)^2], 0 below where that root is negative, cut at the largest value.
- Total variation is a metric itself: [low - t, high + t]. The limit t of TV(p, d) comes from those of JS and of
  hellinger2, whichever is smaller: TV <= H sqrt(2 - H^2), H^2 = hellinger2 (Le Cam 1969), and
  JS >= log 2 - h((1 - TV) / 2), h the binary entropy in nats (Fano's inequality: (1 - TV) / 2 is the error of the best
  guess from which of two sets a row came; JS is what the row tells about that).
- kl, reverse_kl, jeffreys and both chi^2 have no such bound: where d has a little mass and p has none, or the other way
  round, they differ by any amount. What holds is an inequality for p and q themselves. Renyi divergences grow with
  their order, so kl >= -2 log(1 - hellinger2), order 1/2 against 1, and chi^2 >= (1 - hellinger2)^-2 - 1, order 1/2
  against 2; hellinger2 is symmetric, so the reverse of either has the same bound. jeffreys and hellinger2 are means
  over the even mixture of p and q of 4 t artanh t and of 1 - sqrt(1 - t^2), t = |p - q| / (p + q), and the first is a
  convex function of the second, so jeffreys >= 4 T artanh T, T^2 = 1 - (1 - hellinger2)^2 (Jensen). Each is reached by
  some p and q. All of them are therefore "at least" this function of the widened low end of hellinger2, while the value
  stays that of the draws.

e and the interval are each right at their level, not both at once. Where e itself could not be promised, nothing is
left to promise but that a divergence is not negative: "at least" 0.

`tests/vestiges/test_widening.py` holds all of it against random distributions on six points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from vestige.core import Estimate
from vestige.ratios.divergences import FAMILY

ROOT_IS_A_METRIC = ("js", "hellinger2", "js_smoothed", "hellinger2_smoothed", "mmd2", "kid")
ENTROPY_STEPS = 60  # halvings of the interval in which a total variation is looked for
# The least value at a given hellinger2, of which BC = 1 - hellinger2.
LEAST_BY_HELLINGER: dict[str, Callable[[float], float]] = {
    "kl": lambda bc: -2 * math.log(bc),
    "reverse_kl": lambda bc: -2 * math.log(bc),
    "jeffreys": lambda bc: 4 * (t := math.sqrt(1 - bc**2)) * math.atanh(min(t, 1 - math.ulp(1.0))),
    "pearson_chi2": lambda bc: bc**-2 - 1,
    "neyman_chi2": lambda bc: bc**-2 - 1,
}
UNSURE = "how far the reference draws are from the data could not be told when the rows were here"


@runtime_checkable
class ErrorLimits(Protocol):
    """How far what stands for the data is from it, by the name of a divergence or metric."""

    def limit(self, name: str) -> float:
        """The upper limit; infinite where there is none."""
        ...

    def sure(self, name: str) -> bool:
        """Whether the limit is a promise."""
        ...


def by_root(low: float, high: float, e: float, upper: float = math.inf) -> tuple[float, float]:
    """The ends of D(p, q), whose root is a metric, from those of D(d, q) and the limit e of D(p, d)."""
    root_low, root_high = (math.sqrt(max(end, 0.0)) for end in (low, high))
    return max(root_low - math.sqrt(e), 0.0) ** 2, min((root_high + math.sqrt(e)) ** 2, upper)


def total_variation_at_most(js: float, hellinger2: float) -> float:
    """The largest total variation that goes with this JS and this hellinger2, either of which may be a limit."""
    return min(_by_entropy(js), _by_hellinger(hellinger2))


def _by_hellinger(hellinger2: float) -> float:
    h2 = min(hellinger2, 1.0)
    return math.sqrt(h2 * (2 - h2))


def _by_entropy(js: float) -> float:
    """The t at which log 2 - h((1 - t) / 2) is `js`; it grows with t."""

    def least_js(t: float) -> float:
        return sum(s * math.log1p(sign * t) for s, sign in (((1 + t) / 2, 1), ((1 - t) / 2, -1)) if s > 0)

    if js >= math.log(2):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(ENTROPY_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if least_js(middle) < js else (low, middle)
    return high


def total_variation_limit(errors: ErrorLimits) -> float:
    """The limit of the total variation between the data and what stands for it: 1 where nothing is promised."""
    js, hellinger2 = (errors.limit(name) if errors.sure(name) else math.inf for name in ("js", "hellinger2"))
    return total_variation_at_most(js, hellinger2)


def widened(found: Mapping[str, Estimate], errors: ErrorLimits) -> dict[str, Estimate]:
    """Divergences and metrics by name, of draws against new rows, as estimates of the data against new rows.

    Each keeps its value, which is that of the draws; what has no limit is "at least" what hellinger2 promises.
    """
    out = {name: _of_metric(name, one, errors) for name, one in found.items() if name not in LEAST_BY_HELLINGER}
    apart = out.get("hellinger2")
    least = apart.low if apart is not None and apart.known else 0.0
    for name, estimate in found.items():
        if name in LEAST_BY_HELLINGER:
            out[name] = _at_least(name, estimate, least)
    return {name: out[name] for name in found}


def _of_metric(name: str, estimate: Estimate, errors: ErrorLimits) -> Estimate:
    if not estimate.known:
        return estimate
    if name == "total_variation":
        e = total_variation_limit(errors)
        low, high = max(estimate.low - e, 0.0), min(estimate.high + e, 1.0)
        promised = errors.sure("js") or errors.sure("hellinger2")
    else:
        assert name in ROOT_IS_A_METRIC, name
        plain = name.removesuffix("_smoothed")
        e, promised = errors.limit(name), errors.sure(name)
        low, high = by_root(estimate.low, estimate.high, e, FAMILY[plain].upper if plain in FAMILY else math.inf)
    details = {**estimate.details, "from_draws": (estimate.low, estimate.high), "own_error": e}
    if not promised:
        reason = "; ".join(filter(None, (UNSURE, estimate.reason)))
        return estimate.but(low=min(0.0, estimate.value), high=high, verdict="at least", reason=reason, details=details)
    return estimate.but(low=min(low, estimate.value), high=high, details=details)  # an unbiased MMD^2 may be negative


def _at_least(name: str, estimate: Estimate, hellinger2: float) -> Estimate:
    """One that no distance bounds: its low end is what the low end of hellinger2 implies."""
    if not estimate.known:
        return estimate
    low = max(LEAST_BY_HELLINGER[name](max(1 - hellinger2, math.ulp(1.0))), 0.0)
    told = "by the Hellinger distance, as the error of reference draws bounds nothing else of it"
    details = {**estimate.details, "from_draws": (estimate.low, estimate.high)}
    reason = "; ".join(filter(None, (told, estimate.reason)))
    return estimate.but(low=min(low, max(estimate.value, 0.0)), verdict="at least", reason=reason, details=details)
