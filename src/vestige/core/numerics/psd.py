"""Trace of the square root of a product of two covariances, without a matrix square root.

tr (S1 S2)^1/2 is the sum of the singular values of R1 R2' for any roots S1 = R1'R1 and S2 = R2'R2. Two cases avoid
the singular values of something large: if both matrices are definite, S1 = L L' and the answer is the sum of
sqrt(eigenvalues of L' S2 L), no vectors needed; if there are fewer samples than features, the centred samples are
themselves a root with few rows.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float
from scipy.linalg import lapack
from torch import Tensor

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
