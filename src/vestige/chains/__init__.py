"""Chains: density ratios that outlive their data. r = p/q_t, `p` the data that is gone, `q_t` the model at step t."""

from vestige.chains.chain import STRATEGIES, Chain, step_together
from vestige.chains.drifting import DRIFTS, Drift, gaussians
from vestige.chains.report import Limits, StepReport, TaskReport
from vestige.chains.views import Views

__all__ = [
    "DRIFTS",
    "STRATEGIES",
    "Chain",
    "Drift",
    "Limits",
    "StepReport",
    "TaskReport",
    "Views",
    "gaussians",
    "step_together",
]
