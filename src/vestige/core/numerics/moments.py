"""Weighted mean and covariance that can be streamed and merged (Chan, Golub and LeVeque), in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics.psd import gram


@dataclass(frozen=True)
class Moments:
    """Weight sums, mean and centred scatter of the samples seen so far.

    `weight` is sum w, `weight_sq` is sum w^2 (both n without weights), `scatter` is sum w (x - mean)(x - mean)'.
    """

    n: int
    weight: float
    weight_sq: float
    mean: Float[Tensor, " d"]
    scatter: Float[Tensor, "d d"]

    @classmethod
    def empty(cls, d: int) -> Moments:
        """No samples of width `d`."""
        return cls(0, 0.0, 0.0, torch.zeros(d, dtype=torch.float64), torch.zeros(d, d, dtype=torch.float64))

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None = None) -> Moments:
        """The moments of one batch. Weights are taken as they are, so batches of one weighted set merge rightly."""
        x = x.to(torch.float64)
        n = len(x)
        if weights is None:
            mean = x.mean(0)
            centred = x - mean
            return cls(n, float(n), float(n), mean, gram(centred))
        w = weights.to(torch.float64)
        total = w.sum()
        mean = (w @ x) / total if total > 0 else torch.zeros(x.shape[1], dtype=torch.float64)
        centred = (x - mean) * w.sqrt()[:, None]
        return cls(n, float(total), float(w.square().sum()), mean, gram(centred))

    def merge(self, other: Moments) -> Moments:
        """The moments of both sets together."""
        if other.weight == 0:
            return self
        if self.weight == 0:
            return other
        total = self.weight + other.weight
        gap = other.mean - self.mean
        mean = self.mean + gap * (other.weight / total)
        scatter = self.scatter + other.scatter + torch.outer(gap, gap) * (self.weight * other.weight / total)
        return Moments(self.n + other.n, total, self.weight_sq + other.weight_sq, mean, scatter)

    def covariance(self) -> Float[Tensor, "d d"]:
        """Unbiased: n - 1 without weights; with weights the reliability form, divisor sum w - sum w^2 / sum w."""
        return self.scatter / (self.weight - self.weight_sq / self.weight)

    @property
    def ess(self) -> float:
        """Kish's effective sample size."""
        return self.weight**2 / self.weight_sq if self.weight_sq else 0.0
