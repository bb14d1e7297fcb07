"""Forgetting and intransigence of a generator from any of its matrices, and whether two views rank alike.

RWalk's Eq. 3 and 4 with a distance in place of an accuracy: smaller is better, except for the accuracy of labels and
for variety, which generators lose. The reference of intransigence is what a perfect generator would get: real rows in
place of samples, and 0 for a divergence.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float64
from scipy.stats import kendalltau
from torch import Tensor

from vestige import metrics
from vestige.continual.record import Record

LARGER_IS_BETTER = ("labels", "variety")


def better(name: str) -> str:
    """Whether the matrix `name` improves "up" or "down"."""
    return "up" if name in LARGER_IS_BETTER else "down"


def forgetting(record: Record, name: str) -> float:
    """F after the last step that was measured, in the unit of the matrix; NaN where a cell of it is."""
    return metrics.forgetting(record.matrices[name], better=better(name))


def intransigence(record: Record, name: str) -> float:
    """The mean over tasks of how far each was from a perfect generator when it was learnt."""
    R = record.matrices[name]
    perfect = record.values.get(f"{name}.real", torch.zeros(len(R), dtype=torch.float64))
    return metrics.average_intransigence(R, perfect, better=better(name))


def measured(matrix: Float64[Tensor, "t t"]) -> Float64[Tensor, " n"]:
    """The cells on and below the diagonal, row by row."""
    rows, columns = torch.tril_indices(*matrix.shape)
    return matrix[rows, columns]


def rank_correlation(a: Float64[Tensor, " n"], b: Float64[Tensor, " n"]) -> float:
    """Kendall's tau-b over pairs that both have; NaN with fewer than three, or where one is constant."""
    both = a.isfinite() & b.isfinite()
    return float(kendalltau(a[both].numpy(), b[both].numpy()).statistic) if int(both.sum()) > 2 else math.nan


def agreement(record: Record, one: str, other: str) -> float:
    """How alike two views rank all cells (steps and tasks) of a run: 1 the same order, -1 the reverse."""
    sign = 1.0 if better(one) == better(other) else -1.0
    return sign * rank_correlation(measured(record.matrices[one]), measured(record.matrices[other]))
