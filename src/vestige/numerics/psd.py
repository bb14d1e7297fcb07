"""Trace of the square root of a product of two covariances, without a matrix square root.

tr (S1 S2)^1/2 = sum of sqrt(eigenvalues of L' S2 L) for any L with S1 = L L'; with fewer samples than features it is
the nuclear norm of the centred cross Gram matrix A B', because S1 = A'A and S2 = B'B.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def _root(s: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """Some L with L L' = s: Cholesky where s is definite, else by eigenvalues clamped at zero."""
    factor, info = torch.linalg.cholesky_ex(s)
    if int(info) == 0:
        return factor
    values, vectors = torch.linalg.eigh(s)
    return vectors * values.clamp_min(0).sqrt()


def sqrt_trace_psd(s1: Float[Tensor, "d d"], s2: Float[Tensor, "d d"]) -> Float[Tensor, ""]:
    """tr (s1 s2)^1/2 of two positive semi-definite matrices."""
    root = _root(s1)
    inner = root.mT @ s2 @ root
    return torch.linalg.eigvalsh((inner + inner.mT) / 2).clamp_min(0).sqrt().sum()


def sqrt_trace_gram(a: Float[Tensor, "n d"], b: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
    """tr (A'A B'B)^1/2 for centred, scaled samples; cheaper than `sqrt_trace_psd` when n, m < d."""
    return torch.linalg.svdvals(a @ b.mT).sum()


def frechet_squared(
    mean1: Float[Tensor, " d"],
    cov1: Float[Tensor, "d d"],
    mean2: Float[Tensor, " d"],
    cov2: Float[Tensor, "d d"],
) -> Float[Tensor, ""]:
    """Squared Frechet (2-Wasserstein) distance between two Gaussians."""
    return (mean1 - mean2).square().sum() + cov1.trace() + cov2.trace() - 2 * sqrt_trace_psd(cov1, cov2)
