"""Linear maps: the samples themselves, and their principal components.

`Identity`: the samples themselves, flattened. For tables, and for features that were computed elsewhere.

`PCA`: the directions in which the data of the first step varies most; exact, without a seed. float64 throughout. Where
there are at least as many rows as features the directions are eigenvectors of the covariance, otherwise right singular
vectors of the centred rows: the same directions from the smaller of two problems. A direction's sign is free; here its
largest entry is positive, so that the same data gives the same codes. Tasks have equal weight whatever their sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import learnt, option
from vestige.core.numerics import weighted_mean
from vestige.features.base import FeatureMap
from vestige.features.rows import Rows


@dataclass(eq=False)
class Identity(FeatureMap):
    """Every coordinate is a feature."""

    name: ClassVar[str] = "identity"
    consistent: ClassVar[bool] = True
    keeps: ClassVar[str] = "nothing but the shape of a sample"
    dtype: ClassVar[torch.dtype] = torch.float64

    def _width(self, shape: tuple[int, ...]) -> int:
        return math.prod(shape)

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        return {}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return x


def principal_directions(
    x: Float[Tensor, "n d"], weights: Float[Tensor, " n"], k: int
) -> tuple[Float[Tensor, " d"], Float[Tensor, "k d"], Float[Tensor, " k"], float]:
    """Mean, the first `k` directions, the variance along each (divisor n - 1), and the total variance."""
    n = len(x)
    mean = weighted_mean(x, weights / weights.sum())
    centred = (x - mean) * (weights / weights.sum() * n).sqrt()[:, None]
    if n >= x.shape[1]:
        values, vectors = torch.linalg.eigh(centred.T @ centred)
        found, scatter = vectors.T.flip(0)[:k], values.flip(0)
    else:
        _, singular, vectors = torch.linalg.svd(centred, full_matrices=False)
        found, scatter = vectors[:k], singular.square()
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    scatter = scatter.clamp(min=0)  # eigenvalues of a scatter are not negative, whatever rounding says
    return mean, found * largest.sign(), scatter[:k] / (n - 1), float(scatter.sum()) / (n - 1)


@dataclass(eq=False)
class PCA(FeatureMap):
    """Coordinates along the first `dims` principal directions; with `whiten` each is divided by its deviation.

    `floor` is the smallest deviation, relative to the largest, by which whitening divides; dead directions stay small
    instead of being blown up. The report says how many stand at the floor.
    """

    name: ClassVar[str] = "pca"
    consistent: ClassVar[bool] = True
    keeps: ClassVar[str] = "the mean of the data, its principal directions and the variance along each"
    min_rows: ClassVar[int] = 2
    dtype: ClassVar[torch.dtype] = torch.float64

    dims: int = option(64, low=1)
    whiten: bool = False
    floor: float = option(1e-6, above=0)

    mean_: Float[Tensor, " d"] = learnt()
    directions_: Float[Tensor, "k d"] = learnt()
    scale_: Float[Tensor, " k"] = learnt()

    def _width(self, shape: tuple[int, ...]) -> int:
        return self.dims

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        n, d = rows.x.shape
        if self.dims > min(n - 1, d):
            checks.refuse("dims", "PCA", f"at most {min(n - 1, d)} ({n} samples of {d} features)", self.dims)
        if bool((rows.x == rows.x[0]).all()):
            checks.refuse("x", "PCA.fit", "samples that differ", f"{n} times the same")
        mean, directions, variances, total = principal_directions(rows.x, rows.weights, self.dims)
        deviations = variances.sqrt()
        lowest = self.floor * deviations.max()
        self.mean_, self.directions_ = mean, directions
        self.scale_ = deviations.clamp(min=lowest) if self.whiten else torch.ones_like(deviations)
        explained = float(variances.sum()) / total
        return {"explained": explained, "at_floor": int((deviations < lowest).sum()) if self.whiten else 0}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return (x - self.mean_) @ self.directions_.T / self.scale_
