"""`vestige monitor start|step|show|report DIR`: a generator judged step after step, against data that is gone.

`step` and `show` end with exit code 3 where an alarm rings at the last step, so that scripts can act on it; the step
itself is finished then. The other codes are those of every verb.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg, subcommand

from vestige.cli import monitor_words, output

if TYPE_CHECKING:
    from vestige.monitor import Monitor as Judge

RINGING = 3


@dataclass(frozen=True)
class Start:
    """Make a monitor in a new folder."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """Where the monitor will live; new or empty."""
    above: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="DIVERGENCE[@TASK]=LIMIT")] = ()
    """Ring when a divergence is surely above a limit; may be given several times."""
    rise: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="DIVERGENCE[@TASK]=LIMIT")] = ()
    """Ring when a divergence has surely risen by more than a limit since its task was learnt; several times."""
    jump: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="DIVERGENCE[@TASK]=LIMIT")] = ()
    """Ring when a divergence has surely risen by more than a limit since the last step; several times."""
    no_alarms: bool = False
    """Set none. Without this and the three above, js rings when it rises by more than 0.05."""
    features: str = "identity"
    """A feature map for the samples, fitted at the first step and then left as it is."""
    dims: int | None = None
    """How many features, for maps that have a choice."""
    strategy: str = "anchored"
    """How the chain carries its ratios from step to step."""
    divergences: Annotated[str | None, arg(metavar="NAME,NAME,...")] = None
    """The divergences to compute; all that there are if none is named."""
    no_moments: bool = False
    """Keep not even averages over the data; the figures get a little worse."""
    drop: tuple[str, ...] = ()
    """Columns of tables to leave out."""
    json: bool = False
    """Print JSON instead of words."""

    def run(self) -> None:
        """Make the folder."""
        from vestige.monitor import Monitor as Judge

        alarms = monitor_words.alarms(above=self.above, rise=self.rise, jump=self.jump, none=self.no_alarms)
        options = {} if self.divergences is None else {"names": self.divergences.split(",")}
        made = Judge.create(
            self.folder,
            features={"map": self.features} | ({} if self.dims is None else {"dims": self.dims}),
            chain={"strategy": self.strategy, **options},
            alarms=alarms,
            keep_moments=not self.no_moments,
            drop=self.drop,
        )
        if self.json:
            output.document(monitor_words.document(made))
            return
        output.say(f"A monitor stands in {self.folder}. Its first step needs --real TASK=FILE and --model TASK=FILE.")
        for alarm in made.thresholds:
            output.say(f"It rings when {alarm}.")


@dataclass(frozen=True)
class Step:
    """Judge the model's newest samples, of every task; data of new tasks is used this once and not kept."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    model: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TASK=FILE")] = ()
    """The model's samples of a task, once for every task: .npy, .npz, .safetensors, .csv, .parquet, or images."""
    real: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TASK=FILE")] = ()
    """The data of a task that is new in this step, in the same manner; once for each new task."""
    wait: float = 60.0
    """Seconds to wait for another process that is stepping."""
    seed: int = 0
    """The same seed gives the same numbers."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """One step, whole or not at all."""
        from vestige.monitor import Monitor as Judge

        monitor = Judge.open(self.folder)
        real, model = (
            monitor_words.by_task(given, option, monitor.tasks)
            for option, given in (("--real", self.real), ("--model", self.model))
        )
        with output.progress(f"step {monitor.steps + 1}", 1) as advance:
            monitor.step(real, model, seed=self.seed, wait=self.wait)
            advance(1)
        tell(monitor, None, as_json=self.json)


@dataclass(frozen=True)
class Show:
    """What the last step found, and what it means with those before."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    divergence: str | None = None
    """Show the whole history of one divergence: its matrix, forgetting and intransigence."""
    json: bool = False
    """Print the whole history as JSON."""

    def run(self) -> None:
        """Read and print."""
        from vestige.monitor import Monitor as Judge

        tell(Judge.open(self.folder), self.divergence, as_json=self.json, whole=True)


@dataclass(frozen=True)
class Report:
    """Write the history as one HTML page with curves, matrix, alarms and what is kept."""

    folder: Annotated[Positional[Path], arg(metavar="DIR")]
    """The monitor."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("monitor.html")
    """Where the page goes."""
    json: bool = False
    """Print JSON instead of words."""

    def run(self) -> None:
        """Read, draw, write."""
        from vestige.monitor import Monitor as Judge

        with output.progress("drawing", 1) as advance:
            written = Judge.open(self.folder).report(self.output)
            advance(1)
        if self.json:
            output.document({"written": str(written)})
        else:
            output.say(f"Written to {written}.")


@dataclass(frozen=True)
class Monitor:
    """Judge a generator step after step, against data that is gone; with alarms.

    'start' makes a folder, 'step' judges the newest samples, 'show' and 'report' tell. No row of data is kept. 'step'
    and 'show' end with exit code 3 where an alarm rings at the last step.
    """

    action: OmitArgPrefixes[
        Annotated[Start, subcommand("start", prefix_name=False)]
        | Annotated[Step, subcommand("step", prefix_name=False)]
        | Annotated[Show, subcommand("show", prefix_name=False)]
        | Annotated[Report, subcommand("report", prefix_name=False)]
    ]

    def run(self) -> None:
        """Do it."""
        self.action.run()


def tell(monitor: Judge, name: str | None, *, as_json: bool, whole: bool = False) -> None:
    """The last step, or the whole history; ends the run with `RINGING` where an alarm rings."""
    if as_json:
        output.document(monitor_words.document(monitor, whole=whole))
    else:
        for table in monitor_words.tables(monitor, name) if monitor.steps else ():
            output.table(table)
        output.say(str(monitor))
    for ring in monitor.alarms:
        output.warn(f"{ring}")
    if monitor.alarms:
        raise SystemExit(RINGING)
