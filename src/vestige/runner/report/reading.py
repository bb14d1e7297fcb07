"""Records from files and folders, put together by what they are runs of: in groups, and each group in arms.

A group is what one section of a report is about: the runs of one experiment under one setting (two presets are two
groups, and so are two versions, for their numbers must not be averaged), or bare runs of the protocol on one stream. A
figure that shows the runs of a table makes a group of its own, with those runs of the table that it asks for. The arms
of a group are Records that differ in the seed alone, named by what sets them apart from the other arms.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import store
from vestige.continual.audit import from_record
from vestige.continual.record import Record, latest, load_all, save_all
from vestige.core import InputError, StoreError, VestigeWarning
from vestige.runner.claims import Verdict
from vestige.runner.experiment import NAMING, PRESETS, Experiment, Line, by_preset, grouped, line, naming, outdated
from vestige.runner.registry import EXPERIMENTS

# How a file that is a Record begins; other JSON in a folder is not ours to judge.
MARK = re.compile(rb'\s*\{\s*"format":\s*"vestige/record"')
MARK_BYTES = 80
# Where a search on validation data leaves its Records, which are no results.
SEARCH = "search"
# Parts of a configuration that follow from the seed and set no arm apart.
BY_SEED = ("seed", "digest", "reference")


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

    @property
    def seeds(self) -> list[int]:
        """Each once."""
        return sorted({record.seed for record in self.records})

    @cached_property
    def verdict(self) -> Verdict | None:
        """The experiment's rule, applied once; bare runs have none."""
        return None if self.experiment is None else self.experiment.verdict(self.records)


def gather(paths: Iterable[str | Path]) -> list[Record]:
    """Every Record in `paths`, files (.json, or .jsonl with many) or folders of any depth, by seed and then by id.

    Each run counts once: of several versions of one configuration and seed, the highest. Folders of searches on
    validation data are passed over, unless one is named itself. A Record that cannot be used is a StoreError where its
    file was asked for; of a folder it is left out with a warning, because the others have done nothing wrong.
    """
    found: list[Record] = []
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"The path '{path}' must be a Record or a folder of Records. Got nothing there instead.")
        if not path.is_dir():
            found += _usable(path, None)
            continue
        files = sorted([*path.rglob("*.json"), *path.rglob("*.jsonl")])
        for file in files:
            if SEARCH not in file.relative_to(path).parts[:-1] and _is_record(file):
                found += _usable(file, _leave_out)
    return latest(found)


def _leave_out(damage: StoreError) -> None:
    warnings.warn(f"{damage} This Record is left out.", VestigeWarning, stacklevel=2)


def _usable(file: Path, on_damage: Callable[[StoreError], None] | None) -> list[Record]:
    """The Records of a file that a report can be made of."""
    found = []
    for record in load_all(file, on_damage):
        with store.passing_over(on_damage):
            _check(record, file)
            found.append(record)
    return found


def _check(record: Record, file: Path) -> None:
    """Refuse what no run can have left: another configuration or other numbers than its experiment has, a bad audit."""
    where = f"{file}: The Record {record.id}"
    try:
        if record.audit is not None:
            from_record(record)
    except (StoreError, InputError, KeyError) as error:
        raise StoreError(f"{where} must have an 'audit' that this version can read: {error}") from None
    experiment = EXPERIMENTS.get(str(record.config.get("experiment")))
    if experiment is None:
        return
    settings = {name: value for name, value in record.config.items() if name != "experiment"}
    try:
        store.decode(type(experiment.presets[PRESETS[0]]), settings, at="config")
    except (StoreError, InputError) as error:
        raise StoreError(f"{where} must have the 'config' of {experiment.name}: {error}") from None
    try:
        experiment.lines([record])
    except IndexError:  # it may want more than one Record
        pass
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StoreError(
            f"{where} must have the 'matrices' and 'values' of {experiment.name}: {type(error).__name__}: {error}."
        ) from None


def pack(records: Iterable[Record], folder: str | Path) -> list[Path]:
    """Add Records of experiments to FOLDER/NAME.jsonl, in place of earlier versions; bare runs are refused."""
    records = list(records)
    bare = [record for record in records if "experiment" not in record.config]
    if bare:
        raise InputError(f"What is packed must be Records of experiments. Got the run {bare[0].id} instead.")
    homes = grouped(records, lambda record: str(record.config["experiment"]))
    return [save_all(own, Path(folder) / f"{name}.jsonl") for name, own in sorted(homes.items())]


def groups(records: Sequence[Record]) -> list[Group]:
    """Experiments in the order in which they are listed, then bare runs, stream by stream."""
    found: list[Group] = []
    of_experiments = any("experiment" in record.config for record in records)  # bare runs belong to none
    for name, experiment in EXPERIMENTS.items() if of_experiments else ():
        own = [record for record in records if record.config.get("experiment") == name]
        settings = by_setting(own) if own else belonging(name, records)
        for words, runs in settings.items():
            words = words if len(settings) > 1 else ", ".join(_edition(runs[0]))
            more = f" ({words})" if words else ""
            found.append(Group(f"{name}: {experiment.item}{more}", tuple(runs), experiment, borrowed=not own))
    others = grouped((r for r in records if r.config.get("experiment") not in EXPERIMENTS), subject)
    return [*found, *(Group(name, tuple(runs)) for name, runs in sorted(others.items()))]


def volumes(found: Iterable[Group]) -> dict[str, list[Group]]:
    """Groups by name: what stands on one page where there are several."""
    by_name: dict[str, list[Group]] = {}
    for group in found:
        by_name.setdefault(group.name, []).append(group)
    return by_name


def by_setting(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records under each setting, whose numbers must not be averaged with those under another."""
    return dict(sorted(grouped(records, setting).items()))


def belonging(name: str, records: Sequence[Record]) -> dict[str, list[Record]]:
    """The Records of an experiment under each setting, by seed.

    A figure that shows the runs of a table takes those that it asks for, and none until all that a preset asks for are
    there: a part of them is what the table has run for itself. Where the preset has changed since, it takes in place of
    a run that is not there the one that the table once made for it; `Experiment.waits` says so.
    """
    experiment = EXPERIMENTS[name]
    homes = {experiment.config(arm)["experiment"] for arm in experiment.arms(experiment.presets["laptop"])}
    found = [record for record in records if record.config.get("experiment") in homes]
    if found and homes != {name}:
        asked = [[experiment.config(arm) for arm in experiment.arms(experiment.presets[p])] for p in PRESETS]
        run = [record.config for record in found]
        theirs = [
            EXPERIMENTS[home].config(arm) for home in homes & EXPERIMENTS.keys() for arm in every_arm(EXPERIMENTS[home])
        ]
        former = [config for config in run if config not in theirs]
        whole: list[dict[str, Any]] = []
        for preset, arms in zip(PRESETS, asked, strict=True):
            there = [config for config in arms if config in run]
            instead = [before for _, before in outdated(arms, [*there, *former]) if before is not None]
            if there and len(there) + len(instead) == len(arms):
                whole += [*there, *instead]
            elif not there:  # what the preset once asked for, under the same names
                names = {naming(config) for config in arms}
                made = [r.config for r in found if r.config in former and by_preset(r) == preset]
                shown = [config for config in made if naming(config) in names]
                whole += shown if {naming(config) for config in shown} == names else []
        found = [r for r in found if r.config in whole and r.seed < experiment.seeds["laptop"]]
    return by_setting(sorted(found, key=lambda record: record.seed))


def every_arm(experiment: Experiment[Any]) -> list[Any]:
    """The units of a seed under every preset."""
    return [arm for preset in PRESETS for arm in experiment.arms(experiment.presets[preset])]


def setting(record: Record) -> str:
    """Preset and changed fields, as the command has them, and between them the version unless it is that of today.

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


def edition(record: Record) -> str:
    """What is said of a Record's version."""
    return record.edition if record.first_edition else f"version {record.edition}"


def _edition(record: Record) -> list[str]:
    """The same, unless it is what the unit would have today: units of one experiment may use parts of several."""
    today = _today(record)
    raised, now = ({k: v for k, v in versions.items() if v != 1} for versions in (record.version, today))
    return [] if raised == now else [edition(record)]


def _today(record: Record) -> dict[str, int]:
    """The versions that a run of this configuration would have, as far as they are known."""
    experiment = EXPERIMENTS.get(str(record.config.get("experiment")))
    if experiment is None:
        return {}
    settings = {name: value for name, value in record.config.items() if name != "experiment"}
    try:
        return experiment.versions(store.decode(type(experiment.presets[PRESETS[0]]), settings, at="config"))
    except (StoreError, InputError):  # of a setting that it had once
        return {}


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
    if not file.is_file():  # nor is a folder or a pipe of such a name
        return False
    try:
        with file.open("rb") as stream:
            return MARK.match(stream.read(MARK_BYTES)) is not None
    except OSError:
        return True  # and whoever reads it says what is wrong


@dataclass(frozen=True)
class Arm:
    """The Records of one configuration, by seed."""

    label: str
    records: tuple[Record, ...]

    @property
    def first(self) -> Record:
        """The Record of the smallest seed, for what all seeds share."""
        return self.records[0]

    def mean(self, pick: Callable[[Record], Tensor]) -> tuple[Float64[Tensor, "..."], Float64[Tensor, "..."]]:
        """Mean over seeds and its standard error, cell by cell; NaN where it was not measured, or measured once."""
        stacked = torch.stack([pick(record).double() for record in self.records])
        known = (~stacked.isnan()).sum(0)
        middle = stacked.nanmean(0)
        spread = ((stacked - middle) ** 2).nansum(0) / (known - 1)  # 0/0 with one seed: NaN
        return middle, (spread / known).sqrt().where(known > 1, math.nan)

    def line(self, quantity: str, values: Iterable[float | None]) -> Line:
        """Mean and standard error of one number a seed."""
        return line(self.label, quantity, [math.nan if v is None else float(v) for v in values])


def arms(records: Sequence[Record], order: Sequence[dict[str, Any]] = ()) -> list[Arm]:
    """Records by configuration: in the order of the configurations in `order`, then by name."""
    found = grouped(sorted(records, key=lambda record: record.seed), lambda record: _key(record.config))
    names = dict(zip(found, labels([runs[0].config for runs in found.values()]), strict=True))
    known = {_key(config): i for i, config in enumerate(order)}
    keys = sorted(found, key=lambda key: (known.get(key, len(known)), names[key]))
    return [Arm(names[key], tuple(found[key])) for key in keys]


def labels(configs: Sequence[dict[str, Any]]) -> list[str]:
    """A name for each of `configs`: the values of the fewest fields, taken in turn, that tell them all apart."""
    flat = [flatten(config) for config in configs]
    fields = list(dict.fromkeys(field for config in flat for field in config))
    words = [f for f in fields if any(isinstance(config.get(f), str) for config in flat)]
    chosen = [field for field in NAMING if field in fields][:1]

    def kinds(by: Sequence[str]) -> int:
        return len({json.dumps([config.get(field) for field in by]) for config in flat})

    for field in [*(f for f in NAMING if f in fields), *words, *fields]:
        if kinds([*chosen, field]) > kinds(chosen):
            chosen.append(field)
    return [_label(config, chosen) or str(config.get("experiment", "run")) for config in flat]


def flatten(config: dict[str, Any], under: str = "") -> dict[str, Any]:
    """Fields of a configuration by dotted name, without those that follow from the seed."""
    out: dict[str, Any] = {}
    for name, value in config.items():
        if name in BY_SEED:
            continue
        full = f"{under}{name}"
        out |= flatten(value, f"{full}.") if isinstance(value, dict) else {full: value}
    return out


def short(value: object) -> str:
    """A value of a configuration in as few letters as it takes."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return "/".join(map(short, value)) or "none"
    return "none" if value is None else str(value)


def _label(config: dict[str, Any], fields: Sequence[str]) -> str:
    told = [(f, short(config[f])) for f in fields if f in config and (f in NAMING or config[f] is not None)]
    return ", ".join(v if f in (*NAMING, "experiment") else f"{f.rpartition('.')[2]}={v}" for f, v in told)


def _key(config: dict[str, Any]) -> str:
    return json.dumps(flatten(config), sort_keys=True)
