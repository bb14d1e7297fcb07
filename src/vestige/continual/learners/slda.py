"""Streaming linear discriminant analysis on frozen features (Hayes and Kanan 2020, "Lifelong machine learning with deep
streaming linear discriminant analysis").

A running mean mu_c for each class and one covariance S that all classes share; with the shrinkage eps

    L = ((1 - eps) S + eps I)^-1,    score of class c = x' L mu_c - mu_c' L mu_c / 2

`eps` 1e-4 is theirs. Deviation: their running covariance weighs a row's deviation from the mean of that moment, which
depends on the order of the rows; here the scatter within the classes is merged exactly, so that the classifier is that
of linear discriminant analysis on all rows at once (`tests/continual/learners/test_frozen.py`). Classes are equally
likely, as in the paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.learners.frozen import FrozenConfig, FrozenFeatures
from vestige.core.checks import option


@dataclass(frozen=True)
class SLDAConfig(FrozenConfig):
    """`shrinkage` is eps."""

    shrinkage: float = option(1e-4, above=0, high=1)


class SLDA(FrozenFeatures):
    """Means and one covariance."""

    config: SLDAConfig
    scatter_: Float64[Tensor, "f f"]

    def set_up(self) -> None:
        """No rows."""
        super().set_up()
        self.begin_statistics(0)

    def begin_statistics(self, width: int) -> None:
        """A scatter of nothing."""
        self.scatter_ = torch.zeros(width, width, dtype=torch.float64, device="cpu")

    def add(self, label: int, scatter: Float64[Tensor, "f f"]) -> None:
        """All classes share it."""
        self.scatter_ += scatter

    def scores(self, found: Float64[Tensor, "n f"]) -> Float64[Tensor, "n k"]:
        """Those of linear discriminant analysis."""
        eps, n = self.config.shrinkage, int(self.counts_.sum())
        shrunk = (1 - eps) * self.scatter_ / n + eps * torch.eye(len(self.scatter_), dtype=torch.float64, device="cpu")
        weights = torch.linalg.solve(shrunk, self.means_.mT).mT
        return found @ weights.mT - (weights * self.means_).sum(1) / 2
