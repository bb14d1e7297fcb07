"""An audit by watching: `WatchedLearner` stands between the protocol and a learner, and notes what an audit asks.

Before each task but the first it lets the learner look at the task's inputs (see `resemblance`); where no borders are
told, before each stretch of the stream. It counts how often `predict` was told a task, what is kept of past tasks when
the last one is over, and which of their samples train again (see `traces`). It changes nothing that the learner does,
and the time it takes itself does not count.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from vestige import store
from vestige.continual import protocol
from vestige.continual.audit.answers import Audit, Facts, audit_of
from vestige.continual.audit.description import facts_of, from_record
from vestige.continual.audit.resemblance import Resemblance, resemblance, summarised
from vestige.continual.audit.traces import Traces
from vestige.continual.learners.base import Info, Learner
from vestige.continual.record import Record
from vestige.core.checks import refuse
from vestige.core.plain import plain
from vestige.data.stream import Stream, Task, TaskInfo

CLOCKS = {"train": time.perf_counter, "train_cpu": time.process_time}  # by the Record's names
UNCHANGED = ("oracle", "uses_task", "describe", "identity", "bytes")  # what it has of the learner as it is


class WatchedLearner(Learner):
    """Passes everything on to `learner`."""

    resumable = False  # what was seen so far is in no `state_dict`: a watched run that was interrupted begins anew

    def __init__(self, learner: Learner, stream: Stream, *, seed: int) -> None:
        for name in UNCHANGED:
            setattr(self, name, getattr(learner, name))
        self.learner, self.stream, self.look_seed = learner, stream, seed
        self.borders = stream.declared.boundaries_told or learner.oracle
        self.begun = 0  # tasks; stretches of the stream where no borders are told
        self.rows = 0  # observed, where no borders are told
        self.starts = [0, *accumulate(stream.info(k).n for k in range(len(stream)))]
        self.ahead = iter(stream)  # a pass of its own over a stream that tells no borders
        self.looked: list[Resemblance] = []
        self.predictions = self.told = 0
        self.own = {clock: [0.0] * len(stream) for clock in CLOCKS}  # seconds that watching takes, by task
        self.traces = Traces(math.prod(stream.input_shape), self.aside)

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["learner"], name)

    @property
    def held_back_(self) -> Tensor | None:  # type: ignore[override]
        """The learner's own."""
        return self.learner.held_back_

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done here is not the learner's time."""
        before = {name: clock() for name, clock in CLOCKS.items()}
        yield
        for name, clock in CLOCKS.items():
            self.own[name][max(self.begun - 1, 0)] += clock() - before[name]

    def begin_task(self, task: Task) -> None:
        """Look at the task through the model of the tasks before it."""
        if self.borders:
            self.reach(task)
        with self.traces.watching():
            self.learner.begin_task(task)

    def reach(self, task: Task) -> None:
        """A task, or a stretch, is about to begin."""
        self.begun += 1
        with self.aside():
            if self.borders:
                self.traces.begin(task.x)
            if self.begun > 1 and self.learner.probabilities:
                self.looked.append(self.look(task))

    def look(self, task: Task) -> Resemblance:
        """How the model of now sees inputs that it has not learnt."""
        k = self.begun - 1
        old = sorted({output for past in range(k) for output in self.stream.info(past).outputs})
        candidates = sorted({*old, *task.info.outputs})
        return resemblance(self.learner.predict, task.x, task=k, candidates=candidates, old=old, seed=self.look_seed)

    def observe(self, x: Tensor, y: Tensor) -> Info:
        """Passed on; without borders each batch is a present of its own, and a stretch may end before it."""
        if not self.borders:
            if self.rows >= self.starts[self.begun]:
                self.reach(next(self.ahead))
            self.rows += len(y)
            with self.aside():
                self.traces.begin(x)
        with self.traces.watching():
            return self.learner.observe(x, y)

    def end_task(self, task: Task) -> None:
        """Passed on."""
        with self.traces.watching():
            self.learner.end_task(task)

    def predict(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Count what is told."""
        self.predictions += 1
        self.told += task is not None
        with self.traces.watching():
            return self.learner.predict(x, task)

    def cleared(self, record: Record) -> Record:
        """The Record of the run that was watched, without the time that watching took."""
        seconds = dict(record.seconds)
        for name, own in self.own.items():
            seconds[name] = [max(s - o, 0.0) for s, o in zip(seconds[name], own, strict=True)]
        return replace(record, seconds=seconds)

    def facts(self, record: Record) -> Facts:
        """What was seen until now, when the last task is over; and what the record has of time and memory."""
        declared, described, memory = self.stream.declared, self.learner.describe(), self.learner.memory
        samples, size = (0, 0) if memory is None else (len(memory), memory.bytes)
        hidden, hidden_size = self.traces.copies(self.learner, skip=memory)
        where = {"labels_at_test": f"in {self.told} of {self.predictions} calls of predict"}
        picked = declared.head == "multi"  # then the protocol lets the outputs of the task that is tested alone compete
        if picked and not self.told:
            where["labels_at_test"] = "by the protocol, which lets the task's own outputs alone compete"
        if hidden:
            where["kept_samples"] = f"{hidden} of them outside of the memory"
        if self.learner.oracle:
            where["retrains"] = "on all data so far: an oracle"
        elif described.get("coreset_fit") == "per_task":
            where["retrains"] = "on the coreset of each task that is tested, chosen by its label"
        else:
            where["retrains"] = f"{len(self.traces.again)} of their samples"
        return replace(
            facts_of(record),
            subject=f"{described['method']} on {self.stream.name}",
            labels_at_test=self.told > 0 or picked,
            resemblance=summarised(self.looked) if self.looked else None,
            same_inputs=declared.same_inputs or None,
            kept_samples=samples + hidden,
            kept_bytes=size + hidden_size,
            retrains=self.learner.oracle or bool(self.traces.again),
            borders_told=declared.boundaries_told,
            continuous=declared.continuous,
            overlapping=declared.overlapping,
            where=where,
        )


@functools.cache
def warm_up() -> None:
    """The first step of a process's first optimiser loads a part of torch, which is not the first task's time."""
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight], fused=True).step()


def watched_run(
    stream: Stream,
    learner: Learner,
    *,
    seed: int,
    **options: Any,  # noqa: ANN401 - of `protocol.run`
) -> tuple[WatchedLearner, Record]:
    """What was seen of `learner` while it ran, and the Record of the run."""
    warm_up()
    watched = WatchedLearner(learner, stream, seed=seed)
    return watched, watched.cleared(protocol.run(stream, watched, seed=seed, **options))


def audited_run(
    stream: Stream,
    learner: Learner,
    *,
    seed: int = 0,
    epochs: int = 1,
    batch_size: int = 64,
    reference: Record | None = None,
    on_progress: Callable[[protocol.Progress], None] | None = None,
) -> Record:
    """`protocol.run` of a learner that is watched; the Record carries the audit."""
    options = {"epochs": epochs, "batch_size": batch_size, "reference": reference, "on_progress": on_progress}
    watched, record = watched_run(stream, learner, seed=seed, **options)
    return replace(record, audit=plain(audit_of(watched.facts(record))))


def audit(
    stream: Stream,
    learner: Learner,
    record: Record | None = None,
    *,
    seed: int = 0,
    epochs: int = 1,
    batch_size: int = 64,
    on_progress: Callable[[protocol.Progress], None] | None = None,
) -> Audit:
    """The audit of `learner` on `stream`.

    A Record of this stream and learner that carries an audit is taken at its word. Otherwise one like the learner, as
    it was before it learnt anything, is trained here and watched; with a Record that carries none, time and memory are
    the Record's.
    """
    if record is not None:
        ran = record.config if "learner" in record.config else record.details.get("run", {})
        if ran.get("stream") != stream.config:
            refuse("record", "audit", f"of the same stream, {stream.name}", f"one of {ran.get('stream')}")
        described, own = ran.get("learner"), learner.describe()
        if described is None or store.content_id(described) != store.content_id(own):
            refuse("record", "audit", f"of the same learner, {own}", f"one of {described}")
        if record.audit is not None:
            return from_record(record)
    fresh = type(learner)(learner.spec, learner.config, seed=learner.seed)
    options = {"epochs": epochs, "batch_size": batch_size, "on_progress": on_progress}
    watched, ran_here = watched_run(stream, fresh, seed=seed, **options)
    return audit_of(watched.facts(record or ran_here))
