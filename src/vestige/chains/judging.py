"""From log-ratios to a report: the value of each divergence, its error, and what there is to doubt.

Two-sided forms on held-out log-ratios where there is a stand-in for p, Eq. 4 of CDRE where there is none. The standard
error is the influence form of `divergences.estimate` for ratios that were learnt; `one_step` may move the value, and
adds what it shows of the ratio's own error; and last comes the error of the stand-in's weights: Var_w(f'(r)) / n_real
for the data they came from, and as much again, by its effective size, for each stand-in before. The weights are
balanced to the data, so the parts overlap. All this is what the best of estimators would be off by; ours, stacked from
a few regularised models, is off by up to 1.25 of it (melting modes, 36 data sets), and `Limits.slack` makes up for it.

Of the other views one is a reason for doubt: where the value is Eq. 4, the same ratio averaged over the samples that
stand for the data. In the paper's chain on its Fig. 2a with lambda_c = 10 and n = 5000, Eq. 4 says 1.25 at t = 10 with
light tails, 2.09 is found there, and the truth is 2.61. Where the value rests on both sides already, Eq. 4 is the view
that fails first, and its distance says nothing of the value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from vestige.chains.one_step import corrected, with_error
from vestige.chains.report import Limits, Task, TaskReport
from vestige.chains.strategy import Found
from vestige.chains.views import of_points, views_of
from vestige.core.estimate import Estimate
from vestige.core.numerics import weighted_mean
from vestige.ratios import divergences
from vestige.ratios.divergences.terms import Side


def judge(found: Found, names: Iterable[str], *, level: float, limits: Limits) -> dict[str, Estimate]:
    """The divergences of one task from its log-ratios."""
    if found.log_ratio_p is None:  # Eq. 4; its value is shown even where its tail makes it a lower estimate
        return divergences.estimates(names, found.log_ratio_q, samples="q", form="eq4", max_k=math.inf, level=level)
    sides = found.log_ratio_q, found.log_ratio_p
    out = divergences.estimates(names, *sides, p_weights=found.p_weights, error="influence", level=level)
    p, q = Side.of(found.log_ratio_p, found.p_weights), Side.of(found.log_ratio_q)
    out = {name: corrected(e, p, q, tail=limits.one_step_tail) for name, e in out.items()}
    if found.p_weights is not None:
        out = {name: _widened(name, e, found, limits) for name, e in out.items()}
    return {
        n: with_error(e, e.value, limits.slack * e.std_error, form=e.details["form"]) if e.known else e
        for n, e in out.items()
    }


def _widened(name: str, e: Estimate, found: Found, limits: Limits) -> Estimate:
    """With the error of the stand-in's weights; refused where they are worth too little."""
    if not e.known:
        return e
    if found.anchors_ess < limits.refused_ess * found.anchors:
        return e.withdrawn(
            f"The {name} cannot be estimated: the {found.anchors} samples that stand for the data are worth "
            f"{found.anchors_ess:.1f} (limit {limits.refused_ess:.0%})."
        )
    assert found.log_ratio_p is not None
    slope = divergences.get(name).slope(found.log_ratio_p)
    spread = weighted_mean((slope - weighted_mean(slope, found.p_weights)).square(), found.p_weights)
    return with_error(e, e.value, math.sqrt(e.std_error**2 + found.inherited * float(spread)), form=e.details["form"])


def doubts_of(found: Found, kl: Estimate, limits: Limits) -> list[str]:
    """Why the values are lower estimates, if they are; `kl` is that of `judge`."""
    doubts = []
    error = kl.std_error if math.isfinite(kl.std_error) else 0.0
    if found.gap > min(max(error, limits.gap_least), limits.gap_most):
        doubts.append(f"the KL of rows seen in training is {found.gap:.2g} nats above that of held-out rows")
    k = kl.details["pareto_k"]
    if found.log_ratio_p is None and k is not None and k >= limits.tail:
        doubts.append(f"the tail index of Eq. 4's terms is {k:.2f}, so their average misses what is rare")
    if found.log_ratio_p is None and found.anchored is not None:
        value, k = of_points("kl", found.anchored)
        if (k is None or k < limits.tail) and value - kl.value > limits.apart * error:
            doubts.append(f"over samples that stand for the data the same ratio has a KL of {value:.3g}")
    if found.p_weights is not None and found.anchors_ess < limits.ess * found.anchors:
        doubts.append(_poor(found))
    if found.bridged or kl.value > limits.far:
        # 254 for 400 nats with an interval of 4, and 13.3 for 13.0 with one of 0.3: the error is not of the samples
        doubts.append("p and q_t hardly overlap, and the interval does not know how far off the ratio is there")
    return doubts


def _poor(found: Found) -> str:
    return f"the samples that stand for the data are worth {found.anchors_ess:.0f} of {found.anchors}"


def report_of(
    found: Found,
    task: Task,
    born: int,
    names: Sequence[str],
    running_from: Mapping[str, float],
    *,
    level: float,
    limits: Limits,
) -> TaskReport:
    """Estimates and doubts of one task; `running_from` is what its last report says, empty at arrival."""
    kl = judge(found, ["kl"], level=level, limits=limits)["kl"]
    views, running_from = views_of(found, names, running_from, tail=limits.tail)
    notes = []
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
        estimates=judge(found, names, level=level, limits=limits),
        doubts=tuple(doubts_of(found, kl, limits)),
        notes=tuple(notes),
        bridged=found.bridged,
        members=1 if found.members is None else len(found.members),
        views=views,
        running_from=running_from,
    )
