"""Streams with clear borders: `split` (classes come in groups), `permuted` (one input map a task), `two_task`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import number, one_of, whole
from vestige.core.devices import on_cpu
from vestige.core.errors import InputError
from vestige.data.dataset import DataSet
from vestige.data.rows import class_order, joined, output_map, rows_by_class
from vestige.data.stream import Declared, Head, Segment, Stream, TrainLogits


def declare(
    head: str, train_logits: str | None, task_labels_at_test: bool | None, owner: str, **rest: bool
) -> Declared:
    """Fill in what follows from the head, and refuse what contradicts it.

    A multi-head stream trains and tests each task on its own outputs, so it must know the task at test time.
    """
    chosen: Head = "multi" if one_of(head, ("single", "multi"), "head", owner) == "multi" else "single"
    default: TrainLogits = "current" if chosen == "multi" else "seen"
    logits = (
        default if train_logits is None else one_of(train_logits, ("current", "seen", "all"), "train_logits", owner)
    )
    labels = chosen == "multi" if task_labels_at_test is None else task_labels_at_test
    if chosen == "multi" and not labels:
        raise InputError(
            f"The 'task_labels_at_test' of {owner} must be True with head='multi', which picks the outputs by task. "
            "Got False instead."
        )
    return Declared(chosen, logits, labels, **rest)  # type: ignore[arg-type]


def group_sizes(classes_per_task: int | Sequence[int], n_classes: int, owner: str) -> list[int]:
    """Sizes of the groups of classes: equal with a smaller last one, or as given."""
    if isinstance(classes_per_task, int):
        size = whole(classes_per_task, "classes_per_task", owner, low=1, high=n_classes)
        return [min(size, n_classes - start) for start in range(0, n_classes, size)]
    sizes = [whole(s, "classes_per_task", owner, low=1) for s in classes_per_task]
    if sum(sizes) != n_classes:
        raise InputError(f"The 'classes_per_task' of {owner} must sum to {n_classes}. Got {sum(sizes)} instead.")
    return sizes


@on_cpu
def split(
    dataset: DataSet,
    classes_per_task: int | Sequence[int] = 2,
    *,
    order: Sequence[int] | None = None,
    head: str = "single",
    train_logits: str | None = None,
    task_labels_at_test: bool | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """Classes come in groups, one group a task, each class in one task only.

    Output i is the i-th class of `order`, so that a task's outputs are neighbours. `per_class` caps the training rows
    of each class; `val_fraction` of them are held out for validation.
    """
    owner = "split"
    declared = declare(head, train_logits, task_labels_at_test, owner)
    val_fraction = number(val_fraction, "val_fraction", owner, low=0, high=1, open_high=True)
    classes = class_order(dataset, order, owner)
    rows = rows_by_class(
        dataset, classes, per_class=per_class, val_fraction=val_fraction, seed=seed, owner=f"split({dataset.name})"
    )
    sizes = group_sizes(classes_per_task, len(classes), owner)
    segments, start = [], 0
    for size in sizes:
        group = classes[start : start + size]
        outputs = output_map(len(dataset.names), {c: start + i for i, c in enumerate(group)})
        name = "/".join(dataset.names[c] for c in group)
        segments.append(Segment(name, dataset, *joined(rows, group), outputs))
        start += size
    config = {
        "stream": "split", "data": dataset.name, "digest": dataset.digest, "classes_per_task": sizes, "order": classes,
        "head": declared.head, "train_logits": declared.train_logits, "val_fraction": val_fraction,
        "task_labels_at_test": declared.task_labels_at_test, "per_class": per_class, "seed": seed,
    }  # fmt: skip
    return Stream(f"split {dataset.name}", segments, declared, config, len(classes))


@dataclass(frozen=True)
class Permute:
    """A fixed permutation of the pixels."""

    order: Tensor

    def __call__(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """`x` with its pixels in the new order."""
        return x.flatten(1)[:, self.order].reshape(x.shape)


@on_cpu
def permuted(
    dataset: DataSet,
    n_tasks: int = 10,
    *,
    seed: int = 0,
    head: str = "single",
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
) -> Stream:
    """Every task has all classes; task k > 0 sees the pixels in an order of its own. Task 0 is the data as it is."""
    owner = "permuted"
    n_tasks = whole(n_tasks, "n_tasks", owner, low=1)
    declared = declare(head, train_logits, None, owner, overlapping=head != "multi", same_inputs=True)
    val_fraction = number(val_fraction, "val_fraction", owner, low=0, high=1, open_high=True)
    classes = class_order(dataset, None, owner)
    rows = joined(
        rows_by_class(dataset, classes, per_class=per_class, val_fraction=val_fraction, seed=seed, owner=owner), classes
    )
    k, pixels = len(classes), dataset.train_x[0].numel()
    segments = []
    for t in range(n_tasks):
        shift = t * k if declared.head == "multi" else 0
        outputs = output_map(k, {c: c + shift for c in classes})
        moved = Permute(torch.randperm(pixels, generator=rng.fork(seed, "permutation", t))) if t else None
        segments.append(Segment(f"permutation {t}", dataset, *rows, outputs, moved))
    config = {
        "stream": "permuted", "data": dataset.name, "digest": dataset.digest, "n_tasks": n_tasks, "head": declared.head,
        "train_logits": declared.train_logits, "val_fraction": val_fraction, "per_class": per_class, "seed": seed,
    }  # fmt: skip
    n_outputs = k * n_tasks if declared.head == "multi" else k
    return Stream(f"permuted {dataset.name}", segments, declared, config, n_outputs)


@on_cpu
def two_task(
    a: DataSet,
    b: DataSet,
    *,
    head: str = "single",
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """All of `a`, then all of `b` (Farquhar and Gal section 3.2.3); the classes of `b` get outputs of their own."""
    owner = "two_task"
    declared = declare(head, train_logits, None, owner)
    val_fraction = number(val_fraction, "val_fraction", owner, low=0, high=1, open_high=True)
    segments, start = [], 0
    for dataset in (a, b):
        classes = class_order(dataset, None, owner)
        rows = rows_by_class(
            dataset,
            classes,
            per_class=per_class,
            val_fraction=val_fraction,
            seed=seed,
            owner=f"two_task({dataset.name})",
        )
        outputs = output_map(len(classes), {c: start + c for c in classes})
        segments.append(Segment(dataset.name, dataset, *joined(rows, classes), outputs))
        start += len(classes)
    config = {
        "stream": "two_task", "data": [a.name, b.name], "digest": [a.digest, b.digest], "head": declared.head,
        "train_logits": declared.train_logits, "val_fraction": val_fraction, "per_class": per_class, "seed": seed,
    }  # fmt: skip
    return Stream(f"{a.name} then {b.name}", segments, declared, config, start)
