"""Weights: log weights in and out; normalise, flatten, clip, temper, smooth, diagnose, average, resample, augment.

`q` is the model whose samples are weighted, `p` the data that they shall stand for; a weight is r = p/q.
"""

from vestige.ratios.weights.augment import Augmented, Batch, augment, generated_weights, mass_per_row, weighted_loss
from vestige.ratios.weights.choice import Choice
from vestige.ratios.weights.diagnosis import (
    Diagnosis,
    Smoothed,
    WeightLimits,
    diagnose,
    ess,
    max_share,
    mean_weight,
    pareto_smooth,
    tail_index,
)
from vestige.ratios.weights.expectation import expectation, resample
from vestige.ratios.weights.transforms import Tempered, clip, flatten, from_log_ratio, self_normalise, temper

__all__ = [
    "Augmented",
    "Batch",
    "Choice",
    "Diagnosis",
    "Smoothed",
    "Tempered",
    "WeightLimits",
    "augment",
    "clip",
    "diagnose",
    "ess",
    "expectation",
    "flatten",
    "from_log_ratio",
    "generated_weights",
    "mass_per_row",
    "max_share",
    "mean_weight",
    "pareto_smooth",
    "resample",
    "self_normalise",
    "tail_index",
    "temper",
    "weighted_loss",
]
