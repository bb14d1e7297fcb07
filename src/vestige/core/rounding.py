"""What is kept of rows is rounded to what so many rows can support: a hundredth of its standard error.

A mean over n rows is known to sigma / sqrt(n), and nobody who uses it can tell the hundredth part of that. The grid is
public: its step is the largest power of two that is at most that hundredth, so that it says no more of the rows than
the order of their spread, and multiples of it are exact in binary. What has no error, such as the mean of a constant,
stays as it is.

A covariance of n rows has the standard error sqrt((s_ii s_jj + s_ij^2) / n) if they are normal, and that is what its
step follows. Entries that were rounded apart need not be those of a covariance: eigenvalues below zero are then set to
zero, which uses nothing but the rounded entries.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

ROWS_TOGETHER = 50  # the fewest rows over which anything is counted or averaged that is kept
SHARE = 0.01  # of a standard error


def steps(error: Float[Tensor, "*k"]) -> Float[Tensor, "*k"]:
    """The largest power of two that is at most SHARE of `error`; 0 where that is 0."""
    known = error > 0
    exponent = torch.floor(torch.log2(torch.where(known, SHARE * error, 1.0)))
    return torch.where(known, torch.exp2(exponent.clamp_min(-1000)), 0.0)


def rounded(x: Float[Tensor, "*k"], error: Float[Tensor, "*k"]) -> Float[Tensor, "*k"]:
    """`x` to the nearest multiples of the steps of its standard errors."""
    step = steps(error.to(torch.float64))
    apart = torch.where(step > 0, step, 1.0)
    return torch.where(step > 0, (x.to(torch.float64) / apart).round() * apart, x.to(torch.float64))


def rounded_number(x: float, error: float) -> float:
    """The same of one number; what is not finite stays as it is."""
    if not (math.isfinite(x) and math.isfinite(error)):
        return x
    return float(rounded(torch.tensor(x, dtype=torch.float64), torch.tensor(error, dtype=torch.float64)))


def rounded_covariance(covariance: Float[Tensor, "d d"], n: float) -> Float[Tensor, "d d"]:
    """That of `n` rows, rounded, and positive semi-definite as before."""
    variance = covariance.diagonal().clamp_min(0)
    error = ((torch.outer(variance, variance) + covariance.square()) / n).sqrt()
    return semi_definite(rounded((covariance + covariance.mT) / 2, error))


def semi_definite(s: Float[Tensor, "d d"], floor: float = 0.0) -> Float[Tensor, "d d"]:
    """`s` itself where no eigenvalue is below `floor`, else with those raised to it."""
    values, vectors = torch.linalg.eigh(s)
    if bool((values >= floor).all()):
        return s
    whole = (vectors * values.clamp_min(floor)) @ vectors.mT
    return (whole + whole.mT) / 2


def significant(x: float, digits: int = 3) -> float:
    """`x` to so many significant digits; what is not finite stays as it is."""
    return float(f"{x:.{digits - 1}e}") if math.isfinite(x) else x
