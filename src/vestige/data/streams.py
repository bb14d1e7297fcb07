"""Streams from a data set, or from whatever `as_dataset` makes one of: arrays, a torch Dataset, a table, a folder.

With clear borders: `split` (classes come in groups), `domains` (new inputs for the same outputs), `permuted` (one input
map a task), `two_task`. In `split` and `domains` the argument `scenario` decides what a task brings (van de Ven and
Tolias 2019): "class", outputs of its own, all of which compete; "task", outputs of its own, and the task is told;
"domain", new inputs for the same outputs. Classes that come again (Farquhar and Gal section 5): `overlapping` shares
each class out to several tasks at different rates; `long`
draws as many tasks as one likes from one data set. Without borders (same section): `blurred` ones mix, in `continuous`
there are none at all. There every sample is used once, at a time of its own; sorting by time gives the order in which
the learner sees it, and cutting time into equal parts gives the points at which it is tested. The learner hears of no
border.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.core import InputError, rng
from vestige.core.checks import number, one_of, refuse, whole
from vestige.core.machine import on_cpu
from vestige.data.dataset import DataSet
from vestige.data.own import as_dataset
from vestige.data.stream import Declared, Segment, Stream, hold_out

# (train, validation, test) rows of each class, in the order in which the classes come.
Rows: TypeAlias = dict[int, tuple[Tensor, Tensor, Tensor]]
# Classes in the order in which they come: that of the labels (None), as listed, or drawn by the seed.
Order: TypeAlias = Sequence[int] | Literal["random"] | None
SCENARIOS = ("class", "task", "domain")


def rows_by_class(
    dataset: DataSet, order: Order, per_class: int | None, val_fraction: float, seed: int, owner: str
) -> Rows:
    """The rows of the classes in `order`; an empty class is an error that names it."""
    val_fraction = number(val_fraction, "val_fraction", owner, low=0, high=1, open_high=True)
    n = len(dataset.names)
    if isinstance(order, str):
        one_of(order, ("random",), "order", owner)
        order = torch.randperm(n, generator=rng.fork(seed, "class order")).tolist()
    classes = range(n) if order is None else [whole(c, "order", owner, low=0, high=n - 1) for c in order]
    if len(set(classes)) != len(classes) or not classes:
        raise InputError(f"The 'order' of {owner} must be distinct classes. Got {list(classes)} instead.")
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


def groups_of(rows: Rows, classes_per_task: int | Sequence[int], owner: str) -> list[list[int]]:
    """The classes in groups: of one size with a smaller last one, or of the sizes given."""
    n = len(rows)
    if isinstance(classes_per_task, int):
        size = whole(classes_per_task, "classes_per_task", owner, low=1, high=n)
        return [list(rows)[start : start + size] for start in range(0, n, size)]
    sizes = [whole(s, "classes_per_task", owner, low=1) for s in classes_per_task]
    if sum(sizes) != n:
        raise InputError(f"The 'classes_per_task' of {owner} must sum to {n}. Got {sum(sizes)} instead.")
    return [group.tolist() for group in torch.tensor(list(rows)).split(sizes)]


def output_map(dataset: DataSet, outputs: Mapping[int, int]) -> Int64[Tensor, " c"]:
    """class -> output as a lookup tensor, -1 for classes that do not belong."""
    table = torch.full((len(dataset.names),), -1, dtype=torch.int64)
    for c, o in outputs.items():
        table[c] = o
    return table


def segment_of(
    name: str, dataset: DataSet, rows: Rows, outputs: Mapping[int, int], transform: Permute | Rotate | None = None
) -> Segment:
    """A task of all `rows`, ascending, whose classes have these outputs."""
    train, val, test = (torch.cat(parts).sort().values for parts in zip(*rows.values(), strict=True))
    return Segment(name, dataset, train, val, test, output_map(dataset, outputs), transform)


def declare(
    head: str,
    train_logits: str | None,
    task_labels_at_test: bool | None,
    owner: str,
    *,
    domain: bool = False,
    **rest: bool,
) -> Declared:
    """Fill in what follows from the head, and refuse what contradicts it; `domain`: all tasks have the same outputs.

    A multi-head stream trains and tests each task on its own outputs, so it must know the task at test time.
    """
    multi = one_of(head, ("single", "multi"), "head", owner) == "multi"
    if train_logits is None:
        train_logits = "current" if multi else "seen"
    one_of(train_logits, ("current", "seen", "all"), "train_logits", owner)
    labels = multi if task_labels_at_test is None else task_labels_at_test
    if multi and not labels:
        raise InputError(
            f"The 'task_labels_at_test' of {owner} must be True with head='multi', which picks the outputs by task. "
            "Got False instead."
        )
    scenario = "task" if multi else "domain" if domain else "class"
    return Declared(head, train_logits, labels, scenario=scenario, **rest)  # type: ignore[arg-type]


@on_cpu()
def split(
    data: Any,  # noqa: ANN401 - whatever `as_dataset` takes
    classes_per_task: int | Sequence[int] = 2,
    *,
    scenario: str | None = None,
    order: Order = None,
    head: str | None = None,
    train_logits: str | None = None,
    task_labels_at_test: bool | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """Classes come in groups, one group a task, each class in one task only.

    `scenario`: "class" (one head, the default), "task" (a head a task, and the task is told) or "domain" (the i-th
    class of every group has output i, as in "even or odd?"). In the first two output i is the i-th class of `order`, so
    that a task's outputs are neighbours. `order` lists the classes, or is "random": drawn by `seed`. `head` ("single",
    "multi") is another way to say "class" and "task". `per_class` caps the training rows of each class; `val_fraction`
    of them are held out for validation.
    """
    dataset = as_dataset(data)
    head, domain = head_of(scenario, head, "split")
    declared = declare(head, train_logits, task_labels_at_test, "split", domain=domain, overlapping=domain)
    rows = rows_by_class(dataset, order, per_class, val_fraction, seed, "split")
    groups = groups_of(rows, classes_per_task, "split")
    if domain and len({len(group) for group in groups}) > 1:
        refuse("classes_per_task", "split", "one size with scenario='domain'", [len(group) for group in groups])
    place = {c: i for group in groups for i, c in enumerate(group)} if domain else {c: i for i, c in enumerate(rows)}
    segments = []
    for group in groups:
        name = "/".join(dataset.names[c] for c in group)
        segments.append(segment_of(name, dataset, {c: rows[c] for c in group}, {c: place[c] for c in group}))
    config = {
        "stream": "split", **dataset.described(), "classes_per_task": [len(g) for g in groups],
        "order": list(rows), "head": declared.head, "train_logits": declared.train_logits,
        "val_fraction": float(val_fraction), "task_labels_at_test": declared.task_labels_at_test,
        "per_class": per_class, "seed": seed,
    }  # fmt: skip
    config |= {"scenario": "domain"} if domain else {}
    return Stream(f"split {dataset.name}", segments, declared, config, len(groups[0]) if domain else len(rows))


def head_of(scenario: str | None, head: str | None, owner: str, default: str = "class") -> tuple[str, bool]:
    """The head of a scenario, and whether all tasks share their outputs; `head` alone is "class" or "task"."""
    if scenario is None:
        scenario = default if head is None else "task" if head == "multi" else "class"
    one_of(scenario, SCENARIOS, "scenario", owner)
    implied = "multi" if scenario == "task" else "single"
    if head is not None and one_of(head, ("single", "multi"), "head", owner) != implied:
        refuse("head", owner, f"'{implied}', or left out, with scenario='{scenario}'", f"'{head}'")
    return implied, scenario == "domain"


@dataclass(frozen=True)
class Permute:
    """A fixed permutation of the pixels."""

    order: Tensor

    def __call__(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """`x` with its pixels in the new order."""
        return x.flatten(1)[:, self.order].reshape(x.shape)


@on_cpu()
def permuted(
    data: Any,  # noqa: ANN401
    n_tasks: int = 10,
    *,
    seed: int = 0,
    head: str = "single",
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
) -> Stream:
    """Every task has all classes; task k > 0 sees the pixels in an order of its own. Task 0 is the data as it is."""
    dataset = as_dataset(data)
    n_tasks = whole(n_tasks, "n_tasks", "permuted", low=1)
    single = head != "multi"
    declared = declare(head, train_logits, None, "permuted", domain=single, overlapping=single, same_inputs=True)
    rows = rows_by_class(dataset, None, per_class, val_fraction, seed, "permuted")
    k, pixels, multi = len(rows), dataset.train_x[0].numel(), declared.head == "multi"
    segments = []
    for t in range(n_tasks):
        outputs = {c: c + t * k if multi else c for c in rows}
        moved = Permute(torch.randperm(pixels, generator=rng.fork(seed, "permutation", t))) if t else None
        segments.append(segment_of(f"permutation {t}", dataset, rows, outputs, moved))
    config = {
        "stream": "permuted", **dataset.described(), "n_tasks": n_tasks, "head": declared.head,
        "train_logits": declared.train_logits, "val_fraction": float(val_fraction), "per_class": per_class,
        "seed": seed,
    }  # fmt: skip
    return Stream(f"permuted {dataset.name}", segments, declared, config, k * n_tasks if multi else k)


def several(sets: Sequence[DataSet]) -> dict[str, list[Any]]:
    """What a configuration says of data sets, a list of each."""
    about = {key: [dataset.described()[key] for dataset in sets] for key in ("data", "digest")}
    return about | ({"held_out": [s.held_out for s in sets]} if any(s.held_out for s in sets) else {})


@on_cpu()
def two_task(
    a: Any,  # noqa: ANN401
    b: Any,  # noqa: ANN401
    *,
    head: str = "single",
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """All of `a`, then all of `b` (Farquhar and Gal section 3.2.3); the classes of `b` get outputs of their own."""
    declared = declare(head, train_logits, None, "two_task")
    both = as_dataset(a), as_dataset(b)
    segments, start = [], 0
    for dataset in both:
        rows = rows_by_class(dataset, None, per_class, val_fraction, seed, "two_task")
        segments.append(segment_of(dataset.name, dataset, rows, {c: start + c for c in rows}))
        start += len(rows)
    config = {
        "stream": "two_task", **several(both), "head": declared.head,
        "train_logits": declared.train_logits, "val_fraction": float(val_fraction), "per_class": per_class,
        "seed": seed,
    }  # fmt: skip
    return Stream(" then ".join(dataset.name for dataset in both), segments, declared, config, start)


def in_shares(rows: Int64[Tensor, " n"], shares: Float[Tensor, " t"], generator: torch.Generator) -> list[Tensor]:
    """Shuffle rows and cut them in the given shares (which sum to one); every row goes to exactly one part."""
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    borders = (shares.cumsum(0)[:-1] * len(rows)).round().long()
    return [part.sort().values for part in torch.tensor_split(shuffled, borders)]


@on_cpu()
def overlapping(
    data: Any,  # noqa: ANN401 - whatever `as_dataset` takes
    classes_per_task: int | Sequence[int] = 2,
    *,
    main_share: float = 0.7,
    order: Order = None,
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """`split` in which `main_share` of a class's samples come in its own task and the rest, evenly, in the others."""
    dataset = as_dataset(data)
    owner = "overlapping"
    main_share = number(main_share, "main_share", owner, low=0, high=1)
    rows = rows_by_class(dataset, order, per_class, val_fraction, seed, owner)
    groups = groups_of(rows, classes_per_task, owner)
    n_tasks = len(groups)
    of_task: list[Rows] = [{} for _ in groups]
    for own, group in enumerate(groups):
        shares = torch.full((n_tasks,), (1 - main_share) / max(n_tasks - 1, 1), dtype=torch.float64)
        shares[own] = main_share if n_tasks > 1 else 1.0
        for c in group:
            splits = [in_shares(part, shares, rng.fork(seed, "deal", c, s)) for s, part in enumerate(rows[c])]
            for task, (train, val, test) in zip(of_task, zip(*splits, strict=True), strict=True):
                task[c] = train, val, test
    segments = []
    for t, task in enumerate(of_task):
        outputs = {c: i for i, (c, parts) in enumerate(task.items()) if any(map(len, parts))}
        segments.append(segment_of(f"mixture {t}", dataset, task, outputs))
    declared = declare("single", train_logits, False, owner, overlapping=main_share < 1 and n_tasks > 1)
    config = {
        "stream": owner, **dataset.described(), "classes_per_task": [len(g) for g in groups],
        "order": list(rows), "main_share": main_share, "train_logits": declared.train_logits,
        "val_fraction": val_fraction, "per_class": per_class, "seed": seed,
    }  # fmt: skip
    return Stream(f"overlapping {dataset.name}", segments, declared, config, len(rows))


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
        matrix = torch.tensor([[cos, -sin * height / width, 0], [sin * width / height, cos, 0]])
        grid = functional.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        return functional.grid_sample(images, grid, align_corners=False).reshape(x.shape)


KINDS = ("parity", "rotation", "permutation")
HALF_TURN = 180.0  # degrees over which the rotations are spread


@on_cpu()
def domains(
    data: Any,  # noqa: ANN401 - whatever `as_dataset` takes
    n_tasks: int | None = None,
    kind: str | Sequence[Any] = "parity",
    *,
    scenario: str = "domain",
    order: Order = None,
    train_logits: str | None = None,
    val_fraction: float = 0.0,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """The same question of new inputs in every task: domain-incremental learning.

    `kind` says where the inputs come from:
    - "parity": classes come in groups, and the question is whether a class is at an even or an odd place of `order`
      (of Split MNIST: whether a digit is even);
    - "rotation": all classes, task t turned by 180 t / n_tasks degrees;
    - "permutation": all classes, task t > 0 with the pixels in an order of its own;
    - a list of data sets, folders, or whatever else `as_dataset` takes: `data` is the first domain, those of the list
      the next ones, as the sessions of CORe50, the years of CLEAR or the styles of ImageNet-R are. Classes are matched
      by name; a later domain may lack some of the first one's and have no other.

    `n_tasks` may be left out: the length of the list and one more, half of the classes for "parity", 5 otherwise. With
    `scenario="task"` or "class" the tasks are the same and each has outputs of its own.

    Raises InputError where a domain has a class that the first one does not have, or "rotation" is asked of a table.
    """
    owner = "domains"
    dataset = as_dataset(data)
    head, shared = head_of(scenario, None, owner)
    listed = not isinstance(kind, str)
    turned = kind in ("rotation", "permutation")
    sets = [dataset, *([as_dataset(each) for each in kind] if listed else [])]
    default = len(sets) if listed else 5 if turned else max(len(dataset.names) // 2, 1)
    n_tasks = whole(default if n_tasks is None else n_tasks, "n_tasks", owner, low=1)
    if listed and n_tasks != len(sets):
        refuse("n_tasks", owner, f"{len(sets)}: the data set and each one listed", n_tasks)
    if not listed:
        one_of(kind, KINDS, "kind", owner)
    if kind == "rotation" and dataset.train_x.ndim < 3:
        refuse("kind", owner, "without 'rotation' for a table", dataset.name)
    if listed and order is not None:
        refuse("order", owner, "left out where data sets are listed: their classes are matched by name", order)
    declared = declare(head, train_logits, None, owner, domain=shared, overlapping=shared, same_inputs=turned)
    rows = rows_by_class(dataset, order, per_class, val_fraction, seed, owner)
    parts: list[tuple[str, DataSet, Rows, Permute | Rotate | None]] = []
    if kind == "parity":
        if len(rows) % n_tasks or len(rows) < 2 * n_tasks:
            refuse(
                "n_tasks", owner, f"such that each task has as many of the {len(rows)} classes, two or more", n_tasks
            )
        groups = groups_of(rows, len(rows) // n_tasks, owner)
        parts += [("/".join(dataset.names[c] for c in g), dataset, {c: rows[c] for c in g}, None) for g in groups]
        answer = {c: i % 2 for i, c in enumerate(rows)}
    elif listed:
        parts += [
            (each.name, each, rows_by_class(each, None, per_class, val_fraction, seed, owner), None) for each in sets
        ]
        answer = {}
    else:
        pixels = dataset.train_x[0].numel()
        for t in range(n_tasks):
            turn = HALF_TURN * t / n_tasks
            moved: Permute | Rotate = Rotate(turn)
            if kind == "permutation":
                moved = Permute(torch.randperm(pixels, generator=rng.fork(seed, "permutation", t)))
            name = f"{turn:g} degrees" if kind == "rotation" else f"permutation {t}"
            parts.append((name, dataset, rows, moved if t else None))
        answer = {c: i for i, c in enumerate(rows)}
    first = {name: i for i, name in enumerate(dataset.names)}
    k = 2 if kind == "parity" else len(rows)
    segments = []
    for t, (name, each, own, change) in enumerate(parts):
        new = [each.names[c] for c in own if each.names[c] not in first] if listed else []
        if new:
            refuse("kind", owner, f"data sets with classes of {dataset.name} alone", f"{new[0]!r} in {each.name}")
        places = {c: first[each.names[c]] if listed else answer[c] for c in own}
        segments.append(segment_of(name, each, own, {c: o if shared else o + t * k for c, o in places.items()}, change))
    config = {
        "stream": owner, **(several(sets) if listed else dataset.described()), "n_tasks": n_tasks,
        "kind": "listed" if listed else kind, "scenario": scenario, "order": list(rows),
        "train_logits": declared.train_logits, "val_fraction": float(val_fraction), "per_class": per_class,
        "seed": seed,
    }  # fmt: skip
    what = " ".join(dict.fromkeys(each.name for each in sets))
    return Stream(f"domains {what}", segments, declared, config, k if shared else k * n_tasks)


@on_cpu()
def long(
    data: Any,  # noqa: ANN401
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
    dataset = as_dataset(data)
    owner = "long"
    n_tasks = whole(n_tasks, "n_tasks", owner, low=1)
    samples_per_task = whole(samples_per_task, "samples_per_task", owner, low=1)
    kinds = [one_of(k, ("classes", "rotation", "permutation"), "kinds", owner) for k in kinds]
    if not kinds:
        raise InputError(f"The 'kinds' of {owner} must be at least one. Got none instead.")
    if "rotation" in kinds and dataset.train_x.ndim < 3:
        raise InputError(f"The 'kinds' of {owner} must be without 'rotation' for a table. Got {dataset.name} instead.")
    rows = rows_by_class(dataset, None, None, 0.0, seed, owner)
    size = whole(classes_per_task, "classes_per_task", owner, low=1, high=len(rows))
    declared = declare(head, train_logits, None, owner, overlapping=head != "multi", same_inputs="classes" not in kinds)
    pixels, multi = dataset.train_x[0].numel(), declared.head == "multi"
    segments = []
    for t in range(n_tasks):
        g = rng.fork(seed, "long", t)
        kind = kinds[t % len(kinds)]
        group = sorted(torch.randperm(len(rows), generator=g)[:size].tolist())
        outputs = {c: t * size + i if multi else c for i, c in enumerate(group)}
        name = f"{'/'.join(dataset.names[c] for c in group)} ({kind})"
        whole_task = segment_of(name, dataset, {c: rows[c] for c in group}, outputs)
        kept = torch.randperm(len(whole_task.train_rows), generator=g)[:samples_per_task].sort().values
        change: Rotate | Permute | None = None
        if kind == "rotation":
            change = Rotate(float(torch.rand((), generator=g)) * 360)
        elif kind == "permutation":
            change = Permute(torch.randperm(pixels, generator=g))
        segments.append(dataclasses.replace(whole_task, train_rows=whole_task.train_rows[kept], transform=change))
    config = {
        "stream": owner, **dataset.described(), "n_tasks": n_tasks, "kinds": kinds,
        "classes_per_task": size, "samples_per_task": samples_per_task, "head": declared.head,
        "train_logits": declared.train_logits, "seed": seed,
    }  # fmt: skip
    return Stream(f"long {dataset.name}", segments, declared, config, n_tasks * size if multi else len(rows))


def _borderless(
    dataset: DataSet,
    rows: Rows,
    time: Callable[[int, int, torch.Generator], Tensor],
    n_parts: int,
    train_logits: str | None,
    config: Mapping[str, object],
    *,
    kind: str,
    seed: int,
) -> Stream:
    """A stream of `n_parts` stretches of time; `time(c, n, generator)` draws those of n rows of class c, in [0, 1]."""
    if train_logits == "current":
        raise InputError(
            f"The 'train_logits' of {kind} must be 'seen' or 'all': the current task's outputs would tell the border. "
            "Got 'current' instead."
        )
    # "seen" is the learner's own to find out where no border is told, so the stream offers every output from the start.
    facts = {"boundaries_told": False, "ordered": True, "continuous": kind == "continuous", "overlapping": True}
    declared = declare("single", "all", False, kind, **facts)
    cut = []
    for split, i in (("train", 0), ("test", 2)):
        times = torch.cat([time(c, len(rows[c][i]), rng.fork(seed, "time", split, c)) for c in rows])
        order = times.argsort(stable=True)
        borders = torch.searchsorted(times[order], torch.arange(1, n_parts) / n_parts)
        cut.append(torch.tensor_split(torch.cat([rows[c][i] for c in rows])[order], borders))
    place = {c: i for i, c in enumerate(rows)}
    segments = []
    for k, (train, test) in enumerate(zip(*cut, strict=True)):
        present = torch.cat([dataset.train_y[train], dataset.test_y[test]]).unique().tolist()
        outputs = output_map(dataset, {c: place[c] for c in present})
        segments.append(Segment(f"time {k}", dataset, train, train[:0], test, outputs))
    about = {"stream": kind, **dataset.described(), "order": list(rows), "seed": seed}
    return Stream(f"{kind} {dataset.name}", segments, declared, {**about, **config}, len(rows))


@on_cpu()
def blurred(
    data: Any,  # noqa: ANN401 - whatever `as_dataset` takes
    classes_per_task: int | Sequence[int] = 2,
    *,
    width: float = 0.25,
    order: Order = None,
    train_logits: str | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """`split` with unclear borders: a sample of task k comes at k + u + width * v, with u in [0, 1), v in [-1, 1).

    So neighbours mix over a stretch of 2 * width tasks around each border; width 0 is a split with untold borders.
    """
    dataset = as_dataset(data)
    owner = "blurred"
    width = number(width, "width", owner, low=0, high=1)
    rows = rows_by_class(dataset, order, per_class, 0.0, seed, owner)
    groups = groups_of(rows, classes_per_task, owner)
    task_of = {c: t for t, group in enumerate(groups) for c in group}

    def time(c: int, n: int, generator: torch.Generator) -> Tensor:
        u, v = torch.rand(2, n, generator=generator, dtype=torch.float64)
        return (task_of[c] + u + width * (2 * v - 1)).clamp(0, len(groups)) / len(groups)

    config = {"classes_per_task": [len(g) for g in groups], "width": width, "per_class": per_class}
    return _borderless(dataset, rows, time, len(groups), train_logits, config, kind=owner, seed=seed)


@on_cpu()
def continuous(
    data: Any,  # noqa: ANN401
    n_parts: int = 5,
    *,
    spread: float = 0.15,
    order: Order = None,
    train_logits: str | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> Stream:
    """Class probabilities drift: class i of k comes at times from N(i / (k - 1), spread^2) cut to [0, 1].

    There is no task at all; `n_parts` is the number of points at which the learner is tested.
    """
    dataset = as_dataset(data)
    owner = "continuous"
    n_parts = whole(n_parts, "n_parts", owner, low=1)
    spread = number(spread, "spread", owner, low=0, open_low=True)
    rows = rows_by_class(dataset, order, per_class, 0.0, seed, owner)
    centre = {c: i / max(len(rows) - 1, 1) for i, c in enumerate(rows)}

    def time(c: int, n: int, generator: torch.Generator) -> Tensor:
        """By the inverse of the truncated normal's distribution function."""
        ends = torch.tensor([-centre[c], 1 - centre[c]], dtype=torch.float64) / spread
        low, high = torch.special.ndtr(ends)
        u = low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)
        return (centre[c] + spread * torch.special.ndtri(u)).clamp(0, 1)

    config = {"n_parts": n_parts, "spread": spread, "per_class": per_class}
    return _borderless(dataset, rows, time, n_parts, train_logits, config, kind=owner, seed=seed)
