"""What there is to run: the units of an experiment, or of a grid of settings, and which are finished already.

A unit is (configuration, seed); its Record lies at `OUT/NAME/ID.json`, where the id is known before it runs and the
name is that of the experiment it was made for: a figure that shows the runs of a table finds them there. A Record that
is there and whole is never run again.

A grid is searched on validation data alone; the winner then runs on the test set. An experiment can be searched if it
says how a unit is validated and scored (`Validated`). Each unit of a seed, such as a method, is searched for itself: of
the settings that the grid gives it the one with the best mean score over the seeds is taken, of equals the first
(`vestige.continual.search`). There are three seeds at least, however many the winner is run with, and `tasks` may
confine the choice to what the first tasks show. One that the grid leaves as it is, such as a method without the field,
has nothing to choose. Records of the search lie in `OUT/NAME/search`, where no table takes them for results, and the
Record of a winner carries all that was tried under `details["search"]`.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, get_args, get_origin, runtime_checkable

from vestige import store
from vestige.continual.record import Record, Searched, Tried
from vestige.continual.search import LEAST_SEEDS, best, first_tasks, seen_by
from vestige.core import InputError, StoreError, checks
from vestige.core.errors import shortened
from vestige.runner.experiment import PRESETS, Experiment
from vestige.runner.registry import EXPERIMENTS


@dataclass(frozen=True)
class Unit:
    """One run to be made, or made."""

    experiment: str
    config: Any
    seed: int
    path: Path
    command: str  # the words after `vestige` that run it
    label: str = ""  # what sets it apart from the other units of its seed
    device: str | None = field(default=None, compare=False)  # that it is to compute on; None: the best
    details: dict[str, Any] = field(default_factory=dict, compare=False)  # what its Record is to say besides

    def __str__(self) -> str:
        return " ".join(filter(None, (self.experiment, self.label, f"seed {self.seed}")))

    def finished(self) -> Record | None:
        """Its Record, if it is there and whole; a damaged file counts as absent, and is written over."""
        try:
            return Record.load(self.path) if self.path.exists() else None
        except StoreError:
            return None


def take_over(units: Sequence[Unit], records: Iterable[Record]) -> int:
    """Store for every unit that is not finished the Record with its id, if `records` have it; returns how many."""
    known = {record.id: record for record in records}
    missing = [unit for unit in units if unit.path.stem in known and unit.finished() is None]
    for unit in missing:
        known[unit.path.stem].save(unit.path)
    return len(missing)


def plan(
    name: str,
    out: str | Path,
    *,
    preset: str = "laptop",
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Mapping[str, Any] | None = None,
) -> list[Unit]:
    """The units of experiment `name`, seed by seed, so that early seeds are whole before late ones begin.

    `only` leaves those whose field has this value, or one of a list of them, in every field that is named.
    """
    experiment = EXPERIMENTS[checks.one_of(name, EXPERIMENTS, "name", "vestige run")]
    arms, count = arms_and_seeds(experiment, preset, seeds, overrides or {}, only or {})
    return units_of(experiment, arms, range(count), out, command_of(name, preset, count, overrides or {}, only or {}))


def arms_and_seeds(
    experiment: Experiment[Any],
    preset: str,
    seeds: int | None,
    overrides: Mapping[str, Any],
    only: Mapping[str, Any],
) -> tuple[list[Any], int]:
    """The units of one seed, and how many seeds there are."""
    config = configured(experiment, preset, overrides)
    count = experiment.seeds[preset] if seeds is None else checks.whole(seeds, "seeds", "vestige run", low=1)
    if not (arms := list(experiment.arms(config))):
        given = ", ".join(f"{key}={value}" for key, value in overrides.items())
        checks.refuse("set", f"vestige run {experiment.name}", "values that leave at least one run", given)
    for name, wanted in only.items():
        arms = _those_with(name, wanted, arms, f"vestige run {experiment.name}")
    return arms, count


def _those_with(name: str, wanted: Any, arms: Sequence[Any], where: str) -> list[Any]:  # noqa: ANN401
    """The arms whose field `name` is `wanted` or among it, as JSON has them."""
    checks.one_of(name, sorted({f.name for arm in arms for f in fields(arm)}), "only", where)
    of_each = [json.loads(json.dumps(getattr(arm, name, None))) for arm in arms]
    left = [
        arm
        for arm, own in zip(arms, of_each, strict=True)
        if own == wanted or own in (wanted if isinstance(wanted, list) else [])
    ]
    if not left:
        there = " or ".join(sorted({f"{name}={json.dumps(own)}" for own in of_each}))
        checks.refuse("only", where, f"a value that a run has ({there})", f"{name}={json.dumps(wanted)}")
    return left


def command_of(
    name: str, preset: str, seeds: int, overrides: Mapping[str, Any], only: Mapping[str, Any] | None = None
) -> str:
    """The words after `vestige` that run it."""
    changed = "".join(f" --set {key}={json.dumps(value)}" for key, value in overrides.items())
    part = "".join(f" --only {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in (only or {}).items())
    return f"run {name} --preset {preset} --seeds {seeds}{changed}{part}"


def units_of(
    experiment: Experiment[Any], arms: Sequence[Any], seeds: Sequence[int], out: str | Path, command: str
) -> list[Unit]:
    """A unit for each seed and arm; what is told apart in a label are the fields in which the arms differ."""
    names = [f.name for f in fields(arms[0])] if arms else []
    differ = [name for name in names if any(getattr(arm, name) != getattr(arms[0], name) for arm in arms)]

    def label(arm: Any) -> str:  # noqa: ANN401
        return ", ".join(f"{name}={getattr(arm, name)}" for name in differ if getattr(arm, name) is not None)

    def path(arm: Any, seed: int) -> Path:  # noqa: ANN401 - in the folder of the experiment that it names
        return Path(out) / experiment.config(arm)["experiment"] / f"{experiment.unit_id(arm, seed)}.json"

    return [Unit(experiment.name, arm, seed, path(arm, seed), command, label(arm)) for seed in seeds for arm in arms]


def configured(experiment: Experiment[Any], preset: str, overrides: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The preset's configuration with some fields replaced; a field or a type that does not fit is refused."""
    config = experiment.presets[checks.one_of(preset, PRESETS, "preset", "vestige run")]
    known = [f.name for f in fields(config)]
    for name in overrides:
        checks.one_of(name, known, "set", experiment.name)
    hints = checks.annotations_of(type(config))
    fitted = {name: _fit(value, hints[name], f"{experiment.name} --set {name}") for name, value in overrides.items()}
    return replace(config, **fitted)


def parse(text: str) -> Any:  # noqa: ANN401 - whatever JSON says
    """A value from the shell: JSON where it is JSON, a list where there are commas, a word otherwise."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(
            f"A value of vestige run must have fewer levels of lists. Got {shortened(text)} instead."
        ) from None
    except ValueError:  # a number of thousands of digits, too, is a word
        return [parse(part) for part in text.split(",") if part] if "," in text else text


def _fit(value: Any, hint: Any, what: str) -> Any:  # noqa: ANN401
    """`value` as the field's type has it: whole numbers serve as real ones, lists and single values as tuples."""
    kinds = get_args(hint) if type(None) in get_args(hint) else (hint,)
    several = any(kind is tuple or get_origin(kind) is tuple for kind in kinds)
    listed = list(value) if isinstance(value, list | tuple) else [value] if several and value is not None else value
    try:
        return store.decode(hint, listed)
    except StoreError:
        wanted = " or ".join(str(getattr(kind, "__name__", kind)) for kind in kinds)
        raise InputError(f"The value of {what} must be {wanted}. Got {shortened(repr(value))} instead.") from None


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
    judge: Validated  # the experiment, which says how its units are validated
    points: list[dict[str, Any]]  # a value for each field of the grid
    tried: list[list[Any]]
    seeds: int  # of the winners
    out: Path
    command: str
    tasks: int | None = None  # that the choice is made on, from the first; None: all

    @property
    def tried_seeds(self) -> int:
        """How many seeds of each setting are tried."""
        return max(self.seeds, LEAST_SEEDS)

    def units(self) -> list[Unit]:
        """What is to be run on validation data: every setting of an arm that has a choice."""
        settings = [self.judge.validation(s) for arm in self.tried if len(arm) > 1 for s in arm]
        seeds, arms = range(self.tried_seeds), list(dict.fromkeys(settings))
        units = units_of(self.experiment, arms, seeds, self.out, self.command)
        return [replace(unit, path=unit.path.parent / "search" / unit.path.name) for unit in units]

    def winners(self, records: Sequence[Record]) -> list[Unit]:
        """The units on the test set, each with the setting that won and all that was tried for it."""
        found = {(json.dumps(record.config), record.seed): record for record in records}
        chosen: list[Any] = []
        details: list[dict[str, Any]] = []
        for arm in self.tried:
            if len(arm) == 1:
                chosen.append(arm[0])
                details.append({})
                continue
            tried: list[Tried] = []
            for point, setting in zip(self.points, arm, strict=True):
                key = json.dumps(self.experiment.config(self.judge.validation(setting)))
                mine = [found[key, seed] for seed in range(self.tried_seeds)]
                scores = [self.judge.score(first_tasks(record, self.tasks)) for record in mine]
                tried.append(Tried(point, scores, [record.id for record in mine]))
            won = tried.index(best(tried, "vestige run --grid"))
            chosen.append(arm[won])
            details.append({"search": asdict(Searched(seen_by(self.tasks), self.points[won], tried))})
        units = units_of(self.experiment, chosen, range(self.seeds), self.out, self.command)
        return [replace(unit, details=own) for unit, own in zip(units, details * self.seeds, strict=True)]


def search(
    name: str,
    out: str | Path,
    grid: Mapping[str, Sequence[Any]],
    *,
    preset: str = "laptop",
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    only: Mapping[str, Any] | None = None,
    tasks: int | None = None,
) -> Search:
    """The search of `grid`, fields to values, for experiment `name`; several fields give their product.

    `only` is that of `plan`; `tasks` chooses by the first tasks alone.
    """
    experiment = EXPERIMENTS[checks.one_of(name, EXPERIMENTS, "name", "vestige run")]
    judge = _validated(experiment)
    both = sorted(set(grid) & set(overrides or {}))
    if both:
        raise InputError(f"The 'grid' of vestige run must name fields that are not 'set' too. Got {both[0]} instead.")
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if not points:
        raise InputError("The 'grid' of vestige run must give each field a value. Got none instead.")
    table = [arms_and_seeds(experiment, preset, seeds, {**(overrides or {}), **point}, only or {}) for point in points]
    count = table[0][1]
    if len({len(arms) for arms, _ in table}) > 1:
        raise InputError(
            f"The 'grid' of vestige run must leave {name} its units. Got fields that change how many there are instead."
        )
    tried = [list(column) for column in zip(*(arms for arms, _ in table), strict=True)]
    tried = [arm if any(setting != arm[0] for setting in arm) else arm[:1] for arm in tried]
    if all(len(arm) == 1 for arm in tried):
        raise InputError(f"The 'grid' of vestige run must change a unit of {name}. Got {', '.join(grid)} instead.")
    tasks = None if tasks is None else checks.whole(tasks, "grid_tasks", "vestige run", low=1)
    words = "".join(f" --grid {key}={','.join(map(json.dumps, values))}" for key, values in grid.items())
    words += "" if tasks is None else f" --grid-tasks {tasks}"
    command = command_of(name, preset, count, overrides or {}, only or {}) + words
    found = Search(experiment, judge, points, tried, count, Path(out), command, tasks)
    found.units()  # what cannot be validated is refused here, before anything runs
    return found


def _validated(experiment: Experiment[Any]) -> Validated:
    if not isinstance(experiment, Validated):
        able = ", ".join(name for name, e in EXPERIMENTS.items() if isinstance(e, Validated)) or "none"
        raise InputError(
            f"The 'grid' of vestige run must be for an experiment with a validation score: {able}. "
            f"Got {experiment.name} instead, which could only be searched on its test data."
        )
    return experiment
