"""The evaluator's view: samples against test data, in the features of a classifier that was trained on real data.

FID and KID of each task and pooled over tasks (CDRE section 4.2). Two more beside them, since pooled distances can fall
while a generator mixes its classes up, or draws one image of each again and again:
- labels: the share of samples that the classifier takes for the class that was asked for;
- variety: how much samples of one class differ among each other, as a share of how much test rows do: the trace of
  their covariance over that of the test rows, mean over the classes of a task. Only rows that the classifier takes for
  what they are to be count on either side, lest strays pass for variety. 1 is as varied as the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige import metrics
from vestige.data.stream import TestSet
from vestige.features import ClassifierFeatures

HELD_OUT = ("fid", "kid", "labels", "variety")


def traces(codes: Float[Tensor, "n f"], classes: Int64[Tensor, " n"]) -> dict[int, float]:
    """The trace of the covariance of each class that has two rows at least."""
    rows = {c: codes[classes == c].double() for c in classes.unique().tolist()}
    return {c: float(own.var(0).sum()) for c, own in rows.items() if len(own) > 1}


def variety(drawn: Mapping[int, float], real: Mapping[int, float]) -> float:
    """The mean ratio of `traces` over the classes that both have; NaN where there is none."""
    ratios = [drawn[c] / real[c] for c in drawn if real.get(c, 0.0) > 0]
    return fmean(ratios) if ratios else math.nan


@dataclass(frozen=True)
class Evaluator:
    """Test data of every task in the classifier's features, and the `traces` of its classes."""

    classifier: ClassifierFeatures
    tests: Sequence[Float[Tensor, "_ f"]]
    traces: Sequence[Mapping[int, float]]

    @classmethod
    def of(cls, classifier: ClassifierFeatures, tests: Sequence[TestSet]) -> Evaluator:
        """An evaluator for these test sets."""
        codes = [classifier.codes(test.x.flatten(1)) for test in tests]
        right = [classifier.called(own) == test.y for own, test in zip(codes, tests, strict=True)]
        varied = [traces(own[i], test.y[i]) for own, i, test in zip(codes, right, tests, strict=True)]
        return cls(classifier, [own.double() for own in codes], varied)

    def compare(
        self, task: int, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]
    ) -> tuple[dict[str, float], Float[Tensor, "n f"]]:
        """What `HELD_OUT` names of samples of one task, asked for as `y`; and their features."""
        codes = self.classifier.codes(x.flatten(1))
        right = self.classifier.called(codes) == y
        varied = variety(traces(codes[right], y[right]), self.traces[task])
        said = {"labels": float(right.double().mean()), "variety": varied}
        return self._far([self.tests[task]], [codes.double()]) | said, codes.double()

    def pooled(self, codes: Sequence[Float[Tensor, "_ f"]]) -> dict[str, float]:
        """FID and KID over tasks 0, 1, ... together."""
        return self._far(self.tests[: len(codes)], codes)

    def _far(self, real: Sequence[Tensor], drawn: Sequence[Tensor]) -> dict[str, float]:
        p, q = torch.cat(list(real)), torch.cat(list(drawn))
        return {"fid": metrics.fid(p, q).value, "kid": metrics.kid(p, q).value}
