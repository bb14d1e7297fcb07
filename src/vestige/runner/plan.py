"""What there is to run: the units of an experiment, and which of them are finished already.

A unit is (configuration, seed); its Record lies at `OUT/NAME/ID.json`, where the id is known before it runs and the
name is that of the experiment it was made for: a figure that shows the runs of a table finds them there. A Record that
is there and whole is never run again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from vestige.continual.record import Record
from vestige.core import InputError, StoreError, checks
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
    device: str | None = dataclasses.field(default=None, compare=False)  # that it is to compute on; None: the best
    details: dict[str, Any] = dataclasses.field(
        default_factory=dict, compare=False
    )  # what its Record is to say besides

    def __str__(self) -> str:
        return " ".join(filter(None, (self.experiment, self.label, f"seed {self.seed}")))

    def finished(self) -> Record | None:
        """Its Record, if it is there and whole; a damaged file counts as absent, and is written over."""
        try:
            return Record.load(self.path) if self.path.exists() else None
        except StoreError:
            return None


def plan(
    name: str,
    out: str | Path,
    *,
    preset: str = "laptop",
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Unit]:
    """The units of experiment `name`, seed by seed, so that early seeds are whole before late ones begin."""
    experiment = EXPERIMENTS[checks.one_of(name, EXPERIMENTS, "name", "vestige run")]
    arms, count = arms_and_seeds(experiment, preset, seeds, overrides or {})
    return units_of(experiment, arms, range(count), out, command_of(name, preset, count, overrides or {}))


def arms_and_seeds(
    experiment: Experiment[Any], preset: str, seeds: int | None, overrides: Mapping[str, Any]
) -> tuple[list[Any], int]:
    """The units of one seed, and how many seeds there are."""
    config = configured(experiment, preset, overrides)
    count = experiment.seeds[preset] if seeds is None else checks.whole(seeds, "seeds", "vestige run", low=1)
    return list(experiment.arms(config)), count


def command_of(name: str, preset: str, seeds: int, overrides: Mapping[str, Any]) -> str:
    """The words after `vestige` that run it."""
    changed = "".join(f" --set {key}={json.dumps(value)}" for key, value in overrides.items())
    return f"run {name} --preset {preset} --seeds {seeds}{changed}"


def units_of(
    experiment: Experiment[Any], arms: Sequence[Any], seeds: Sequence[int], out: str | Path, command: str
) -> list[Unit]:
    """A unit for each seed and arm; what is told apart in a label are the fields in which the arms differ."""
    names = [f.name for f in dataclasses.fields(arms[0])] if arms else []
    differ = [name for name in names if any(getattr(arm, name) != getattr(arms[0], name) for arm in arms)]

    def label(arm: Any) -> str:  # noqa: ANN401
        return ", ".join(f"{name}={getattr(arm, name)}" for name in differ if getattr(arm, name) is not None)

    def path(arm: Any, seed: int) -> Path:  # noqa: ANN401
        return home(experiment, arm, out) / f"{experiment.unit_id(arm, seed)}.json"

    return [Unit(experiment.name, arm, seed, path(arm, seed), command, label(arm)) for seed in seeds for arm in arms]


def home(experiment: Experiment[Any], config: Any, out: str | Path) -> Path:  # noqa: ANN401
    """The folder of a unit's Record: that of the experiment which its configuration names."""
    return Path(out) / experiment.config(config)["experiment"]


def configured(experiment: Experiment[Any], preset: str, overrides: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """The preset's configuration with some fields replaced; a field or a type that does not fit is refused."""
    config = experiment.presets[checks.one_of(preset, PRESETS, "preset", "vestige run")]
    known = [f.name for f in dataclasses.fields(config)]
    for field in overrides:
        checks.one_of(field, known, "set", experiment.name)
    hints = get_type_hints(type(config))
    fitted = {
        field: _fit(value, hints[field], f"{experiment.name} --set {field}") for field, value in overrides.items()
    }
    return dataclasses.replace(config, **fitted)


def parse(text: str) -> Any:  # noqa: ANN401 - whatever JSON says
    """A value from the shell: JSON where it is JSON, a list where there are commas, a word otherwise."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [parse(part) for part in text.split(",") if part] if "," in text else text


def _fit(value: Any, hint: Any, what: str) -> Any:  # noqa: ANN401
    """`value` as the field's type has it: whole numbers serve as real ones, lists as tuples."""
    kinds = get_args(hint) if type(None) in get_args(hint) else (hint,)
    for kind in kinds:
        base = getattr(kind, "__origin__", kind)
        if base is tuple:
            items = value if isinstance(value, list | tuple) else [value]
            inner = get_args(kind)[0] if get_args(kind) else object
            return tuple(_fit(v, inner, what) for v in items)
        if base is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if base in (bool, int, str) and type(value) is base:
            return value
        if kind is type(None) and value is None:
            return None
        choices = get_args(kind)  # a Literal
        if base not in (tuple, list, dict) and choices and value in choices:
            return value
    wanted = " or ".join(str(getattr(kind, "__name__", kind)) for kind in kinds)
    raise InputError(f"The value of {what} must be {wanted}. Got {value!r} instead.")
