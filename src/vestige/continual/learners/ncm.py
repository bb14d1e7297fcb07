"""Nearest class mean on frozen features (Mensink et al. 2013): a mean for each class, and the nearest one answers.

The score is minus half the squared distance, so that differences of scores are those of a linear classifier.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.learners.frozen import FrozenConfig, FrozenFeatures


class NCM(FrozenFeatures):
    """The nearest mean."""

    config: FrozenConfig

    def scores(self, found: Float64[Tensor, "n f"]) -> Float64[Tensor, "n k"]:
        """Minus half the squared distance to each mean."""
        return -torch.cdist(found, self.means_, compute_mode="donot_use_mm_for_euclid_dist").square() / 2
