"""Divergences: the f family, estimates from log-ratios, closed forms for Gaussians, bounds, Bregman.

`p` is the numerator (real data), `q` the denominator (model): r = p/q, and every divergence is D(p || q).
"""

from vestige.divergences.bregman import BREGMAN, bregman_divergence, bregman_loss
from vestige.divergences.estimate import Estimate, estimate, estimates
from vestige.divergences.family import FAMILY, NAMES, FDivergence, alpha, get
from vestige.divergences.gaussian import Gaussian, gaussian_divergence
from vestige.divergences.integrate import integrated_divergence
from vestige.divergences.variational import Bound, donsker_varadhan, f_bound

__all__ = [
    "BREGMAN",
    "FAMILY",
    "NAMES",
    "Bound",
    "Estimate",
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
    "integrated_divergence",
]
