"""What the steps of a monitor found, one file a step, and what they say together.

D[t, j] is a divergence of the samples of step t from the data of task j; NaN before the task was learnt, where it was
refused, and where the step had no samples of the task. Better is down. With b_j the step in which task j was learnt:

    forgetting      f_{t,j} = D[t, j] - min_{b_j <= s < t} D[s, j],  F_t the mean over tasks with b_j < t    RWalk Eq. 3
    intransigence   I_j     = D[b_j, j] - D*_j                                                               RWalk Eq. 4

D*_j is what a generator trained on the tasks up to j together reaches, where somebody has measured it, and 0 otherwise:
the divergence of a generator that has learnt the task. Deviations: the equations have one task a step, so that row k is
measured after task k; here several tasks may come in a step, or none, and a step without a new task counts like any
other. With one task a step both are those of `vestige.metrics.matrix` with better="down".

Errors are those of the two ends, added as independent ones. The smallest of several noisy values lies below the
smallest truth, so a long history without drift shows a small forgetting: read it with its interval. A task that came
without samples has no I_j, and is forgotten from the first step that had some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy.special import ndtri

from vestige.chains import StepReport
from vestige.chains.report import AVERAGE, Task
from vestige.core import Estimate, checks
from vestige.monitor.alarms import Alarms, FiredAlarm, Refusal, held
from vestige.show.tables import Table, card
from vestige.store import newer


@dataclass(frozen=True, repr=False)
class MonitorStep:
    """One finished step."""

    report: StepReport
    alarms: tuple[FiredAlarm, ...]
    seed: int
    when: str  # UTC, ISO 8601
    real_rows: tuple[tuple[Task, int], ...]  # of each task; words and numbers stay what they are
    model_rows: tuple[tuple[Task, int], ...]
    copies: int  # samples that repeat rows of the data, which was allowed
    notes: tuple[str, ...] = newer(())  # of the step itself, such as that a public map stands for the one asked for

    @property
    def number(self) -> int:
        """Steps are counted from 1."""
        return self.report.step

    @property
    def _alarms_told(self) -> str:
        return "; ".join(map(str, self.alarms)) or "no alarm"

    def __repr__(self) -> str:
        return (
            f"MonitorStep({self.number}, {self.when}, {len(self.report.tasks)} tasks judged, {len(self.alarms)} alarms)"
        )

    def __str__(self) -> str:
        told = [f"  {task}: {said}" for task, said in self.report.figures()]
        return "\n".join([f"step {self.number}, {self.when}: {self._alarms_told}", *told])

    def _repr_html_(self) -> str:
        return card(f"step {self.number}, {self.when}: {self._alarms_told}", self.report.figures())


Steps = Sequence[MonitorStep]


def known(steps: Steps) -> dict[Task, int]:
    """Each task and the step in which it was learnt, in order of arrival."""
    born: dict[Task, int] = {}
    for step in steps:
        for task in (*(task for task, _ in step.real_rows), *(own.task for own in step.report.tasks)):
            born.setdefault(task, step.number)
    return born


def refusals(steps: Steps, alarms: Alarms) -> list[Refusal]:
    """The alarms that could not be told, of all steps."""
    reports = [step.report for step in steps]
    return [one for number in range(len(reports)) for one in held(alarms, reports[: number + 1])[1]]


def table(steps: Steps, names: Sequence[str]) -> pd.DataFrame:
    """Every step's table, one below the other: a row for each step, task (and their average) and divergence."""
    frames = {step.number: step.report.table(names) for step in steps if step.report.tasks}
    if not frames:
        return steps[-1].report.table(names).assign(step=0)
    return pd.concat(frames, names=["step"]).reset_index("step").reset_index(drop=True)


def drift(steps: Steps) -> pd.DataFrame:
    """A row for each step and task with a drift test: its p-value, and the FID with its interval."""
    rows = [
        (step.number, own.task, own.p_value, own.fid.value, own.fid.low, own.fid.high)
        for step in steps
        for own in step.report.tasks
        if own.fid is not None
    ]
    return pd.DataFrame(rows, columns=["step", "task", "p_value", "fid", "fid_low", "fid_high"])


def tests(step: MonitorStep) -> Table:
    """What `drift` says of one step, for people."""
    rows = [(str(own.task), f"{own.p_value:.2g}", own.fid) for own in step.report.tasks if own.fid is not None]
    note = "A small p-value speaks for a change; the FID, with its interval, for how far means and covariances moved."
    return Table(f"drift tests of step {step.number}", ("task", "p-value", "FID"), rows, note)


def estimates(steps: Steps, name: str) -> list[dict[Task, Estimate]]:
    """Of each step, the estimate of each task."""
    return [{own.task: own.estimates[name] for own in step.report.tasks} for step in steps]


def matrix(steps: Steps, name: str, of: str = "value") -> pd.DataFrame:
    """D[t, task], or the end `of` its interval: "low" or "high"."""
    rows = [{task: getattr(e, of) for task, e in found.items()} for found in estimates(steps, name)]
    index = pd.Index([step.number for step in steps], name="step")
    return pd.DataFrame(rows, index=index, columns=pd.Index(list(known(steps)), name="task", dtype=object), dtype=float)


def forgetting(steps: Steps, name: str) -> pd.DataFrame:
    """f_{t,j} for every step after the first and every task learnt before it, and their average F_t."""
    found, born, rows = estimates(steps, name), known(steps), []
    for i, step in enumerate(steps):
        parts = []
        for task in [task for task in born if task in found[i]]:
            past = [found[s][task] for s in range(i) if task in found[s]]
            if not past:
                continue
            # a step at which it was refused cannot be the best one
            best = min((e for e in past if not math.isnan(e.value)), key=lambda e: e.value, default=None)
            now = found[i][task]
            value = math.nan if best is None else now.value - best.value
            error = math.nan if best is None else math.hypot(now.std_error, best.std_error)
            parts.append(_row(step.number, task, value, error, now.level))
        rows += [*parts, _average(step.number, parts, now.level)] if parts else []
    return pd.DataFrame(rows, columns=["step", "task", "value", "std_error", "low", "high"])


def intransigence(steps: Steps, name: str, reference: Mapping[Task, float] | None = None) -> pd.DataFrame:
    """I_j for every task at the step in which it was learnt, and their average."""
    owner, born, found = "Monitor.intransigence", known(steps), estimates(steps, name)
    reference = dict.fromkeys(born, 0.0) if reference is None else reference
    missing = [task for task in born if task not in reference]
    if missing:
        checks.refuse("reference", owner, "given for every task", f"none for {missing[0]!r}")
    rows = []
    for task, b in [(task, b) for task, b in born.items() if task in found[b - 1]]:
        e = found[b - 1][task]
        ideal = checks.number(reference[task], f"reference[{task!r}]", owner)
        rows.append(_row(b, task, e.value - ideal, e.std_error, e.level))
    rows += [_average(steps[-1].number, rows, e.level)] if rows else []
    return pd.DataFrame(rows, columns=["step", "task", "value", "std_error", "low", "high"])


def _row(step: int, task: Task, value: float, error: float, level: float) -> dict[str, Any]:
    reach = float(ndtri((1 + level) / 2)) * error
    numbers = {"value": value, "std_error": error, "low": value - reach, "high": value + reach}
    return {"step": step, "task": task, **numbers}


def _average(step: int, parts: Sequence[Mapping[str, Any]], level: float) -> dict[str, Any]:
    """NaN where a task's is: over fewer tasks it would be another quantity."""
    k = len(parts)
    value = sum(p["value"] for p in parts) / k
    error = math.sqrt(sum(p["std_error"] ** 2 for p in parts)) / k
    return _row(step, AVERAGE, value, error, level)
