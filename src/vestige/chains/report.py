"""What a step of a chain says: divergences per task and averaged (CDRE Eq. 13), each with error, worth and verdict.

How values and errors come about is said in `judging`, and the other estimates beside them (`eq4`, `running`,
`anchored`) in `views`. The average over tasks adds errors as independent ones; tasks share no samples.

A verdict is "ok"; "lower estimate: ..." where bias rules and the interval cannot be trusted on its upper side (held-out
log-ratios fall short of the truth on average); or "refused: ...", and the value is NaN.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from scipy.special import ndtri

from vestige.chains.views import VIEWS, Views
from vestige.core.estimate import Estimate
from vestige.store.codec import decode, encode

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
    one_step_tail: float = 0.2  # of what the one-step form adds; from 1/4 on the noise of that is not known
    slack: float = 1.2  # by which the error is more than that of an estimator without a flaw
    far: float = 10.0  # nats of kl beyond which p and q_t hardly overlap
    apart: float = 2.0  # standard errors of kl by which the anchored value may exceed it where Eq. 4 is all there is


@dataclass(frozen=True)
class TaskReport:
    """One task at one step."""

    task: Task
    born: int  # the step at which its data was here
    depth: int
    gap: float
    anchors: int
    anchors_ess: float
    estimates: Mapping[str, Estimate]
    doubts: tuple[str, ...]  # why the values are lower estimates
    notes: tuple[str, ...]
    bridged: bool = False  # whether the step's ratio is the sum over waymarks
    members: int = 1  # networks whose mean the log-ratio is
    views: Mapping[str, Views] = field(default_factory=dict)
    running_from: Mapping[str, float] = field(default_factory=dict)  # where the next step's `running` starts

    def verdict(self, name: str) -> str:
        """In words, for one divergence."""
        estimate = self.estimates[name]
        if not estimate.known:
            return f"refused: {estimate.reason}"
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
        rows = [row(r.task, r.estimates[n], r.depth, r.verdict(n), r.views[n]) for r in self.tasks for n in names]
        for n in names:
            parts = [(r.estimates[n], r.depth, r.verdict(n)) for r in self.tasks]
            rows.append(row(AVERAGE, *averaged(parts), averaged_views([r.views[n] for r in self.tasks])))
        return pd.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: None where a number is not finite."""
        tasks = []
        for r in self.tasks:
            fields = {f.name: getattr(r, f.name) for f in dataclasses.fields(r)}
            fields["estimates"] = {name: encode(e)[0] for name, e in r.estimates.items()}
            fields["views"] = {name: _plain(dataclasses.asdict(v)) for name, v in r.views.items()}
            fields["running_from"] = _plain(r.running_from)
            tasks.append(fields | {"doubts": list(r.doubts), "notes": list(r.notes)})
        return {"step": self.step, "tasks": tasks}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> StepReport:
        """The inverse of `to_json`."""
        tasks = []
        for entry in fields["tasks"]:
            found = {name: decode(Estimate, e) for name, e in entry["estimates"].items()}
            views = {name: Views(**_restored(v)) for name, v in entry["views"].items()}
            read = {"estimates": found, "views": views, "running_from": _restored(entry["running_from"])}
            lists = {"doubts": tuple(entry["doubts"]), "notes": tuple(entry["notes"])}
            tasks.append(TaskReport(**{**entry, **lists, **read}))
        return cls(fields["step"], tuple(tasks))

    def __str__(self) -> str:
        lines = [f"step {self.step}"]
        for r in self.tasks:
            known = [str(e) for e in r.estimates.values() if e.known]
            verdict = f"lower estimate: {'; '.join(r.doubts)}" if r.doubts else "ok"
            lines.append(f"task {r.task!r}: {'; '.join(known)}. {verdict}")
        return "\n".join(lines)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN, and lists alone."""
    lists = {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in lists.items()}


def _restored(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: math.nan if v is None else tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def row(task: Task, estimate: Estimate, depth: int, verdict: str, views: Views) -> dict[str, Any]:
    """One line of the table."""
    e = estimate
    values = {"value": e.value, "std_error": e.std_error, "low": e.low, "high": e.high, "ess": e.ess}
    others = {name: getattr(views, name) for name in VIEWS}
    others |= {"disagreement": views.disagreement(e.value), "spread": views.spread}
    return {"task": task, "divergence": e.name, **values, "depth": depth, "verdict": verdict, **others}


def averaged(parts: list[tuple[Estimate, int, str]]) -> tuple[Estimate, int, str]:
    """Eq. 13: the mean over tasks; NaN where a task was refused. The worst ESS, depth and verdict stand for all."""
    estimates = [e for e, _, _ in parts]
    first, k = estimates[0], len(estimates)
    value = sum(e.value for e in estimates) / k
    std_error = math.sqrt(sum(e.std_error**2 for e in estimates)) / k
    reach = float(ndtri((1 + first.level) / 2)) * std_error
    ess, depth = min(e.ess or 0.0 for e in estimates), max(depth for _, depth, _ in parts)
    verdicts = [verdict for _, _, verdict in parts if verdict != "ok"]
    worst = min(verdicts, key=lambda v: not v.startswith("refused"), default="ok")
    verdict = worst if k == 1 or worst == "ok" else f"{worst} ({len(verdicts)} of {k} tasks)"
    details = {**first.details, "pareto_k": None}
    joined = first.but(
        value=value, std_error=std_error, low=value - reach, high=value + reach, ess=ess, details=details
    )
    return joined, depth, verdict


def averaged_views(parts: list[Views]) -> Views:
    """The mean of each view over tasks; heavy where that of a task is. Spreads add as independent ones."""
    k = len(parts)
    means = {name: sum(getattr(v, name) for v in parts) / k for name in VIEWS}
    heavy = tuple(name for name in VIEWS if any(name in v.heavy for v in parts))
    return Views(**means, heavy=heavy, spread=math.sqrt(sum(v.spread**2 for v in parts)) / k)
