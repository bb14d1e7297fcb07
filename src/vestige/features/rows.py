"""Rows for a feature map: checked at the door, one task beside another, each task with the same say.

CDRE Eq. 15 averages over tasks, not over rows: 1/t for each task whatever its number of samples. `gather` gives every
row the weight that makes it so, of mean one.

Bytes (uint8) are grey levels and are read as v / 255 by every map, as `DataSet.floats` does, so that an image is the
same image whether it comes as bytes or as floats in [0, 1].

`Layout` says how the pixels of a sample lie, and gives rows as the (n, channels, height, width) that convolutions eat.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, as_tensor

# One array, or one array a task.
Groups: TypeAlias = "ArrayLike | Mapping[str | int, ArrayLike]"


@dataclass(frozen=True)
class Rows:
    """Samples of all tasks, one a row, their weights (of mean one) and, where given, their labels."""

    x: Float[Tensor, "n d"]
    weights: Float[Tensor, " n"]
    y: Int64[Tensor, " n"] | None

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Argument:
    """What one argument held: its name, its samples and labels, and how many tasks it speaks for if it is one array."""

    name: str
    x: Groups
    y: Groups | None
    tasks: int


def shape_of(x: Groups, name: str, owner: str) -> tuple[int, ...]:
    """The shape of one sample."""
    if isinstance(x, Mapping):
        if not x:
            checks.refuse(name, owner, "given for at least one task", "none")
        x = next(iter(x.values()))
    tensor = as_tensor(x, name, owner)
    if tensor.ndim == 0:
        checks.refuse(name, owner, "one sample a row", "a single number")
    return tuple(tensor.shape[1:]) or (1,)


def admit(x: ArrayLike, name: str, owner: str, shape: tuple[int, ...], *, min_rows: int = 1) -> Shaped[Tensor, "n d"]:
    """(n, d) rows of finite numbers, on the CPU, in the precision they came in; bytes stay bytes.

    Flat rows of the right width are taken for samples of `shape`; the same width in another shape (channels last
    where channels came first) is refused.
    """
    tensor = as_tensor(x, name, owner).cpu()
    as_bytes = torch.uint8 if tensor.dtype == torch.uint8 else None
    rows = checks.samples(tensor, name, owner, min_rows=min_rows, width=math.prod(shape), dtype=as_bytes)
    if tensor.ndim > 2 and _bare(tensor.shape[1:]) != _bare(shape) and len(shape) > 1:
        checks.refuse(name, owner, f"samples of shape {shape}", tuple(tensor.shape[1:]))
    return rows


def _bare(shape: tuple[int, ...] | torch.Size) -> tuple[int, ...]:
    """Without axes of length one, which carry no order."""
    return tuple(n for n in shape if n != 1)


def numbers(rows: Shaped[Tensor, "n d"], dtype: torch.dtype) -> Float[Tensor, "n d"]:
    """Rows as a network eats them: bytes as v / 255, floats as they are."""
    return rows.to(dtype).div_(255) if rows.dtype == torch.uint8 else rows.to(dtype)


def gather(
    parts: list[Argument], owner: str, shape: tuple[int, ...], *, dtype: torch.dtype, min_rows: int = 2
) -> tuple[Rows, int]:
    """All parts as one set of rows, and the number of tasks in it; every task has the same total weight."""
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    shares: list[Tensor] = []
    total = 0
    for part in parts:
        one = not isinstance(part.x, Mapping)
        groups = part.x if isinstance(part.x, Mapping) else {0: part.x}
        if not groups:
            checks.refuse(part.name, owner, "given for at least one task", "none")
        labels: Mapping[str | int, ArrayLike] | None
        labels = part.y if isinstance(part.y, Mapping) or part.y is None else {0: part.y}
        if labels is not None and labels.keys() != groups.keys():
            checks.refuse(f"labels of '{part.name}'", owner, "given for the same tasks", ", ".join(map(str, labels)))
        for task, group in groups.items():
            name = part.name if one else f"{part.name}[{task!r}]"
            rows = admit(group, name, owner, shape, min_rows=min_rows)
            xs.append(numbers(rows, dtype))
            share = part.tasks if one else 1
            shares.append(torch.full((len(rows),), share / len(rows), dtype=dtype, device=rows.device))
            total += share
            if labels is not None:
                ys.append(checks.labels(labels[task], f"labels of {name}", owner, length=len(rows)).cpu())
    if ys and len(ys) != len(xs):
        checks.refuse("y", owner, "given for all samples or for none", f"labels of {len(ys)} of {len(xs)} sets")
    weights = torch.cat(shares)
    weights = weights * (len(weights) / weights.sum())
    return Rows(torch.cat(xs), weights, torch.cat(ys) if ys else None), total


CHANNELS = (1, 3)


@dataclass(frozen=True)
class Layout:
    """Size of an image, and whether its channels are the last axis rather than the first."""

    channels: int
    height: int
    width: int
    channels_last: bool = False

    @classmethod
    def of(cls, shape: tuple[int, ...], image: tuple[int, ...] | None, owner: str) -> Layout:
        """The layout of samples of `shape`; of flat ones `image` must say it."""
        if len(shape) == 1:
            if image is None:
                must = "images, or flat rows whose shape the option 'image' gives, such as (28, 28)"
                checks.refuse("x", owner, must, f"samples of shape {shape}")
            layout = cls._read(image, "image", owner)
            if layout.channels * layout.height * layout.width != shape[0]:
                checks.refuse("x", owner, f"as wide as images of {tuple(image)}", f"{shape[0]} features")
            return layout
        if image is not None and tuple(image) != shape:
            checks.refuse("x", owner, f"images of shape {tuple(image)}", f"samples of shape {shape}")
        return cls._read(shape, "x", owner)

    @classmethod
    def _read(cls, shape: tuple[int, ...], name: str, owner: str) -> Layout:
        if len(shape) == 2:
            return cls(1, *shape)
        if len(shape) == 3 and shape[0] in CHANNELS:
            return cls(*shape)
        if len(shape) == 3 and shape[2] in CHANNELS:
            return cls(shape[2], *shape[:2], channels_last=True)
        must = "grey or colour: (height, width), (channels, height, width) or (height, width, channels)"
        checks.refuse(name, owner, must, f"samples of shape {shape}")

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c h w"]:
        """Rows as images."""
        if self.channels_last:
            return x.reshape(-1, self.height, self.width, self.channels).permute(0, 3, 1, 2)
        return x.reshape(-1, self.channels, self.height, self.width)
