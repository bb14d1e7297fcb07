"""Metrics: pure functions on features and weights, or on the matrix of a run."""

from vestige.metrics.anytime import anytime, average_anytime, min_acc, stability_gap, wc_acc
from vestige.metrics.fid import FID, fid
from vestige.metrics.inception import InceptionScore, inception_score
from vestige.metrics.matrix import (
    MatrixSummary,
    average_accuracy,
    average_intransigence,
    backward_transfer,
    backward_transfer_per_task,
    forgetting,
    forgetting_per_task,
    forward_transfer,
    forward_transfer_per_task,
    intransigence,
    intransigence_per_task,
    negative_backward_transfer,
    negative_forward_transfer,
    positive_backward_transfer,
    positive_forward_transfer,
    summary,
)
from vestige.metrics.mmd import KID, MMD, kid, mmd
from vestige.metrics.precision_recall import PRD, PRDC, prd, precision_recall_density_coverage

__all__ = [
    "FID",
    "KID",
    "MMD",
    "PRD",
    "PRDC",
    "InceptionScore",
    "MatrixSummary",
    "anytime",
    "average_accuracy",
    "average_anytime",
    "average_intransigence",
    "backward_transfer",
    "backward_transfer_per_task",
    "fid",
    "forgetting",
    "forgetting_per_task",
    "forward_transfer",
    "forward_transfer_per_task",
    "inception_score",
    "intransigence",
    "intransigence_per_task",
    "kid",
    "min_acc",
    "mmd",
    "negative_backward_transfer",
    "negative_forward_transfer",
    "positive_backward_transfer",
    "positive_forward_transfer",
    "prd",
    "precision_recall_density_coverage",
    "stability_gap",
    "summary",
    "wc_acc",
]
