"""Numerics that several packages share: log space, roots of positive semi-definite matrices, moments that merge.

Sums and means of exponentials neither overflow nor underflow; weights always sum to one.

The trace of the square root of a product of two covariances needs no matrix square root: tr (S1 S2)^1/2 is the sum of
the singular values of R1 R2' for any roots S1 = R1'R1 and S2 = R2'R2. Two cases avoid the singular values of something
large: if both matrices are definite, S1 = L L' and the answer is the sum of sqrt(eigenvalues of L' S2 L), no vectors
needed; if there are fewer samples than features, the centred samples are themselves a root with few rows.

Weighted mean and covariance can be streamed and merged (Chan, Golub and LeVeque), in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float
from scipy.linalg import lapack
from torch import Tensor


def log_mean_exp(log_x: Float[Tensor, " n"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, ""]:
    """log of the (weighted) mean of exp(log_x). A weight of zero removes its term."""
    if weights is None:
        return torch.logsumexp(log_x, 0) - math.log(len(log_x))
    kept = weights > 0  # 0 * exp(inf) must be 0, not NaN
    return torch.logsumexp(log_x[kept] + weights[kept].log(), 0) - weights.sum().log()


def log_normalise(log_x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """`log_x` shifted so that its exponentials sum to one."""
    return log_x - torch.logsumexp(log_x, 0)


def weighted_mean(x: Float[Tensor, "n *d"], weights: Float[Tensor, " n"] | None = None) -> Float[Tensor, "*d"]:
    """Mean over the first axis, under weights that need not sum to one."""
    if weights is None:
        return x.mean(0)
    return torch.tensordot(weights / weights.sum(), x, dims=1)


# Eigenvalues and pivots below this share of the largest, times the width, are rounding: their directions are null.
RANK_TOLERANCE = float(np.finfo(np.float64).eps)


def gram(x: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """x'x. On the CPU by way of numpy, which sees the symmetry (BLAS syrk) and does half the work of a product."""
    if x.device.type != "cpu":
        return x.mT @ x
    array = x.detach().numpy()
    return torch.from_numpy(array.T @ array)


def psd_root(s: Float[Tensor, "d d"]) -> Float[Tensor, "r d"]:
    """Some R with R'R = s: Cholesky where s is definite, else by its eigenvalues, null directions left out."""
    factor, info = torch.linalg.cholesky_ex(s)
    if int(info) == 0 and _well_pivoted(factor, s):
        return factor.mT
    values, vectors = torch.linalg.eigh(s)
    kept = values > values.max().clamp_min(0) * (RANK_TOLERANCE * len(s))
    return (vectors[:, kept] * values[kept].sqrt()).mT


def _well_pivoted(factor: Float[Tensor, "d d"], s: Float[Tensor, "d d"]) -> bool:
    """Whether a Cholesky factorisation that went through did so on more than rounding."""
    return bool(factor.diagonal().square().min() > s.diagonal().max() * (RANK_TOLERANCE * len(s)))


def sqrt_trace_psd(s1: Float[Tensor, "d d"], s2: Float[Tensor, "d d"]) -> Float[Tensor, ""]:
    """tr (s1 s2)^1/2 of two positive semi-definite matrices."""
    # A constant feature is a null row and column: it adds nothing, and without it both may well be definite.
    varying = (s1.diagonal() > 0) & (s2.diagonal() > 0)
    if not bool(varying.any()):
        return s1.new_zeros(())
    if not bool(varying.all()):
        s1, s2 = s1[varying][:, varying], s2[varying][:, varying]
    factors = [torch.linalg.cholesky_ex(s) for s in (s1, s2)]
    if not all(int(info) == 0 and _well_pivoted(f, s) for (f, info), s in zip(factors, (s1, s2), strict=True)):
        return sqrt_trace_gram(psd_root(s1), psd_root(s2))
    # L' S2 L by one symmetric reduction (sygst): a third of two general products. Only lower triangles are read.
    lower = np.asfortranarray(factors[0][0].cpu().numpy())
    inner, _ = lapack.dsygst(s2.cpu().numpy().T, lower, itype=2, lower=1)
    values = scipy.linalg.eigvalsh(inner, lower=True, check_finite=False, overwrite_a=True, driver="evd")
    return torch.from_numpy(values).clamp_min(0).sqrt().sum()  # below zero is rounding only: both are definite


def sqrt_trace_gram(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
    """tr (A'A B'B)^1/2 from roots of the two matrices, such as centred, scaled samples; best when n, m < d."""
    if not len(a) or not len(b):
        return a.new_zeros(())
    return torch.linalg.svdvals(a @ b.mT).sum()


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


def two_digits(x: float) -> float:
    """`x` to two significant digits."""
    return float(f"{x:.1e}")


def on_grid(x: float, scale: float) -> float:
    """`x` to the nearest multiple of the place of the second digit of `scale`: 0.1 for a scale of 1 to 9.9."""
    return round(x, 1 - math.floor(math.log10(scale)))
