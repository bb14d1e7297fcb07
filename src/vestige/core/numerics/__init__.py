"""Numerics that several packages share: log space, positive semi-definite matrices, moments that merge."""

from vestige.core.numerics.logspace import log_mean_exp, log_normalise, log_sum_exp, weighted_mean
from vestige.core.numerics.moments import Moments
from vestige.core.numerics.psd import sqrt_trace_gram, sqrt_trace_psd

__all__ = [
    "Moments",
    "log_mean_exp",
    "log_normalise",
    "log_sum_exp",
    "sqrt_trace_gram",
    "sqrt_trace_psd",
    "weighted_mean",
]
