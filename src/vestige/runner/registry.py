"""Experiments by name, of this distribution and of any other that is installed.

A package registers experiments by an entry point in the group `vestige.experiments` whose value is a dict from names to
experiments, or one experiment:

    [project.entry-points."vestige.experiments"]
    mine = "my_package.experiments:EXPERIMENTS"

They are imported when the first of them is asked for.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Mapping
from functools import cached_property
from importlib import metadata
from typing import Any

from vestige.core import VestigeError
from vestige.runner.experiment import Experiment

GROUP = "vestige.experiments"


class Experiments(UserDict[str, Experiment[Any]]):
    """Name -> experiment, filled from the entry points of GROUP when it is first looked at."""

    def __init__(self) -> None:
        """That of UserDict would fill in an empty dict."""

    @cached_property
    def data(self) -> dict[str, Experiment[Any]]:  # type: ignore[override]
        """What is registered."""
        return registered()


def registered() -> dict[str, Experiment[Any]]:
    """Every experiment of every installed package, by name; two of one name are refused."""
    found: dict[str, Experiment[Any]] = {}
    home: dict[str, str] = {}
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda e: e.name):
        value = entry.load()
        for name, experiment in _named(value, entry.value).items():
            if name in found and home[name] != entry.value:
                raise VestigeError(
                    f"Two experiments are called '{name}': one of {home[name]}, one of {entry.value}. Rename one."
                )
            found[name], home[name] = experiment, entry.value
    return dict(sorted(found.items(), key=lambda item: _in_order(item[0])))


def _named(value: object, where: str) -> dict[str, Experiment[Any]]:
    """An entry point's value as a dict of experiments."""
    made = value() if isinstance(value, type) and issubclass(value, Experiment) else value
    named: dict[str, Any] = dict(made) if isinstance(made, Mapping) else {getattr(made, "name", "?"): made}
    for name, experiment in named.items():
        if not isinstance(experiment, Experiment) or experiment.name != name:
            raise VestigeError(
                f"The entry point '{where}' of the group '{GROUP}' must be an Experiment, or a dict from names to "
                f"experiments of these names. Got {name!r}: {type(experiment).__name__} instead."
            )
    return named


def _in_order(name: str) -> list[tuple[int, str]]:
    """fig2 before fig10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


EXPERIMENTS = Experiments()
