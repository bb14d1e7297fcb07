"""Density ratios r = p / q from samples: `p` is the numerator (real data), `q` the denominator (model)."""

from vestige.ratios.auto import auto
from vestige.ratios.base import Ratio
from vestige.ratios.bootstrap import Bootstrap, bootstrap
from vestige.ratios.bridge import Bridge
from vestige.ratios.forest import Forest
from vestige.ratios.kliep import KLIEP
from vestige.ratios.least_squares import RULSIF, ULSIF
from vestige.ratios.logistic import Logistic
from vestige.ratios.nets import LSIF, Bregman, FGANRatio, KLIEPNet
from vestige.ratios.permutation import PermutationTest, permutation_test
from vestige.ratios.registry import RATIOS, build
from vestige.ratios.stack.stack import Stack

__all__ = [
    "KLIEP",
    "LSIF",
    "RATIOS",
    "RULSIF",
    "ULSIF",
    "Bootstrap",
    "Bregman",
    "Bridge",
    "FGANRatio",
    "Forest",
    "KLIEPNet",
    "Logistic",
    "PermutationTest",
    "Ratio",
    "Stack",
    "auto",
    "bootstrap",
    "build",
    "permutation_test",
]
