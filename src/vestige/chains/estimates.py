"""From log-ratios to estimates: the value of each divergence, its error, its verdict, and what other ways give.

Where a step was fitted twice, on all rows and on fewer, its values, intervals and verdicts are those of
`divergences.learnt`, the error of the anchors' weights is added on either side (`_carried`), and what is out of reach
of either side has the last word (`ratios.support`). What follows is for steps without a second fit. Where draws of a
vestige stand for the data, what was measured of them at arrival is known to be their whole error, and intervals are
widened by it (`vestiges.widening`) instead.

Two-sided forms on held-out log-ratios where there are anchor samples for p, Eq. 4 of CDRE where there are none. The
standard error is the influence form of `divergences.estimate` for ratios that were learnt; the one-step form may move
the value, and adds what it shows of the ratio's own error; and last comes the error of the anchors' weights:
Var_w(f'(r)) / n_real for the data they came from, and as much again, by their effective size, for each set of anchors
before. The weights are balanced to the data, so the parts overlap. All this is what the best of estimators would be off
by; ours, stacked from a few regularised models, is off by up to 1.25 of it (melting modes, 36 data sets), and
`ChainLimits.slack` makes up for it.

The one-step form of a divergence has an error of second order in that of a learnt ratio:

    D_f = E_p[f'(r)] + E_q[f(r) - r f'(r)]

For any r the right side is the variational bound at the critic f'(r), so it is flat at the true ratio: a ratio that is
off by a little moves it by the square of that. The two-sided forms (E_p[log r] for kl) move by the first power: on two
modes melting into one, reverse kl is 4 % low by its two-sided form and 2 % low by this one. The price is a term that
may have a heavy tail: for kl it is r on samples of q, whose second moment is infinite where q is much narrower than p.
So the value moves to the one-step form where the tail index of what that adds is below a limit, and stays where it was
otherwise. With the exact ratio the two forms agree on average, so that what they differ by, beyond the sampling noise
of the difference, shows how far the ratio is off. It goes into the error: half of it where the value has moved, the
whole where it has not. Divergences with an upper bound have bounded two-sided terms, by which they stay.

Beside the value stand, in the details of an estimate, D_f(p || q_t) from log r_t = log p/q_t in every way that applies,
each on samples of its own; NaN where one does not apply or overflows:
- `eq4`: E_q[f(r_t)] on this step's samples (CDRE Eq. 4). Where q_t is narrower than p its terms have an infinite second
  moment (of Gaussians, from sigma_q < sigma_p / sqrt 2 on) and it falls short even with the exact ratio.
- `anchored`: E_p[f(r_t) / r_t] on generated samples that are weighted to take the place of p: those of the step at
  which the data was here, or of the key; at arrival on the data itself. For kl the mean of w log r_t.
- `running`: the sum over steps of what each added, none looked at again. Let S be the samples in the place of p, and s
  the step since which they are: D_t = D_s + E_S[f(r_t) / r_t - f(r_s) / r_s]; for kl the increment is E_S[log q_s/q_t].
  S moves at every step in the paper's chain (the samples of step t-1 under r_{t-1}), with the key in `keyframe`, and
  never in `anchored`, where D_s is the average over the data at arrival and the increment has no use for its weights'
  error in what p and q_1 have in common.
`heavy` names those whose terms have a tail index of `ChainLimits.tail` or more: they are printed and not held against
the value. `spread` is the deviation over the members of an ensemble. Where p and q_t hardly overlap each sees its own
side alone, and all but the `anchored` one of kl fall short.

Where the value is Eq. 4 alone, as in the paper's chain, no held-out row has judged the ratio: the verdict is "at
least", the low end is 0, and the value is what the paper prints. An interval of sampling error alone, called "ok", held
31 of 52 js and 48 of 52 kl (three drifts, three seeds, eight steps). One more reason is the same ratio averaged over
the samples in the place of the data: on Fig. 2a with lambda_c = 10 and n = 5000, Eq. 4 says 1.25 at t = 10 with light
tails, 2.09 is found there, and the truth is 2.61. Where the value rests on both sides already, Eq. 4 is the one that
fails first, and its distance says nothing of the value.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scipy.special import ndtri

from vestige.chains.report import WAYS, ChainLimits, Task, TaskReport
from vestige.chains.strategy import Points, TaskLogRatios
from vestige.core import Estimate
from vestige.core.numerics import weighted_mean
from vestige.ratios import divergences
from vestige.ratios.divergences.estimate import Side
from vestige.ratios.divergences.learnt import Refit, one_step
from vestige.ratios.support import verdict
from vestige.vestiges.widening import ErrorLimits, widened

# Plain averages, whatever their tails: what one is worth is said by its tail index, not by a refusal.
AS_IT_IS: dict[str, Any] = {"form": "eq4", "max_k": math.inf, "min_ess": 0.0, "on_refusal": "nan"}
UNJUDGED = "Eq. 4 of a ratio that no held-out row has judged"
# The value of an average, and the tail index of its terms where there is one.
Average = tuple[float, float | None]


def corrected(e: Estimate, p: Side, q: Side, *, tail: float) -> Estimate:
    """`e`, a two-sided estimate, moved where the terms allow it, and with the distance of the forms in its error."""
    if not e.known or math.isfinite(divergences.get(e.name).upper):
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


def report_of(
    found: TaskLogRatios,
    task: Task,
    born: int,
    names: Sequence[str],
    running_from: Mapping[str, float],
    *,
    level: float,
    limits: ChainLimits,
) -> TaskReport:
    """The estimates of one task; `running_from` is what its last report says, empty at arrival."""
    every = estimated(found, dict.fromkeys((*names, "kl")), level=level, limits=limits)
    reasons = reasons_of(found, every["kl"], limits)
    estimates, next_from = {}, {}
    for name in names:
        e = every[name]
        if e.known and found.log_ratio_p is None:
            e = e.but(low=0.0)
        if e.known and reasons:
            e = e.but(verdict="at least", reason="; ".join([*reasons, *([e.reason] if e.reason else [])]))
        ways = other_ways(name, found, running_from.get(name, math.nan), tail=limits.tail)
        estimates[name] = e.but(details={**e.details, "depth": found.depth, **ways})
        next_from[name] = ways["running"] if found.moved else running_from.get(name, math.nan)
    notes = list(found.notes)
    if found.p_weights is None and found.anchors_ess < limits.ess * found.anchors:  # averaged over the data itself
        notes.append(f"from the next step on, {_poor(found)}.")
    if found.bridged:
        notes.append("the step was too far for a direct fit, and its ratio is the sum over waymarks.")
    return TaskReport(
        task,
        born,
        found.depth,
        found.gap,
        found.anchors,
        found.anchors_ess,
        estimates=estimates,
        reasons=tuple(reasons),
        notes=tuple(notes),
        bridged=found.bridged,
        members=1 if found.members is None else len(found.members),
        running_from=next_from,
        p_value=found.p_value,
        fid=found.fid,
    )


def estimated(found: TaskLogRatios, names: Iterable[str], *, level: float, limits: ChainLimits) -> dict[str, Estimate]:
    """The divergences of one task from its log-ratios."""
    if found.errors is not None:
        return _of_draws(found, dict.fromkeys(names), found.errors, level=level, limits=limits)
    if found.log_ratio_p is None:  # Eq. 4; its value is shown even where its tail makes it too small
        return divergences.estimates(names, found.log_ratio_q, samples="q", form="eq4", max_k=math.inf, level=level)
    p, q = Side.of(found.log_ratio_p, found.p_weights), Side.of(found.log_ratio_q)
    if found.fewer is not None:
        beyond = (0.0, 0.0) if found.reach is None else found.reach.shares
        out = divergences.learnt(names, p, q, Refit(p, q, *found.fewer), level=level, out_of_reach=beyond)
        if found.p_weights is not None:
            out = {name: _carried(e, p, found, limits) for name, e in out.items()}
        return out if found.reach is None else {name: verdict(name, e, found.reach) for name, e in out.items()}
    sides = found.log_ratio_q, found.log_ratio_p
    out = divergences.estimates(names, *sides, p_weights=found.p_weights, error="influence", level=level)
    for name, e in out.items():
        e = corrected(e, p, q, tail=limits.one_step_tail)
        if found.p_weights is not None and e.known:
            e = _widened(name, e, found, limits)
        out[name] = with_error(e, e.value, limits.slack * e.std_error) if e.known else e
    return out


def _of_draws(
    found: TaskLogRatios, names: Mapping[str, None], errors: ErrorLimits, *, level: float, limits: ChainLimits
) -> dict[str, Estimate]:
    """Where weighted draws stand for the data: widened by their error; what no distance bounds is refused."""
    bounded = [name for name in names if name in divergences.FAMILY]
    plain = replace(found, errors=None, anchors=0)  # what their weights are worth is in the errors
    drawn = estimated(plain, dict.fromkeys((*bounded, "hellinger2")), level=level, limits=limits)
    told = widened(drawn, errors)
    no = "The {} cannot be told from reference draws: no distance that was measured of them bounds it."
    return {n: told[n] if n in told else Estimate.refused(no.format(n), name=n, level=level) for n in names}


def _carried(e: Estimate, p: Side, found: TaskLogRatios, limits: ChainLimits) -> Estimate:
    """With the error of the anchors' weights on either side: of the data they come from, and of what was not learnt.

    Weights whose log-ratios are off by an average square of 2 m move the average of a term of deviation d by at most
    d sqrt(2 m), and by less as they are balanced: by `limits.carried` of it.
    """
    if not e.known:
        return e
    if found.anchors_ess < limits.refused_ess * found.anchors:
        return e.withdrawn(_worthless(e.name, found, limits))
    slope = divergences.get(e.name).slope(p.log_ratio)
    spread = float(weighted_mean((slope - weighted_mean(slope, p.weights)).square(), p.weights))
    error = math.sqrt(e.std_error**2 + found.inherited * spread)
    beyond = float(ndtri((1 + e.level) / 2)) * (error - e.std_error)
    beyond += limits.carried * math.sqrt(2 * found.unlearnt * spread)
    high = min(e.high + beyond, divergences.get(e.name).upper)
    e = e.but(low=e.low - beyond, high=high, std_error=error)
    if e.verdict == "ok" and beyond > limits.carried_most * max(e.value, 0.0) + 3 / found.anchors_ess:
        return e.but(verdict="at least", reason="the weights of the anchor samples are not sure enough")
    return e


def _worthless(name: str, found: TaskLogRatios, limits: ChainLimits) -> str:
    told = f"the {found.anchors} anchor samples are worth {found.anchors_ess:.1f}"
    return f"The {name} cannot be estimated: {told} (at least {limits.refused_ess:.0%} is needed)."


def _widened(name: str, e: Estimate, found: TaskLogRatios, limits: ChainLimits) -> Estimate:
    """With the error of the anchors' weights; refused where they are worth too little."""
    if found.anchors_ess < limits.refused_ess * found.anchors:
        return e.withdrawn(_worthless(name, found, limits))
    assert found.log_ratio_p is not None
    slope = divergences.get(name).slope(found.log_ratio_p)
    spread = weighted_mean((slope - weighted_mean(slope, found.p_weights)).square(), found.p_weights)
    return with_error(e, e.value, math.sqrt(e.std_error**2 + found.inherited * float(spread)))


def reasons_of(found: TaskLogRatios, kl: Estimate, limits: ChainLimits) -> list[str]:
    """Why the divergences are at least as large as the values, if they are; `kl` is that of `estimated`."""
    reasons = []
    error = kl.std_error if math.isfinite(kl.std_error) else 0.0
    if found.fewer is None and found.gap > min(max(error, limits.gap_least), limits.gap_most):
        reasons.append(f"overfitted by {found.gap:.2g} nats: more samples would help")
    if found.log_ratio_p is None:
        reasons.append(UNJUDGED)
        k = kl.details["pareto_k"]
        if k is not None and k >= limits.tail:
            reasons.append(f"a few samples carry the average of Eq. 4 (tail index {k:.2f}), which misses what is rare")
        if found.anchored is not None:
            value, k = over_points("kl", found.anchored)
            if (k is None or k < limits.tail) and value - kl.value > limits.apart * error:
                reasons.append(f"over the anchor samples the same ratio has a KL of {value:.3g}")
    if found.errors is None and found.p_weights is not None and found.anchors_ess < limits.ess * found.anchors:
        reasons.append(_poor(found))
    if found.bridged or kl.value > limits.far:
        # 254 for 400 nats with an interval of 4, and 13.3 for 13.0 with one of 0.3: the error is not of the samples
        reasons.append("the data and the model hardly overlap, and the interval does not know how far off the ratio is")
    return reasons


def _poor(found: TaskLogRatios) -> str:
    return f"the anchor samples are worth {found.anchors_ess:.0f} of {found.anchors}"


def over_points(name: str, points: Points, *, before: bool = False) -> Average:
    """E_p[f(r)/r] over `points`, of r_t or of the ratio `before`, and the tail index of the terms."""
    log_ratio = points.before if before else points.log_ratio
    found = divergences.estimate(name, None, log_ratio, p_weights=points.weights, samples="p", **AS_IT_IS)
    return found.value, found.details["pareto_k"]


def other_ways(name: str, found: TaskLogRatios, running_from: float, *, tail: float) -> dict[str, Any]:
    """`eq4`, `running`, `anchored`, `heavy` and `spread` of one divergence; `running` starts at `running_from`."""
    members = () if found.members is None else found.members
    on_q = [divergences.estimate(name, x, samples="q", **AS_IT_IS) for x in (found.log_ratio_q, *members)]
    values: dict[str, Average] = {"eq4": (on_q[0].value, on_q[0].details["pareto_k"])}
    if found.anchored is not None:
        values["anchored"] = over_points(name, found.anchored)
    if found.running is not None:
        now, k = over_points(name, found.running)
        if found.running.before is not None:
            then, k_then = over_points(name, found.running, before=True)
            now = running_from + now - then
            k = max((x for x in (k, k_then) if x is not None), default=None)
        values["running"] = now, k
    return {
        **{way: values.get(way, (math.nan, None))[0] for way in WAYS},
        "heavy": [way for way, (_, k) in values.items() if k is not None and k >= tail],
        "spread": statistics.stdev([e.value for e in on_q[1:]]) if len(on_q) > 2 else math.nan,
    }
