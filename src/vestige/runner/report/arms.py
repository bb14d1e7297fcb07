"""The arms of a group: Records that differ in the seed alone, named by what sets them apart from the other arms."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.record import Record
from vestige.runner.experiment import Line, line

# Parts of a configuration that follow from the seed and set no arm apart.
BY_SEED = ("seed", "digest", "reference")
# Fields that name an arm by their value alone, and come first.
NAMING = ("row", "method", "learner.method")


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
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        found.setdefault(_key(record.config), []).append(record)
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
    told = [(f, config[f]) for f in fields if f in config and (f in NAMING or config[f] is not None)]
    return ", ".join(short(v) if f in NAMING or f == "experiment" else f"{_last(f)}={short(v)}" for f, v in told)


def _last(field: str) -> str:
    return field.rpartition(".")[2]


def _key(config: dict[str, Any]) -> str:
    return json.dumps(flatten(config), sort_keys=True)
