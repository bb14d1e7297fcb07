"""Density ratios r = p / q from samples: `p` is the numerator (real data), `q` the denominator (model)."""

from vestige.ratios.auto import auto
from vestige.ratios.base import Ratio
from vestige.ratios.bootstrap import Bootstrap, bootstrap
from vestige.ratios.bregman import Bregman
from vestige.ratios.bridge import Bridge
from vestige.ratios.fgan import FGAN
from vestige.ratios.forest import Forest
from vestige.ratios.kliep import KLIEP
from vestige.ratios.kliep_net import KLIEPNet
from vestige.ratios.logistic import Logistic
from vestige.ratios.lsif import LSIF
from vestige.ratios.permutation import PermutationTest, permutation_test
from vestige.ratios.registry import RATIOS, build
from vestige.ratios.stack.stack import Stack
from vestige.ratios.ulsif import RULSIF, ULSIF

__all__ = [
    "FGAN",
    "KLIEP",
    "LSIF",
    "RATIOS",
    "RULSIF",
    "ULSIF",
    "Bootstrap",
    "Bregman",
    "Bridge",
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
