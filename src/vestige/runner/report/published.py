"""Measured beside published: an experiment's own lines, verdict, rule and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vestige.continual.record import Record
from vestige.runner.experiment import Experiment
from vestige.runner.report.reading import Group, setting
from vestige.show import Part, Picture, Table


def lines_table(experiment: Experiment[Any], records: Sequence[Record], *, title: str = "", note: str = "") -> Table:
    """Measured beside published and true, where there are such."""
    lines = experiment.lines(records)
    given = {"truth": any(x.truth is not None for x in lines), "paper": any(x.paper is not None for x in lines)}
    optional = [name for name, there in given.items() if there]
    rows = [(x.label, x.quantity, *(getattr(x, name) for name in optional), x.ours, x.se, x.n) for x in lines]
    return Table(title, ("", "quantity", *optional, "ours", "se", "seeds"), rows, note, alike="row")


def published(group: Group) -> list[Part]:
    """The verdict with its rule, what the preset leaves out, and the table; nothing for bare runs."""
    experiment, records, verdict = group.experiment, group.records, group.verdict
    if experiment is None or verdict is None:
        return []
    note = "se: standard error over seeds."
    return [
        f"Verdict: {verdict.word}, by a rule that was written before the run. {experiment.rule}",
        *([f"Against the published setting this leaves out: {left}"] if (left := left_out(group)) else []),
        lines_table(experiment, records, title=experiment.item, note=note),
    ]


def figures(group: Group) -> list[Part]:
    """The experiment's own pictures."""
    experiment = group.experiment
    if experiment is None:
        return []
    drawn = experiment.figures(group.records)
    what = (type(experiment).__doc__ or "").partition("\n")[0]
    return [
        Picture(figure, f"{name}, for {experiment.item}: {what} The numbers stand in the table beside the paper's.")
        for name, figure in drawn.items()
    ]


def left_out(group: Group) -> str:
    """What the presets of these runs leave out of the published setting."""
    if group.experiment is None:
        return ""
    presets = {setting(record).partition(",")[0].removeprefix("preset ") for record in group.records}
    return " ".join(group.experiment.cut[preset] for preset in sorted(presets & group.experiment.cut.keys()))
