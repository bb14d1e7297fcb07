"""`vestige monitor start|step|show|report|export DIR`: new data or samples judged step by step, by data that is gone.

`step` and `show` end with exit code 3 where an alarm fires at the last step, and otherwise with 4 where one cannot be
told because the number that it watches was refused, so that scripts can act on it; the step itself is finished then.
The other codes are those of every verb.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg, subcommand

from vestige.cli import output
from vestige.core import InputError

if TYPE_CHECKING:
    import pandas as pd

    from vestige.monitor import Alarm, DriftAlarm, Monitor

FIRED, UNTOLD = 3, 4
LOSSES = ("task", "value", "low", "high")
COLUMNS = ("task", "divergence", "value", "low", "high", "verdict", "reason")


@dataclass(frozen=True)
class StartMonitor(output.Verb):
    """Make a monitor in a new folder."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """Where the monitor will live; new or empty: any other folder is refused and left as it is."""
    above: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="DIVERGENCE[@TASK]=LIMIT")] = ()
    """Fire when a divergence is surely above a limit; may be given several times."""
    rise: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="DIVERGENCE[@TASK]=LIMIT")] = ()
    """Fire when a divergence has surely risen by more than a limit since its task was learnt; several times."""
    jump: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="DIVERGENCE[@TASK]=LIMIT")] = ()
    """Fire when a divergence has surely risen by more than a limit since the last step; several times."""
    false_alarms: float | None = None
    """Fire when a drift test says that something has changed; in a year without change, with at most this chance."""
    steps_a_year: int | None = None
    """How many steps that year has; 52 unless this is given."""
    no_alarms: bool = False
    """Set none. Without this and the five above, tasks that come with samples of a model fire when js rises by more
    than 0.05, and others by their drift test with 0.05 false alarms a year."""
    features: str = "identity"
    """A feature map for the samples, fitted at the first step and then left as it is."""
    dims: int | None = None
    """How many features, for maps that have a choice."""
    strategy: str | None = None
    """What stands for the data: 'vestige', moments and a density of it (with --no-moments 'anchored'); 'anchored',
    samples of a model; 'keyframe' and 'every-step' are other chains of such samples."""
    divergences: Annotated[str | None, arg(metavar="NAME,NAME,...")] = None
    """The divergences to compute; all that there are if none is named."""
    no_moments: bool = False
    """Keep not even averages over the data; the figures get a little worse."""
    drop: tuple[str, ...] = ()
    """Columns of tables to leave out."""

    def run(self) -> None:
        """Make the folder."""
        from vestige.monitor import Monitor

        drift = {"false_alarms": self.false_alarms, "steps_a_year": self.steps_a_year}
        asked = alarms(above=self.above, rise=self.rise, jump=self.jump, drift=drift, none=self.no_alarms)
        options: dict[str, Any] = {} if self.divergences is None else {"names": self.divergences.split(",")}
        options |= {} if self.strategy is None else {"strategy": self.strategy}
        made = Monitor.create(
            self.folder,
            features={"map": self.features} | ({} if self.dims is None else {"dims": self.dims}),
            chain=options,
            alarms=asked,
            keep_moments=not self.no_moments,
            drop=self.drop,
        )
        needs = " and --new TASK=FILE" if not made.chain.strategy.keeps_vestige else ""
        said = f"A monitor stands in {self.folder}. Its first step needs --real TASK=FILE{needs}."
        self.answer(document(made), said, *(f"An alarm fires when {sentence}." for sentence in made.watched))


@dataclass(frozen=True)
class StepMonitor(output.SeededVerb):
    """Judge what is new of known tasks; data of new tasks is used this once and not kept.

    Exit code 3: an alarm fires; 4: none does, but a number that one watches was refused; 0: neither.
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    new: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TASK=FILE", aliases=["--model"])] = ()
    """New rows of a task, data or samples of a model: .npy, .npz, .safetensors, .csv, .parquet, or images; once a
    task. Strategies other than 'vestige' need them for every task."""
    real: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TASK=FILE")] = ()
    """The data of a task that is new in this step, in the same manner; once for each new task."""
    allow_copies: bool = False
    """Go on where new rows repeat rows of the data, exactly or nearly; the step is refused otherwise."""
    wait: float = 60.0
    """Seconds to wait for another process that is stepping."""

    def run(self) -> None:
        """One step, whole or not at all."""
        from vestige.monitor import Monitor

        monitor = Monitor.open(self.folder)
        real, new = by_task(self.real, "--real", monitor.tasks), by_task(self.new, "--new", monitor.tasks)
        with output.progress(f"step {monitor.steps + 1}", 1) as advance:
            monitor.step(real, new, allow_copies=self.allow_copies, seed=self.seed, wait=self.wait)
            advance(1)
        report_on(self, monitor)


@dataclass(frozen=True, kw_only=True)
class ShowMonitor(output.Verb):
    """What the last step found, and what it means with those before.

    Exit code 3: an alarm fires; 4: none does, but a number that one watches was refused; 0: neither.
    """

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    divergence: str | None = None
    """Show the whole history of one divergence: its matrix, forgetting and intransigence."""
    json: bool = False
    """Print the whole history as JSON."""

    def run(self) -> None:
        """Read and print."""
        from vestige.monitor import Monitor

        report_on(self, Monitor.open(self.folder), self.divergence, whole=True)


@dataclass(frozen=True)
class ReportMonitor(output.Verb):
    """Write the history as one HTML page with curves, matrix, alarms and what is kept."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("monitor.html")
    """Where the page goes."""

    def run(self) -> None:
        """Read, draw, write."""
        from vestige.monitor import Monitor

        with output.progress("drawing", 1) as advance:
            written = Monitor.open(self.folder).report(self.output)
            advance(1)
        self.answer({"written": written}, f"Written to {written}.")


@dataclass(frozen=True)
class ExportMonitor(output.Verb):
    """Write the last step for other tools: every number with its interval, p-values, alarms, and what was refused."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    openmetrics: Annotated[Path, arg(metavar="FILE")]
    """Where it goes, as OpenMetrics text: for Prometheus' textfile collector a name that ends in .prom."""

    def run(self) -> None:
        """Read and write."""
        from vestige.monitor import Monitor

        written = Monitor.open(self.folder).export(self.openmetrics)
        self.answer({"written": written}, f"Written to {written}.")


@dataclass(frozen=True)
class MonitorVerb:
    """Judge new data or a generator step after step, by data that is gone; with alarms.

    'start' makes a folder, 'step' judges what is new, 'show', 'report' and 'export' tell. No row of data is kept.
    'step' and 'show' end with exit code 3 where an alarm fires at the last step, else with 4 where a number that an
    alarm watches was refused, else with 0.
    """

    action: OmitArgPrefixes[
        Annotated[StartMonitor, subcommand("start", prefix_name=False)]
        | Annotated[StepMonitor, subcommand("step", prefix_name=False)]
        | Annotated[ShowMonitor, subcommand("show", prefix_name=False)]
        | Annotated[ReportMonitor, subcommand("report", prefix_name=False)]
        | Annotated[ExportMonitor, subcommand("export", prefix_name=False)]
    ]

    def run(self) -> None:
        """Do it."""
        self.action.run()


def report_on(verb: output.Verb, monitor: Monitor, name: str | None = None, *, whole: bool = False) -> None:
    """The last step, or the history of one divergence; in JSON the `whole` of it.

    An alarm ends it with `FIRED`; if there is none, one that cannot be told ends it with `UNTOLD`.
    """
    told = document(monitor, whole=whole) if verb.json else None
    verb.answer(told, *(tables(monitor, name) if monitor.steps else ()), str(monitor))
    for one in (*monitor.alarms, *monitor.refusals):
        output.warn(str(one))
    if monitor.alarms or monitor.refusals:
        raise SystemExit(FIRED if monitor.alarms else UNTOLD)


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


def alarms(
    *, above: Sequence[str], rise: Sequence[str], jump: Sequence[str], drift: Mapping[str, Any], none: bool
) -> list[Alarm | DriftAlarm] | None:
    """The alarms that were asked for; None for those that stand by default."""
    from vestige.monitor import Alarm, DriftAlarm

    given = {name: value for name, value in drift.items() if value is not None}
    found: list[Alarm | DriftAlarm] = [DriftAlarm(**given)] if given else []
    found += [Alarm(name, above=limit, task=task) for name, task, limit in map(_limit, above)]
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
    """The last step of every shown divergence and the drift tests, or the whole history of one divergence."""
    from vestige.monitor.history import tests

    if name is None:
        drift, last = tests(monitor.history[-1]), _last(monitor, monitor.table())
        shown = [drift, _table(f"step {monitor.steps}", last, COLUMNS)]
        return [table for table in shown if table.rows]
    matrix = monitor.matrix(name)
    rows = [(int(step), *values) for step, values in zip(matrix.index, matrix.to_numpy().tolist(), strict=True)]
    history = output.Table(f"{name} of every task (columns) at every step (rows)", ("step", *map(str, matrix)), rows)
    lost = _table("forgetting at the last step", _last(monitor, monitor.forgetting(name)), LOSSES)
    return [history, *([lost] if lost.rows else []), _table("intransigence", monitor.intransigence(name), LOSSES)]


def _table(title: str, frame: pd.DataFrame, columns: Sequence[str]) -> output.Table:
    rows = frame[list(columns)].itertuples(index=False)
    return output.Table(title, columns, [[v if isinstance(v, float) else str(v) for v in row] for row in rows])


def _last(monitor: Monitor, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame.step == monitor.steps]


def document(monitor: Monitor, *, whole: bool = False) -> dict[str, Any]:
    """The monitor for machines: settings and the last step, or every step with the matrices."""
    found: dict[str, Any] = {
        "folder": monitor.folder,
        "steps": monitor.steps,
        "tasks": [{"task": task, "learnt": step} for task, step in monitor.tasks.items()],
        "keep_moments": monitor.keep_moments,
        "thresholds": monitor.thresholds,
        "watched": monitor.watched,
        "alarms": monitor.alarms,
        "refusals": monitor.refusals,
    }
    if not monitor.steps:
        return found
    names, drift = monitor.names, monitor.drift()
    table = monitor.table(names)
    if not whole:
        last = {"table": _last(monitor, table), "drift": _last(monitor, drift)}
        return found | {key: frame.to_dict("records") for key, frame in last.items()}
    return found | {
        "table": table.to_dict("records"),
        "drift": drift.to_dict("records"),
        "matrices": {name: monitor.matrix(name).to_numpy() for name in names},
        "forgetting": {name: monitor.forgetting(name).to_dict("records") for name in names},
        "intransigence": {name: monitor.intransigence(name).to_dict("records") for name in names},
        "fired": [alarm for step in monitor.history for alarm in step.alarms],
        "refused": monitor.refused,
    }
