"""A grid of settings, searched on validation data alone; the winner then runs on the test set.

An experiment can be searched if it says how a unit is validated and scored (`Validated`). Each unit of a seed, such as
a method, is searched for itself: of the settings that the grid gives it the one with the best mean score over the
seeds is taken, of equals the first. One that the grid leaves as it is, such as a method without the field, has nothing
to choose. Records of the search lie in `OUT/NAME/search`, where no table takes them for results, and the Record of a
winner carries all that was tried under `details["search"]`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from vestige.continual.record import Record
from vestige.core import InputError, checks
from vestige.runner.experiment import Experiment
from vestige.runner.plan import Unit, arms_and_seeds, command_of, units_of
from vestige.runner.registry import EXPERIMENTS

Point = dict[str, Any]  # a value for each field of the grid


@runtime_checkable
class Validated(Protocol):
    """What an experiment says if its settings may be searched."""

    def validation(self, config: Any) -> Any:  # noqa: ANN401
        """The unit that tests on data held out from training in place of the test set."""

    def score(self, record: Record) -> float:
        """What is searched for, from such a unit's Record; higher is better."""


@dataclass(frozen=True)
class Search:
    """The settings of each arm: `tried[arm][point]`; arms that the grid does not change have one."""

    experiment: Experiment[Any]
    points: list[Point]
    tried: list[list[Any]]
    seeds: int
    out: Path
    command: str

    def units(self) -> list[Unit]:
        """What is to be run on validation data: every setting of an arm that has a choice."""
        judge = _validated(self.experiment)
        settings = [judge.validation(s) for arm in self.tried if len(arm) > 1 for s in arm]
        units = units_of(self.experiment, list(dict.fromkeys(settings)), range(self.seeds), self.out, self.command)
        return [dataclasses.replace(unit, path=unit.path.parent / "search" / unit.path.name) for unit in units]

    def winners(self, records: Sequence[Record]) -> list[Unit]:
        """The units on the test set, each with the setting that won and all that was tried for it."""
        judge = _validated(self.experiment)
        found = {(json.dumps(record.config), record.seed): record for record in records}
        chosen, notes = [], []
        for arm in self.tried:
            tried: list[dict[str, Any]] = []
            for i, setting in enumerate(arm if len(arm) > 1 else []):
                key = json.dumps(self.experiment.config(judge.validation(setting)))
                mine = [found[key, seed] for seed in range(self.seeds)]
                scores = [judge.score(record) for record in mine]
                tried.append({"set": self.points[i], "scores": scores, "records": [record.id for record in mine]})
            means = [_mean(entry["scores"]) for entry in tried] or [0.0]
            best = means.index(max(means))
            chosen.append(arm[best])
            notes.append({"on": "validation data", "chosen": self.points[best], "tried": tried} if tried else None)
        units = units_of(self.experiment, chosen, range(self.seeds), self.out, self.command)
        told = [note for _ in range(self.seeds) for note in notes]
        return [
            unit if note is None else dataclasses.replace(unit, details={"search": note})
            for unit, note in zip(units, told, strict=True)
        ]


def search(
    name: str,
    out: str | Path,
    grid: Mapping[str, Sequence[Any]],
    *,
    preset: str = "laptop",
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Search:
    """The search of `grid`, fields to values, for experiment `name`; several fields give their product."""
    experiment = EXPERIMENTS[checks.one_of(name, EXPERIMENTS, "name", "vestige run")]
    _validated(experiment)
    both = sorted(set(grid) & set(overrides or {}))
    if both:
        raise InputError(f"The 'grid' of vestige run must name fields that are not 'set' too. Got {both[0]} instead.")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not points:
        raise InputError("The 'grid' of vestige run must give each field a value. Got none instead.")
    table = [arms_and_seeds(experiment, preset, seeds, {**(overrides or {}), **point}) for point in points]
    count = table[0][1]
    if len({len(arms) for arms, _ in table}) > 1:
        raise InputError(
            f"The 'grid' of vestige run must leave {name} its units. Got fields that change how many there are instead."
        )
    tried = [list(column) for column in zip(*(arms for arms, _ in table), strict=True)]
    tried = [arm if any(setting != arm[0] for setting in arm) else arm[:1] for arm in tried]
    if all(len(arm) == 1 for arm in tried):
        raise InputError(f"The 'grid' of vestige run must change a unit of {name}. Got {', '.join(grid)} instead.")
    words = "".join(f" --grid {key}={','.join(map(json.dumps, values))}" for key, values in grid.items())
    command = command_of(name, preset, count, overrides or {}) + words
    found = Search(experiment, points, tried, count, Path(out), command)
    found.units()  # what cannot be validated is refused here, before anything runs
    return found


def _mean(scores: Sequence[float]) -> float:
    """A setting one of whose scores is not a number cannot win."""
    return -math.inf if any(math.isnan(score) for score in scores) else fmean(scores)


def _validated(experiment: Experiment[Any]) -> Validated:
    if not isinstance(experiment, Validated):
        able = ", ".join(name for name, e in EXPERIMENTS.items() if isinstance(e, Validated)) or "none"
        raise InputError(
            f"The 'grid' of vestige run must be for an experiment with a validation score: {able}. "
            f"Got {experiment.name} instead, which could only be searched on its test data."
        )
    return experiment
