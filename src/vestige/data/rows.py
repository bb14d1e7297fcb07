"""Choosing rows by class: what every maker of streams shares."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int64
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import whole
from vestige.core.errors import InputError
from vestige.data.dataset import DataSet
from vestige.data.stream import hold_out


def class_order(dataset: DataSet, order: Sequence[int] | None, owner: str) -> list[int]:
    """The classes in the order in which they will come; None is the order of the labels."""
    n = len(dataset.names)
    if order is None:
        return list(range(n))
    chosen = [whole(c, "order", owner, low=0, high=n - 1) for c in order]
    if len(set(chosen)) != len(chosen) or not chosen:
        raise InputError(f"The 'order' of {owner} must be distinct classes. Got {list(order)} instead.")
    return chosen


def rows_by_class(
    dataset: DataSet,
    classes: Sequence[int],
    *,
    per_class: int | None,
    val_fraction: float,
    seed: int,
    owner: str,
) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
    """(train, validation, test) rows of each class; an empty class is an error that names it."""
    found = {}
    for c in classes:
        train = (dataset.train_y == c).nonzero().flatten()
        test = (dataset.test_y == c).nonzero().flatten()
        if len(train) == 0:
            raise InputError(
                f"The classes of {owner} must each have a training sample. Got none for class {c} "
                f"('{dataset.names[c]}') of {dataset.name} instead."
            )
        if per_class is not None and len(train) > per_class:
            pick = torch.randperm(len(train), generator=rng.fork(seed, "per-class", c))[:per_class]
            train = train[pick].sort().values
        found[c] = (*hold_out(train, val_fraction, rng.fork(seed, "validation", c)), test)
    return found


def joined(
    rows: dict[int, tuple[Tensor, Tensor, Tensor]], classes: Sequence[int]
) -> tuple[Int64[Tensor, " a"], Int64[Tensor, " b"], Int64[Tensor, " c"]]:
    """The rows of several classes together, ascending, for each of the three splits."""
    train, val, test = (torch.cat([rows[c][i] for c in classes]).sort().values for i in range(3))
    return train, val, test


def output_map(n_classes: int, outputs: dict[int, int]) -> Int64[Tensor, " c"]:
    """class -> output as a lookup tensor, -1 for classes that do not belong."""
    table = torch.full((n_classes,), -1, dtype=torch.int64)
    for c, o in outputs.items():
        table[c] = o
    return table
