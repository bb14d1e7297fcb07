"""The report of a monitor: one HTML file with curves, the matrix D, alarms, verdicts, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from vestige import show as drawing
from vestige.chains.report import Task
from vestige.monitor.history import asked
from vestige.show import Page, Picture, Table

if TYPE_CHECKING:
    from vestige.monitor.monitor import Monitor


def page(monitor: Monitor, names: Sequence[str] | None = None) -> Page:
    """Everything that the history says, for reading."""
    names = asked(monitor.history, names, "Monitor.report")
    shown = names[0] if not monitor.thresholds else monitor.thresholds[0].divergence
    out = Page(f"Monitor of {monitor.folder.resolve().name}", str(monitor))
    out.section("Alarms", *_alarms(monitor))
    out.section("Now", _now(monitor, names))
    out.section("Divergences over steps", *(_curve(monitor, name) for name in names))
    out.section(f"Every task at every step: {shown}", _matrix(monitor, shown))
    out.section("Forgetting and intransigence", *_lost(monitor, shown))
    out.section("What is kept", *_kept(monitor))
    out.section("Steps", _steps(monitor))
    return out


def labels(tasks: Sequence[Task]) -> dict[Task, str]:
    """Names for people; quoted where a word and a number would look the same."""
    plain = {task: str(task) for task in tasks}
    return plain if len(set(plain.values())) == len(plain) else {task: repr(task) for task in tasks}


def _alarms(monitor: Monitor) -> list[str | Table]:
    if not monitor.thresholds:
        return ["No alarm was set."]
    rings = [ring for step in monitor.history for ring in step.alarms]
    told = Table("set", ("rings when",), [(str(alarm),) for alarm in monitor.thresholds])
    if not rings:
        return [told, "None has rung yet."]
    rows = [(ring.step, str(ring.task), ring.alarm.divergence, ring.why) for ring in reversed(rings)]
    return [told, Table("rang, newest first", ("step", "task", "divergence", "why"), rows)]


def _now(monitor: Monitor, names: Sequence[str]) -> Table:
    table = monitor.table(names)
    last = table[table.step == monitor.steps]
    columns = ("task", "divergence", "value", "low", "high", "depth", "verdict")
    rows = [tuple(_cell(row[name]) for name in columns) for _, row in last.iterrows()]
    level = next(iter(monitor.history[-1].report.tasks[0].estimates.values())).level
    note = f"Low and high are the ends of the {level:.0%} interval; depth is how many estimated ratios stand between."
    return Table(f"step {monitor.steps}", columns, rows, note)


def _curve(monitor: Monitor, name: str) -> Picture:
    table = monitor.table([name])
    steps = list(range(1, monitor.steps + 1))
    series: dict[str, Any] = {}
    bands: dict[str, Any] = {}
    for task, label in labels(list(monitor.tasks)).items():
        own = table[[have == task and type(have) is type(task) for have in table.task]].set_index("step").reindex(steps)
        series[label] = own.value.to_numpy(float)
        bands[label] = (own.low.to_numpy(float), own.high.to_numpy(float))
    limits = {str(a): a.limit for a in monitor.thresholds if a.divergence == name and a.above is not None}
    title = f"{name} of the model from the data of each task"
    figure = drawing.curves(
        series, steps, title=title, x_label="step", y_label=name, bands=bands, reference=limits or None
    )
    last = "; ".join(f"task {label} {values[-1]:.3g}" for label, values in series.items())
    return Picture(figure, f"{title}, over {monitor.steps} steps, with intervals. At the last step: {last}.")


def _matrix(monitor: Monitor, name: str) -> Picture:
    found = monitor.matrix(name)
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


def _lost(monitor: Monitor, name: str) -> list[str | Table]:
    told = (
        f"Forgetting is how far the {name} of a task lies above its best earlier step; intransigence is what it was in "
        "the step in which the task was learnt. Both are 0 or below where nothing was lost."
    )
    forgotten = monitor.forgetting(name)
    parts: list[str | Table] = [told]
    if len(forgotten):
        parts.append(_rows("forgetting at the last step", forgotten[forgotten.step == monitor.steps]))
    return [*parts, _rows("intransigence", monitor.intransigence(name))]


def _rows(title: str, frame: pd.DataFrame) -> Table:
    columns = ("task", "step", "value", "low", "high")
    return Table(title, columns, [tuple(_cell(row[name]) for name in columns) for _, row in frame.iterrows()])


def _kept(monitor: Monitor) -> list[str | Table]:
    found = monitor.kept()
    size = found["shape"].map(math.prod)
    sums = pd.DataFrame({"what": found["what"], "arrays": 1, "numbers": size}).groupby("what", sort=False).sum()
    rows = [(str(what), int(row.arrays), int(row.numbers)) for what, row in sums.iterrows()]
    words = "No row of real data is kept, in raw form or in features."
    more = " No average over real rows is kept either." if not monitor.keep_moments else ""
    copied = sum(step.copies for step in monitor.history)
    beware = [f"{copied} generated samples equalled a real one when they were handed over."] if copied else []
    return [words + more, *beware, Table("arrays in the folder", ("what", "arrays", "numbers"), rows)]


def _steps(monitor: Monitor) -> Table:
    rows = [
        (step.number, step.when, step.seed, _counts(step.rows["real"]), _counts(step.rows["model"]), len(step.alarms))
        for step in monitor.history
    ]
    return Table("", ("step", "when", "seed", "real samples", "model samples", "alarms"), rows)


def _counts(rows: Any) -> str:  # noqa: ANN401 - task to number
    return ", ".join(f"{task}: {n}" for task, n in rows.items()) or "none"


def _cell(value: Any) -> str | float | int:  # noqa: ANN401 - a cell of a DataFrame
    if isinstance(value, float | np.floating):
        return float(value)
    return int(value) if isinstance(value, int | np.integer) else str(value)
