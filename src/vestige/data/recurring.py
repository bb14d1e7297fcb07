"""Streams in which classes come again (Farquhar and Gal section 5): `overlapping` rates, and `long` sequences.

`overlapping` deals each class out to several tasks at different rates; `long` draws as many tasks as one likes from
one data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import number, one_of, whole
from vestige.core.devices import on_cpu
from vestige.core.errors import InputError
from vestige.data.dataset import DataSet
from vestige.data.rows import class_order, joined, output_map, rows_by_class
from vestige.data.split import Permute, declare, group_sizes
from vestige.data.stream import Segment, Stream


def deal(rows: Int64[Tensor, " n"], shares: Float[Tensor, " t"], generator: torch.Generator) -> list[Tensor]:
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
            for t, piece in enumerate(deal(rows[c][s], shares, rng.fork(seed, "deal", c, s))):
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
