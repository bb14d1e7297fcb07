"""The fields of something that is built by name: a preset of its own, and options that go over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from vestige.core.checks.scalars import one_of


def options(kind: Any, preset: str | None, given: Mapping[str, Any], owner: str) -> dict[str, Any]:  # noqa: ANN401
    """`given` over the preset of that name of the dataclass `kind`; a name that it has no field for is refused."""
    chosen = {} if preset is None else kind.presets[one_of(preset, kind.presets, "preset", owner)]
    fields = [f.name for f in dataclasses.fields(kind)]
    for option in given:
        one_of(option, fields, "options", owner)
    # JSON and command lines have no tuples
    return {k: tuple(v) if isinstance(v, list) else v for k, v in (chosen | dict(given)).items()}
