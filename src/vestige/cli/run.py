"""`vestige run NAME ...`: tables and figures of the papers, run again, beside the published numbers."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from vestige.cli import output
from vestige.cli.live import board
from vestige.core import InputError
from vestige.core.errors import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vestige.cli.live import Board
    from vestige.continual.record import Record
    from vestige.runner import Finished, Unit
    from vestige.runner.experiment import Experiment


@dataclass(frozen=True)
class RunVerb(output.Verb):
    """Run tables and figures of the papers again, beside the published numbers.

    Each unit (a method, a seed) is stored when it is finished and never run again; one that was interrupted goes on
    from its last finished task where the method can. So the same command goes on where it was stopped, by Ctrl-C, a
    kill or a power cut. `vestige list experiments` names them all.
    """

    names: Positional[tuple[str, ...]] = ()
    """Which experiments."""
    all: bool = False
    """Every one of them."""
    preset: Literal["smoke", "laptop", "paper"] = "laptop"
    """smoke takes seconds, laptop minutes (what it cuts is printed), paper is the published setting."""
    seeds: int | None = None
    """How many seeds, in place of the preset's own number."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=VALUE")] = ()
    """Replace a field of the configuration; may be given several times."""
    only: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=A,B,...")] = ()
    """Run only the units whose field has one of these values, such as row=EWC; may be given several times, for several
    fields."""
    grid: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=A,B,...")] = ()
    """Try several values of a field on validation data with three seeds or more, run the best on the test set, and
    store all that was tried; may be given several times: every combination is tried. A list as one value is written in
    brackets: [[16],[32,32]]."""
    grid_tasks: Annotated[int | None, arg(metavar="K")] = None
    """With --grid: choose by the first K tasks alone, as one must who cannot know the later ones."""
    known: Annotated[UseAppendAction[tuple[Path, ...]], arg(metavar="DIR|RECORD")] = ()
    """Records that somebody has made already, such as the folder 'reproductions': a unit that is among them, with the
    versions of today, is taken over and not run; may be given several times."""
    real: Annotated[Path | None, arg(metavar="FILE")] = None
    """Rows of your own data, for an experiment that takes them: lfiw-table1, lfiw-table4, lfiw-table5, cdre-table2."""
    fake: Annotated[Path | None, arg(metavar="FILE")] = None
    """Rows of your own model, likewise."""
    features: Annotated[Path | None, arg(metavar="FILE")] = None
    """A stored feature map to apply to both, likewise; without it the rows are used as they are."""
    workers: int = 1
    """At most so many processes, of one torch thread each: fewer where the memory is too small for the largest unit so
    far. 0 runs everything in this one."""
    device: str | None = None
    """cuda, mps or cpu; by default the best that is there and that an experiment can use."""
    ray: Annotated[str | None, arg(metavar="local|ADDRESS")] = None
    """Run on a Ray cluster (pip install 'vestige[cluster]'): one on this machine, or the one at ADDRESS; --out must be
    a folder that all its machines share, and the cluster must ask for a token (RAY_AUTH_MODE=token)."""
    cpus: float | None = None
    """With --ray: CPUs that a unit is given, in place of what its experiment asks for; may be a fraction."""
    gpus: float | None = None
    """With --ray: the same for GPUs."""
    open_cluster: bool = False
    """With --ray: run on a cluster that asks for no token, too: whoever reaches its ports can run code on it."""
    out: Path = field(default_factory=lambda: Path("runs"))
    """Where Records and figures go."""
    json: bool = False
    """Print JSON instead of tables, and progress as JSON lines on stderr."""

    def run(self) -> None:
        """Plan everything, run what is not there, print."""
        from vestige import runner
        from vestige.runner.registry import EXPERIMENTS
        from vestige.runner.unit import device_of

        names = tuple(EXPERIMENTS) if self.all else self.names
        if not names:
            raise InputError(
                "'vestige run' needs the name of an experiment, or --all. 'vestige list experiments' has them."
            )
        if self.ray is None and (self.cpus is not None or self.gpus is not None or self.open_cluster):
            raise InputError(
                "The 'cpus', 'gpus' and 'open_cluster' of vestige run must come with --ray. Got them without instead."
            )
        given: dict[str, Any] = {"preset": self.preset, "seeds": self.seeds}
        given["overrides"] = {key: runner.parse(value) for key, value in dict(map(_pair, self.set)).items()}
        given["only"] = {key: runner.parse(value) for key, value in (_pair(text, "only") for text in self.only)}
        own = {"real": self.real, "fake": self.fake, "features": self.features}
        given["overrides"] |= {key: str(path) for key, path in own.items() if path is not None}
        tried = {key: runner.parse(value) for key, value in (_pair(text, "grid") for text in self.grid)}
        grid = {key: value if isinstance(value, list) else [value] for key, value in tried.items()}
        # Refused, if at all, before anything runs.
        if self.grid_tasks is not None and not grid:
            raise InputError("The 'grid_tasks' of vestige run must come with --grid. Got it without instead.")
        searches = {name: runner.search(name, self.out, grid, tasks=self.grid_tasks, **given) for name in names if grid}
        plans = {name: searches[name].units() if grid else runner.plan(name, self.out, **given) for name in names}
        if self.known:
            from vestige.runner.report import gather

            with output.progress("Reading Records"):
                records = gather(self.known)
            taken = runner.take_over([unit for units in plans.values() for unit in units], records)
            output.note(f"{taken} units were taken over from {', '.join(map(str, self.known))}.")
        if self.ray is None:  # a cluster has devices of its own
            for unit in chain.from_iterable(plans.values()):
                device_of(self.device, EXPERIMENTS[unit.experiment].devices)
        documents = []
        for name in names:
            units = plans[name]
            found: dict[Path, Record] = {}
            for stage in (f"{name}, search", name) if grid else (name,):
                if grid and stage == name:
                    units = searches[name].winners([found[unit.path] for unit in units])
                with self._shown(stage, units) as shown:
                    if announced := _announced(EXPERIMENTS[name], units):
                        shown.say(announced)
                    for finished in self._finished(units, shown):
                        found[finished.unit.path] = finished.record
                        shown.done(finished)
            documents.append(self._told(EXPERIMENTS[name], units, [found[unit.path] for unit in units]))
        if self.json:
            output.document(documents)

    def _told(self, experiment: Experiment[Any], units: Sequence[Unit], records: Sequence[Record]) -> dict[str, Any]:
        """What came out for programs; for people it is printed, measured beside published."""
        from vestige.runner.report import lines_table
        from vestige.show import save

        verdict, cut = experiment.verdict(records), "; ".join(experiment.cuts(records))
        drawn = experiment.figures(records).items()
        figures = [save(figure, self.out / experiment.name / f"{name}.png") for name, figure in drawn]
        if not self.json:
            for label, note in {
                unit.label: unit.details["search"] for unit in units if "search" in unit.details
            }.items():
                chosen = ", ".join(f"{key}={value}" for key, value in note["chosen"].items())
                output.say(f"Chosen on {note['on']}, among {len(note['tried'])}: {chosen} ({label})")
            title = f"{experiment.name}: {experiment.item}, preset {self.preset}"
            note = f"In place of the published setting, this ran with: {cut}." if cut else ""
            output.table(lines_table(experiment, records, title=title, note=note))
            said = str(verdict) if verdict.word == "no verdict" else f"verdict: {verdict}"
            output.say(f"{said[:1].upper()}{said[1:]}\nRule: {experiment.rule}")
            for path in figures:
                output.say(f"Figure: {path}")
        return {
            "experiment": experiment.name,
            "item": experiment.item,
            "preset": self.preset,
            "cut": cut,
            "lines": experiment.lines(records),
            "verdict": verdict,
            "sentence": str(verdict),
            "rule": str(experiment.rule),
            "records": [record.id for record in records],
            "figures": figures,
        }

    @contextlib.contextmanager
    def _shown(self, title: str, units: Sequence[Unit]) -> Iterator[Board]:
        """What shows how far `units` are; says what is stored where the run is interrupted."""
        # Ray prints what happens to its machines; stdout is for the answer.
        aside = contextlib.redirect_stdout(sys.stderr) if self.ray else contextlib.nullcontext()
        with aside, board(title, len({unit.path for unit in units}), as_json=self.json) as shown:
            try:
                yield shown
            except KeyboardInterrupt:
                whole = sum(unit.finished() is not None for unit in units)
                shown.say(
                    f"{title}: {whole} of {len(units)} units are finished and stored in {self.out}. The same command "
                    "goes on from there."
                )
                raise

    def _finished(self, units: Sequence[Unit], shown: Board) -> Iterator[Finished]:
        """Units as they are finished, here or on a cluster."""
        from vestige import runner

        if self.ray is None:
            return runner.run(units, workers=self.workers, device=self.device, on_progress=shown.begin, say=shown.say)
        from vestige.runner import cluster

        own = None
        if self.cpus is not None or self.gpus is not None:
            own = cluster.Resources(1.0 if self.cpus is None else self.cpus, self.gpus or 0.0)
        given: dict[str, Any] = {"resources": own, "device": self.device, "open_cluster": self.open_cluster}
        return cluster.run(units, self.ray, say=shown.say, **given)


def _announced(experiment: Experiment[Any], units: Sequence[Unit]) -> str:
    """What there is to run and what it will cost, where that is known."""
    left = [unit for unit in units if unit.finished() is None]
    seconds = [experiment.cost(unit.config) for unit in left]
    if not left or any(each is None for each in seconds):
        return ""
    minutes = sum(each or 0.0 for each in seconds) / 60
    return f"{experiment.name}: {len(left)} of {len(units)} units are to be run, about {minutes:.0f} CPU-minutes."


def _pair(text: str, option: str = "set") -> tuple[str, str]:
    field_name, equals, value = text.partition("=")
    if not equals or not field_name:
        raise InputError(f"The '{option}' of vestige run must be FIELD=VALUE. Got {shortened(repr(text))} instead.")
    return field_name, value
