"""Generators for rows of a table or of features: a density for each condition, fitted to it alone.

`trees`, `mixture` and `copula` are the densities of `vestige.densities` under the contract of a generator. Nothing is
trained by steps, nothing is replayed, and what was learnt of a condition never changes unless that condition comes
again, which is then learnt anew; samples that are given as replay of a condition without a density are what it is
learnt from. They need 50 rows of a condition, seconds, and no pixels: columns may have any range.

A table's columns are named by `kinds` ("number" or "category"; none: all are numbers). As every generator they draw
finite numbers: rows with missing values are for the densities themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor

from vestige.core import StoreError, checks, rng
from vestige.core.checks import learnt, option
from vestige.densities.base import KINDS, Density
from vestige.densities.copula import GaussianCopula
from vestige.densities.mixture import MixtureDensity
from vestige.densities.trees import SequentialTrees
from vestige.generators.base import Generator, Progress, ReplaySource


@dataclass(eq=False)
class DensityGenerator(Generator):
    """A density for each condition; a child says of which kind."""

    density: ClassVar[type[Density]]
    version: ClassVar[int] = 2  # 2: densities of version 2

    kinds: tuple[str, ...] = option((), among=KINDS)
    options: dict[str, Any] = field(default_factory=dict)  # of the density

    densities_: dict[int, Any] = learnt(factory=dict)

    def check(self) -> None:
        """A kind for every column, and options that the density has."""
        owner = type(self).__name__
        if self.kinds and len(self.kinds) != math.prod(self.shape):
            checks.refuse("kinds", owner, f"one for each of {math.prod(self.shape)} columns", len(self.kinds))
        self._density()

    def _density(self) -> Density:
        return self.density(**checks.options(self.density, None, self.options, type(self).__name__))

    def _build(self, seed: int) -> None:
        self.densities_ = {}

    def _fit(self, source: ReplaySource, seed: int, on_progress: Progress) -> dict[str, Any]:
        given = source.replay if isinstance(source.replay, Mapping) else {}
        taught = source.real | {c: x for c, x in given.items() if c not in self.densities_}
        least = self.density.min_rows
        for c, rows in taught.items():
            if len(rows) < least:
                name = "x" if c in source.real else f"replay[{c}]"
                checks.refuse(name, f"{type(self).__name__}.fit", f"at least {least} rows of a condition", len(rows))
        for i, (c, rows) in enumerate(taught.items()):
            on_progress(i / len(taught), f"condition {c}")
            self.densities_[c] = self._density().fit(
                rows.cpu(), self.kinds or None, seed=rng.child_seed(seed, "condition", c)
            )
        return {
            "steps": len(taught),
            "curves": {f"rows {c}": [float(len(rows))] for c, rows in taught.items()},
            "replayed": [],
        }

    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        drawn = torch.empty(len(conditions), math.prod(self.shape))
        for c in conditions.unique().tolist():
            seed = int(torch.randint(2**62, (), generator=noise))
            rows = self.densities_[c].draw(int((conditions == c).sum()), seed=seed)
            drawn[conditions == c] = rows.to(drawn)
        return drawn

    def _rebuild(self) -> None:
        super()._rebuild()
        if set(self.densities_) != set(self.known_):
            raise StoreError(f"The stored {self.name} has densities of {sorted(self.densities_)}, not {self.known_}.")
        for found in self.densities_.values():
            if len(found.kinds_) != math.prod(self.shape):
                raise StoreError(f"The stored {self.name} has a density of {len(found.kinds_)} columns.")


@dataclass(eq=False)
class TreesGenerator(DensityGenerator):
    """Column after column, each from a leaf of a tree on those before; for tables."""

    name: ClassVar[str] = "trees"
    density: ClassVar[type[Density]] = SequentialTrees
    densities_: dict[int, SequentialTrees] = learnt(factory=dict)


@dataclass(eq=False)
class MixtureGenerator(DensityGenerator):
    """Gaussians with full covariances; for features."""

    name: ClassVar[str] = "mixture"
    density: ClassVar[type[Density]] = MixtureDensity
    densities_: dict[int, MixtureDensity] = learnt(factory=dict)


@dataclass(eq=False)
class CopulaGenerator(DensityGenerator):
    """The columns' own distributions under a Gaussian dependence; the quickest, for tables."""

    name: ClassVar[str] = "copula"
    density: ClassVar[type[Density]] = GaussianCopula
    densities_: dict[int, GaussianCopula] = learnt(factory=dict)
