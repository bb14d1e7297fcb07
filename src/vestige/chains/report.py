"""What a step of a chain says: divergences per task and averaged (CDRE Eq. 13), each with error, worth and verdict.

Two-sided forms on held-out log-ratios where there is a stand-in for p, Eq. 4 where there is none. The standard error is
the influence form of `divergences.estimate` for ratios that were learnt, plus the error of the stand-in's weights:
Var_w(f'(r)) / n_real for the data they came from, and as much again, by its effective size, for each stand-in before.
The weights are balanced to the data, so the two parts overlap and the interval is a little too wide rather than too
narrow. The average over tasks adds errors as independent ones; tasks share no samples.

A verdict is "ok"; "lower estimate: ..." where bias rules and the interval cannot be trusted on its upper side (held-out
log-ratios fall short of the truth on average); or "refused: ...", and the value is NaN.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy.special import ndtri

from vestige import divergences
from vestige.chains.strategy import Found
from vestige.divergences import Estimate
from vestige.numerics import weighted_mean

Task = str | int
AVERAGE = "average"


@dataclass(frozen=True)
class Limits:
    """Where doubt begins, and where an answer is refused.

    Rows seen in training may look further from q than held-out ones by the standard error of kl, taken to lie in
    [gap_least, gap_most] nats: 2-d Gaussians stay below 0.01, and the bias of 64 and 100 dimensions shows as 0.03 to
    0.3, beside a standard error that knows nothing of it.
    """

    gap_least: float = 0.01
    gap_most: float = 0.02
    ess: float = 0.3  # what the stand-in's samples should be worth, as a share
    refused_ess: float = 0.05  # and what they must
    tail: float = 0.7  # tail index of Eq. 4's terms


@dataclass(frozen=True)
class TaskReport:
    """One task at one step."""

    task: Task
    born: int  # the step at which its data was here
    depth: int
    gap: float
    stand_in: int
    stand_in_ess: float
    estimates: Mapping[str, Estimate]
    doubts: tuple[str, ...]  # why the values are lower estimates
    notes: tuple[str, ...]

    def verdict(self, name: str) -> str:
        """In words, for one divergence."""
        estimate = self.estimates[name]
        if estimate.refusal:
            return f"refused: {estimate.refusal}"
        return f"lower estimate: {'; '.join(self.doubts)}" if self.doubts else "ok"


@dataclass(frozen=True)
class StepReport:
    """What one step found."""

    step: int
    tasks: tuple[TaskReport, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is not on firm ground, one sentence each."""
        out = []
        for r in self.tasks:
            head = f"Task {r.task!r} at step {self.step}: "
            out += [head + doubt + "." for doubt in r.doubts] + [head + note for note in r.notes]
        return tuple(out)

    def table(self, names: Iterable[str]) -> pd.DataFrame:
        """One row for each task and divergence, then the averages over tasks."""
        names = list(names)
        rows = [row(r.task, r.estimates[n], r.depth, r.verdict(n)) for r in self.tasks for n in names]
        rows += [row(AVERAGE, *averaged([(r.estimates[n], r.depth, r.verdict(n)) for r in self.tasks])) for n in names]
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: None where a number is not finite."""
        tasks = []
        for r in self.tasks:
            fields = {f.name: getattr(r, f.name) for f in dataclasses.fields(r)}
            fields["estimates"] = {name: e.to_json() for name, e in r.estimates.items()}
            tasks.append(fields | {"doubts": list(r.doubts), "notes": list(r.notes)})
        return {"step": self.step, "tasks": tasks}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StepReport:
        """The inverse of `to_json`."""
        tasks = []
        for entry in fields["tasks"]:
            found = {name: _estimate(e) for name, e in entry["estimates"].items()}
            lists = {"doubts": tuple(entry["doubts"]), "notes": tuple(entry["notes"])}
            tasks.append(TaskReport(**{**entry, **lists, "estimates": found}))
        return cls(fields["step"], tuple(tasks))

    def __str__(self) -> str:
        lines = [f"step {self.step}"]
        for r in self.tasks:
            known = [str(e) for e in r.estimates.values() if not e.refusal]
            verdict = f"lower estimate: {'; '.join(r.doubts)}" if r.doubts else "ok"
            lines.append(f"task {r.task!r}: {'; '.join(known)}. {verdict}")
        return "\n".join(lines)


def _estimate(fields: Mapping[str, Any]) -> Estimate:
    nan = {k: math.nan for k in ("value", "std_error", "low", "high") if fields[k] is None}
    return Estimate(**{**fields, **nan, "warnings": tuple(fields["warnings"])})


def row(task: Task, estimate: Estimate, depth: int, verdict: str) -> dict[str, Any]:
    """One line of the table."""
    e = estimate
    values = {"value": e.value, "std_error": e.std_error, "low": e.low, "high": e.high, "ess": e.ess}
    return {"task": task, "divergence": e.name, **values, "depth": depth, "verdict": verdict}


def averaged(parts: list[tuple[Estimate, int, str]]) -> tuple[Estimate, int, str]:
    """Eq. 13: the mean over tasks; NaN where a task was refused. The worst ESS, depth and verdict stand for all."""
    estimates = [e for e, _, _ in parts]
    first, k = estimates[0], len(estimates)
    value = sum(e.value for e in estimates) / k
    std_error = math.sqrt(sum(e.std_error**2 for e in estimates)) / k
    reach = float(ndtri((1 + first.level) / 2)) * std_error
    ess, depth = min(e.ess for e in estimates), max(depth for _, depth, _ in parts)
    verdicts = [verdict for _, _, verdict in parts if verdict != "ok"]
    worst = min(verdicts, key=lambda v: not v.startswith("refused"), default="ok")
    verdict = worst if k == 1 or worst == "ok" else f"{worst} ({len(verdicts)} of {k} tasks)"
    joined = dataclasses.replace(
        first, value=value, std_error=std_error, low=value - reach, high=value + reach, ess=ess, pareto_k=None
    )
    return joined, depth, verdict


def judge(found: Found, names: Iterable[str], *, level: float, limits: Limits) -> dict[str, Estimate]:
    """The divergences of one task from its log-ratios."""
    if found.log_ratio_p is None:  # Eq. 4; its value is shown even where its tail makes it a lower estimate
        return divergences.estimates(names, found.log_ratio_q, samples="q", form="eq4", max_k=math.inf, level=level)
    sides = found.log_ratio_q, found.log_ratio_p
    out = divergences.estimates(names, *sides, p_weights=found.p_weights, error="influence", level=level)
    if found.p_weights is None:
        return out
    return {name: _widened(name, e, found, level, limits) for name, e in out.items()}


def _widened(name: str, e: Estimate, found: Found, level: float, limits: Limits) -> Estimate:
    """With the error of the stand-in's weights; refused where they are worth too little."""
    if e.refusal:
        return e
    if found.stand_in_ess < limits.refused_ess * found.stand_in:
        refusal = (
            f"The {name} cannot be estimated: the {found.stand_in} samples that stand for the data are worth "
            f"{found.stand_in_ess:.1f} (limit {limits.refused_ess:.0%})."
        )
        nan = dict.fromkeys(("value", "std_error", "low", "high"), math.nan)
        return dataclasses.replace(e, **nan, refusal=refusal)  # type: ignore[arg-type]
    assert found.log_ratio_p is not None
    slope = divergences.get(name).slope(found.log_ratio_p)
    spread = weighted_mean((slope - weighted_mean(slope, found.p_weights)).square(), found.p_weights)
    std_error = math.sqrt(e.std_error**2 + found.inherited * float(spread))
    reach = float(ndtri((1 + level) / 2)) * std_error
    return dataclasses.replace(e, std_error=std_error, low=e.value - reach, high=e.value + reach)


def report_of(found: Found, task: Task, born: int, names: Iterable[str], *, level: float, limits: Limits) -> TaskReport:
    """Estimates and doubts of one task."""
    estimates = judge(found, names, level=level, limits=limits)
    doubts, notes = [], []
    kl = judge(found, ["kl"], level=level, limits=limits)["kl"]
    error = kl.std_error if math.isfinite(kl.std_error) else 0.0
    if found.gap > min(max(error, limits.gap_least), limits.gap_most):
        doubts.append(f"the KL of rows seen in training is {found.gap:.2g} nats above that of held-out rows")
    if found.log_ratio_p is None and kl.pareto_k is not None and kl.pareto_k >= limits.tail:
        doubts.append(f"the tail index of Eq. 4's terms is {kl.pareto_k:.2f}, so their average misses what is rare")
    if found.stand_in and found.stand_in_ess < limits.ess * found.stand_in:
        poor = f"the samples that stand for the data are worth {found.stand_in_ess:.0f} of {found.stand_in}"
        if found.p_weights is None:  # at arrival the data itself is averaged over
            notes.append(f"from the next step on, {poor}.")
        else:
            doubts.append(poor)
    return TaskReport(
        task, born, found.depth, found.gap, found.stand_in, found.stand_in_ess, estimates, tuple(doubts), tuple(notes)
    )
