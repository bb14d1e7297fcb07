"""The contract of every density: it learns a distribution from rows, and draws rows like them once those are gone.

Rows are *cells*: one number a column, and a kind for each column. A "number" is any finite value; a "category" is a
code 0 .. k-1; NaN stands for a missing value. A density is a dataclass: its fields are its configuration, `fit` learns,
what was learnt ends in `_`. A subclass writes `_fit`, `_draw` and `_log_density`; checks, seeds, saving and loading are
done here.

What stays of the rows is little on purpose. No number is taken over fewer than `ROWS_TOGETHER` rows; edges of bins and
split points lie on a grid that follows from a column's rounded scale, not on values of rows; no extremes are kept;
nothing is kept row by row. `keeps` says in words what is kept.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core import NotFitted, StoreError, checks
from vestige.core.checks import ArrayLike, declared, learnt
from vestige.core.machine import on_cpu
from vestige.core.rounding import ROWS_TOGETHER
from vestige.densities.exclusive import ExclusiveColumns
from vestige.store.stored import Stored

KINDS = ("number", "category")
MOST_CODES = 10_000  # of a category
Cells = Float64[Tensor, "n c"]


@dataclass(eq=False)
class Density(Stored, ABC):
    """Learns from cells, and draws cells."""

    stored_as: ClassVar[str] = "density"
    name: ClassVar[str]
    version: ClassVar[int] = 2  # raised when its results change; 2: rounded, and no single row decides
    min_rows: ClassVar[int] = ROWS_TOGETHER
    takes: ClassVar[tuple[str, ...]] = KINDS  # the kinds of columns that it can learn
    takes_missing: ClassVar[bool] = True
    joins: ClassVar[bool] = False  # whether columns that are one category spread out are learnt as one (`exclusive`)
    keeps: ClassVar[str]  # what is kept of the rows, in words
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    kinds_: tuple[str, ...] = learnt(())
    exclusive_: ExclusiveColumns | None = learnt(None)
    report_: dict[str, Any] = learnt(factory=dict)

    def __post_init__(self) -> None:
        declared(self)
        self.check()

    def check(self) -> None:
        """Refuse options that do not go together, or that `option` cannot say."""

    @on_cpu()
    def fit(self, cells: ArrayLike, kinds: Sequence[str] | None = None, *, seed: int = 0) -> Self:
        """Learn the distribution of the rows of `cells`; `kinds` of its columns, None: numbers. Returns self."""
        owner = f"{type(self).__name__}.fit"
        seed = checks.whole(seed, "seed", owner)
        rows, named = self._admit(cells, kinds, owner)
        learnt_now = self.copy()
        found = ExclusiveColumns.of(rows, named) if self.joins else None
        learnt_now.exclusive_ = found if found is not None and found.groups else None
        if learnt_now.exclusive_ is None:
            report = learnt_now._fit(rows, named, seed)
        else:
            joined = learnt_now.exclusive_
            report = learnt_now._fit(joined.joined(rows), joined.kinds(named), seed)
        learnt_now.kinds_ = named
        learnt_now.report_ = {"density": self.name, "n": len(rows), "columns": rows.shape[1], **report}
        self.__dict__.update(learnt_now.__dict__)
        return self

    @on_cpu()
    def draw(self, n: int, *, seed: int = 0) -> Float64[Tensor, "n c"]:
        """`n` rows of cells; the same seed gives the same rows."""
        owner = f"{type(self).__name__}.draw"
        self._fitted(owner)
        n = checks.whole(n, "n", owner, low=1)
        drawn = self._draw(n, checks.whole(seed, "seed", owner))
        return drawn if self.exclusive_ is None else self.exclusive_.spread(drawn)

    @on_cpu()
    def log_density(self, cells: ArrayLike) -> Float64[Tensor, " n"]:
        """log p of each row, in nats per unit of its numbers; of what has a chance by itself (atoms, codes, numbers of
        a lattice, missing values) that chance. A value that no draw has counts as the one that it is read as.
        """
        owner = f"{type(self).__name__}.log_density"
        rows = admit_cells(cells, "cells", owner, width=len(self._fitted(owner)))
        if not self.takes_missing and bool(rows.isnan().any()):
            checks.refuse("cells", owner, "without missing values", f"{int(rows.isnan().sum())} of them")
        return self._log_density(rows if self.exclusive_ is None else self.exclusive_.joined(rows))

    @property
    def _kinds(self) -> tuple[str, ...]:
        """The kinds that `_fit` saw."""
        return self.kinds_ if self.exclusive_ is None else self.exclusive_.kinds(self.kinds_)

    @abstractmethod
    def _fit(self, cells: Float64[Tensor, "n c"], kinds: tuple[str, ...], seed: int) -> dict[str, Any]:
        """Learn; returns what happened, for the report."""

    @abstractmethod
    def _draw(self, n: int, seed: int) -> Float64[Tensor, "n c"]:
        """`n` rows."""

    @abstractmethod
    def _log_density(self, cells: Float64[Tensor, "n c"]) -> Float64[Tensor, " n"]:
        """log p of each row."""

    def config(self) -> dict[str, Any]:
        """The configuration as plain JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return {"density": self.name, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}

    def _rebuild(self) -> None:
        """Refuse a stored density whose parts do not go together, before anything is drawn from it."""
        if not self.kinds_:
            return
        try:
            sound = set(self.kinds_) <= set(self.takes) and self._sound(len(self.kinds_))
        except (RuntimeError, ValueError, AttributeError, IndexError, TypeError):
            sound = False
        if not sound:
            raise StoreError(f"The stored density '{self.name}' has parts that do not go together.")

    @abstractmethod
    def _sound(self, columns: int) -> bool:
        """Whether rows of so many columns can be drawn from what was learnt; may raise what torch or numpy raise."""

    def _fitted(self, owner: str) -> tuple[str, ...]:
        if not self.kinds_:
            raise NotFitted(f"{owner} was called before fit.")
        return self.kinds_

    def _admit(
        self, cells: ArrayLike, kinds: Sequence[str] | None, owner: str
    ) -> tuple[Float64[Tensor, "n c"], tuple[str, ...]]:
        """Rows and kinds that this density can learn."""
        rows = admit_cells(cells, "cells", owner, min_rows=self.min_rows)
        named = tuple(kinds) if kinds is not None else ("number",) * rows.shape[1]
        if len(named) != rows.shape[1]:
            checks.refuse("kinds", owner, f"one for each of {rows.shape[1]} columns", len(named))
        for j, kind in enumerate(named):
            checks.one_of(kind, KINDS, "kinds", owner)
            if kind not in self.takes:
                checks.refuse("kinds", owner, f"'{self.takes[0]}' in every column", f"'{kind}' in column {j}")
            if kind == "category":
                known = rows[:, j][~rows[:, j].isnan()]
                if len(known) and not bool(((known >= 0) & (known == known.round()) & (known < MOST_CODES)).all()):
                    must = f"codes 0 .. {MOST_CODES - 1} in a column of categories"
                    checks.refuse("cells", owner, must, f"others in column {j}")
        if not self.takes_missing and bool(rows.isnan().any()):
            checks.refuse("cells", owner, "without missing values", f"{int(rows.isnan().sum())} of them")
        return rows, named


def admit_cells(
    value: object, name: str, owner: str, *, min_rows: int = 1, width: int | None = None
) -> Float64[Tensor, "n c"]:
    """`value` as cells: finite numbers, or NaN where one is missing; at least one column."""
    tensor = checks.as_tensor(value, name, owner)
    if tensor.ndim == 0:
        checks.refuse(name, owner, "one sample a row", "a single number")
    if tensor.shape[0] < min_rows:
        checks.refuse(name, owner, f"at least {min_rows} rows", tensor.shape[0])
    tensor = tensor.reshape(tensor.shape[0], -1) if tensor.ndim != 2 and len(tensor) else tensor
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        checks.refuse(name, owner, "rows of at least one column", f"shape {tuple(tensor.shape)}")
    if width is not None and tensor.shape[1] != width:
        checks.refuse(name, owner, f"{width} columns wide", tensor.shape[1])
    rows = tensor.to("cpu", torch.float64)
    if not checks.within(rows.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf), checks.LARGEST):
        checks.refuse(name, owner, f"finite, at most {checks.LARGEST:.2g}, or NaN where missing", "larger values")
    return rows
