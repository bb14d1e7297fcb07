"""The only task loop: `run(stream, learner) -> Record`.

Data stays in tensors: one gather an epoch puts it in order, and batches are views of it. The learner sees a task's data
from `begin_task` to `end_task` and never a test set; test inputs reach it through `predict` alone, with the task only
where the stream declares task labels at test time. Where the stream tells no borders, the learner is told of one
nameless task that has every output and no data of its own; an oracle (`joint`) is told all the same.

With a `checkpoint` a run that was interrupted goes on from the last finished task, and gives the Record that it would
have given (times and the peak of memory apart). Tasks before that are not built again: their data is gone.

A run computes on the device that tensors are made on: `with torch.device("cuda"):` around the making of the learner and
the run is all there is to say. Its Record holds numbers of the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige.continual import versions
from vestige.continual.checkpoint import Checkpoint, SoFar
from vestige.continual.learners.base import Learner
from vestige.continual.learners.own import as_learner
from vestige.continual.learners.posterior import how_sure
from vestige.continual.record import Record
from vestige.core import InputError, VestigeError, checks, rng
from vestige.core.checks import ArrayLike
from vestige.core.machine import PeakMemory
from vestige.data.stream import Stream, Task, TaskInfo, TestSet, erase, seen_outputs

# Raised when the results of the loop change: a part of the ids of its Records.
VERSION = 1
CPU: Any = {"dtype": torch.float64, "device": "cpu"}  # what is measured, wherever it was computed


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `done` of `total` training samples, and the mean loss of the last epoch."""

    task: int
    name: str
    done: int
    total: int
    loss: float


def run(
    stream: Stream,
    learner: Any,  # noqa: ANN401 - a learner, whatever has `observe` and `predict`, or an nn.Module
    *,
    seed: int = 0,
    epochs: int = 1,
    batch_size: int = 64,
    reference: Record | ArrayLike | None = None,
    eval_batch_size: int = 2048,
    on_progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    uncertainty: bool = False,
) -> Record:
    """Train `learner` on `stream`, test it on every task after each, and say what came out.

    Besides a learner of `methods.build` it may be any object that has `observe(x, y)` and `predict(x)` (see
    `learners.own`), or any `nn.Module`: a copy of it is then trained as `vanilla` is, and the Record says so.

    `reference` gives the accuracies a*_k of RWalk Eq. 4: the Record of a `joint` run on the same stream (its diagonal),
    or the numbers themselves. Both heads are measured in one run where both are defined. `checkpoint` is a folder for
    what is needed to go on after an interruption; it may go when the Record is stored. `uncertainty` measures how sure
    the learner is on every task after each, too, into the Record's `values` (see `_uncertainty`).
    """
    owner = "protocol.run"
    learner = as_learner(learner, stream, seed, owner)
    epochs = checks.whole(epochs, "epochs", owner, low=1)
    batch_size = checks.whole(batch_size, "batch_size", owner, low=1)
    eval_batch_size = checks.whole(eval_batch_size, "eval_batch_size", owner, low=1)
    if stream.declared.ordered and epochs > 1:
        raise InputError(
            f"The 'epochs' of {owner} must be 1: {stream.name} is seen once, in order. Got {epochs} instead."
        )
    if uncertainty and not learner.probabilities:
        checks.refuse("uncertainty", owner, f"False: the scores of {type(learner).__name__} are no probabilities", True)
    known = reference_accuracies(reference, stream)

    told = stream.declared.boundaries_told or learner.oracle
    heads = ("single", "multi") if _both_heads(stream) else (stream.declared.head,)
    tests = stream.test_sets()
    total = epochs * sum(stream.info(k).n for k in range(len(stream)))
    nameless = _nameless(stream)

    def measured(k: int) -> dict[str, Float64[Tensor, " t"]]:
        rows = [_accuracies(stream, learner, k, j, test, heads, eval_batch_size) for j, test in enumerate(tests)]
        return {head: torch.tensor([row[head] for row in rows], **CPU) for head in heads}

    config = {
        "stream": stream.config,
        "learner": learner.describe(),
        "protocol": {"epochs": epochs, "batch_size": batch_size} | ({"uncertainty": True} if uncertainty else {}),
        "reference": None if known is None else known.tolist(),
    }
    identity = learner.identity()  # as it begins: a head may grow
    identity["version"] = identity["version"] | {"protocol": VERSION} | versions.named(config["learner"])
    kept = Checkpoint(checkpoint, learner, config | {"eval_batch_size": eval_batch_size}, seed)
    so_far = kept.load(learner) or _nothing_yet(measured(-1), len(stream))
    done = epochs * sum(stream.info(k).n for k in range(so_far.tasks))
    for k, task in enumerate(stream.tasks(so_far.tasks), so_far.tasks):
        memory = PeakMemory()
        wall, cpu = time.perf_counter(), time.process_time()
        if told or k == 0:
            learner.begin_task(task if told else nameless)
        for epoch in range(epochs):
            loss = _epoch(
                learner, task, batch_size, rng.fork(seed, "shuffle", k, epoch), ordered=stream.declared.ordered
            )
            done += task.info.n
            if on_progress is not None:
                on_progress(Progress(k, task.info.name, done, total, float(loss)))
        if told or k == len(stream) - 1:
            learner.end_task(task if told else nameless)
        _wait_for_device()
        so_far.seconds["train"].append(time.perf_counter() - wall)
        so_far.seconds["train_cpu"].append(time.process_time() - cpu)
        peak = memory.peak()
        for name, size in (learner.bytes() | ({} if peak is None else {"peak": peak})).items():
            so_far.bytes.setdefault(name, []).append(size)
        wall = time.perf_counter()
        for head, row in measured(k).items():
            so_far.numbers[f"matrix {head}"][k] = row
        for name, unsure in (_uncertainty(stream, learner, k, tests) if uncertainty else {}).items():
            empty = torch.full((len(stream), *unsure.shape), torch.nan, **CPU)
            so_far.numbers.setdefault(f"value {name}", empty)[k] = unsure
        so_far.seconds["eval"].append(time.perf_counter() - wall)
        so_far.tasks = k + 1
        kept.save(learner, so_far)
    names = [stream.info(k).name for k in range(len(stream))]
    matrices, baseline = ({head: so_far.numbers[f"{what} {head}"] for head in heads} for what in ("matrix", "baseline"))
    values = {key.removeprefix("value "): v for key, v in so_far.numbers.items() if key.startswith("value ")}
    measured_in = (so_far.seconds, so_far.bytes, names, values, learner.notes())
    return Record(config, seed, stream.declared.head, matrices, known, baseline, *measured_in, **identity)


def _nothing_yet(baseline: dict[str, Float64[Tensor, " t"]], tasks: int) -> SoFar:
    """Before the first task: matrices of NaN, and what the network can do before any training."""
    empty = {f"matrix {head}": torch.full((tasks, tasks), torch.nan, **CPU) for head in baseline}
    first = {f"baseline {head}": row for head, row in baseline.items()}
    return SoFar(0, empty | first, {"train": [], "eval": [], "train_cpu": []})


def _epoch(
    learner: Learner, task: Task, batch_size: int, generator: torch.Generator, *, ordered: bool
) -> Float[Tensor, ""]:
    """One pass over the task; returns the mean loss. The shuffled copy is destroyed with it."""
    x, y, held_back = task.x, task.y, learner.held_back_
    copied = not ordered or held_back is not None
    if copied:
        order = torch.arange(len(y)) if ordered else torch.randperm(len(y), generator=generator)
        order = order if held_back is None else order[~torch.isin(order, held_back)]
        x, y = x[order], y[order]
    observe = learner.observe
    losses = [observe(a, b).loss for a, b in zip(x.split(batch_size), y.split(batch_size), strict=True)]
    if copied:
        erase(x)
        erase(y)
    mean = torch.stack(losses).mean()
    if not torch.isfinite(mean):
        raise VestigeError(
            f"The training of {type(learner).__name__} diverged on task {task.info.index} ({task.info.name}): the loss "
            f"is {float(mean)}. Lower the learning rate."
        )
    return mean


def _wait_for_device() -> None:
    """Until an accelerator has done what it was given: a clock that is read before would not count it."""
    if torch.get_default_device().type != "cpu" and torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _both_heads(stream: Stream) -> bool:
    """Whether single-head and multi-head are two different evaluations: not where all tasks share their outputs."""
    return len({stream.info(k).outputs for k in range(len(stream))}) > 1 and stream.declared.boundaries_told


def _nameless(stream: Stream) -> Task:
    outputs = tuple(range(stream.n_outputs))
    n = sum(stream.info(k).n for k in range(len(stream)))
    empty_x, empty_y = torch.empty(0, *stream.input_shape), torch.empty(0, dtype=torch.int64)
    return Task(TaskInfo(0, "no borders told", outputs, outputs, "all", n), empty_x, empty_y, empty_x, empty_y)


def _accuracies(
    stream: Stream, learner: Learner, k: int, j: int, test: TestSet, heads: Sequence[str], batch_size: int
) -> dict[str, float]:
    """Accuracy on task j after task k (-1: before any training) under each head.

    Single-head: all outputs of tasks 1..max(j, k) compete (RWalk section 2.1; for a task that is still to come its own
    outputs must take part, or its accuracy would be zero by construction). Multi-head: those of task j alone.
    """
    if len(test.y) == 0:
        return dict.fromkeys(heads, float("nan"))
    spaces = {"single": seen_outputs(stream, max(j, k)), "multi": list(test.outputs)}
    told = {"single": None, "multi": stream.info(j) if stream.declared.task_labels_at_test else None}
    right = dict.fromkeys(heads, 0)
    for x, y in zip(test.x.split(batch_size), test.y.split(batch_size), strict=True):
        scores: dict[bool, Tensor] = {}
        for head in heads:
            info = told[head] if learner.uses_task else None
            if (info is not None) not in scores:  # one forward pass serves both heads unless the learner uses the task
                scores[info is not None] = learner.predict(x, info)
            space = torch.tensor(spaces[head])
            right[head] += int((space[scores[info is not None][:, space].argmax(1)] == y).sum())
    return {head: right[head] / len(test.y) for head in heads}


def _uncertainty(
    stream: Stream, learner: Learner, k: int, tests: Sequence[TestSet]
) -> dict[str, Float64[Tensor, "t ..."]]:
    """Entropies, mutual information, ECE and reliability on every task after task k, a row each; NaN without tests.

    Single-head, probabilities are taken among all outputs that tasks 1..k trained: the same for every task that is
    tested, seen or not, so that they compare. Multi-head: among those of the task.
    """
    multi = stream.declared.head == "multi"
    single = sorted({*seen_outputs(stream, k), *stream.info(k).train_outputs})
    found: dict[int, dict[str, Tensor]] = {}
    for j, test in enumerate(tests):
        if len(test.y):
            info = stream.info(j) if multi and stream.declared.task_labels_at_test and learner.uses_task else None
            outputs = list(test.outputs) if multi else single
            found[j] = how_sure(learner, test.x, test.y, outputs, seed=rng.child_seed(learner.seed, k, j), task=info)
    rows = {}
    for name, value in next(iter(found.values()), {}).items():
        rows[name] = torch.full((len(tests), *value.shape), torch.nan, **CPU)
        for j, each in found.items():
            rows[name][j] = each[name]
    return rows


def reference_accuracies(reference: Record | ArrayLike | None, stream: Stream) -> Float64[Tensor, " t"] | None:
    """a*_k of RWalk Eq. 4: the diagonal of a jointly trained Record, or the numbers as given."""
    if reference is None:
        return None
    if isinstance(reference, Record):
        if reference.config["stream"] != stream.config:
            raise InputError(
                f"The 'reference' of protocol.run must be a Record of the same stream. Got one of "
                f"{reference.config['stream'].get('stream')} {reference.config['stream'].get('data')} instead."
            )
        return reference.R.diagonal().clone()
    return checks.vector(reference, "reference", "protocol.run", length=len(stream))
