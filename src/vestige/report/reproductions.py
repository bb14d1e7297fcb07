"""REPRODUCTIONS.md: every experiment whose Records are kept, measured beside published, with command and verdict.

It reads Records and computes nothing: lines and verdict are the experiment's own. Records stay valid when code changes
later; each carries the hash of the code that made it, and the document names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vestige.drawing import Table
from vestige.errors import InputError
from vestige.experiments import EXPERIMENTS, PRESETS, Experiment
from vestige.record import Record
from vestige.runner import home

HEAD = """# Reproductions

Written by `vestige report --reproductions`, from the Records in `reproductions/`. *se* is the standard error over
seeds. A verdict follows from the rule that is printed with it. A miss stays visible.
"""


def lines_table(experiment: Experiment[Any], records: Sequence[Record], *, title: str = "", note: str = "") -> Table:
    """Measured beside published and true, where there are such."""
    lines = experiment.lines(records)
    given = {"truth": any(x.truth is not None for x in lines), "paper": any(x.paper is not None for x in lines)}
    optional = [name for name, there in given.items() if there]
    rows = [(x.label, x.quantity, *(getattr(x, name) for name in optional), x.ours, x.se, x.n) for x in lines]
    return Table(title, ("", "quantity", *optional, "ours", "se", "seeds"), rows, note)


def records_of(name: str, folder: Path) -> list[Record]:
    """The Records of an experiment, by seed; a figure that shows the runs of a table takes those that it asks for."""
    experiment = EXPERIMENTS[name]
    homes = {home(experiment, arm, folder) for arm in experiment.arms(experiment.presets["laptop"])}
    found = [Record.load(path) for place in sorted(homes) for path in sorted(place.glob("*.json"))]
    if homes != {folder / name}:
        asked = [experiment.config(arm) for preset in PRESETS for arm in experiment.arms(experiment.presets[preset])]
        most = experiment.seeds["laptop"]
        found = [record for record in found if record.config in asked and record.seed < most]
    return sorted(found, key=lambda record: record.seed)


def section(name: str, records: Sequence[Record]) -> str:
    """One experiment."""
    experiment = EXPERIMENTS[name]
    verdict = experiment.verdict(records)
    commands = sorted({f"`vestige {r.details['command']}`" for r in records if "command" in r.details})
    codes = ", ".join(sorted({record.code for record in records}))
    cut = experiment.cut.get("laptop", "") if any("--preset laptop" in command for command in commands) else ""
    parts = [
        f"## {name}: {experiment.item}",
        (type(experiment).__doc__ or "").partition("\n")[0],
        f"**{verdict.word}.** {verdict.why}",
        f"Rule: {experiment.rule}",
        f"Run by {', '.join(commands)}; {len(records)} Records; code {codes}." if commands else "",
        f"Against the published setting this leaves out: {cut}" if cut else "",
        lines_table(experiment, records).markdown(),
    ]
    return "\n\n".join(part for part in parts if part)


def reproductions(folder: str | Path) -> str:
    """The whole document, in the order in which experiments are listed."""
    folder = Path(folder)
    found = {name: records_of(name, folder) for name in EXPERIMENTS}
    sections = [section(name, records) for name, records in found.items() if records]
    if not sections:
        raise InputError(f"The folder '{folder}' must hold Records of experiments. Got none instead.")
    return "\n".join([HEAD, *sections])
