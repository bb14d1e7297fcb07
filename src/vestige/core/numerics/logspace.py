"""Sums and means of exponentials that neither overflow nor underflow; weights always sum to one."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def log_sum_exp(log_x: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, ""]:
    """log sum_i w_i exp(log_x_i), with w_i = 1 when no weights are given. A weight of zero removes its term."""
    if weights is None:
        return torch.logsumexp(log_x, 0)
    kept = weights > 0  # 0 * exp(inf) must be 0, not NaN
    return torch.logsumexp(log_x[kept] + weights[kept].log(), 0)


def log_mean_exp(log_x: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, ""]:
    """log of the (weighted) mean of exp(log_x)."""
    if weights is None:
        return torch.logsumexp(log_x, 0) - math.log(len(log_x))
    return log_sum_exp(log_x, weights) - weights.sum().log()


def log_normalise(log_x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """`log_x` shifted so that its exponentials sum to one."""
    return log_x - torch.logsumexp(log_x, 0)


def weighted_mean(x: Float[Tensor, "n *d"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, "*d"]:
    """Mean over the first axis, under weights that need not sum to one."""
    if weights is None:
        return x.mean(0)
    return torch.tensordot(weights / weights.sum(), x, dims=1)
