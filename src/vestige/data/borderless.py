"""Streams without borders (Farquhar and Gal section 5): `blurred` ones mix, in `continuous` there are none at all.

Every sample is used once, at a time of its own; sorting by time gives the order in which the learner sees it, and
cutting time into equal parts gives the points at which it is tested. The learner hears of no border.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import number, whole
from vestige.core.devices import on_cpu
from vestige.core.errors import InputError
from vestige.data.dataset import DataSet
from vestige.data.rows import class_order, output_map, rows_by_class
from vestige.data.split import declare, group_sizes
from vestige.data.stream import Segment, Stream


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
    """(class, rows, generator) of both splits, for makers that draw a time for each row."""
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
