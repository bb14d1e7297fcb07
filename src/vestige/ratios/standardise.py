"""Shift and scale of features: the only aggregate of `p` that most estimators keep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import weighted_mean


@dataclass(frozen=True)
class Standardiser:
    """z = (x - shift) / scale, clamped to +-clip where a clip is given."""

    shift: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    clip: float | None = None

    @classmethod
    def of(
        cls,
        x: Float[Tensor, "n d"],
        weights: Float[Tensor, " n"] | None = None,
        *,
        floor: float = 1e-6,
        clip: float | None = None,
    ) -> Standardiser:
        """Mean and standard deviation of `x`. A constant column is left at scale one.

        `floor` is relative to the column's size and to the largest deviation, so that a dead feature, or one that
        differs from a constant by rounding alone, is not blown up to unit variance.
        """
        shift = weighted_mean(x, weights)
        deviation = weighted_mean((x - shift).square(), weights).sqrt()
        smallest = floor * torch.maximum(shift.abs(), deviation.max())
        return cls(shift, torch.where(deviation > smallest, deviation, torch.ones_like(deviation)), clip)

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The standardised features."""
        z = (x - self.shift) / self.scale
        return z if self.clip is None else z.clamp(-self.clip, self.clip)
