"""What remains of deleted rows (`keep`); two sets, with rows or without, compared (`compare`), weighed
(`weigh`) and joined to train on (`augment`)."""

from vestige.vestiges import attack
from vestige.vestiges.augmenting import AugmentedTable, augment
from vestige.vestiges.fid_statistics import FidStatistics
from vestige.vestiges.keep import append, keep
from vestige.vestiges.lines import metric_estimates
from vestige.vestiges.loading import load
from vestige.vestiges.plan import Plan
from vestige.vestiges.private import Guarantee, PrivateVestige
from vestige.vestiges.two_sets import STEPS, Comparison, compare
from vestige.vestiges.vestige import Vestige
from vestige.vestiges.weighing import Weighing, weigh

__all__ = [
    "STEPS",
    "AugmentedTable",
    "Comparison",
    "FidStatistics",
    "Guarantee",
    "Plan",
    "PrivateVestige",
    "Vestige",
    "Weighing",
    "append",
    "attack",
    "augment",
    "compare",
    "keep",
    "load",
    "metric_estimates",
    "weigh",
]
