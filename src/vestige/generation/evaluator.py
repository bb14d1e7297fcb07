"""The evaluator's view: samples against test data, in the features of a classifier that was trained on real data.

FID and KID of each task and pooled over tasks (CDRE section 4.2), and the share of samples that the classifier takes
for the class that was asked for: pooled distances can fall while a generator mixes its classes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige import metrics
from vestige.data.stream import TestSet
from vestige.features import Classifier

HELD_OUT = ("fid", "kid", "labels")


@dataclass(frozen=True)
class Evaluator:
    """Test data of every task in the classifier's features."""

    judge: Classifier
    tests: Sequence[Float[Tensor, "_ f"]]

    @classmethod
    def of(cls, judge: Classifier, tests: Sequence[TestSet]) -> Evaluator:
        """An evaluator for these test sets."""
        return cls(judge, [judge.codes(test.x.flatten(1)).double() for test in tests])

    def compare(
        self, task: int, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]
    ) -> tuple[dict[str, float], Float[Tensor, "n f"]]:
        """FID, KID and label accuracy of samples of one task, asked for as `y`; and their features."""
        codes = self.judge.codes(x.flatten(1))
        right = float((self.judge.called(codes) == y).double().mean())
        return self._far([self.tests[task]], [codes.double()]) | {"labels": right}, codes.double()

    def pooled(self, codes: Sequence[Float[Tensor, "_ f"]]) -> dict[str, float]:
        """FID and KID over tasks 0, 1, ... together."""
        return self._far(self.tests[: len(codes)], codes)

    def _far(self, real: Sequence[Tensor], drawn: Sequence[Tensor]) -> dict[str, float]:
        p, q = torch.cat(list(real)), torch.cat(list(drawn))
        return {"fid": metrics.fid(p, q).value, "kid": metrics.kid(p, q).value}
