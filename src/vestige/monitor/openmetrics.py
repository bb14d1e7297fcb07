"""The last step of a monitor as OpenMetrics text, for Prometheus' textfile collector and whatever else scrapes it.

Every number is a gauge. What a step did not judge, or refused, has no line but that of `refused`: an absent series is
what alerting rules expect of a number that is not known. Lines are those of OpenMetrics 1.0 (names, one HELP, TYPE and,
where there is one, UNIT for each family, labels in quotes with backslash, quote and newline escaped, "# EOF" last);
collectors that know the older text format read them too, UNIT and EOF being comments there.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from vestige.chains.report import Task
from vestige.core import Estimate
from vestige.monitor.alarms import FiredAlarm, Refusal
from vestige.monitor.history import MonitorStep, known

PREFIX = "vestige_monitor"
Labels: TypeAlias = Mapping[str, str]


@dataclass
class Family:
    """One metric: its name after the prefix, what it is, and its lines."""

    name: str
    told: str
    unit: str = ""
    lines: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """A line, unless the number is not known."""
        if not math.isnan(value):
            self.lines.append((labels, value))

    def text(self, monitor: str) -> str:
        """The family as it is written; nothing where it has no line."""
        if not self.lines:
            return ""
        name = f"{PREFIX}_{self.name}"
        unit = [f"# UNIT {name} {self.unit}"] if self.unit else []
        head = [f"# TYPE {name} gauge", *unit, f"# HELP {name} {self.told}"]
        rows = [f"{name}{_labels({'monitor': monitor, **labels})} {_number(value)}" for labels, value in self.lines]
        return "".join(f"{line}\n" for line in (*head, *rows))


def openmetrics(
    monitor: str, steps: Sequence[MonitorStep], alarms: Iterable[FiredAlarm], refusals: Iterable[Refusal]
) -> str:
    """The last of `steps`, and what its alarms said, under the name `monitor`."""
    count = Family("steps", "Finished steps.")
    count.add(len(steps))
    if not steps:
        return f"{count.text(monitor)}# EOF\n"
    last, named = steps[-1], names(list(known(steps)))
    when = Family("last_step_timestamp_seconds", "When the last step was taken.", "seconds")
    when.add(datetime.datetime.fromisoformat(last.when).timestamp())
    divergence = _with_ends("divergence", "Divergence of what was new from the data of the task")
    refused = Family("refused", "1 where the samples could not carry the divergence, else 0.")
    at_least = Family("at_least", "1 where only the lower end of the divergence is a promise, else 0.")
    fid = _with_ends("fid", "FID of what was new from the data of the task")
    p_value = Family("p_value", "P-value of the drift test of the task.")
    rows = Family("rows", "Rows of the task in the last step, by side.")
    for own in last.report.tasks:
        task = named[own.task]
        for name, estimate in own.estimates.items():
            labels = {"task": task, "divergence": name}
            refused.add(float(not estimate.known), **labels)
            at_least.add(float(estimate.verdict == "at least"), **labels)
            _add(divergence, estimate, labels)
        p_value.add(own.p_value, task=task)
        if own.fid is not None:
            _add(fid, own.fid, {"task": task})
    for side, counted in (("real", last.real_rows), ("new", last.model_rows)):
        for of_task, n in counted:
            rows.add(n, task=named[of_task], side=side)
    fired = Family("alarms", "Alarms that fire at the last step.")
    untold = Family("alarms_untold", "Alarms that cannot be told at the last step, since their number was refused.")
    for family, told in ((fired, [one.task for one in alarms]), (untold, [one.task for one in refusals])):
        for of_task, label in named.items():
            family.add(told.count(of_task), task=label)
    families = count, when, *divergence, refused, at_least, *fid, p_value, rows, fired, untold
    return "".join(family.text(monitor) for family in families) + "# EOF\n"


def names(tasks: Sequence[Task]) -> dict[Task, str]:
    """Of tasks, quoted where a word and a number would look the same."""
    plain = {task: str(task) for task in tasks}
    return plain if len(set(plain.values())) == len(plain) else {task: repr(task) for task in tasks}


def _with_ends(name: str, told: str) -> list[Family]:
    ends = [Family(f"{name}_{end}", f"{told}: {end} end of its interval.") for end in ("low", "high")]
    return [Family(name, f"{told}."), *ends]


def _add(families: Sequence[Family], estimate: Estimate, labels: Labels) -> None:
    for family, value in zip(families, (estimate.value, estimate.low, estimate.high), strict=True):
        family.add(value, **labels)


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value) or repr(float(value))
