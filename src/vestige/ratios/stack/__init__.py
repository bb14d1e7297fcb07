"""The default estimator: quadratic, local and network members, cross-fitted and stacked."""

from vestige.ratios.stack.stack import Stack

__all__ = ["Stack"]
