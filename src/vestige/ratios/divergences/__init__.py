"""Divergences: the f family, estimates from log-ratios, closed forms for Gaussians, bounds, Bregman.

`p` is the numerator (real data), `q` the denominator (model): r = p/q, and every divergence is D(p || q).
"""

from vestige.ratios.divergences.estimate import estimate, estimates
from vestige.ratios.divergences.family import FAMILY, NAMES, FDivergence, alpha, get
from vestige.ratios.divergences.gaussian import Gaussian, gaussian_divergence
from vestige.ratios.divergences.learnt import learnt
from vestige.ratios.divergences.variational import BREGMAN, bregman_divergence, bregman_loss, donsker_varadhan, f_bound

__all__ = [
    "BREGMAN",
    "FAMILY",
    "NAMES",
    "FDivergence",
    "Gaussian",
    "alpha",
    "bregman_divergence",
    "bregman_loss",
    "donsker_varadhan",
    "estimate",
    "estimates",
    "f_bound",
    "gaussian_divergence",
    "get",
    "learnt",
]
