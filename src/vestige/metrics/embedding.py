"""Accumulators of a kernel's mean embedding: for k(x, y) = phi(x).phi(y), all that MMD^2 needs of a set is
sum w phi(x), sum w^2 k(x, x), sum w and sum w^2. They add up, and they hold no row.

The standard error is the delete-a-group jackknife's, which counts the quadratic part of the U-statistic twice
(Efron and Stein 1981): right when the sets differ, too large by up to sqrt(2) when they are of one law.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from jaxtyping import Float
from torch import Tensor

from vestige.metrics.base import Accumulator, Estimate
from vestige.metrics.groups import Sums, jackknife, merged


def mmd_squared_of_sums(p: Sums, q: Sums) -> float:
    """The weighted U-statistic from the sums of both sets."""
    within = sum((s["phi"] @ s["phi"] - s["diagonal"]) / (s["weight"].square() - s["weight_sq"]) for s in (p, q))
    return float(within - 2 * (p["phi"] @ q["phi"]) / (p["weight"] * q["weight"]))


class Embedding(Accumulator[Sums]):
    """The mean embedding of one set under a kernel with a finite feature map."""

    @abstractmethod
    def _phi_sum(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
        """sum w phi(x)."""

    @abstractmethod
    def _diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """phi(x).phi(x) of each row."""

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> Sums:
        w = x.new_ones(len(x)) if weights is None else weights
        return Sums(
            {
                "phi": self._phi_sum(x, w),
                "diagonal": w.square() @ self._diagonal(x),
                "weight": w.sum(),
                "weight_sq": w.square().sum(),
            }
        )

    def _pack(self, summary: Sums) -> dict[str, Tensor]:
        return summary.parts

    def _unpack(self, tensors: dict[str, Tensor]) -> Sums:
        return Sums({name: tensors[name] for name in ("phi", "diagonal", "weight", "weight_sq")})

    def compute(self, other: Self) -> Estimate:
        """MMD^2 between this set (`p`) and the other (`q`); the standard error needs 4 groups or more."""
        self._must_match(other, "compute")
        p, q = self._filled(), other._filled()
        whole_p, whole_q = merged(p), merged(q)
        # A group of one row, or two groups, leave nothing to judge a spread by.
        enough = self.groups >= 4 and min(self.n, other.n) >= 2 * self.groups
        error = jackknife(p, q, mmd_squared_of_sums) if enough else None
        details: dict[str, Any] = {"n_p": self.n, "n_q": other.n, "form": "embedding", **self._config()}
        for name, s in (("ess_p", whole_p), ("ess_q", whole_q)):
            details[name] = float(s["weight"].square() / s["weight_sq"])
        return Estimate(mmd_squared_of_sums(whole_p, whole_q), error, details)
