"""Anchor samples: samples that the model generated, weighted so that they take the place of data that is gone.

At the step in which a task's real data P is here for the last time, the model's samples Q_1 get w = softmax of the
held-out log p/q_1. Held-out log-ratios are right on average but a little rough, so the weights are then balanced to
P's means (`ratios.weights.balance`). The means of P are used here and dropped; samples and weights are kept, and no row
of P.

No part of CDRE, whose chain (Eq. 5) multiplies ratios of neighbouring steps and loses a third to more than half of the
KL in ten steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

# Least weight of a sample. Beside a model so poor that one sample carries all the weight, the others' would round to
# zero, and a fold without the one would have none to fit; the verdict on such anchor samples is a refusal.
LEAST_WEIGHT = 1e-30


@dataclass(frozen=True, eq=False)
class AnchorSamples:
    """Generated samples, weights that sum to one, and held-out log p/q of their own step on them."""

    samples: Float[Tensor, "n d"]
    weights: Float[Tensor, " n"]
    log_ratio: Float[Tensor, " n"]
    inherited: float  # variance that the weights carry, per unit variance of a term: 1/n_real, and earlier anchors
    gap: float  # KL of rows seen in training minus held-out KL, summed over the fits that led here
    unlearnt: float = 0.0  # how much the KL still moved when rows were added, summed over these fits

    @property
    def ess(self) -> float:
        """Kish's effective sample size."""
        return 1 / float(self.weights.square().sum())
