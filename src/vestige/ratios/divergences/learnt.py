"""Divergences from log-ratios that were learnt: a value, an interval that holds, and a word for what it is worth.

Three errors are in the interval. Two of them have formulas:
- **sampling**: the standard error of the efficient estimate when the ratio itself comes from as many rows,
  Var_p(f'(r)) / n_p + Var_q(f(r) - r f'(r)) / n_q (`influence_variance`); none falls below one over the rows;
- **the fitted ratio, downwards**: for any r that has not seen the rows, the one-step form
  E_p[f'(r)] + E_q[f(r) - r f'(r)] is a lower bound of D_f (Nguyen, Wainwright and Jordan 2010) and flat at the true
  ratio. The low end lies below it and below the two-sided form of `family`.

The third has none: what the models have **not learnt yet**. It is measured by a second fit that has seen fewer rows
(two folds instead of five). If the first were the truth, the second would fall short of D_f by the `movement`
m = E_p[f''(r) r (s - s')^2] / 2, s and s' the log-ratios of the fits. Of a fit whose error is a mean over the rows that
it saw, m is on average what the first one falls short by itself: with n rows its error has the variance 1.25 / n, the
second's 2 / n, and the rows that both saw make their covariance 1 / n, so that E (s - s')^2 = 1.25 / n too. The value
is therefore the two-sided form plus m. Models that still begin to learn fall short by more. How much more differs from
pair to pair and has nothing to do with the sampling error, so the two are added as independent errors are, by their
squares: the high end is value + hypot(sampling, max(root sqrt(m v), times m, hidden)), v the two-sided form. `HighEnd`
has the constants, which are chosen on families of pairs with known truth and reported on others (`python -m benchmarks
truth`).

Two more parts of the high end need no constant:
- **hidden**: where sets of n_p and n_q rows are told apart by one number at FOUND standard errors, KL has to be
  (FOUND + z)^2 (1 / n_p + 1 / n_q) / 2 for the chance of missing it to be (1 - level) / 2 (two normals that differ by
  delta in one mean have KL delta^2 / 2); near equality other divergences are f''(1) of it. What is smaller may hide;
- **beyond**: rows of p where q has nothing have an infinite ratio, and those of a learnt one are finite. With the
  shares that are out of reach (`ratios.support`) the high end of a bounded divergence holds what their terms lack,
  which is much for hellinger2, whose terms reach their bound like exp(-s / 2).

Nothing moves where no model begins to learn, so none of this is a proof; what betrays that case is the support and the
neighbours of the rows (`ratios.support`).

The verdict is "at least", which promises the low end alone, where the movement is more than `most` of the value, and
where the mean of r over q, which should be one, is not (of 1/r over p for the reverse): a part of p is then rare or
missing among the rows of q, where the log-ratio of an unbounded divergence is guessed.

Tried and dropped, on the zoo of the benchmarks: a low end that is raised by the movement (on pairs that are equal it
lay above the truth too often); the difference of the two fits' values, and how far stacks without one kind of model are
from the whole, as further measures of what is not learnt; the tail index of r over q as a reason for "at least".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from vestige.core import Estimate
from vestige.ratios.divergences.estimate import Form, Side, estimate, value_of
from vestige.ratios.divergences.family import FDivergence, Map, get

VERSION = 2  # of what `interval` gives. 2: errors added by their squares, what is hidden, what lies beyond
FOUND = (
    3.0  # standard errors from which on a difference of one number is seen for sure (`SCREEN` of the stack's curves)
)
FLOOR = 2.5  # over the rows: a movement that is no reason for "at least"
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


class HighEnd(NamedTuple):
    """The constants that no formula gives; see the module."""

    root: float = 0.7
    times: float = 5.0
    most: float = 0.06  # of the value, the largest movement of an "ok"


HIGH_END = HighEnd()


class IntervalParts(NamedTuple):
    """What an interval is made of: both forms, the sampling error, the movement, the rows, and what lies beyond."""

    two_sided: float
    one_step: float
    std_error: float
    movement: float
    n_p: float
    n_q: float
    beyond: float = 0.0


class Interval(NamedTuple):
    """The value, its ends, and whether the high one is a promise as far as the movement tells."""

    value: float
    low: float
    high: float
    sure: bool


def interval(
    name: str, parts: IntervalParts, *, level: float = 0.95, hidden: bool = True, rule: HighEnd = HIGH_END
) -> Interval:
    """The interval of a divergence from its parts.

    Example
    -------
    >>> interval("kl", IntervalParts(0.5, 0.5, 0.03, 0.01, 2000, 2000)).high > 0.51 + 1.96 * 0.03
    True
    """
    div, z, moved = get(name), float(ndtri((1 + level) / 2)), max(parts.movement, 0.0)
    sampling = z * parts.std_error
    below = parts.one_step if math.isfinite(parts.one_step) else parts.two_sided
    missing = max(rule.root * math.sqrt(max(moved * parts.two_sided, 0.0)), rule.times * moved)
    if hidden:
        missing = max(missing, _curvature(div) * (FOUND + z) ** 2 * (1 / parts.n_p + 1 / parts.n_q) / 2)
    value = min(parts.two_sided + moved, div.upper)
    high = min(parts.two_sided + moved + math.hypot(sampling, missing) + parts.beyond, div.upper)
    sure = moved <= rule.most * max(value, 0.0) + FLOOR / min(parts.n_p, parts.n_q)
    return Interval(value, min(parts.two_sided, below) - sampling, max(high, value), sure)


@cache
def _curvature(div: FDivergence) -> float:
    """f''(1); zero of total variation, which has a kink there."""
    with torch.enable_grad():
        knob = torch.zeros((), dtype=torch.float64, requires_grad=True)
        slope = div.slope(knob)
        return float(torch.autograd.grad(slope, knob)[0]) if slope.requires_grad else 0.0


def beyond(div: FDivergence, p: Side, q: Side, missed: float, made: float) -> float:
    """What a bounded divergence gains if the `missed` of p and the `made` of q with the most extreme ratios are alone.

    The terms of these rows are then at the bound of the two-sided form; zero where it has none.
    """
    gained = 0.0
    for side, sign, map_, share in ((p, 1, div.two_sided[0], missed), (q, -1, div.two_sided[1], made)):
        if map_ is None or share <= 0:
            continue
        bound = float(map_(torch.tensor(sign * math.inf, dtype=torch.float64)))
        if not math.isfinite(bound):
            continue
        order = torch.argsort(sign * side.log_ratio, descending=True)
        weights = side.weights[order]
        alone = weights.cumsum(0) <= share * (1 + 1e-9)
        gained += float((weights * (bound - map_(side.log_ratio[order])))[alone].sum())
    return max(gained, 0.0)


def learnt(
    names: Iterable[str],
    p: Side,
    q: Side,
    refit: Refit | None,
    *,
    level: float = 0.95,
    out_of_reach: tuple[float, float] = (0.0, 0.0),
    hidden: bool = True,
) -> dict[str, Estimate]:
    """Divergences by name; without a second fit, which is what the high end rests on, they are "at least".

    `out_of_reach` are the shares of p that q does not reach, and of q that p does not. `hidden=False` leaves out what
    no test would find, for limits that are added to an interval which has it already. Details beside those of
    `estimate`: `two_sided` and `one_step`, the values of the two forms, `movement` and, where it is not zero, `beyond`.
    """
    return {name: _learnt(name, p, q, refit, level, out_of_reach, hidden) for name in names}


def _learnt(
    name: str, p: Side, q: Side, refit: Refit | None, level: float, out_of_reach: tuple[float, float], hidden: bool
) -> Estimate:
    div, bound = get(name), one_step(name, p, q).value
    plain = float(value_of(Form(*div.two_sided, "two_sided", False), {"p": p, "q": q}, 0.0))
    sides: dict[str, Any] = {"q_weights": q.weights, "p_weights": p.weights}
    found = estimate(name, q.log_ratio, p.log_ratio, error="influence", level=level, on_refusal="nan", **sides)
    found = found.but(details={**found.details, "two_sided": plain, "one_step": bound})
    if not found.known:
        return found
    moved = 0.0 if refit is None else movement(div, refit)
    extra = beyond(div, p, q, *out_of_reach)
    parts = IntervalParts(plain, bound, found.std_error, moved, p.ess(), q.ess(), extra)
    ends = interval(name, parts, level=level, hidden=hidden)
    if refit is None:
        told = "there was no second fit to tell what is not learnt yet"
        return _ruled(found.but(low=ends.low, verdict="at least", reason=told), p, q)
    details = {**found.details, "movement": moved, **({"beyond": extra} if extra else {})}
    found = found.but(value=ends.value, low=ends.low, high=ends.high, details=details)
    if not ends.sure:
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
