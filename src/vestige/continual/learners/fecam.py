"""FeCAM (Goswami et al. 2023): the nearest class by a Mahalanobis distance with a covariance for each class.

Features go through Tukey's transform x -> sign(x) |x|^tukey; of the transformed features of class c come the mean mu_c
and the covariance S_c, which is shrunk and normalised to a correlation matrix:

    S_s = S + gamma1 V1 I + gamma2 V2 (1 - I),    V1 the mean variance, V2 the mean of the other entries of S
    S^_ij = S_s_ij / sqrt(S_s_ii S_s_jj)
    distance = (x/|x| - mu_c/|mu_c|)' S^_c^-1 (x/|x| - mu_c/|mu_c|)

`gamma1 = gamma2 = 1` and `tukey = 0.5` are theirs; lengths of one (`unit`) are those of the authors' code. Deviations:
the sign in Tukey's transform, for features below zero, of which a ReLU has none; covariances divide by the number of
rows. What is kept grows with the classes: a matrix each.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.learners.frozen import FrozenConfig, FrozenFeatures
from vestige.continual.samplers import unit_length
from vestige.core.checks import option
from vestige.data.stream import Inputs


@dataclass(frozen=True)
class FeCAMConfig(FrozenConfig):
    """Tukey's exponent (1: none), both shrinkages, and whether features and means have unit length in the distance."""

    tukey: float = option(0.5, above=0)
    gamma1: float = option(1.0, low=0)
    gamma2: float = option(1.0, low=0)
    unit: bool = option(True)


def shrunk(covariance: Float64[Tensor, "f f"], gamma1: float, gamma2: float) -> Float64[Tensor, "f f"]:
    """With the mean variance on the diagonal and the mean covariance off it."""
    f = len(covariance)
    variance = covariance.diagonal().mean()
    other = (covariance.sum() - covariance.diagonal().sum()) / max(f * (f - 1), 1)
    eye = torch.eye(f, dtype=covariance.dtype, device=covariance.device)
    return covariance + gamma1 * variance * eye + gamma2 * other * (1 - eye)


def correlation(covariance: Float64[Tensor, "f f"]) -> Float64[Tensor, "f f"]:
    """Scaled to ones on the diagonal; a feature that never varies is left apart from the others."""
    scale = covariance.diagonal().clamp_min(0).sqrt()
    scaled = covariance / torch.outer(scale, scale)
    return scaled.nan_to_num(0.0, 0.0, 0.0).fill_diagonal_(1.0)


class FeCAM(FrozenFeatures):
    """A mean and a covariance for each class."""

    config: FeCAMConfig
    scatters_: Float64[Tensor, "k f f"]

    def set_up(self) -> None:
        """No rows."""
        super().set_up()
        self.begin_statistics(0)

    def begin_statistics(self, width: int) -> None:
        """Scatters of nothing."""
        self.scatters_ = torch.zeros(self.spec.n_outputs, width, width, dtype=torch.float64, device="cpu")

    def features_of(self, x: Inputs) -> Float64[Tensor, "n f"]:
        """After Tukey's transform."""
        found = super().features_of(x)
        return found.sign() * found.abs() ** self.config.tukey

    def add(self, label: int, scatter: Float64[Tensor, "f f"]) -> None:
        """To that of the class."""
        self.scatters_[label] += scatter

    def scores(self, found: Float64[Tensor, "n f"]) -> Float64[Tensor, "n k"]:
        """Minus the distance to each class that has rows."""
        c = self.config
        out = torch.full((len(found), len(self.means_)), -torch.inf, dtype=torch.float64, device="cpu")
        for label in self.counts_.nonzero()[:, 0].tolist():
            matrix = correlation(shrunk(self.scatters_[label] / int(self.counts_[label]), c.gamma1, c.gamma2))
            mean = self.means_[label : label + 1]
            gap = unit_length(found) - unit_length(mean) if c.unit else found - mean
            out[:, label] = -(gap * torch.linalg.solve(matrix, gap.mT).mT).sum(1)
        return out
