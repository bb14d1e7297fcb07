"""The words of `vestige monitor`: TASK=FILE and DIVERGENCE=LIMIT taken apart, and a monitor as tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vestige.cli import output
from vestige.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from vestige.monitor import Alarm, Monitor

COLUMNS = ("task", "divergence", "value", "low", "high", "verdict")


def by_task(given: Sequence[str], option: str, known: Iterable[str | int]) -> dict[str | int, str]:
    """TASK=FILE words as a mapping; a known task that is a number goes by its digits."""
    numbers = {str(task): task for task in known}
    found: dict[str | int, str] = {}
    for word in given:
        task, equals, file = word.partition("=")
        if not (task and equals and file):
            raise InputError(f"The words after {option} must be TASK=FILE. Got '{word}' instead.")
        if numbers.get(task, task) in found:
            raise InputError(f"The tasks after {option} must differ. Got '{task}' twice instead.")
        found[numbers.get(task, task)] = file
    return found


def alarms(*, above: Sequence[str], rise: Sequence[str], jump: Sequence[str], none: bool) -> list[Alarm] | None:
    """The alarms that were asked for; None for those that stand by default."""
    from vestige.monitor import Alarm

    found = [Alarm(name, above=limit, task=task) for name, task, limit in map(_limit, above)]
    found += [Alarm(name, rise=limit, task=task) for name, task, limit in map(_limit, rise)]
    found += [Alarm(name, rise=limit, task=task, since="last") for name, task, limit in map(_limit, jump)]
    if none and found:
        raise InputError("The option --no-alarms must stand alone. Got alarms beside it instead.")
    return found if found or none else None


def _limit(word: str) -> tuple[str, str | None, float]:
    """DIVERGENCE[@TASK]=LIMIT; the limit is what follows the last sign, so that a task may hold one."""
    head, _, limit = word.rpartition("=")
    name, at, task = head.partition("@")
    try:
        number = float(limit)
    except ValueError:
        number = float("nan")
    if not name or (at and not task) or number != number:
        raise InputError(f"An alarm must be DIVERGENCE=LIMIT or DIVERGENCE@TASK=LIMIT. Got '{word}' instead.")
    return name, task or None, number


def tables(monitor: Monitor, name: str | None) -> list[output.Table]:
    """The last step of every shown divergence, or the whole history of one."""
    if name is not None:
        matrix = monitor.matrix(name)
        cells = zip(matrix.index, matrix.to_numpy().tolist(), strict=True)
        rows: list[tuple[str | float, ...]] = [(int(step), *values) for step, values in cells]
        head = ("step", *(str(task) for task in matrix.columns))
        lost = [_losses("forgetting at the last step", _last(monitor, monitor.forgetting(name)))]
        lost = [table for table in lost if table.rows]
        gap = _losses("intransigence", monitor.intransigence(name))
        return [output.Table(f"{name} of every task (columns) at every step (rows)", head, rows), *lost, gap]
    last = _last(monitor, monitor.table())
    rows = [tuple(_cell(row[column]) for column in COLUMNS) for _, row in last.iterrows()]
    return [output.Table(f"step {monitor.steps}", COLUMNS, rows)]


def _losses(title: str, frame: pd.DataFrame) -> output.Table:
    columns = ("task", "value", "low", "high")
    return output.Table(title, columns, [tuple(_cell(row[name]) for name in columns) for _, row in frame.iterrows()])


def _last(monitor: Monitor, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.step == monitor.steps]


def _cell(value: Any) -> str | float:  # noqa: ANN401 - a cell of a DataFrame
    return float(value) if isinstance(value, float) else str(value)


def document(monitor: Monitor, *, whole: bool = False) -> dict[str, Any]:
    """The monitor as JSON: settings and the last step, or every step with the matrices."""
    found: dict[str, Any] = {
        "folder": str(monitor.folder),
        "steps": monitor.steps,
        "tasks": [{"task": task, "learnt": step} for task, step in monitor.tasks.items()],
        "keep_moments": monitor.keep_moments,
        "thresholds": [alarm.to_json() for alarm in monitor.thresholds],
        "alarms": [ring.to_json() for ring in monitor.alarms],
    }
    if not monitor.steps:
        return found
    names = list(monitor.history[-1].report.tasks[0].estimates)
    table = monitor.table(names)
    if not whole:
        return found | {"table": _records(_last(monitor, table))}
    matrices = {name: monitor.matrix(name).to_numpy().tolist() for name in names}
    lost: Mapping[str, Any] = {
        "forgetting": {name: _records(monitor.forgetting(name)) for name in names},
        "intransigence": {name: _records(monitor.intransigence(name)) for name in names},
    }
    rang = [ring.to_json() for step in monitor.history for ring in step.alarms]
    return found | {"table": _records(table), "matrices": matrices, **lost, "rang": rang}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
