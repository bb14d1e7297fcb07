"""A witness stands between the protocol and a learner, passes everything on, and writes down what an audit asks.

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

import torch
from torch import Tensor

from vestige import store
from vestige.continual import protocol
from vestige.continual.audit.answer import Audit
from vestige.continual.audit.facts import Facts, audit_of
from vestige.continual.audit.resemblance import Resemblance, resemblance, summarised
from vestige.continual.audit.traces import Traces
from vestige.continual.learners.base import Info, Learner
from vestige.continual.record import Record
from vestige.core.checks import refuse
from vestige.data.stream import Stream
from vestige.data.task import Task, TaskInfo

CLOCKS = {"train": time.perf_counter, "train_cpu": time.process_time}  # by the Record's names


class Witness(Learner):
    """Passes everything on to `learner`."""

    resumable = False  # what it has seen so far is in no `state_dict`: a witnessed run that was interrupted begins anew

    def __init__(self, learner: Learner, stream: Stream, *, seed: int) -> None:
        self.learner, self.stream, self.seen_by = learner, stream, seed
        self.oracle = learner.oracle  # type: ignore[misc]
        self.uses_task = learner.uses_task  # type: ignore[misc]
        self.borders = stream.declared.boundaries_told or learner.oracle
        self.begun = 0  # tasks; stretches of the stream where no borders are told
        self.rows = 0  # observed, where no borders are told
        self.ends = list(accumulate(stream.info(k).n for k in range(len(stream))))
        self.ahead = iter(stream)  # a pass of its own over a stream that tells no borders
        self.looked: list[Resemblance] = []
        self.predictions = self.told = 0
        self.own = {clock: [0.0] * len(stream) for clock in CLOCKS}  # seconds that the witness takes, by task
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
                self.look(task)

    def look(self, task: Task) -> None:
        """How the model of now sees inputs that it has not learnt."""
        old = {o for k in range(self.begun - 1) for o in self.stream.info(k).outputs}
        looked = resemblance(
            self.learner.predict,
            task.x,
            task=self.begun - 1,
            candidates=sorted(old | set(task.info.outputs)),
            old=sorted(old),
            seed=self.seen_by,
        )
        self.looked.append(looked)

    def observe(self, x: Tensor, y: Tensor) -> Info:
        """Passed on; without borders each batch is a present of its own, and a stretch may end before it."""
        if not self.borders:
            if self.rows >= ([0, *self.ends])[self.begun]:
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

    def describe(self) -> dict[str, object]:
        """The learner's own."""
        return self.learner.describe()

    def identity(self) -> dict[str, object]:
        """The learner's own."""
        return self.learner.identity()

    def bytes(self) -> dict[str, int]:
        """The learner's own."""
        return self.learner.bytes()

    def cleared(self, record: Record) -> Record:
        """The Record of the run that was watched, without the time that watching took."""
        seconds = dict(record.seconds)
        for name, own in self.own.items():
            seconds[name] = [max(s - o, 0.0) for s, o in zip(seconds[name], own, strict=True)]
        return replace(record, seconds=seconds)

    def facts(self, record: Record) -> Facts:
        """What was seen until now, when the last task is over; and what the record has of time and memory."""
        declared, described, memory = self.stream.declared, self.learner.describe(), self.learner.memory
        held = [name for name in record.bytes if name != "peak"]
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
        return Facts(
            subject=f"{described['method']} on {self.stream.name}",
            tasks=len(self.stream),
            shared_head=not picked,
            labels_at_test=self.told > 0 or picked,
            resemblance=summarised(self.looked) if self.looked else None,
            same_inputs=declared.same_inputs or None,
            kept_samples=samples + hidden,
            kept_bytes=size + hidden_size,
            retrains=self.learner.oracle or bool(self.traces.again),
            borders_told=declared.boundaries_told,
            continuous=declared.continuous,
            overlapping=declared.overlapping,
            seconds=record.seconds.get("train_cpu"),
            held_bytes=[float(sum(record.bytes[name][k] for name in held)) for k in range(len(record.task_names))]
            or None,
            where=where,
        )


@functools.cache
def warm_up() -> None:
    """The first step of a process's first optimiser loads a part of torch, which is not the first task's time."""
    weight = torch.zeros(1, requires_grad=True)
    weight.sum().backward()
    torch.optim.Adam([weight], fused=True).step()


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
    """`protocol.run` with a witness; the Record carries the audit."""
    warm_up()
    witness = Witness(learner, stream, seed=seed)
    found = protocol.run(
        stream,
        witness,
        seed=seed,
        epochs=epochs,
        batch_size=batch_size,
        reference=reference,
        on_progress=on_progress,
    )
    record = witness.cleared(found)
    return replace(record, audit=audit_of(witness.facts(record)).to_json())


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
            return Audit.from_json(record.audit)
    warm_up()
    fresh = type(learner)(learner.spec, learner.config, seed=learner.seed)
    witness = Witness(fresh, stream, seed=seed)
    watched = protocol.run(stream, witness, seed=seed, epochs=epochs, batch_size=batch_size, on_progress=on_progress)
    return audit_of(witness.facts(record or witness.cleared(watched)))
