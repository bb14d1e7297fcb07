"""Generators on a stream of tasks: the loop, the two views on what they draw, and what follows from a matrix."""

from vestige.generation.evaluator import HELD_OUT, Evaluator
from vestige.generation.loop import DIVERGENCES, run
from vestige.generation.summary import agreement, forgetting, intransigence, rank_correlation
from vestige.generation.witness import Witness

__all__ = [
    "DIVERGENCES",
    "HELD_OUT",
    "Evaluator",
    "Witness",
    "agreement",
    "forgetting",
    "intransigence",
    "rank_correlation",
    "run",
]
