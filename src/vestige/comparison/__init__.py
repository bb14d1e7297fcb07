"""Two sample sets compared, and weights that turn one into the other: the whole first river in two calls."""

from vestige.comparison.cross_fit import FIT_ROWS, HeldOut, held_out
from vestige.comparison.lines import PAIR_ROWS, Line, metric_lines
from vestige.comparison.two_sets import STEPS, Comparison, compare
from vestige.comparison.weighing import Weighing, weigh

__all__ = [
    "FIT_ROWS",
    "PAIR_ROWS",
    "STEPS",
    "Comparison",
    "HeldOut",
    "Line",
    "Weighing",
    "compare",
    "held_out",
    "metric_lines",
    "weigh",
]
