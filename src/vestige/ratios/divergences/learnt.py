"""Divergences from log-ratios that were learnt: a value, an interval that holds, and a word for what it is worth.

Three errors are in the interval. Two of them have formulas:
- **sampling**: the standard error of the efficient estimate when the ratio itself comes from as many rows,
  Var_p(f'(r)) / n_p + Var_q(f(r) - r f'(r)) / n_q (`influence_variance`); none falls below one over the rows;
- **the fitted ratio, downwards**: for any r that has not seen the rows, the one-step form
  E_p[f'(r)] + E_q[f(r) - r f'(r)] is a lower bound of D_f (Nguyen, Wainwright and Jordan 2010) and flat at the true
  ratio. The low end lies below it and below the two-sided form of `family`.

The third has none: what the models have **not learnt yet**. It is measured by a second fit that has seen fewer rows
(two folds instead of five). If the first were the truth, the second would fall short of D_f by the `movement`
E_p[f''(r) r (s - s')^2] / 2, s and s' the log-ratios of the fits. A fit that still moves when rows are added has more
to learn: the value gains ADDED movements, and the high end max(ROOT sqrt(movement value), TIMES movement) on top. The
constants are chosen on families of pairs with known truth and reported on others (`python -m benchmarks truth`).
Nothing moves where no model begins to learn, so this is no proof; what betrays that case is the support and the
neighbours of the rows (`ratios.support`).

The verdict is "at least", which promises the low end alone, where the high end would add more than WIDEST of the value,
and where the mean of r over q, which should be one, is not (of 1/r over p for the reverse): a part of p is then rare or
missing among the rows of q, where the log-ratio of an unbounded divergence is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from vestige.core import Estimate
from vestige.ratios.divergences.estimate import Form, Side, estimate, value_of
from vestige.ratios.divergences.family import FDivergence, Map, get

ADDED, ROOT, TIMES = 1.0, 0.5, 4.0
WIDEST, FLOOR = 0.35, 10.0  # of the value, and of one over the rows
# How far that mean may be from one: a share, unless so many standard errors are more.
OFF_SHARE, OFF_ERRORS, OFF_REFUSED = 0.07, 2.0, 0.5


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


class Refit(NamedTuple):
    """Held-out log-ratios of the rows that both fits were made on, and those of the second fit."""

    p: Side
    q: Side
    fewer_p: Float[Tensor, " n_p"]
    fewer_q: Float[Tensor, " n_q"]


def movement(div: FDivergence, refit: Refit) -> float:
    """How far the second fit would fall short of the divergence if the first were the truth, to second order.

    Averaged over the sides on which the two-sided form has terms. Of total variation, whose f has a kink in place of a
    second derivative, it is 2 E[|tanh(s / 2)|] over the even mixture where the fits have different signs.
    """
    parts = []
    for side, fewer, used, slope in (
        (refit.p, refit.fewer_p, div.two_sided[0], div.slope),
        (refit.q, -refit.fewer_q, div.two_sided[1], get(div.reverse).slope),
    ):
        if used is None:
            continue
        own = side.log_ratio if side is refit.p else -side.log_ratio
        if div.name == "total_variation":
            terms = 2 * torch.tanh(own / 2).abs() * (own.sign() != fewer.sign())
        else:
            with torch.enable_grad():
                knob = own.clone().requires_grad_()
                curvature = torch.autograd.grad(slope(knob).sum(), knob)[0]
            terms = curvature * (own - fewer).square() / 2
        parts.append(float(side.weights @ terms))
    return sum(parts) / len(parts)


def learnt(names: Iterable[str], p: Side, q: Side, refit: Refit | None, *, level: float = 0.95) -> dict[str, Estimate]:
    """Divergences by name; without a second fit, which is what the high end rests on, they are "at least".

    Details beside those of `estimate`: `two_sided` and `one_step`, the values of the two forms, and `movement`.
    """
    return {name: _learnt(name, p, q, refit, level=level) for name in names}


def _learnt(name: str, p: Side, q: Side, refit: Refit | None, *, level: float) -> Estimate:
    div, bound = get(name), one_step(name, p, q).value
    plain = float(value_of(Form(*div.two_sided, "two_sided", False), {"p": p, "q": q}, 0.0))
    sides: dict[str, Any] = {"q_weights": q.weights, "p_weights": p.weights}
    found = estimate(name, q.log_ratio, p.log_ratio, error="influence", level=level, on_refusal="nan", **sides)
    found = found.but(details={**found.details, "two_sided": plain, "one_step": bound})
    if not found.known:
        return found
    reach = float(ndtri((1 + level) / 2)) * found.std_error
    found = found.but(low=min(plain, bound if math.isfinite(bound) else plain) - reach)
    if refit is None:
        found = found.but(verdict="at least", reason="there was no second fit to tell what is not learnt yet")
        return _ruled(found, p, q)
    moved = movement(div, refit)
    missing = max(ROOT * math.sqrt(max(moved * plain, 0.0)), TIMES * moved)
    value, high = min(plain + ADDED * moved, div.upper), min(plain + missing + reach, div.upper)
    found = found.but(value=value, high=max(high, value), details={**found.details, "movement": moved})
    if missing > WIDEST * max(value, 0.0) + FLOOR / min(p.ess(), q.ess()):
        found = found.but(verdict="at least", reason="more rows would still change the ratio, so it may be larger")
    return _ruled(found, p, q)


def _ruled(found: Estimate, p: Side, q: Side) -> Estimate:
    """Refuse an unbounded divergence whose ratio is off where one side is rare, or promise its low end alone."""
    for needed in get(found.name).needs:
        side, own, sign, ratio = ("fake", q, 1, "r") if needed == "p" else ("real", p, -1, "1/r")
        values = (sign * own.log_ratio).exp()
        mean, error = float(own.weights @ values), math.sqrt(own.variance_of_mean(values))
        told = f"{side} rows are too rare where {'real' if side == 'fake' else 'fake'} rows are (the mean of {ratio} "
        told += f"over them is {mean:.2g} and should be 1)"
        if not abs(mean - 1) <= OFF_REFUSED:
            return found.withdrawn(f"The {found.name} cannot be estimated from these samples: {told}.")
        if abs(mean - 1) > max(OFF_SHARE, OFF_ERRORS * error):
            found = found.but(verdict="at least", reason=told)
    return found
