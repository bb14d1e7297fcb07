"""The door: what comes in is checked here, once, before any work, and leaves as the kind it came in.

Every refusal is one sentence of one form: "The 'x' of Y must be Z. Got v instead."

`samples`, `vector`, `labels` and `weights` return torch tensors; `Kind.of(x).give(tensor)` turns a result back
into the kind that `x` was: numpy array, torch tensor, list, or pandas object with the index of `x`.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vestige.errors import InputError, UnknownName

# What users may hand over wherever samples, labels or weights are asked for.
ArrayLike: TypeAlias = "Tensor | np.ndarray[Any, Any] | pd.DataFrame | pd.Series[Any] | Sequence[Any]"


def refuse(name: str, owner: str, must: str, got: object) -> NoReturn:
    """Raise the one error sentence."""
    raise InputError(f"The '{name}' of {owner} must be {must}. Got {got} instead.")


@dataclass(frozen=True)
class Kind:
    """The kind of array that came in, so that the same kind goes out."""

    name: Literal["torch", "numpy", "pandas", "list"]
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    index: Any = None

    @classmethod
    def of(cls, value: object) -> Kind:
        """The kind of `value`; anything that is not an array counts as a list."""
        if isinstance(value, Tensor):
            return cls("torch", value.dtype if value.is_floating_point() else None, value.device)
        if isinstance(value, np.ndarray):
            floating = value.dtype in (np.float32, np.float64)
            return cls("numpy", torch.from_numpy(np.empty(0, value.dtype)).dtype if floating else None)
        if isinstance(value, pd.DataFrame | pd.Series):
            return cls("pandas", index=value.index)
        return cls("list")

    def give(self, result: Tensor) -> Any:  # noqa: ANN401 - the kind is known only at run time
        """`result` as the kind that came in; floats return to the precision that came in."""
        result = result.detach()
        if result.is_floating_point() and self.dtype is not None:
            result = result.to(self.dtype)
        if self.name == "torch":
            return result.to(self.device) if self.device is not None else result
        array = result.cpu().numpy()
        if self.name == "numpy":
            return array
        if self.name == "list":
            return array.tolist()
        index = self.index if array.ndim and len(array) == len(self.index) else None
        return pd.Series(array, index=index) if array.ndim < 2 else pd.DataFrame(array, index=index)


def _tensor(value: object, name: str, owner: str) -> Tensor:
    """Any array kind as a tensor that shares memory where it can; numbers only."""
    if isinstance(value, Tensor):
        tensor = value.detach()
        if tensor.is_complex() or tensor.is_sparse:
            refuse(name, owner, "dense and real", f"a {tensor.layout} tensor of {tensor.dtype}")
        return tensor
    if isinstance(value, pd.DataFrame):
        text = [str(c) for c, t in value.dtypes.items() if not pd.api.types.is_numeric_dtype(t)]
        if text:
            refuse(name, owner, "numeric in every column", f"columns that are not: {', '.join(text[:5])}")
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(value, pd.Series):
        if not pd.api.types.is_numeric_dtype(value.dtype):
            refuse(name, owner, "numeric", f"a Series of {value.dtype}")
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    try:
        array = np.asarray(value)
    except ValueError:  # ragged lists
        refuse(name, owner, "a rectangular array of numbers", "rows of unequal length")
    if array.dtype.kind not in "biuf":
        refuse(name, owner, "an array of numbers", f"{type(value).__name__} of {array.dtype}")
    if array.dtype == np.uint16 or array.dtype == np.uint32 or array.dtype == np.uint64:
        array = array.astype(np.int64)
    elif array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    # torch warns of read-only buffers and refuses foreign byte orders and negative strides.
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


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
    tensor = _tensor(value, name, owner)
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
    tensor = _tensor(value, name, owner)
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


def labels(value: object, name: str, owner: str, *, length: int | None = None) -> Tensor:
    """`value` as an (n,) tensor of non-negative int64 class labels."""
    tensor = _tensor(value, name, owner)
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


def number(
    value: object,
    name: str,
    owner: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """`value` as a float within [low, high], either end open on request."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        refuse(name, owner, "a number", repr(value))
    x = float(value)
    inside = (x > low if open_low else x >= low) and (x < high if open_high else x <= high)
    if not inside:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        refuse(name, owner, f"in {left}{low:g}, {high:g}{right}", f"{x:g}")
    return x


def whole(value: object, name: str, owner: str, *, low: int | None = None, high: int | None = None) -> int:
    """`value` as an int within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        refuse(name, owner, "a whole number", repr(value))
    i = int(value)
    if low is not None and i < low:
        refuse(name, owner, f"at least {low}", i)
    if high is not None and i > high:
        refuse(name, owner, f"at most {high}", i)
    return i


def one_of(value: object, options: Collection[str], name: str, owner: str) -> str:
    """`value` if it is among `options`; else an error that suggests the nearest."""
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    must = f"one of {', '.join(sorted(options))}"
    raise UnknownName(f"The '{name}' of {owner} must be {must}. Got {value!r} instead.{hint}")
