"""A map that will be kept when the rows it is fitted on are gone.

Directions that are fitted to few rows are these rows: of 100 images and 64 principal components it can be told without
error whose image was among them. So a map is fitted only where there are ROWS_A_DIRECTION rows for each of its
features. Elsewhere a public one of as many features takes its place, random projections that know nothing of any rows,
and a note says so. It is not the pretrained network, which is an extra: the same rows must leave the same on every
machine.

Principal components are fitted to rows in which a coordinate that fewer than 50 rows leave has its usual value, and are
rounded to a hundredth of their standard error (`core.rounding`); the weights of a trained network are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.rounding import ROWS_TOGETHER, rounded
from vestige.features.base import FeatureMap
from vestige.features.fixed import PCA, Identity, Pretrained, RandomProjection
from vestige.features.rows import numbers

ROWS_A_DIRECTION = 20


def fitted_to_keep(chosen: FeatureMap, rows: Any, *, seed: int = 0) -> tuple[FeatureMap, str]:  # noqa: ANN401 - groups
    """`chosen`, fitted on `rows`, one array or one a task, or a public map in its place; and a note of that, or "".

    Maps that learn nothing are fitted whatever the number of rows.
    """
    if isinstance(chosen, Identity | Pretrained | RandomProjection):
        return chosen.fit(rows, seed=seed), ""
    parts = rows if isinstance(rows, Mapping) else {0: rows}
    tensors = {task: torch.as_tensor(x) for task, x in parts.items()}
    n, dims = sum(map(len, tensors.values())), int(getattr(chosen, "dims", 0))
    if n < ROWS_A_DIRECTION * dims:
        public = RandomProjection(dims=dims).fit(rows, seed=seed)
        told = f"{n} rows are too few for {dims} directions of the map '{chosen.name}' ({ROWS_A_DIRECTION} rows each)"
        return public, f"{told}: as many random projections, which know nothing of the rows, took its place."
    if not isinstance(chosen, PCA):
        return chosen.fit(rows, seed=seed), ""
    usual = {task: without_rare(numbers(x.reshape(len(x), -1), torch.float64)) for task, x in tensors.items()}
    shaped = {task: x.reshape(tensors[task].shape) for task, x in usual.items()}
    fitted = chosen.fit(shaped if isinstance(rows, Mapping) else shaped[0], seed=seed)
    x = torch.cat(list(usual.values()))
    fitted.mean_ = rounded(fitted.mean_, x.std(0) / n**0.5)
    fitted.directions_ = rounded(fitted.directions_, torch.full_like(fitted.directions_, n**-0.5))
    fitted.scale_ = rounded(fitted.scale_, fitted.scale_ / (2 * n) ** 0.5)
    return fitted, ""


def without_rare(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """`x` with the usual value in every column that fewer than 50 rows leave."""
    middle = x.median(0).values
    away = (x != middle).sum(0)
    sparse = (away < ROWS_TOGETHER) & (2 * away < len(x))
    return torch.where(sparse, middle, x)
