"""`vestige run NAME ...`: tables and figures of the papers, run again, beside the published numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from vestige.cli import output
from vestige.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vestige.experiments import Experiment, Verdict
    from vestige.record import Record
    from vestige.runner import Unit


@dataclass(frozen=True)
class Run:
    """Run tables and figures of the papers again, beside the published numbers.

    Each unit (a method, a seed) is stored when it is finished and never run again: the same command goes on where it
    was stopped. `vestige list experiments` names them all.
    """

    names: Positional[tuple[str, ...]] = ()
    """Which experiments."""
    all: bool = False
    """Every one of them."""
    preset: Literal["smoke", "laptop", "paper"] = "laptop"
    """smoke takes seconds, laptop minutes (what it leaves out is printed), paper is the published setting."""
    seeds: int | None = None
    """How many seeds, in place of the preset's own number."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="FIELD=VALUE")] = ()
    """Replace a field of the configuration; may be given several times."""
    workers: int = 1
    """How many processes, of one torch thread each; 0 runs everything in this one."""
    out: Path = field(default_factory=lambda: Path("runs"))
    """Where Records and figures go."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Plan everything, run what is not there, print."""
        from vestige import runner
        from vestige.experiments import EXPERIMENTS

        names = tuple(EXPERIMENTS) if self.all else self.names
        if not names:
            raise InputError(
                "'vestige run' needs the name of an experiment, or --all. 'vestige list experiments' has them."
            )
        overrides = dict(_pair(text) for text in self.set)
        given: dict[str, Any] = {"preset": self.preset, "seeds": self.seeds}
        given["overrides"] = {key: runner.parse(value) for key, value in overrides.items()}
        plans = {name: runner.plan(name, self.out, **given) for name in names}
        documents = []
        for name, units in plans.items():
            records = self._records(name, units)
            experiment = EXPERIMENTS[name]
            verdict = experiment.verdict(records)
            figures = self._draw(experiment, records)
            if self.json:
                documents.append(_document(experiment, records, verdict, figures, self.preset))
                continue
            output.table(table(experiment, records, self.preset))
            output.say(f"Verdict: {verdict.word}. {verdict.why}\nRule: {experiment.rule}")
            for path in figures:
                output.say(f"Figure: {path}")
        if self.json:
            output.document(documents)

    def _records(self, name: str, units: Sequence[Unit]) -> list[Record]:
        """The Records of `units`, in their order."""
        from vestige import runner

        found: dict[Path, Record] = {}
        steps = 1000  # of the bar, a unit
        with output.progress(name, steps * len(units)) as advance:

            def tell(unit: Unit) -> Any:  # noqa: ANN401 - a Tell
                reached = 0

                def heard(share: float, words: str) -> None:
                    nonlocal reached
                    now = min(int(steps * share), steps - 1)
                    advance(max(now - reached, 0))
                    reached = max(now, reached)
                    told[unit.path] = reached

                return heard

            told: dict[Path, int] = {}
            for finished in runner.run(units, workers=self.workers, tell=tell):
                found[finished.unit.path] = finished.record
                advance(steps - told.get(finished.unit.path, 0))
        return [found[unit.path] for unit in units]

    def _draw(self, experiment: Experiment[Any], records: Sequence[Record]) -> list[Path]:
        from vestige.drawing import save

        figures = experiment.figures(records)
        return [save(figure, self.out / experiment.name / f"{name}.png") for name, figure in figures.items()]


def _pair(text: str) -> tuple[str, str]:
    field_name, equals, value = text.partition("=")
    if not equals or not field_name:
        raise InputError(f"The 'set' of vestige run must be FIELD=VALUE. Got {text!r} instead.")
    return field_name, value


def table(experiment: Experiment[Any], records: Sequence[Record], preset: str) -> output.Table:
    """Measured beside published, with what the preset leaves out underneath."""
    from vestige.report import lines_table

    cut = experiment.cut.get(preset, "")
    note = f"Against the published setting, '{preset}' leaves out: {cut}" if cut else ""
    return lines_table(experiment, records, title=f"{experiment.name}: {experiment.item}, preset {preset}", note=note)


def _document(
    experiment: Experiment[Any], records: Sequence[Record], verdict: Verdict, figures: Sequence[Path], preset: str
) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "item": experiment.item,
        "preset": preset,
        "cut": experiment.cut.get(preset, ""),
        "lines": experiment.lines(records),
        "verdict": verdict,
        "rule": experiment.rule,
        "records": [record.id for record in records],
        "figures": [str(path) for path in figures],
    }
