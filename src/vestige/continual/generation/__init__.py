"""Generators on a stream of tasks: the loop, the two views on what they draw, and what follows from a matrix."""

from vestige.continual.generation.evaluator import HELD_OUT, Evaluator
from vestige.continual.generation.feature_chain import FeatureChain
from vestige.continual.generation.loop import DIVERGENCES, run
from vestige.continual.generation.summary import agreement, forgetting, intransigence, rank_correlation

__all__ = [
    "DIVERGENCES",
    "HELD_OUT",
    "Evaluator",
    "FeatureChain",
    "agreement",
    "forgetting",
    "intransigence",
    "rank_correlation",
    "run",
]
