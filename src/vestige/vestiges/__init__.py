"""Two sample sets compared, and weights that turn one into the other: the whole first river in two calls."""

from vestige.ratios.cross_fit import FIT_ROWS, HeldOut, held_out
from vestige.vestiges.lines import PAIR_ROWS, metric_estimates
from vestige.vestiges.two_sets import STEPS, Comparison, compare
from vestige.vestiges.weighing import Weighing, weigh

__all__ = [
    "FIT_ROWS",
    "PAIR_ROWS",
    "STEPS",
    "Comparison",
    "HeldOut",
    "Weighing",
    "compare",
    "held_out",
    "metric_estimates",
    "weigh",
]
