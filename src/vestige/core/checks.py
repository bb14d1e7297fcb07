"""The door: what comes in is checked here, once, before any work, and leaves as the kind it came in.

Every refusal is one sentence of one form: "The 'x' of Y must be Z. Got v instead."

`samples`, `vector`, `matrix`, `labels` and `weights` return torch tensors; `Kind.of(x).give(tensor)` turns a result
back into the kind that `x` was: numpy array, torch tensor, list, or pandas object with the index of `x`.

A field of a configuration says beside its default what it may hold, and `declared` refuses what it may not:

    @dataclass
    class Settings:
        learning_rate: float = option(1e-3, above=0)
        hidden: tuple[int, ...] = option((64, 64), low=1)
        loss: str = option("js", among=("js", "kl"))

        def __post_init__(self) -> None:
            declared(self)

Whether a field is a whole number, a number, a name, a truth value or a tuple of them is read from its annotation, and
None is allowed where the annotation has it. `among` concerns words, beside which numbers may have bounds; it may be
anything that has `in` and can be listed, such as a registry; a function of no arguments where that would be imported
too early.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.core.errors import REPEATED, InputError, UnknownName, shortened

__all__ = [
    "ArrayLike",
    "Kind",
    "declared",
    "labels",
    "learnt",
    "matrix",
    "number",
    "one_of",
    "option",
    "options",
    "pair",
    "refuse",
    "samples",
    "vector",
    "weights",
    "whole",
]


UNKNOWN = 300  # characters of a sentence about an unknown name
# The largest size of a value in samples: what float32 can hold.
LARGEST = 3.4e38
FLOAT_MAX = float(np.finfo(np.float64).max)
# Up to here float64, and float32, hold every integer.
EXACT, EXACT_SINGLE = 2**53, 2**24


def refuse(name: str, owner: str, must: str, got: object) -> NoReturn:
    """Raise the one error sentence."""
    raise InputError(f"The '{name}' of {owner} must be {must}. Got {shortened(got)} instead.")


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
    try:
        x = float(value)
    except OverflowError:
        refuse(name, owner, "a number that a float can hold", "a larger one")
    inside = (x > low if open_low else x >= low) and (x < high if open_high else x <= high)
    if not inside:
        left, right = "(" if open_low else "[", ")" if open_high else "]"
        refuse(name, owner, f"in {left}{low:g}, {high:g}{right}", f"{x:g}")
    return x


def whole(value: object, name: str, owner: str, *, low: float = -math.inf, high: float = math.inf) -> int:
    """`value` as an int within [low, high]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        refuse(name, owner, "a whole number", repr(value))
    i = int(value)
    if i < low:
        refuse(name, owner, f"at least {low}", i)
    if i > high:
        refuse(name, owner, f"at most {high}", i)
    return i


def one_of(value: object, options: Collection[str], name: str, owner: str) -> str:
    """`value` if it is among `options`; else an error that suggests the nearest."""
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    said = f" Got {shortened(repr(value), REPEATED // 5)} instead.{hint}"
    head = f"The '{shortened(name, REPEATED // 5)}' of {shortened(owner, REPEATED // 5)} must be one of "
    raise UnknownName(f"{head}{listed(sorted(options), UNKNOWN - len(head) - len(said) - 1)}.{said}")


def listed(names: Sequence[str], most: int) -> str:
    """Names in at most `most` characters; how many there are besides is said."""
    if len(whole := ", ".join(names)) <= most:
        return whole
    more = f" and {len(names)} more"
    fitting = [n for n in range(len(names)) if len(", ".join(names[:n])) + len(more) <= most]
    kept = fitting[-1] if fitting else 0
    return f"{', '.join(names[:kept])} and {len(names) - kept} more" if kept else f"{len(names)} names"


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
        if tensor.dtype not in (torch.uint16, torch.uint32, torch.uint64):
            return tensor
        value = tensor.cpu().numpy()
    if isinstance(value, pd.DataFrame):
        text = [str(c) for c, t in value.dtypes.items() if not _is_real(t)]
        if text:
            refuse(name, owner, "numeric in every column", f"columns that are not: {', '.join(text[:5])}")
        for i, label in enumerate(value.columns):
            _exact_series(value.iloc[:, i], f"{name}['{label}']", owner)
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(value, pd.Series):
        if not _is_real(value.dtype):
            refuse(name, owner, "numeric", f"a Series of {value.dtype}")
        _exact_series(value, name, owner)
        value = value.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "biuf":
        if value.dtype.kind in "iu":
            _exact(value.filled(0), name, owner)
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
        if not fits:
            _exact(array, name, owner)
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


def within(x: Tensor, largest: float) -> bool:
    """Whether every value is a number of at most this size: one reduction, no mask as large as the data."""
    low, high = x.aminmax() if x.numel() else (0.0, 0.0)  # NaN if there is one
    return bool(low >= -largest) and bool(high <= largest)


def inexact(whole: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of an array of integers float64 cannot hold: beyond 2^53 it passes over most of them."""
    limits = np.iinfo(whole.dtype)
    if not whole.size or (whole.min() >= -EXACT and whole.max() <= EXACT):
        return np.zeros(whole.shape, dtype=bool)
    near = whole.astype(np.float64)
    inside = near < float(limits.max)  # the largest integer rounds up, to what is none of this type
    return ~inside | (np.where(inside, near, 0).astype(whole.dtype) != whole)


def _exact(whole: NDArray[Any], name: str, owner: str) -> None:
    if len(bad := np.argwhere(inexact(whole))):
        got = f"{whole[tuple(bad[0])]} in {place(bad[0])}"
        refuse(name, owner, "whole numbers that float64 can hold: up to 2^53, or multiples of powers of 2", got)


def _exact_series(column: pd.Series[Any], name: str, owner: str) -> None:
    if pd.api.types.is_integer_dtype(column.dtype):
        signed = not pd.api.types.is_unsigned_integer_dtype(column.dtype)
        _exact(column.to_numpy(dtype=np.int64 if signed else np.uint64, na_value=0), name, owner)


def place(index: Iterable[Any], first_row: int = 0) -> str:
    """Where a value stands: its sample, and which of its numbers it is."""
    row, *rest = (int(i) for i in index)
    return f"row {first_row + row}" + (f", column {', '.join(map(str, rest))}" if rest else "") + " (from 0)"


def _finite(tensor: Tensor, name: str, owner: str, *, largest: float = FLOAT_MAX) -> None:
    if within(tensor, min(largest, torch.finfo(tensor.dtype).max)):
        return
    bad = int((~torch.isfinite(tensor)).sum())
    if bad:
        refuse(name, owner, "finite", f"{bad} NaN or infinite values among {tensor.numel()}")
    first = (tensor.abs() > largest).nonzero()[0].tolist()
    got = f"{float(tensor[tuple(first)]):.4g} in {place(first)}"
    refuse(name, owner, f"no larger than {largest:.2g}, which single precision can hold", got)


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
    type as it is and turns integers into float32, or into float64 where float32 would make two of them one.
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
    if tensor.dtype == torch.int64 and (dtype is None or dtype.is_floating_point):
        _exact(tensor.numpy(force=True), name, owner)
    if dtype is None:
        large = tensor.dtype in (torch.int32, torch.int64) and not within(tensor, EXACT_SINGLE)
        dtype = torch.float64 if large or tensor.dtype == torch.float64 else torch.float32
    tensor = tensor.to(dtype)
    if tensor.is_floating_point():
        _finite(tensor, name, owner, largest=LARGEST)
    return tensor


def pair(p: object, q: object, owner: str, *, dtype: torch.dtype | None = torch.float64) -> tuple[Tensor, Tensor]:
    """Two sample sets of one width: `p` the numerator (real data), `q` the denominator (model)."""
    p_ = samples(p, "p", owner, min_rows=2, dtype=dtype)
    given = as_tensor(q, "q", owner)
    q_ = samples(given, "q", owner, min_rows=2, dtype=dtype)
    if p_.shape[1] != q_.shape[1]:
        refuse("q", owner, f"as wide as 'p' ({p_.shape[1]} features)", f"{q_.shape[1]}")
    # Floats take the precision of `p`; integers that need float64 keep it.
    both = p_.dtype if given.is_floating_point() else torch.promote_types(p_.dtype, q_.dtype)
    return p_.to(both), q_.to(both)


def _one_axis(value: object, name: str, owner: str, what: str, length: int | None) -> Tensor:
    """`value` as an (n,) tensor, one `what` a sample; a single row or column is one, too."""
    tensor = as_tensor(value, name, owner)
    if tensor.ndim == 2 and 1 in tensor.shape:
        tensor = tensor.reshape(-1)
    if tensor.ndim != 1:
        refuse(name, owner, f"one {what} a sample", f"shape {tuple(tensor.shape)}")
    if length is not None and len(tensor) != length:
        refuse(name, owner, f"{length} long", f"{len(tensor)}")
    return tensor


def vector(
    value: object, name: str, owner: str, *, length: int | None = None, min_rows: int = 1, finite: bool = True
) -> Tensor:
    """`value` as an (n,) tensor of float64."""
    tensor = _one_axis(value, name, owner, "number", length).to(torch.float64)
    if len(tensor) < min_rows:
        refuse(name, owner, f"at least {min_rows} long", f"{len(tensor)}")
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
    tensor = _one_axis(value, name, owner, "label", length)
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


KEY = "vestige constraint"
Names = Collection[str] | Callable[[], Collection[str]]


@dataclass(frozen=True)
class Constraint:
    """What a value, or each value of a tuple, must satisfy."""

    low: float
    high: float
    above: float | None
    below: float | None
    among: Names | None
    least: int  # how many values a tuple must hold


def option(
    default: Any = MISSING,  # noqa: ANN401 - of the field's type
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float | None = None,
    below: float | None = None,
    among: Names | None = None,
    least: int = 0,
) -> Any:  # noqa: ANN401 - a field, typed as its annotation
    """A dataclass field with its constraint: [low, high], (above, below), `among` names, `least` so many values."""
    return dataclasses.field(default=default, metadata={KEY: Constraint(low, high, above, below, among, least)})


def learnt(default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401 - a field
    """A dataclass field that is no option: what `fit` learns, under a name that ends in "_"."""
    made: dict[str, Any] = {"default_factory": factory} if factory is not None else {"default": default}
    return dataclasses.field(**made, init=False, repr=False, compare=False)


_ANNOTATIONS: dict[type[Any], dict[str, Any]] = {}


def annotations_of(kind: type[Any]) -> dict[str, Any]:
    """Those of a class and its parents, resolved: which takes milliseconds, so once."""
    if kind not in _ANNOTATIONS:
        _ANNOTATIONS[kind] = typing.get_type_hints(kind)
    return _ANNOTATIONS[kind]


def declared(config: Any, owner: str | None = None) -> None:  # noqa: ANN401 - a dataclass instance
    """Refuse the first field of `config` that its annotation or its declared constraint does not allow."""
    owner = owner or type(config).__name__
    hints = annotations_of(type(config))
    for field in dataclasses.fields(config):
        constraint = field.metadata.get(KEY)
        if constraint is None:
            continue
        found = [(getattr(config, field.name), hints[field.name])]
        for depth in itertools.count():  # entries of lists, and of lists in them, one level after the other
            found = [e for value, hint in found for e in _allowed(value, hint, constraint, field.name, owner, depth)]
            if not found:
                break


def _allowed(value: Any, hint: Any, c: Constraint, name: str, owner: str, depth: int) -> list[tuple[Any, Any]]:  # noqa: ANN401
    """Refuse a value that is not allowed; of a list, which only the outermost must be `least` long, the entries."""
    arms = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value is None and type(None) in arms:
        return []
    arms = tuple(a for a in arms if a is not type(None))
    bases = [typing.get_origin(arm) or arm for arm in arms]
    meant = [  # the arm of a union that the value is meant for; the last where none is, so that its refusal speaks
        arm for arm, base in zip(arms, bases, strict=True)
        if isinstance(base, type) and isinstance(value, base) and not (base is int and isinstance(value, bool))
    ]  # fmt: skip
    arm = meant[0] if meant else arms[-1]
    if typing.get_origin(arm) in (tuple, list):
        if not isinstance(value, tuple | list):
            refuse(name, owner, "a list", repr(value))
        if not depth and len(value) < c.least:
            refuse(name, owner, f"at least {c.least} long", len(value))
        return [(entry, typing.get_args(arm)[0]) for entry in value]
    if arm is bool:
        if not isinstance(value, bool):
            refuse(name, owner, "True or False", repr(value))
    elif c.among is not None and arm not in (int, float):
        one_of(value, c.among() if callable(c.among) else c.among, name, owner)
    elif arm in (int, float):
        if arm is int:
            whole(value, name, owner, low=c.low, high=c.high)
        low, high = (c.low if c.above is None else c.above), (c.high if c.below is None else c.below)
        number(value, name, owner, low=low, high=high, open_low=c.above is not None, open_high=c.below is not None)
    elif arm is str and not isinstance(value, str):
        refuse(name, owner, "a word", repr(value))
    return []


def options(kind: Any, preset: str | None, given: Mapping[str, Any], owner: str) -> dict[str, Any]:  # noqa: ANN401
    """`given` over the preset of that name of the dataclass `kind`; a name that it has no field for is refused."""
    chosen = {} if preset is None else kind.presets[one_of(preset, kind.presets, "preset", owner)]
    fields = [f.name for f in dataclasses.fields(kind) if f.init]
    for option in given:
        one_of(option, fields, "options", owner)
    # JSON and command lines have no tuples
    return {k: tuple(v) if isinstance(v, list) else v for k, v in (chosen | dict(given)).items()}
