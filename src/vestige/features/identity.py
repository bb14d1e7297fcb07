"""Identity: the samples themselves, flattened. For tables, and for features that were computed elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.features.base import FeatureMap
from vestige.features.rows import Rows
from vestige.store import load_into


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

    def _state(self) -> dict[str, Tensor]:
        return {}

    def _load_state(self, state: dict[str, Tensor], shape: tuple[int, ...]) -> None:
        load_into({}, state, "Identity")
