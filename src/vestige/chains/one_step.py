"""The one-step form of a divergence, whose error is of second order in that of a learnt ratio.

    D_f = E_p[f'(r)] + E_q[f(r) - r f'(r)]

For any r the right side is the variational bound at the critic f'(r), so it is flat at the true ratio: a ratio that is
off by a little moves it by the square of that. The two-sided forms (E_p[log r] for kl) move by the first power: on two
modes melting into one, reverse kl is 4 % low by its two-sided form and 2 % low by this one. The price is a term that
may have a heavy tail: for kl it is r on samples of q, whose second moment is infinite where q is much narrower than p.

So the value moves to the one-step form where the tail index of what that adds is below a limit, and stays where it was
otherwise. With the exact ratio the two forms agree on average, so that what they differ by, beyond the sampling noise
of the difference, shows how far the ratio is off. It goes into the error: half of it where the value has moved, the
whole where it has not. Divergences with an upper bound have bounded two-sided terms, by which they stay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from vestige.core import Estimate
from vestige.ratios.divergences import get
from vestige.ratios.divergences.family import Map
from vestige.ratios.divergences.terms import Side


class OneStep(NamedTuple):
    """The value of the form, and what it adds to the two-sided one: how much, how noisy, how heavy its tail."""

    value: float
    tail: float  # index of the added terms, on the heavier side
    off: float  # one-step minus two-sided
    noise: float  # sampling variance of `off`, the ratio taken as it is


def one_step(name: str, p: Side, q: Side) -> OneStep:
    """The form on held-out log-ratios of both sides."""
    div = get(name)
    dual = get(div.reverse).slope  # f(r) - r f'(r) is the slope of the reverse divergence at 1/r

    def on_q(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return dual(-log_r)

    value, off, noise, tails = 0.0, 0.0, 0.0, [-math.inf]
    for side, map_, plain in zip((p, q), (div.slope, on_q), div.two_sided, strict=True):
        apart = map_ if plain is None else _difference(map_, plain)
        terms = apart(side.log_ratio)
        value += float(side.weights @ map_(side.log_ratio))
        off += float(side.weights @ terms)
        if float(terms.max() - terms.min()) > 1e-9:  # of kl the difference is 1 on samples of p
            noise += side.variance_of_mean(terms)
            k = side.tail_index(apart, side.log_ratio)
            tails += [] if k is None else [k]
    return OneStep(value, max(tails), off, noise)


def _difference(a: Map, b: Map) -> Map:
    return lambda log_r: a(log_r) - b(log_r)


def corrected(e: Estimate, p: Side, q: Side, *, tail: float) -> Estimate:
    """`e`, a two-sided estimate, moved where the terms allow it, and with the distance of the forms in its error."""
    if not e.known or math.isfinite(get(e.name).upper):
        return e
    other = one_step(e.name, p, q)
    if not math.isfinite(other.off + other.noise):
        return e
    beyond = math.sqrt(max(other.off**2 - other.noise, 0.0))
    if other.tail < tail:
        moved = e.but(details={**e.details, "form": "one_step"})
        return with_error(moved, other.value, math.hypot(e.std_error, beyond / 2))
    return with_error(e, e.value, math.hypot(e.std_error, beyond))


def with_error(e: Estimate, value: float, std_error: float) -> Estimate:
    """`e` with another value and error, and the interval that follows."""
    reach = float(ndtri((1 + e.level) / 2)) * std_error
    return e.but(value=value, std_error=std_error, low=value - reach, high=value + reach)
