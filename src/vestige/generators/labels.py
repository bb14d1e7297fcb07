"""Whether samples are what was asked for: a classifier trained on real data says what it takes them for.

Pooled over conditions, distances such as FID can fall while a generator mixes its conditions up; this cannot.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.features import Classifier
from vestige.features.rows import admit


def shares(called: Int64[Tensor, " n"], asked: Int64[Tensor, " n"], n_classes: int) -> Float64[Tensor, "k k"]:
    """S[c, j]: the share of samples asked for as c that are called j; NaN in rows that nothing was asked of."""
    counts = torch.bincount(asked * n_classes + called, minlength=n_classes**2).reshape(n_classes, n_classes).double()
    return counts / counts.sum(1, keepdim=True)


def label_confusion(samples: Mapping[int, ArrayLike], judge: Classifier) -> Float64[Tensor, "k k"]:
    """`shares` of the samples of each condition, a condition being a class of `judge`."""
    owner = "label_confusion"
    if not samples:
        checks.refuse("samples", owner, "given for at least one condition", "none")
    n_classes = int(judge.report_["classes"])
    called, asked = [], []
    for c, x in samples.items():
        c = checks.whole(c, "samples", owner, low=0, high=n_classes - 1)
        called.append(judge.called(judge.codes(admit(x, f"samples[{c}]", owner, judge.shape))))
        asked.append(torch.full((len(called[-1]),), c))
    return shares(torch.cat(called), torch.cat(asked), n_classes)


def label_accuracy(samples: Mapping[int, ArrayLike], judge: Classifier) -> dict[int, float]:
    """By condition, the share of its samples that `judge` takes for it."""
    found = label_confusion(samples, judge)
    return {c: float(found[c, c]) for c in samples}
