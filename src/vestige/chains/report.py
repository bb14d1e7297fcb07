"""What a step of a chain says: divergences per task and averaged (CDRE Eq. 13), each with error, worth and verdict.

How values, errors and the other ways beside them (`eq4`, `running`, `anchored`) come about is said in `estimates`. The
average over tasks adds errors of sampling as independent ones; tasks share no samples. The verdict is "at least" where
bias rules and the interval cannot be trusted on its upper side: held-out log-ratios fall short of the truth on average.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from vestige.core import Estimate
from vestige.show.tables import card
from vestige.store import newer

Task = str | int
AVERAGE = "average"
# The other ways to a divergence, as columns of a table.
WAYS = ("eq4", "running", "anchored")
COLUMNS = (
    *("task", "divergence", "value", "std_error", "low", "high", "ess"),
    *("depth", "verdict", "reason", *WAYS, "disagreement", "spread"),
)


@dataclass(frozen=True)
class ChainLimits:
    """Where a value becomes "at least", and where it is refused.

    Rows seen in training may look further from q than held-out ones by the standard error of kl, taken to lie in
    [gap_least, gap_most] nats: 2-d Gaussians stay below 0.01, and the bias of 64 and 100 dimensions shows as 0.03 to
    0.3, beside a standard error that knows nothing of it.
    """

    gap_least: float = 0.01
    gap_most: float = 0.02
    ess: float = 0.3  # what the anchor samples should be worth, as a share
    refused_ess: float = 0.05  # and what they must
    tail: float = 0.7  # tail index of Eq. 4's terms
    one_step_tail: float = 0.2  # of what the one-step form adds; from 1/4 on the noise of that is not known
    slack: float = 1.2  # by which the error is more than that of an estimator without a flaw
    far: float = 10.0  # nats of kl beyond which p and q_t hardly overlap
    carried: float = 0.25  # of the most that what was not learnt at arrival can move a value; the rest is balanced away
    carried_most: float = 0.35  # of the value that the anchors' weights may add to either end
    apart: float = 2.0  # standard errors of kl by which the anchored value may exceed it where Eq. 4 is all there is


@dataclass(frozen=True)
class TaskReport:
    """One task at one step."""

    task: Task
    born: int  # the step at which its data was here
    depth: int  # how many estimated ratios stand between the data and the model
    gap: float
    anchors: int
    anchors_ess: float
    estimates: Mapping[str, Estimate]
    reasons: tuple[str, ...]  # why the divergences are at least as large as said
    notes: tuple[str, ...]
    bridged: bool = False  # whether the step's ratio is the sum over waymarks
    members: int = 1  # networks whose mean the log-ratio is
    running_from: Mapping[str, float] = field(default_factory=dict)  # where the next step's `running` starts
    p_value: float = newer(math.nan)  # of "nothing has changed", where what is kept of the data has a test
    fid: Estimate | None = newer(None)  # from moments of the data, where they are kept


SHOWN = 8  # tasks of a step that a screen shows


@dataclass(frozen=True, repr=False)
class StepReport:
    """What one step found of the tasks that had samples in it."""

    step: int
    tasks: tuple[TaskReport, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is not on firm ground, one sentence each."""
        out = []
        for r in self.tasks:
            head = f"Task {r.task!r} at step {self.step}: "
            out += [head + reason + "." for reason in r.reasons] + [head + note for note in r.notes]
        return tuple(out)

    def table(self, names: Iterable[str]) -> pd.DataFrame:
        """One row for each task and divergence, then the averages over tasks."""
        names = list(names)
        rows = [row(r.task, r.estimates[n]) for r in self.tasks for n in names]
        rows += [row(AVERAGE, averaged([r.estimates[n] for r in self.tasks])) for n in names if self.tasks]
        return pd.DataFrame(rows, columns=pd.Index(COLUMNS))

    def __str__(self) -> str:
        tasks = [f"task {r.task!r}: {'; '.join(map(str, r.estimates.values()))}" for r in self.tasks]
        return "\n".join([f"step {self.step}", *tasks])

    def figures(self) -> list[tuple[str, str]]:
        """The first divergence of each task, and the p-value of "nothing has changed" where there is one."""
        out = []
        for r in self.tasks[:SHOWN]:
            tested = "" if math.isnan(r.p_value) else f"p = {r.p_value:.2g}"
            first = next((str(one).partition(" (")[0] for one in r.estimates.values()), "")
            out.append((f"task {r.task!r}", ", ".join(filter(None, (tested, first)))))
        more = len(self.tasks) - SHOWN
        return [*out, ("and", f"{more} more")] if more > 0 else out

    def __repr__(self) -> str:
        told = "; ".join(f"{task}: {said}" for task, said in self.figures()[:3])
        return f"StepReport({self.step}, {len(self.tasks)} tasks{': ' if told else ''}{told})"

    def _repr_html_(self) -> str:
        return card(f"step {self.step}", self.figures())


def row(task: Task, e: Estimate) -> dict[str, Any]:
    """One line of the table."""
    values = {"value": e.value, "std_error": e.std_error, "low": e.low, "high": e.high, "ess": e.ess}
    said = {"depth": e.details["depth"], "verdict": e.verdict, "reason": e.reason}
    others = {way: e.details[way] for way in WAYS} | {"disagreement": disagreement(e), "spread": e.details["spread"]}
    return {"task": task, "divergence": e.name, **values, **said, **others}


def disagreement(e: Estimate) -> float:
    """The largest distance from the value of another way whose terms are not heavy; NaN where there is none."""
    others = [e.details[way] for way in WAYS if way not in e.details["heavy"]]
    off = [abs(other - e.value) for other in others if math.isfinite(other - e.value)]
    return max(off, default=math.nan)


def averaged(parts: Sequence[Estimate]) -> Estimate:
    """Eq. 13: the mean over tasks; NaN where a task was refused. The worst ESS, depth and verdict stand for all.

    Errors and spreads add as independent ones. So do the low ends; what makes the high ends high, which is mostly what
    was not learnt, may err to one side in every task, and adds up; of Eq. 4 alone, which nothing has judged, so may the
    low ends. A way is heavy where that of a task is.
    """
    first, k = parts[0], len(parts)
    told = [e for e in parts if e.verdict != "ok"]
    worst = min(told, key=lambda e: e.known, default=first)
    reason = f"{worst.reason} ({len(told)} of {k} tasks)" if told and k > 1 else worst.reason
    details = {
        **{way: sum(e.details[way] for e in parts) / k for way in WAYS},
        "heavy": [way for way in WAYS if any(way in e.details["heavy"] for e in parts)],
        "spread": math.sqrt(sum(e.details["spread"] ** 2 for e in parts)) / k,
        "depth": max(e.details["depth"] for e in parts),
        "form": first.details["form"],
        "samples": first.details["samples"],
        "pareto_k": None,
    }
    value = sum(e.value for e in parts) / k
    together = 1 if any("movement" in e.details for e in parts) else 2
    below = 1 if first.details["form"] == "eq4" else 2
    return Estimate(
        value,
        value - sum((e.value - e.low) ** below for e in parts) ** (1 / below) / k,
        value + sum((e.high - e.value) ** together for e in parts) ** (1 / together) / k,
        first.level,
        math.sqrt(sum(e.std_error**2 for e in parts)) / k,
        n=sum(e.n or 0 for e in parts),
        ess=min(e.ess or 0.0 for e in parts),
        verdict=worst.verdict,
        reason=reason,
        name=first.name,
        details=details,
    )
