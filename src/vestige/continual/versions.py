"""Versions of what takes part in a run: integers that are raised when results change, and are part of a Record's id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from vestige.chains import STRATEGIES
from vestige.continual.learners import METHODS
from vestige.features import FEATURES
from vestige.generators import GENERATORS
from vestige.ratios import RATIOS

REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "methods": METHODS,
    "generators": GENERATORS,
    "ratios": RATIOS,
    "chains": STRATEGIES,
    "features": FEATURES,
}


def named(config: object) -> dict[str, int]:
    """The version of everything whose registered name stands in `config`, as {"methods/ewc": 1}.

    A method brings what its default configuration names, such as a generator.
    """
    words = set(_words(config))
    for method in words & METHODS.keys():
        words |= set(_words(asdict(METHODS[method].default_config())))
    return {
        f"{kind}/{name}": int(getattr(registry[name], "version", 1))
        for kind, registry in REGISTRIES.items()
        for name in sorted(words & registry.keys())
    }


def _words(value: object) -> Iterator[str]:
    """Every text in nested plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _words(inner)
