"""Chains: density ratios that outlive their data. r = p/q_t, `p` the data that is gone, `q_t` the model at step t."""

from vestige.chains.chain import STRATEGIES, Chain
from vestige.chains.drifting import Distribution, Drift, gaussians
from vestige.chains.report import ChainLimits, StepReport, TaskReport

__all__ = [
    "STRATEGIES",
    "Chain",
    "ChainLimits",
    "Distribution",
    "Drift",
    "StepReport",
    "TaskReport",
    "gaussians",
]
