"""The report of a monitor: one HTML file with curves, the matrix D, alarms, verdicts, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vestige import show as drawing
from vestige.chains.report import Task
from vestige.monitor import history
from vestige.monitor.alarms import Alarm
from vestige.monitor.history import MonitorStep
from vestige.show import Page, Picture, Table


def page(
    title: str,
    said: str,
    steps: Sequence[MonitorStep],
    names: Sequence[str],
    alarms: Sequence[Alarm],
    kept: pd.DataFrame,
    keep_moments: bool,
) -> Page:
    """Everything that the history says of the divergences `names`, for reading."""
    shown = alarms[0].divergence if alarms else names[0]
    out = Page(title, said)
    out.section("Alarms", *_alarms(steps, alarms))
    out.section("Now", _now(steps, names))
    out.section("Divergences over steps", *(_curve(steps, name, alarms) for name in names))
    out.section(f"Every task at every step: {shown}", _matrix(steps, shown))
    out.section("Forgetting and intransigence", *_lost(steps, shown))
    out.section("What is kept", *_kept(steps, kept, keep_moments))
    out.section("Steps", _steps(steps))
    return out


def labels(tasks: Sequence[Task]) -> dict[Task, str]:
    """Names for people; quoted where a word and a number would look the same."""
    plain = {task: str(task) for task in tasks}
    return plain if len(set(plain.values())) == len(plain) else {task: repr(task) for task in tasks}


def _alarms(steps: Sequence[MonitorStep], alarms: Sequence[Alarm]) -> list[str | Table]:
    if not alarms:
        return ["No alarm was set."]
    told = Table("set", ("fires when",), [(str(alarm),) for alarm in alarms])
    fired = [one for step in steps for one in step.alarms]
    if not fired:
        return [told, "None has fired yet."]
    rows = [(one.step, str(one.task), one.alarm.divergence, one.why) for one in reversed(fired)]
    return [told, Table("fired, newest first", ("step", "task", "divergence", "why"), rows)]


def _now(steps: Sequence[MonitorStep], names: Sequence[str]) -> Table:
    last = history.table(steps[-1:], names)
    columns = ("task", "divergence", "value", "low", "high", "depth", "verdict", "reason")
    rows = [tuple(_cell(row[name]) for name in columns) for _, row in last.iterrows()]
    level = next(iter(steps[-1].report.tasks[0].estimates.values())).level
    note = f"Low and high are the ends of the {level:.0%} interval; depth is how many estimated ratios stand between."
    return Table(f"step {len(steps)}", columns, rows, note)


def _curve(history_: Sequence[MonitorStep], name: str, alarms: Sequence[Alarm]) -> Picture:
    table = history.table(history_, [name])
    steps = [step.number for step in history_]
    series: dict[str, Any] = {}
    bands: dict[str, Any] = {}
    for task, label in labels(list(history.known(history_))).items():
        own = table[[have == task and type(have) is type(task) for have in table.task]].set_index("step").reindex(steps)
        series[label] = own.value.to_numpy(float)
        bands[label] = (own.low.to_numpy(float), own.high.to_numpy(float))
    limits = {str(a): a.limit for a in alarms if a.divergence == name and a.above is not None}
    title = f"{name} of the model from the data of each task"
    figure = drawing.curves(
        series, steps, title=title, x_label="step", y_label=name, bands=bands, reference=limits or None
    )
    last = "; ".join(f"task {label} {values[-1]:.3g}" for label, values in series.items())
    return Picture(figure, f"{title}, over {len(steps)} steps, with intervals. At the last step: {last}.")


def _matrix(steps: Sequence[MonitorStep], name: str) -> Picture:
    found = history.matrix(steps, name)
    figure = drawing.matrix(
        found.to_numpy(float),
        rows=[str(step) for step in found.index],
        columns=list(labels(list(found.columns)).values()),
        title=f"D[step, task], {name}",
        better="down",
        row_label="step",
        column_label="task",
    )
    return Picture(figure, f"The {name} of every task (columns) at every step (rows); the numbers stand in the cells.")


def _lost(steps: Sequence[MonitorStep], name: str) -> list[str | Table]:
    told = (
        f"Forgetting is how far the {name} of a task lies above its best earlier step; intransigence is what it was in "
        "the step in which the task was learnt. Both are 0 or below where nothing was lost."
    )
    forgotten = history.forgetting(steps, name)
    parts: list[str | Table] = [told]
    if len(forgotten):
        parts.append(_rows("forgetting at the last step", forgotten[forgotten.step == len(steps)]))
    return [*parts, _rows("intransigence", history.intransigence(steps, name))]


def _rows(title: str, frame: pd.DataFrame) -> Table:
    columns = ("task", "step", "value", "low", "high")
    return Table(title, columns, [tuple(_cell(row[name]) for name in columns) for _, row in frame.iterrows()])


def _kept(steps: Sequence[MonitorStep], found: pd.DataFrame, keep_moments: bool) -> list[str | Table]:
    size = found["shape"].map(math.prod)
    sums = pd.DataFrame({"what": found["what"], "arrays": 1, "numbers": size}).groupby("what", sort=False).sum()
    rows = [(str(what), int(row.arrays), int(row.numbers)) for what, row in sums.iterrows()]
    words = "No row of real data is kept, in raw form or in features."
    more = " No average over real rows is kept either." if not keep_moments else ""
    copied = sum(step.copies for step in steps)
    beware = [f"{copied} generated samples equalled a real one when they were handed over."] if copied else []
    return [words + more, *beware, Table("arrays in the folder", ("what", "arrays", "numbers"), rows)]


def _steps(steps: Sequence[MonitorStep]) -> Table:
    rows = [
        (step.number, step.when, step.seed, _counts(step.real_rows), _counts(step.model_rows), len(step.alarms))
        for step in steps
    ]
    return Table("", ("step", "when", "seed", "real samples", "model samples", "alarms"), rows)


def _counts(rows: Sequence[tuple[Task, int]]) -> str:
    return ", ".join(f"{task}: {n}" for task, n in rows) or "none"


def _cell(value: Any) -> str | float | int:  # noqa: ANN401 - a cell of a DataFrame
    if isinstance(value, float | np.floating):
        return float(value)
    return int(value) if isinstance(value, int | np.integer) else str(value)
