"""Two sample sets compared (`compare`), and weights that turn one into the other (`weigh`)."""

from vestige.vestiges.lines import metric_estimates
from vestige.vestiges.plan import Plan
from vestige.vestiges.two_sets import STEPS, Comparison, compare
from vestige.vestiges.weighing import Weighing, weigh

__all__ = ["STEPS", "Comparison", "Plan", "Weighing", "compare", "metric_estimates", "weigh"]
