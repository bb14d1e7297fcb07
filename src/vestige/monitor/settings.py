"""What a monitor is made of: a chain that has not begun, a feature map, alarms; and the settings that are recorded."""

from __future__ import annotations

import copy
import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige import features
from vestige.chains import Chain
from vestige.core import checks
from vestige.features import FeatureMap
from vestige.monitor.alarms import DEFAULT, Alarm
from vestige.monitor.table_coding import TableCoding
from vestige.ratios.divergences import get as divergence

OWNER = "Monitor.create"


@dataclass(frozen=True)
class MonitorSettings:
    """What was chosen when the monitor was made, and the coding of tables, which its first step makes."""

    created: str
    features: Mapping[str, Any]  # the configuration of the map
    alarms: tuple[Alarm, ...]
    keep_moments: bool
    drop: tuple[str, ...]  # columns of tables
    coding: TableCoding | None = None


def chain_of(given: Chain | Mapping[str, Any] | None, *, keep_moments: bool) -> Chain:
    """A chain that has not begun, which keeps no more than it may."""
    chain = copy.copy(given) if isinstance(given, Chain) else Chain(**(given or {}))
    if chain.steps:
        checks.refuse("chain", OWNER, "one that has not begun", f"one after {chain.steps} steps")
    if not keep_moments:
        chain.strategy = dataclasses.replace(chain.strategy, moments=False)  # type: ignore[type-var]
    return chain


def map_of(given: str | Mapping[str, Any] | FeatureMap) -> FeatureMap:
    """A feature map of our own, by its name, its configuration, or as a copy."""
    if isinstance(given, FeatureMap):
        return copy.deepcopy(given)
    options: dict[str, Any] = {"map": given} if isinstance(given, str) else dict(given)
    if "map" not in options:
        checks.refuse("features", OWNER, "a name, a feature map, or a configuration with 'map'", options)
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}  # JSON knows lists alone
    return features.build(options.pop("map"), **options)


def alarms_of(given: Iterable[Alarm] | None, names: Sequence[str]) -> list[Alarm]:
    """Alarms on divergences that the chain computes; those of `DEFAULT` that it does where none are given."""
    if given is None:
        return [alarm for alarm in DEFAULT if alarm.divergence in names]
    alarms = [dataclasses.replace(alarm, divergence=divergence(alarm.divergence).name) for alarm in given]
    for alarm in alarms:
        checks.one_of(alarm.divergence, names, "alarms", OWNER)
    return alarms


def now() -> str:
    """The hour, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
