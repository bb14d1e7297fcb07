"""A data set in memory: training and test rows, class names, licence, and where this very copy came from.

Images stay bytes (uint8) until they are used, a quarter of the memory of floats; tables are float32. `floats` turns
either into what a network eats. The rows are held on the CPU, whatever device they came from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from vestige.core.checks import refuse, whole
from vestige.core.machine import on_cpu


@on_cpu()
def every_nth(y: Int64[Tensor, " n"], nth: int) -> Bool[Tensor, " n"]:
    """Marks the n-th, 2n-th, ... row of each class, in the order of the rows: a split that needs no seed."""
    order = torch.argsort(y, stable=True)
    counts = torch.bincount(y)
    rank = torch.arange(len(y)) - (counts.cumsum(0) - counts)[y[order]]  # place within its class, from 0
    marked = torch.empty(len(y), dtype=torch.bool)
    marked[order] = rank % nth == nth - 1
    return marked


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows to learn from and rows to test on. A label is a place in `names`.

    `groups`, where a data set has them, names the group of each class: the superclass of CIFAR-100, the alphabet of
    Omniglot. `origin` says which file, package or address the rows were read from. `held_out` says how the rows to test
    on were chosen where they did not come with the data.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    names: tuple[str, ...]
    licence: str
    origin: str
    groups: tuple[str, ...] = ()
    held_out: str = ""

    def __post_init__(self) -> None:
        owner = f"DataSet '{self.name}'"
        if not self.names:
            refuse("names", owner, "at least one class name", "none")
        if self.groups and len(self.groups) != len(self.names):
            refuse("groups", owner, f"one for each of {len(self.names)} classes", len(self.groups))
        for split in ("train", "test"):
            for name in (f"{split}_x", f"{split}_y"):
                object.__setattr__(self, name, getattr(self, name).cpu())
            x, y = getattr(self, f"{split}_x"), getattr(self, f"{split}_y")
            if x.ndim < 2 or x.numel() == 0:
                refuse(f"{split}_x", owner, "samples with at least one feature", f"shape {tuple(x.shape)}")
            if x.dtype not in (torch.uint8, torch.float32) or x.dtype != self.train_x.dtype:
                refuse(f"{split}_x", owner, "uint8 or float32, the same in both splits", x.dtype)
            if x.shape[1:] != self.train_x.shape[1:]:
                refuse(f"{split}_x", owner, f"samples of shape {tuple(self.train_x.shape[1:])}", tuple(x.shape[1:]))
            if x.is_floating_point() and not bool(torch.isfinite(x).all()):
                refuse(f"{split}_x", owner, "finite", f"{int((~torch.isfinite(x)).sum())} NaN or infinite values")
            if y.dtype != torch.int64 or y.shape != (len(x),):
                refuse(f"{split}_y", owner, f"{len(x)} int64 labels", f"{y.dtype} of shape {tuple(y.shape)}")
            if int(y.min()) < 0 or int(y.max()) >= len(self.names):
                refuse(f"{split}_y", owner, f"in 0..{len(self.names) - 1}", f"{int(y.min())}..{int(y.max())}")

    @cached_property
    def digest(self) -> str:
        """Hash of the rows themselves: two copies from different places are one data set if it agrees."""
        hashed = hashlib.sha256()
        for tensor in (self.train_x, self.train_y, self.test_x, self.test_y):
            hashed.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            hashed.update(tensor.contiguous().numpy().data.cast("B"))
        return hashed.hexdigest()[:16]

    def described(self) -> dict[str, Any]:
        """What a stream's configuration has of it."""
        found = {"data": self.name, "digest": self.digest}
        return found | ({"held_out": self.held_out} if self.held_out else {})

    def validation(self, nth: int) -> DataSet:
        """The training rows alone: every n-th of a class to test on, the others to train on. No test row is in it."""
        held = every_nth(self.train_y, whole(nth, "nth", "validation", low=2))
        x, y = self.train_x, self.train_y
        return replace(self, train_x=x[~held], train_y=y[~held], test_x=x[held], test_y=y[held])

    @property
    def is_images(self) -> bool:
        """Whether the rows are images (bytes) rather than a table (floats)."""
        return self.train_x.dtype == torch.uint8

    def floats(self, x: Tensor) -> Float[Tensor, "n *shape"]:
        """Rows of this data set as float32: images scaled to [0, 1], table rows as they are (not copied)."""
        if x.dtype != self.train_x.dtype or x.shape[1:] != self.train_x.shape[1:]:
            must = f"{self.train_x.dtype} rows of shape {tuple(self.train_x.shape[1:])}"
            refuse("x", f"floats of DataSet '{self.name}'", must, f"{x.dtype} {tuple(x.shape)}")
        return x.to(torch.float32).div_(255) if self.is_images else x

    def __repr__(self) -> str:
        shape = " x ".join(str(n) for n in self.train_x.shape[1:])
        rows = f"{len(self.train_x)} + {len(self.test_x)} rows of {shape}"
        return f"DataSet({self.name!r}, {rows}, {len(self.names)} classes, from {self.origin})"
