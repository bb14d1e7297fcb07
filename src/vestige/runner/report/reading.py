"""Records from files and folders, put together by what they are runs of.

A group is what one section of a report is about: the runs of one experiment under one setting (two presets are two
groups, and so are two versions, for their numbers must not be averaged), or bare runs of the protocol on one stream. A
figure that shows the runs of a table makes a group of its own, with those runs of the table that it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vestige.continual.record import Record, latest, load_all, save_all
from vestige.core import InputError
from vestige.runner.claims import Verdict
from vestige.runner.experiment import PRESETS, Experiment
from vestige.runner.registry import EXPERIMENTS

# How a file that is a Record begins; other JSON in a folder is not ours to judge.
MARK = re.compile(rb'\s*\{\s*"format":\s*"vestige/record"')
MARK_BYTES = 80
# Where a search on validation data leaves its Records, which are no results.
SEARCH = "search"


@dataclass(frozen=True)
class Group:
    """Runs that belong together; `borrowed` if they are shown in full under another experiment."""

    title: str
    records: tuple[Record, ...]
    experiment: Experiment[Any] | None = None
    borrowed: bool = False

    @property
    def name(self) -> str:
        """Of the experiment, or what bare runs were made on."""
        return self.title if self.experiment is None else self.title.partition(":")[0]

    @cached_property
    def verdict(self) -> Verdict | None:
        """The experiment's rule, applied once; bare runs have none."""
        return None if self.experiment is None else self.experiment.verdict(self.records)


def gather(paths: Iterable[str | Path]) -> list[Record]:
    """Every Record in `paths`, files (.json, or .jsonl with many) or folders of any depth, by seed and then by id.

    Each run counts once: of several versions of one configuration and seed, the highest. Folders of searches on
    validation data are passed over, unless one is named itself.
    """
    found: list[Record] = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"The path '{path}' must be a Record or a folder of Records. Got nothing there instead.")
        files = [path]
        if path.is_dir():
            files = sorted([*path.rglob("*.json"), *path.rglob("*.jsonl")])
            files = [f for f in files if SEARCH not in f.relative_to(path).parts[:-1] and _is_record(f)]
        found += [record for file in files for record in load_all(file)]
    return latest(found)


def pack(records: Iterable[Record], folder: str | Path) -> list[Path]:
    """Add Records of experiments to FOLDER/NAME.jsonl, in place of earlier versions; bare runs are refused."""
    homes: dict[str, list[Record]] = {}
    for found in records:
        if "experiment" not in found.config:
            raise InputError(f"What is packed must be Records of experiments. Got the run {found.id} instead.")
        homes.setdefault(found.config["experiment"], []).append(found)
    return [save_all(own, Path(folder) / f"{name}.jsonl") for name, own in sorted(homes.items())]


def groups(records: Sequence[Record]) -> list[Group]:
    """Experiments in the order in which they are listed, then bare runs, stream by stream."""
    found: list[Group] = []
    for name, experiment in EXPERIMENTS.items():
        own = [record for record in records if record.config.get("experiment") == name]
        settings = by_setting(own) if own else belonging(name, records)
        for words, runs in settings.items():
            words = words if len(settings) > 1 else ", ".join(_edition(runs[0]))
            more = f" ({words})" if words else ""
            found.append(Group(f"{name}: {experiment.item}{more}", tuple(runs), experiment, borrowed=not own))
    others: dict[str, list[Record]] = {}
    for record in records:
        if record.config.get("experiment") not in EXPERIMENTS:
            others.setdefault(subject(record), []).append(record)
    return [*found, *(Group(name, tuple(runs)) for name, runs in sorted(others.items()))]


def volumes(found: Iterable[Group]) -> dict[str, list[Group]]:
    """Groups by name: what stands on one page where there are several."""
    by_name: dict[str, list[Group]] = {}
    for group in found:
        by_name.setdefault(group.name, []).append(group)
    return by_name


def by_setting(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records under each setting, whose numbers must not be averaged with those under another."""
    return {words: [r for r in records if setting(r) == words] for words in sorted({setting(r) for r in records})}


def belonging(name: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """The Records of an experiment under each setting, by seed.

    A figure that shows the runs of a table takes those that it asks for, and none until all that a preset asks for are
    there: a part of them is what the table has run for itself.
    """
    experiment = EXPERIMENTS[name]
    homes = {experiment.config(arm)["experiment"] for arm in experiment.arms(experiment.presets["laptop"])}
    found = [record for record in records if record.config.get("experiment") in homes]
    if homes != {name}:
        asked = [[experiment.config(arm) for arm in experiment.arms(experiment.presets[p])] for p in PRESETS]
        run = [record.config for record in found]
        whole = [config for arms in asked if all(config in run for config in arms) for config in arms]
        found = [r for r in found if r.config in whole and r.seed < experiment.seeds["laptop"]]
    return by_setting(sorted(found, key=lambda record: record.seed))


def setting(record: Record) -> str:
    """Preset and changed fields, as the command has them, and between them the version unless it is 1.

    A change that leaves a unit as the preset has it, since it only says which units to run, is none.
    """
    command = str(record.details.get("command", ""))
    preset = re.search(r"--preset (\S+)", command)
    changes = re.findall(r"--(?:set|grid) (.+?)(?= --|$)", command)
    experiment = EXPERIMENTS.get(str(record.config.get("experiment")))
    if changes and preset and experiment is not None and preset[1] in experiment.presets:
        own = [experiment.config(arm) for arm in experiment.arms(experiment.presets[preset[1]])]
        changes = [] if record.config in own else changes
    return ", ".join([*([f"preset {preset[1]}"] if preset else []), *_edition(record), *changes])


def _edition(record: Record) -> list[str]:
    """What is said of a Record's version, unless it is 1."""
    said = record.edition
    return [said if record.first_edition else f"version {said}"] if said != "1" else []


def subject(record: Record) -> str:
    """What a bare run was made on, in a few words."""
    if "experiment" in record.config:
        return str(record.config["experiment"])
    stream = record.config.get("stream")
    if not isinstance(stream, dict):
        return "Runs"
    words = " ".join(str(stream[key]) for key in ("stream", "data") if stream.get(key))
    return f"{words or 'Runs'}{f', {record.head}-head' if record.head else ''}"


def _is_record(file: Path) -> bool:
    with file.open("rb") as stream:
        return MARK.match(stream.read(MARK_BYTES)) is not None
