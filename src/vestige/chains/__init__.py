"""Chains: density ratios that outlive their data. r = p/q_t, `p` the data that is gone, `q_t` the model at step t."""

from vestige.chains.chain import STRATEGIES, Chain
from vestige.chains.drifts import DRIFTS, Drift
from vestige.chains.gaussians import DriftingGaussians, gaussians
from vestige.chains.report import Limits, StepReport, TaskReport
from vestige.chains.together import step_together
from vestige.chains.views import Views

__all__ = [
    "DRIFTS",
    "STRATEGIES",
    "Chain",
    "Drift",
    "DriftingGaussians",
    "Limits",
    "StepReport",
    "TaskReport",
    "Views",
    "gaussians",
    "step_together",
]
