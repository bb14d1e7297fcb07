"""What a learner may keep of past data: counted, bounded, and nowhere else; how it is chosen, and how it is used."""

from vestige.continual.memory.memory import Memory, shares
from vestige.continual.memory.rehearsal import ExemplarMemory, Exemplars, Rehearsal, RehearsalMemory
from vestige.continual.memory.samplers import (
    SAMPLERS,
    Sampler,
    View,
    draw,
    entropy,
    herding,
    k_center,
    mean_of_features,
    plane_distance,
    uniform,
    unit_length,
)

__all__ = [
    "SAMPLERS",
    "ExemplarMemory",
    "Exemplars",
    "Memory",
    "Rehearsal",
    "RehearsalMemory",
    "Sampler",
    "View",
    "draw",
    "entropy",
    "herding",
    "k_center",
    "mean_of_features",
    "plane_distance",
    "shares",
    "uniform",
    "unit_length",
]
