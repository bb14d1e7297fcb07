"""Densities: they learn how rows of cells are distributed, and draw rows like them when those are gone."""

from pathlib import Path
from typing import Any

from vestige.core import checks
from vestige.densities.base import Density
from vestige.densities.copula import GaussianCopula
from vestige.densities.mixture import MixtureDensity
from vestige.densities.trees import SequentialTrees

# Every density by its name, one line each.
DENSITIES: dict[str, type[Density]] = {
    "copula": GaussianCopula,
    "mixture": MixtureDensity,
    "trees": SequentialTrees,
}


def build(name: str, /, *, preset: str | None = None, **options: Any) -> Density:  # noqa: ANN401 - the density's own
    """The density called `name`; `options` are its fields, `preset` a named set of them."""
    kind = DENSITIES[checks.one_of(name, DENSITIES, "name", "densities.build")]
    return kind(**checks.options(kind, preset, options, f"densities '{name}'"))


def load(path: str | Path) -> Density:
    """The density stored at `path`."""
    return Density.load(path, {kind.__name__: kind for kind in DENSITIES.values()})


__all__ = ["DENSITIES", "Density", "GaussianCopula", "MixtureDensity", "SequentialTrees", "build", "load"]
