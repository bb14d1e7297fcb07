"""Kinds of arrays: any that users hand over becomes a tensor, and a result leaves as the kind that came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vestige.core.checks.refusal import refuse

# What users may hand over wherever samples, labels or weights are asked for.
ArrayLike: TypeAlias = "Tensor | np.ndarray[Any, Any] | pd.DataFrame | pd.Series[Any] | Sequence[Any]"


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


def as_tensor(value: object, name: str, owner: str) -> Tensor:
    """Any array kind as a tensor that shares memory where it can; numbers only."""
    if isinstance(value, Tensor):
        tensor = value.detach()
        if tensor.is_complex() or tensor.layout != torch.strided:
            refuse(name, owner, "dense and real", f"a {tensor.layout} tensor of {tensor.dtype}")
        return tensor
    if isinstance(value, pd.DataFrame):
        text = [str(c) for c, t in value.dtypes.items() if not _is_real(t)]
        if text:
            refuse(name, owner, "numeric in every column", f"columns that are not: {', '.join(text[:5])}")
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(value, pd.Series):
        if not _is_real(value.dtype):
            refuse(name, owner, "numeric", f"a Series of {value.dtype}")
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "biuf":
        value = np.ma.filled(value.astype(np.float64), np.nan)  # masked is missing, not the number underneath
    try:
        array = np.asarray(value)
    except ValueError:  # ragged lists
        refuse(name, owner, "a rectangular array of numbers", "rows of unequal length")
    except (RuntimeError, TypeError):  # lists of tensors that carry gradients or live on another device
        refuse(name, owner, "an array of numbers", f"a {type(value).__name__} that numpy cannot read")
    if array.dtype.kind not in "biuf":
        refuse(name, owner, "an array of numbers", f"{type(value).__name__} of {array.dtype}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:  # torch can do little with these
        fits = array.dtype.itemsize < 8 or not array.size or array.max() < 2**63
        array = array.astype(np.int64 if fits else np.float64)
    elif array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    # torch warns of read-only buffers and refuses foreign byte orders and negative strides.
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def _is_real(dtype: Any) -> bool:  # noqa: ANN401 - whatever pandas takes for a type
    return pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)
