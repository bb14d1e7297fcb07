"""The only task loop: `run(stream, learner) -> Record`.

Data stays in tensors: gathers of some batches at a time put it in order, and batches are views of them. The learner
sees a task's data from `begin_task` to `end_task` and never a test set; test inputs reach it through `predict` alone,
with the task only where the stream declares task labels at test time. Where the stream tells no borders, the learner is
told of one nameless task that has every output and no data of its own; an oracle (`joint`) is told all the same.

How long a task trains is said in `epochs`, in `iterations` (batches of whole rounds over the task's rows, the smaller
last batch of a round left out) or in a `budget` of forward-backward passes (see `passes`), which all that the learner
computes is counted in: replayed rows, further gradients, a Fisher, a generator. With it methods are compared at equal
compute: task k stops with the batch at which k budgets are spent, so that what a method computes when a task ends is
taken from the training of the next. An `ordered` stream is one pass in order, whatever its learner remembers.

With `every` the learner is tested while it trains, too: after every n-th batch, and at every border, on all tasks seen
so far, on rows of their test sets that are drawn once by the seed. The Record's `anytime` says what came out.

With a `checkpoint` a run that was interrupted goes on from the last finished task, and gives the Record that it would
have given (times and the peak of memory apart). Tasks before that are not built again: their data is gone.

A run computes on the device that tensors are made on: `with torch.device("cuda"):` around the making of the learner and
the run is all there is to say. Its Record holds numbers of the CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vestige.continual import versions
from vestige.continual.checkpoint import Checkpoint, SoFar
from vestige.continual.learners.base import Learner
from vestige.continual.learners.own import as_learner
from vestige.continual.learners.posterior import how_sure
from vestige.continual.passes import Passes, not_counted
from vestige.continual.record import Record
from vestige.core import InputError, VestigeError, checks, rng
from vestige.core.checks import ArrayLike
from vestige.core.machine import PeakMemory
from vestige.data.stream import Stream, Task, TaskInfo, TestSet, erase, seen_outputs

# Raised when the results of the loop change: a part of the ids of its Records.
VERSION = 1
NUMBERS_AT_ONCE = 2**20  # of inputs that are put in order in one go; changes nothing but the time
CPU: Any = {"dtype": torch.float64, "device": "cpu"}  # what is measured, wherever it was computed


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `done` of `total` (samples, or passes of a budget), and the mean loss of the last round."""

    task: int
    name: str
    done: float
    total: float
    loss: float


def run(
    stream: Stream,
    learner: Any,  # noqa: ANN401 - a learner, whatever has `observe` and `predict`, or an nn.Module
    *,
    seed: int = 0,
    epochs: int | None = None,
    iterations: int | None = None,
    budget: float | None = None,
    batch_size: int = 64,
    reference: Record | ArrayLike | None = None,
    eval_batch_size: int = 2048,
    every: int | None = None,
    every_rows: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    checkpoint: str | Path | None = None,
    uncertainty: bool = False,
) -> Record:
    """Train `learner` on `stream`, test it on every task after each, and say what came out.

    Parameters
    ----------
    learner
        Besides a learner of `methods.build` any object that has `observe(x, y)` and `predict(x)` (see `learners.own`),
        or any `nn.Module`: a copy of it is then trained as `vanilla` is, and the Record says so.
    epochs
        Rounds over each task's rows. None: one, unless `iterations` or a finite `budget` says how long a task trains.
    iterations
        Batches that each task trains for.
    budget
        Forward-backward passes a task may cost, counted into the Record's value `passes` (their sum after each task);
        infinity counts them and limits nothing. Counting costs a few microseconds a layer and batch.
    reference
        The accuracies a*_k of RWalk Eq. 4: the Record of a `joint` run on the same stream (its diagonal), or the
        numbers themselves; of a Record, how it was trained stands in `details["reference"]`.
    every
        Batches between two tests while a task trains; the Record's values `while_training` (moments x tasks) and
        `while_training_at` (task and batch of each moment). None: tests at borders alone.
    every_rows
        Test rows a task for that. None: as many as make a test of all tasks cost a fifteenth of the `every` batches, in
        passes, and at most 1000.
    checkpoint
        A folder for what is needed to go on after an interruption; it may go when the Record is stored.
    uncertainty
        Measure how sure the learner is on every task after each, too, into the Record's `values` (see `_uncertainty`).

    Both heads are measured in one run where both are defined; while training, the one that the stream declares.
    """
    owner = "protocol.run"
    learner = as_learner(learner, stream, seed, owner)
    pace = TaskLength.of(stream, epochs, iterations, budget, batch_size, owner)
    eval_batch_size = checks.whole(eval_batch_size, "eval_batch_size", owner, low=1)
    if uncertainty and not learner.probabilities:
        checks.refuse("uncertainty", owner, f"False: the scores of {type(learner).__name__} are no probabilities", True)
    known = reference_accuracies(reference, stream)

    told = stream.declared.boundaries_told or learner.oracle
    heads = ("single", "multi") if _both_heads(stream) else (stream.declared.head,)
    tests = stream.test_sets()
    nameless = _nameless(stream)
    moments = (
        None
        if every is None
        else TestsWhileTraining(stream, learner, tests, every, every_rows, pace, seed, eval_batch_size)
    )
    passes = None if pace.budget is None else Passes(getattr(learner, "net", None))

    def measured(k: int) -> dict[str, Float64[Tensor, " t"]]:
        rows = [_accuracies(stream, learner, k, j, test, heads, eval_batch_size) for j, test in enumerate(tests)]
        return {head: torch.tensor([row[head] for row in rows], **CPU) for head in heads}

    config = {
        "stream": stream.config,
        "learner": learner.describe(),
        "protocol": pace.described()
        | ({"uncertainty": True} if uncertainty else {})
        | ({} if moments is None else {"every": moments.every, "every_rows": moments.rows}),
        "reference": None if known is None else known.tolist(),
    }
    identity = learner.identity()  # as it begins: a head may grow
    identity["version"] = identity["version"] | {"protocol": VERSION} | versions.named(config["learner"])
    kept = Checkpoint(checkpoint, learner, config | {"eval_batch_size": eval_batch_size}, seed)
    so_far = kept.load(learner) or _nothing_yet(measured(-1), len(stream))
    if passes is not None and so_far.tasks:
        passes.total = float(so_far.numbers["value passes"][so_far.tasks - 1])
    for k, task in enumerate(stream.tasks(so_far.tasks), so_far.tasks):
        memory = PeakMemory()
        wall, cpu = time.perf_counter(), time.process_time()
        with nullcontext() if passes is None else passes.open():
            if told or k == 0:
                learner.begin_task(task if told else nameless)
            _train(stream, learner, task, pace, seed, passes, moments, on_progress)
            if told or k == len(stream) - 1:
                learner.end_task(task if told else nameless)
        _wait_for_device()
        aside = (0.0, 0.0) if moments is None else moments.spent()
        so_far.seconds["train"].append(time.perf_counter() - wall - aside[0])
        so_far.seconds["train_cpu"].append(time.process_time() - cpu - aside[1])
        peak = memory.peak()
        for name, size in (learner.bytes() | ({} if peak is None else {"peak": peak})).items():
            so_far.bytes.setdefault(name, []).append(size)
        wall = time.perf_counter() - aside[0]
        if passes is not None:
            empty = torch.full((len(stream),), torch.nan, **CPU)
            so_far.numbers.setdefault("value passes", empty)[k] = passes.total
        if moments is not None:
            moments.test(k)
            for name, found in moments.taken().items():
                old = so_far.numbers.get(f"value {name}", found[:0])
                so_far.numbers[f"value {name}"] = torch.cat([old, found])
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
    about = learner.notes() | ({"reference": how_trained(reference)} if isinstance(reference, Record) else {})
    measured_in = (so_far.seconds, so_far.bytes, names, values, about)
    return Record(config, seed, stream.declared.head, matrices, known, baseline, *measured_in, **identity)


def _nothing_yet(baseline: dict[str, Float64[Tensor, " t"]], tasks: int) -> SoFar:
    """Before the first task: matrices of NaN, and what the network can do before any training."""
    empty = {f"matrix {head}": torch.full((tasks, tasks), torch.nan, **CPU) for head in baseline}
    first = {f"baseline {head}": row for head, row in baseline.items()}
    return SoFar(0, empty | first, {"train": [], "eval": [], "train_cpu": []})


@dataclass(frozen=True)
class TaskLength:
    """How long each task trains: rounds over its rows, batches, or passes; None is no limit of its kind."""

    epochs: int | None
    iterations: int | None
    budget: float | None
    batch_size: int

    @classmethod
    def of(
        cls,
        stream: Stream,
        epochs: int | None,
        iterations: int | None,
        budget: float | None,
        batch_size: int,
        owner: str,
    ) -> TaskLength:
        """What was asked for; what it leaves open, and contradictions, are settled here."""
        if budget is not None and budget != math.inf:
            budget = checks.number(budget, "budget", owner, low=0, open_low=True)
        limited = iterations is not None or (budget is not None and budget != math.inf)
        if stream.declared.ordered and (iterations is not None or (epochs or 1) > 1):
            said = f"{epochs} epochs" if iterations is None else f"{iterations} iterations"
            raise InputError(
                f"The 'epochs' of {owner} must be 1: {stream.name} is seen once, in order. Got {said} instead."
            )
        if iterations is not None and epochs is not None:
            checks.refuse("epochs", owner, "left out where 'iterations' is given", epochs)
        open_end = limited and epochs is None and not stream.declared.ordered
        return cls(
            None if open_end else checks.whole(1 if epochs is None else epochs, "epochs", owner, low=1),
            None if iterations is None else checks.whole(iterations, "iterations", owner, low=1),
            budget,
            checks.whole(batch_size, "batch_size", owner, low=1),
        )

    def described(self) -> dict[str, Any]:
        """For the Record; infinity is no number of JSON."""
        budget = {} if self.budget is None else {"budget": None if self.budget == math.inf else self.budget}
        iterations = {} if self.iterations is None else {"iterations": self.iterations}
        epochs = {} if self.epochs is None else {"epochs": self.epochs}
        return epochs | iterations | {"batch_size": self.batch_size} | budget

    def batches(self, n: int) -> int:
        """Of one round over n rows."""
        whole = n // self.batch_size
        return max(whole, 1) if self.iterations is not None else -(-n // self.batch_size)

    def share(self, stream: Stream, k: int, batches: int, rounds: int, spent: float) -> tuple[float, float]:
        """How much is done after `batches` and `rounds` of task k, and of how much."""
        if self.epochs is None and self.iterations is None:
            assert self.budget is not None, "a run without epochs and iterations has a budget"
            return min(spent, (k + 1) * self.budget), len(stream) * self.budget
        if self.iterations is not None:
            return (k * self.iterations + batches) * self.batch_size, len(stream) * self.iterations * self.batch_size
        sizes, epochs = [stream.info(j).n for j in range(len(stream))], self.epochs or 1
        return epochs * sum(sizes[:k]) + rounds * sizes[k], epochs * sum(sizes)


def _train(
    stream: Stream,
    learner: Learner,
    task: Task,
    pace: TaskLength,
    seed: int,
    passes: Passes | None,
    moments: TestsWhileTraining | None,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Rounds over the task until it has had its time, in batches of rows that are put in order anew each round."""
    k, batches, rounds, stop = task.info.index, 0, 0, False
    limit = math.inf if passes is None or pace.budget is None else pace.budget * (k + 1)
    observe, most = learner.observe, pace.batches(task.info.n)
    while not stop and (pace.epochs is None or rounds < pace.epochs):
        generator = None if stream.declared.ordered else rng.fork(seed, "shuffle", k, rounds)
        losses = []
        for x, y in _in_order(task, pace.batch_size, most, learner.held_back_, generator):
            losses.append(observe(x, y).loss)
            batches += 1
            if moments is not None:
                moments.after_batch(k)
            stop = batches == pace.iterations or (passes is not None and passes.total >= limit)
            if stop:
                break
        loss = torch.stack(losses).mean()
        if not torch.isfinite(loss):
            raise VestigeError(
                f"The training of {type(learner).__name__} diverged on task {k} ({task.info.name}): the loss is "
                f"{float(loss)}. Lower the learning rate."
            )
        rounds += 1
        if on_progress is not None:
            reached = pace.share(stream, k, batches, rounds, 0.0 if passes is None else passes.total)
            on_progress(Progress(k, task.info.name, *reached, float(loss)))


def _in_order(
    task: Task, batch_size: int, most: int, held_back: Tensor | None, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """At most `most` batches of the task's rows, shuffled if there is a generator.

    Rows are put in order some whole batches at a time, and the copy is erased when those are over. All copies of a
    round lie in the same memory: to ask for it anew costs more than to copy, and one that fits a processor's cache is
    read while it is there.
    """
    x, y = task.x, task.y
    if generator is None and held_back is None:
        x, y = x[: most * batch_size], y[: most * batch_size]
        yield from zip(x.split(batch_size), y.split(batch_size), strict=True)
        return
    order = torch.arange(len(y)) if generator is None else torch.randperm(len(y), generator=generator)
    order = order if held_back is None else order[~torch.isin(order, held_back)]
    at_once = batch_size * max(1, NUMBERS_AT_ONCE // (batch_size * max(x[0].numel(), 1)))
    order = order[: most * batch_size]
    room = [each.new_empty(min(at_once, len(order)), *each.shape[1:]) for each in (x, y)]
    for rows in order.split(at_once):
        x_part, y_part = (
            torch.index_select(each, 0, rows, out=held[: len(rows)]) for each, held in zip((x, y), room, strict=True)
        )
        try:
            yield from zip(x_part.split(batch_size), y_part.split(batch_size), strict=True)
        finally:
            erase(x_part)
            erase(y_part)


MOST_ROWS = 1000  # of a task that are tested while training, unless more are asked for
SHARE = 0.2  # rows of a test of all tasks against rows of the batches between two: a fifteenth of their passes


class TestsWhileTraining:
    """Tests while training: which rows of which tasks, when, and what came out."""

    def __init__(
        self,
        stream: Stream,
        learner: Learner,
        tests: Sequence[TestSet],
        every: int,
        rows: int | None,
        pace: TaskLength,
        seed: int,
        batch_size: int,
    ) -> None:
        self.stream, self.learner, self.batch_size = stream, learner, batch_size
        self.every = checks.whole(every, "every", "protocol.run", low=1)
        affordable = max(1, int(SHARE * self.every * pace.batch_size / len(stream)))
        default = min(affordable, MOST_ROWS)
        self.rows = default if rows is None else checks.whole(rows, "every_rows", "protocol.run", low=1)
        chosen = [
            torch.randperm(len(test.y), generator=rng.fork(seed, "while training", j))[: self.rows].sort().values
            for j, test in enumerate(tests)
        ]
        self.sizes = [len(mine) for mine in chosen]
        self.x = torch.cat([test.x[mine] for test, mine in zip(tests, chosen, strict=True)])
        self.y = torch.cat([test.y[mine] for test, mine in zip(tests, chosen, strict=True)])
        self.outputs = [test.outputs for test in tests]
        self.batch = 0  # of the task
        self.found: list[Tensor] = []
        self.at: list[tuple[int, int]] = []
        self.clocks = [0.0, 0.0]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done here is not the learner's time."""
        before = time.perf_counter(), time.process_time()
        yield
        for i, clock in enumerate((time.perf_counter(), time.process_time())):
            self.clocks[i] += clock - before[i]

    def spent(self) -> tuple[float, float]:
        """Seconds and CPU-seconds of the tests since this was last asked."""
        wall, cpu = self.clocks
        self.clocks = [0.0, 0.0]
        return wall, cpu

    def after_batch(self, k: int) -> None:
        """A batch of task k is over."""
        self.batch += 1
        if self.batch % self.every == 0:
            with self.aside(), not_counted():
                self.test(k)

    def test(self, k: int) -> None:
        """Accuracy on tasks 0..k, now."""
        row = torch.full((len(self.stream),), torch.nan, **CPU)
        row[: k + 1] = self.accuracies(k)
        self.found.append(row)
        self.at.append((k, self.batch))

    def accuracies(self, k: int) -> Float64[Tensor, " k"]:
        """Of each task seen, among the outputs that the declared head lets compete."""
        sizes = self.sizes[: k + 1]
        n, declared = sum(sizes), self.stream.declared
        if declared.head == "multi" and declared.task_labels_at_test and self.learner.uses_task:
            parts = zip(self.x[:n].split(sizes), range(k + 1), strict=True)
            scores = torch.cat([self.learner.predict(x, self.stream.info(j)) for x, j in parts if len(x)])
        else:
            scores = torch.cat([self.learner.predict(x) for x in self.x[:n].split(self.batch_size)])
        if declared.head == "single":
            predicted = among(scores, seen_outputs(self.stream, k))
        else:
            own = zip(scores.split(sizes), self.outputs, strict=False)
            predicted = torch.cat([among(part, outputs) for part, outputs in own])
        right = (predicted == self.y[:n]).cpu().double()
        return torch.segment_reduce(right, "mean", lengths=torch.tensor(sizes, device="cpu"))

    def taken(self) -> dict[str, Float64[Tensor, "m ..."]]:
        """What was found in the task that is over; the next one starts anew."""
        out = {"while_training": torch.stack(self.found), "while_training_at": torch.tensor(self.at, **CPU)}
        self.found, self.at, self.batch = [], [], 0
        return out


def among(scores: Float[Tensor, "n outputs"], competing: Sequence[int]) -> Int64[Tensor, " n"]:
    """Of each row, the output with the highest score among those that compete."""
    space = torch.tensor(competing)
    return space[scores[:, space].argmax(1)]


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
            right[head] += int((among(scores[info is not None], spaces[head]) == y).sum())
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


def how_trained(record: Record) -> dict[str, Any]:
    """What to know of a reference: its Record, learner, protocol, and of how many rows of a class it learnt."""
    config, stream = record.config, record.config["stream"]
    rows = "all" if stream.get("per_class") is None else stream["per_class"]
    return {"record": record.id, "rows_per_class": rows, **{k: config[k] for k in ("learner", "protocol")}}


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
