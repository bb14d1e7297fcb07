"""Streams from a data set.

With clear borders: `split` (classes come in groups), `permuted` (one input map a task), `two_task`. Classes that come
again (Farquhar and Gal section 5): `overlapping` shares each class out to several tasks at different rates; `long`
draws as many tasks as one likes from one data set. Without borders (same section): `blurred` ones mix, in `continuous`
there are none at all. There every sample is used once, at a time of its own; sorting by time gives the order in which
the learner sees it, and cutting time into equal parts gives the points at which it is tested. The learner hears of no
border.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.core import InputError, rng
from vestige.core.checks import number, one_of, whole
from vestige.core.machine import on_cpu
from vestige.data.dataset import DataSet
from vestige.data.stream import Declared, Head, Segment, Stream, TrainLogits, hold_out


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


def in_shares(rows: Int64[Tensor, " n"], shares: Float[Tensor, " t"], generator: torch.Generator) -> list[Tensor]:
    """Shuffle rows and cut them in the given shares (which sum to one); every row goes to exactly one part."""
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    borders = (shares.cumsum(0)[:-1] * len(rows)).round().long()
    return [part.sort().values for part in torch.tensor_split(shuffled, borders)]


@on_cpu
def overlapping(
    dataset: DataSet,
    classes_per_task: int | Sequence[int] = 2,
    *,
    main_share: float = 0.7,
    order: Sequence[int] | None = None,
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """`split` in which `main_share` of a class's samples come in its own task and the rest, evenly, in the others."""
    owner = "overlapping"
    main_share = number(main_share, "main_share", owner, low=0, high=1)
    classes = class_order(dataset, order, owner)
    sizes = group_sizes(classes_per_task, len(classes), owner)
    n_tasks = len(sizes)
    rows = rows_by_class(dataset, classes, per_class=per_class, val_fraction=val_fraction, seed=seed, owner=owner)
    task_of = {c: t for t, group in enumerate(torch.tensor(classes).split(sizes)) for c in group.tolist()}
    parts: list[list[list[Tensor]]] = [[[] for _ in range(3)] for _ in range(n_tasks)]
    present: list[set[int]] = [set() for _ in range(n_tasks)]
    for c in classes:
        shares = torch.full((n_tasks,), (1 - main_share) / max(n_tasks - 1, 1), dtype=torch.float64)
        shares[task_of[c]] = main_share if n_tasks > 1 else 1.0
        for s in range(3):
            for t, piece in enumerate(in_shares(rows[c][s], shares, rng.fork(seed, "deal", c, s))):
                parts[t][s].append(piece)
                if len(piece):
                    present[t].add(c)
    place = {c: i for i, c in enumerate(classes)}
    segments = []
    for t in range(n_tasks):
        outputs = output_map(len(dataset.names), {c: place[c] for c in present[t]})
        train, val, test = (torch.cat(p).sort().values for p in parts[t])
        segments.append(Segment(f"mixture {t}", dataset, train, val, test, outputs))
    declared = declare("single", train_logits, False, owner, overlapping=main_share < 1 and n_tasks > 1)
    config = {
        "stream": owner, "data": dataset.name, "digest": dataset.digest, "classes_per_task": sizes, "order": classes,
        "main_share": main_share, "train_logits": declared.train_logits, "val_fraction": val_fraction,
        "per_class": per_class, "seed": seed,
    }  # fmt: skip
    return Stream(f"overlapping {dataset.name}", segments, declared, config, len(classes))


@dataclass(frozen=True)
class Rotate:
    """A rotation of images (n, h, w) or (n, c, h, w) about their centre, bilinear, with zeros outside."""

    degrees: float

    def __call__(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """The rotated images."""
        if len(x) == 0:
            return x
        images = x.unsqueeze(1) if x.ndim == 3 else x
        angle = torch.deg2rad(torch.tensor(self.degrees))
        height, width = images.shape[-2:]
        cos, sin = torch.cos(angle), torch.sin(angle)
        # affine_grid works in units of half a side, so an image that is not square needs its ratio back.
        matrix = torch.stack(
            [torch.stack([cos, -sin * height / width, cos * 0]), torch.stack([sin * width / height, cos, cos * 0])]
        )
        grid = functional.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        return functional.grid_sample(images, grid, align_corners=False).reshape(x.shape)


@on_cpu
def long(
    dataset: DataSet,
    n_tasks: int = 50,
    *,
    kinds: Sequence[str] = ("classes", "rotation", "permutation"),
    classes_per_task: int = 2,
    samples_per_task: int = 200,
    head: str = "single",
    train_logits: str | None = None,
    seed: int = 0,
) -> Stream:
    """As many tasks as one likes: each a group of classes, seen as it is, rotated, or permuted, kind after kind.

    With one head a class keeps its output whatever the task does to its pixels, so classes recur; with many heads each
    task has outputs of its own.
    """
    owner = "long"
    n_tasks = whole(n_tasks, "n_tasks", owner, low=1)
    samples_per_task = whole(samples_per_task, "samples_per_task", owner, low=1)
    kinds = [one_of(k, ("classes", "rotation", "permutation"), "kinds", owner) for k in kinds]
    if not kinds:
        raise InputError(f"The 'kinds' of {owner} must be at least one. Got none instead.")
    if "rotation" in kinds and dataset.train_x.ndim < 3:
        raise InputError(f"The 'kinds' of {owner} must be without 'rotation' for a table. Got {dataset.name} instead.")
    classes = class_order(dataset, None, owner)
    size = whole(classes_per_task, "classes_per_task", owner, low=1, high=len(classes))
    rows = rows_by_class(dataset, classes, per_class=None, val_fraction=0.0, seed=seed, owner=owner)
    declared = declare(head, train_logits, None, owner, overlapping=head != "multi", same_inputs="classes" not in kinds)
    pixels = dataset.train_x[0].numel()
    segments = []
    for t in range(n_tasks):
        g = rng.fork(seed, "long", t)
        kind = kinds[t % len(kinds)]
        group = sorted(torch.randperm(len(classes), generator=g)[:size].tolist())
        shift = {c: t * size + i if declared.head == "multi" else c for i, c in enumerate(group)}
        train, val, test = joined(rows, group)
        train = train[torch.randperm(len(train), generator=g)[:samples_per_task]].sort().values
        change: Rotate | Permute | None = None
        if kind == "rotation":
            change = Rotate(float(torch.rand((), generator=g)) * 360)
        elif kind == "permutation":
            change = Permute(torch.randperm(pixels, generator=g))
        name = f"{'/'.join(dataset.names[c] for c in group)} ({kind})"
        outputs = output_map(len(dataset.names), shift)
        segments.append(Segment(name, dataset, train, val, test, outputs, change))
    config = {
        "stream": owner, "data": dataset.name, "digest": dataset.digest, "n_tasks": n_tasks, "kinds": kinds,
        "classes_per_task": size, "samples_per_task": samples_per_task, "head": declared.head,
        "train_logits": declared.train_logits, "seed": seed,
    }  # fmt: skip
    n_outputs = n_tasks * size if declared.head == "multi" else len(classes)
    return Stream(f"long {dataset.name}", segments, declared, config, n_outputs)


def _cut(rows: Tensor, times: Tensor, n_parts: int) -> list[Tensor]:
    """Rows in order of time, cut at k / n_parts; times lie in [0, 1]."""
    order = times.argsort(stable=True)
    borders = torch.searchsorted(times[order].contiguous(), torch.arange(1, n_parts) / n_parts)
    return list(torch.tensor_split(rows[order], borders))


def _borderless(
    kind: str,
    dataset: DataSet,
    classes: Sequence[int],
    times: dict[str, tuple[Tensor, Tensor]],
    n_parts: int,
    train_logits: str | None,
    config: Mapping[str, object],
    *,
    continuous: bool,
) -> Stream:
    """A stream of `n_parts` stretches of time from (rows, times) of the training and test sets."""
    if train_logits == "current":
        raise InputError(
            f"The 'train_logits' of {kind} must be 'seen' or 'all': the current task's outputs would tell the border. "
            "Got 'current' instead."
        )
    # "seen" is the learner's own to find out where no border is told, so the stream offers every output from the start.
    declared = declare(
        "single", "all", False, kind, boundaries_told=False, ordered=True, continuous=continuous, overlapping=True
    )
    train, test = (_cut(*times[s], n_parts) for s in ("train", "test"))
    place = {c: i for i, c in enumerate(classes)}
    segments = []
    for k in range(n_parts):
        present = {int(c) for c in torch.cat([dataset.train_y[train[k]], dataset.test_y[test[k]]]).unique()}
        outputs = output_map(len(dataset.names), {c: place[c] for c in present})
        segments.append(Segment(f"time {k}", dataset, train[k], train[k][:0], test[k], outputs))
    config = {"stream": kind, "data": dataset.name, "digest": dataset.digest, "order": list(classes), **config}
    return Stream(f"{kind} {dataset.name}", segments, declared, config, len(classes))


def _clock(
    dataset: DataSet, classes: Sequence[int], seed: int, per_class: int | None, owner: str
) -> dict[str, list[tuple[int, Tensor, torch.Generator]]]:
    """(class, rows, generator) of both splits, for streams that draw a time for each row."""
    rows = rows_by_class(dataset, classes, per_class=per_class, val_fraction=0.0, seed=seed, owner=owner)
    return {
        name: [(c, rows[c][i], rng.fork(seed, "time", name, c)) for c in classes]
        for name, i in (("train", 0), ("test", 2))
    }


@on_cpu
def blurred(
    dataset: DataSet,
    classes_per_task: int | Sequence[int] = 2,
    *,
    width: float = 0.25,
    order: Sequence[int] | None = None,
    train_logits: str | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """`split` with unclear borders: a sample of task k comes at k + u + width * v, with u in [0, 1), v in [-1, 1).

    So neighbours mix over a stretch of 2 * width tasks around each border; width 0 is a split with untold borders.
    """
    owner = "blurred"
    width = number(width, "width", owner, low=0, high=1)
    classes = class_order(dataset, order, owner)
    sizes = group_sizes(classes_per_task, len(classes), owner)
    task_of = {c: t for t, group in enumerate(torch.tensor(classes).split(sizes)) for c in group.tolist()}
    times: dict[str, tuple[Tensor, Tensor]] = {}
    for name, parts in _clock(dataset, classes, seed, per_class, owner).items():
        drawn = []
        for c, rows, g in parts:
            u, v = torch.rand(2, len(rows), generator=g, dtype=torch.float64)
            drawn.append((task_of[c] + u + width * (2 * v - 1)).clamp(0, len(sizes)) / len(sizes))
        times[name] = (torch.cat([rows for _, rows, _ in parts]), torch.cat(drawn))
    config = {"classes_per_task": sizes, "width": width, "per_class": per_class, "seed": seed}
    return _borderless(owner, dataset, classes, times, len(sizes), train_logits, config, continuous=False)


@on_cpu
def continuous(
    dataset: DataSet,
    n_parts: int = 5,
    *,
    spread: float = 0.15,
    order: Sequence[int] | None = None,
    train_logits: str | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """Class probabilities drift: class i of k comes at times from N(i / (k - 1), spread^2) cut to [0, 1].

    There is no task at all; `n_parts` is the number of points at which the learner is tested.
    """
    owner = "continuous"
    n_parts = whole(n_parts, "n_parts", owner, low=1)
    spread = number(spread, "spread", owner, low=0, open_low=True)
    classes = class_order(dataset, order, owner)
    centre = {c: i / max(len(classes) - 1, 1) for i, c in enumerate(classes)}
    normal = torch.distributions.Normal(torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
    times: dict[str, tuple[Tensor, Tensor]] = {}
    for name, parts in _clock(dataset, classes, seed, per_class, owner).items():
        drawn = []
        for c, rows, g in parts:  # inverse of the truncated normal's distribution function
            ends = torch.tensor([-centre[c], 1 - centre[c]], dtype=torch.float64) / spread
            low, high = normal.cdf(ends)
            u = low + (high - low) * torch.rand(len(rows), generator=g, dtype=torch.float64)
            drawn.append((centre[c] + spread * normal.icdf(u)).clamp(0, 1))
        times[name] = (torch.cat([rows for _, rows, _ in parts]), torch.cat(drawn))
    config = {"n_parts": n_parts, "spread": spread, "per_class": per_class, "seed": seed}
    return _borderless(owner, dataset, classes, times, n_parts, train_logits, config, continuous=True)
