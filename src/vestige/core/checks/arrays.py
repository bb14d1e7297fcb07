"""Checks of arrays: shape, width, length, range, finiteness. Each returns a torch tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from vestige.core.checks.kinds import as_tensor
from vestige.core.checks.refusal import refuse


def _finite(tensor: Tensor, name: str, owner: str) -> None:
    # One reduction instead of a mask as large as the data: a sum is finite only if every term is,
    # and the rare overflow of a finite sum is told apart by the slow path.
    if tensor.numel() and not bool(torch.isfinite(tensor.sum())):
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            refuse(name, owner, "finite", f"{bad} NaN or infinite values among {tensor.numel()}")


def samples(
    value: object,
    name: str,
    owner: str,
    *,
    min_rows: int = 1,
    width: int | None = None,
    dtype: torch.dtype | None = torch.float64,
) -> Tensor:
    """`value` as an (n, d) tensor of finite floats, one sample a row.

    One axis is read as n samples of one feature; images and other shapes are flattened. `dtype=None` keeps a floating
    type as it is and turns integers into float32.
    """
    tensor = as_tensor(value, name, owner)
    if tensor.ndim == 0:
        refuse(name, owner, "one sample a row", "a single number")
    rows = tensor.shape[0]
    if rows < min_rows:
        refuse(name, owner, f"at least {min_rows} sample{'s' if min_rows > 1 else ''}", f"{rows}")
    tensor = tensor.reshape(rows, -1) if tensor.ndim != 2 and rows else tensor
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        refuse(name, owner, "samples with at least one feature", f"shape {tuple(tensor.shape)}")
    if width is not None and tensor.shape[1] != width:
        refuse(name, owner, f"{width} features wide", f"{tensor.shape[1]}")
    if dtype is None:
        dtype = tensor.dtype if tensor.dtype in (torch.float32, torch.float64) else torch.float32
    tensor = tensor.to(dtype)
    _finite(tensor, name, owner)
    return tensor


def pair(
    p: object, q: object, owner: str, *, min_rows: int = 2, dtype: torch.dtype | None = torch.float64
) -> tuple[Tensor, Tensor]:
    """Two sample sets of one width: `p` the numerator (real data), `q` the denominator (model)."""
    p_ = samples(p, "p", owner, min_rows=min_rows, dtype=dtype)
    q_ = samples(q, "q", owner, min_rows=min_rows, dtype=dtype)
    if p_.shape[1] != q_.shape[1]:
        refuse("q", owner, f"as wide as 'p' ({p_.shape[1]} features)", f"{q_.shape[1]}")
    return p_, q_.to(p_.dtype) if dtype is None else q_


def vector(
    value: object,
    name: str,
    owner: str,
    *,
    length: int | None = None,
    min_rows: int = 1,
    finite: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """`value` as an (n,) tensor of floats."""
    tensor = as_tensor(value, name, owner)
    if tensor.ndim == 2 and 1 in tensor.shape:
        tensor = tensor.reshape(-1)
    if tensor.ndim != 1:
        refuse(name, owner, "one number a sample", f"shape {tuple(tensor.shape)}")
    if length is not None and len(tensor) != length:
        refuse(name, owner, f"{length} long", f"{len(tensor)}")
    if len(tensor) < min_rows:
        refuse(name, owner, f"at least {min_rows} long", f"{len(tensor)}")
    tensor = tensor.to(dtype)
    if finite:
        _finite(tensor, name, owner)
    return tensor


def matrix(value: object, name: str, owner: str, *, finite: bool = True) -> Tensor:
    """`value` as an (r, c) float64 tensor; with `finite=False` a NaN may stand for what is missing, infinity not."""
    tensor = as_tensor(value, name, owner)
    if tensor.ndim != 2 or not tensor.numel():
        refuse(name, owner, "a matrix with at least one row and one column", f"shape {tuple(tensor.shape)}")
    tensor = tensor.to(torch.float64)
    if finite:
        _finite(tensor, name, owner)
    elif bool(tensor.isinf().any()):
        refuse(name, owner, "finite, or NaN where nothing was measured", f"{int(tensor.isinf().sum())} infinite values")
    return tensor


def labels(value: object, name: str, owner: str, *, length: int | None = None) -> Tensor:
    """`value` as an (n,) tensor of non-negative int64 class labels."""
    tensor = as_tensor(value, name, owner)
    if tensor.ndim == 2 and 1 in tensor.shape:
        tensor = tensor.reshape(-1)
    if tensor.ndim != 1:
        refuse(name, owner, "one label a sample", f"shape {tuple(tensor.shape)}")
    if length is not None and len(tensor) != length:
        refuse(name, owner, f"{length} long", f"{len(tensor)}")
    whole = tensor.to(torch.int64)
    if tensor.is_floating_point() and not bool((whole == tensor).all()):
        refuse(name, owner, "whole numbers", "fractions or NaN")
    if len(whole) and int(whole.min()) < 0:
        refuse(name, owner, "0 or larger", f"{int(whole.min())}")
    return whole


def weights(value: object | None, n: int, name: str, owner: str) -> Tensor | None:
    """(n,) float64 weights scaled to sum to one, or None for None (all equal)."""
    if value is None:
        return None
    tensor = vector(value, name, owner, length=n)
    if bool((tensor < 0).any()):
        refuse(name, owner, "0 or larger", f"{float(tensor.min()):.4g}")
    top = tensor.max()
    if not bool(top > 0):
        refuse(name, owner, "positive somewhere", "all zeros")
    tensor = tensor / top  # so that huge weights do not overflow in the sum
    return tensor / tensor.sum()
