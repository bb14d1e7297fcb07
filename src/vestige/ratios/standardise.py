"""Shift and scale of features, the only aggregate of `p` that most estimators keep; and their products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import weighted_mean
from vestige.ratios.base import Sample

ROWS_A_PRODUCT = 100  # samples of the smaller side that each product z_i z_j asks for


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

    def clipped(self, x: Float[Tensor, "n d"]) -> float:
        """The share of rows that the clip changes."""
        return 0.0 if self.clip is None else float((self(x).abs() >= self.clip).any(1).double().mean())


def mixture_standardiser(
    sample: Sample, *, p_share: float = 0.5, floor: float = 1e-6, clip: float | None = None
) -> Standardiser:
    """Mean and deviation of the mixture that gives p the mass `p_share`, whatever the sizes."""
    weights = torch.cat([p_share * sample.w_p, (1 - p_share) * sample.w_q])
    return Standardiser.of(torch.cat([sample.p, sample.q]), weights, floor=floor, clip=clip)


def quadratic_form(d: int, rows: float, rows_a_product: float = ROWS_A_PRODUCT) -> str:
    """The form of `design` that so many rows of `d` features can carry: "full", or "diagonal"."""
    return "full" if d * (d + 1) / 2 <= rows / rows_a_product else "diagonal"


def design(z: Float[Tensor, "n d"], form: str) -> Float[Tensor, "n f"]:
    """[1, z], [1, z, z_i^2] or [1, z, z_i z_j for i <= j] for the form "linear", "diagonal" or "full"."""
    columns = [z.new_ones(len(z), 1), z]
    if form == "diagonal":
        columns.append(z.square())
    elif form == "full":
        i, j = torch.triu_indices(z.shape[1], z.shape[1])
        columns.append(z[:, i] * z[:, j])
    return torch.cat(columns, 1)
