"""The report of a monitor: one HTML file, whether an alarm fires and what to do first, then curves, then tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from vestige import show as drawing
from vestige.chains.report import AVERAGE, Task
from vestige.monitor import history
from vestige.monitor.alarms import Alarm, Alarms, FiredAlarm, Refusal, sentences
from vestige.monitor.folder import MonitorSettings
from vestige.monitor.history import Steps
from vestige.show import Noted, Page, Picture, Status, Table
from vestige.vestiges.gives_away import NOTICE


def page(
    title: str,
    said: str,
    steps: Steps,
    names: Sequence[str],
    kept: pd.DataFrame,
    vestiges: bool,
    chosen: MonitorSettings,
) -> Page:
    """Everything that the history says of the divergences `names`, for reading."""
    limits = [alarm for alarm in chosen.alarms or () if isinstance(alarm, Alarm)]
    shown = next((alarm.divergence for alarm in limits), "js" if "js" in names else next(iter(names), ""))
    out = Page(title, _advice(steps, chosen.alarms), status=_status(steps, chosen.alarms), answer=said)
    if names:
        out.section("Divergences over steps", *(_curve(steps, name, limits) for name in names))
    out.section("Alarms", *_alarms(steps, chosen.alarms))
    out.section("Now", *_now(steps, names))
    if names:
        out.section(f"Every task at every step: {shown}", _matrix(steps, shown))
        out.section("Forgetting and intransigence", *_lost(steps, shown))
    out.section("What is kept", *_kept(steps, kept, vestiges, chosen.keep_moments))
    out.section("Steps", _steps(steps))
    return out


def _status(steps: Steps, alarms: Alarms) -> Status:
    if steps[-1].alarms:
        return Status("bad", "alarm")
    if alarms == ():
        return Status("plain", "no alarm is set")
    return Status("care", "cannot be told") if _untold(steps, alarms) else Status("good", "no alarm")


def _untold(steps: Steps, alarms: Alarms) -> list[Refusal]:
    """Alarms of the last step that watch a number which was refused."""
    return [one for one in history.refusals(steps, alarms) if one.step == len(steps)]


def _advice(steps: Steps, alarms: Alarms) -> str:
    """What to do now."""
    if fired := steps[-1].alarms:
        first = fired[0]
        look = "Compare its new rows with what is kept to see which columns."
        return f"Look at task {first.task!r} first: {first.why}. {look}"
    if alarms == ():
        return "Set an alarm to be told when new rows differ: a monitor without one only keeps a history."
    if untold := _untold(steps, alarms):
        return f"Give more rows of task {untold[0].task!r}: {untold[0].why}."
    return "Nothing needs to be done."


def labels(tasks: Sequence[Task]) -> dict[Task, str]:
    """Names for people; quoted where a word and a number would look the same."""
    plain = {task: str(task) for task in tasks}
    return plain if len(set(plain.values())) == len(plain) else {task: repr(task) for task in tasks}


def _alarms(steps: Steps, alarms: Alarms) -> list[str | Table]:
    if alarms == ():
        return ["No alarm was set."]
    told = Table("set", ("fires when",), [(sentence,) for sentence in sentences(alarms)])
    fired = [one for step in steps for one in step.alarms]
    out: list[str | Table] = [told, _newest("fired", fired) if fired else "None has fired yet."]
    untold = history.refusals(steps, alarms)
    return [*out, _newest("could not be told, because the number was refused", untold)] if untold else out


def _newest(title: str, told: Sequence[FiredAlarm | Refusal]) -> Table:
    rows = [
        (one.step, str(one.task), Noted(getattr(one.alarm, "divergence", "drift test"), one.why))
        for one in reversed(told)
    ]
    return Table(f"{title}, newest first", ("step", "task", "number"), rows)


def _now(steps: Steps, names: Sequence[str]) -> list[str | Table]:
    if not steps[-1].report.tasks:
        return ["The last step kept what is needed of its data; it had no samples to judge."]
    last = history.table(steps[-1:], names)
    columns = ("task", "divergence", "value", "low", "high", "depth", "verdict")
    level = next(iter(steps[-1].report.tasks[0].estimates.values())).level
    note = f"Low and high are the ends of the {level:.0%} interval; depth is how many estimated ratios stand between."
    tests = history.tests(steps[-1])
    reasons = [Noted(verdict, why) for verdict, why in zip(last.verdict, last.reason, strict=True)]
    rows = _rows(last.assign(verdict=reasons), columns)
    return [*([tests] if tests.rows else []), Table(f"step {len(steps)}", columns, rows, note)]


def _curve(history_: Steps, name: str, alarms: Sequence[Alarm]) -> Picture:
    value, low, high = (history.matrix(history_, name, of) for of in ("value", "low", "high"))
    tasks, steps = labels(list(value.columns)), list(value.index)
    series = {label: value[task].to_numpy() for task, label in tasks.items()}
    bands = {label: (low[task].to_numpy(), high[task].to_numpy()) for task, label in tasks.items()}
    limits = {str(a): a.limit for a in alarms if a.divergence == name and a.above is not None}
    title = f"{name} of what was new from the data of each task"
    figure = drawing.curves(series, steps, title=title, x_label="step", y_label=name, bands=bands, reference=limits)
    last = "; ".join(f"task {label} {values[-1]:.3g}" for label, values in series.items())
    return Picture(figure, f"{title}, over {len(steps)} steps, with intervals. At the last step: {last}.")


def _matrix(steps: Steps, name: str) -> Picture:
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


def _lost(steps: Steps, name: str) -> list[str | Table]:
    told = (
        f"Forgetting is how far the {name} of a task lies above its best earlier step; intransigence is what it was in "
        "the step in which the task was learnt. Both are 0 or below where nothing was lost."
    )
    columns = ("task", "step", "value", "low", "high")
    found = history.forgetting(steps, name)
    lost = _rows(found[found.step == len(steps)], columns)
    forgotten = [Table("forgetting at the last step", columns, lost)] if lost else []
    return [told, *forgotten, Table("intransigence", columns, _rows(history.intransigence(steps, name), columns))]


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> list[tuple[str | float, ...]]:
    """Rows for a table; of one task there is no average to show."""
    tasks = frame[frame.task != AVERAGE]
    frame = frame if tasks.task.nunique() > 1 else tasks
    return list(frame[list(columns)].itertuples(index=False, name=None))


def _kept(steps: Steps, found: pd.DataFrame, vestiges: bool, keep_moments: bool) -> list[str | Table]:
    parts = found.groupby(["what", "gives away"], sort=False)["shape"]
    rows = [(str(what), str(away), len(own), sum(map(math.prod, own))) for (what, away), own in parts]
    words = "No row of real data is kept, in raw form or in features."
    more = " No average over real rows is kept either." if not keep_moments else ""
    more += " Nor is a row of what was new, or a number of one." if vestiges else ""
    copied = sum(step.copies for step in steps)
    beware = [f"{copied} samples repeated rows of the data when they were handed over."] if copied else []
    beware += [note for step in steps for note in step.notes]
    heads = ("what", "gives away", "arrays", "numbers")
    return [f"{words}{more} {NOTICE}", *beware, Table("arrays in the folder", heads, rows)]


def _steps(steps: Steps) -> Table:
    rows = [
        (step.number, step.when, step.seed, _counts(step.real_rows), _counts(step.model_rows), len(step.alarms))
        for step in steps
    ]
    return Table("", ("step", "when", "seed", "real rows", "new rows", "alarms"), rows)


def _counts(rows: Sequence[tuple[Task, int]]) -> str:
    return ", ".join(f"{task}: {n}" for task, n in rows) or "none"
