"""A witness stands between the protocol and a learner, passes everything on, and writes down what an audit asks.

Before each task but the first it lets the learner look at the task's inputs (see `resemblance`); it counts how often
`predict` was told a task, and what the memory holds when a task ends. It changes nothing that the learner does.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from torch import Tensor

from vestige import protocol
from vestige.audit.answer import Audit
from vestige.audit.facts import Facts, audit_of
from vestige.audit.resemblance import Resemblance, resemblance, summarised
from vestige.checks import refuse
from vestige.data.stream import Stream
from vestige.data.task import Task, TaskInfo
from vestige.methods.base import Info, Learner
from vestige.record import Record


class Witness(Learner):
    """Passes everything on to `learner`."""

    def __init__(self, learner: Learner, stream: Stream, *, seed: int) -> None:
        self.learner, self.stream, self.seen_by = learner, stream, seed
        self.oracle = learner.oracle  # type: ignore[misc]
        self.uses_task = learner.uses_task  # type: ignore[misc]
        self.begun = 0
        self.looked: list[Resemblance] = []
        self.predictions = self.told = 0
        self.kept: list[tuple[int, int]] = []  # samples and bytes after each task

    def __getattr__(self, name: str) -> object:
        return getattr(self.__dict__["learner"], name)

    @property
    def held_back(self) -> Tensor | None:  # type: ignore[override]
        """The learner's own."""
        return self.learner.held_back

    def begin_task(self, task: Task) -> None:
        """Look at the task through the model of the tasks before it."""
        if self.begun and len(task.y) and self.learner.probabilities:
            old = {o for k in range(self.begun) for o in self.stream.info(k).outputs}
            looked = resemblance(
                self.learner.predict,
                task.x,
                task=self.begun,
                candidates=sorted(old | set(task.info.outputs)),
                old=sorted(old),
                seed=self.seen_by,
            )
            self.looked.append(looked)
        self.begun += 1
        self.learner.begin_task(task)

    def observe(self, x: Tensor, y: Tensor) -> Info:
        """Passed on."""
        return self.learner.observe(x, y)

    def end_task(self, task: Task) -> None:
        """Count what is kept."""
        self.learner.end_task(task)
        memory = self.learner.memory
        self.kept.append((0, 0) if memory is None else (len(memory), memory.bytes))

    def predict(self, x: Tensor, task: TaskInfo | None = None) -> Tensor:
        """Count what is told."""
        self.predictions += 1
        self.told += task is not None
        return self.learner.predict(x, task)

    def describe(self) -> dict[str, object]:
        """The learner's own."""
        return self.learner.describe()

    def bytes(self) -> dict[str, int]:
        """The learner's own."""
        return self.learner.bytes()

    def facts(self, record: Record) -> Facts:
        """What was seen, and what the record has of time and memory."""
        declared, described = self.stream.declared, self.learner.describe()
        own = [name for name in record.bytes if name != "peak"]
        samples, size = self.kept[-1] if self.kept else (0, 0)
        per_task = described.get("coreset_fit") == "per_task"
        if declared.task_labels_at_test and not self.told:
            where = {"labels_at_test": "by the protocol, which lets the task's own outputs alone compete"}
        else:
            where = {"labels_at_test": f"in {self.told} of {self.predictions} calls of predict"}
        if self.learner.oracle:
            where["retrains"] = "on all data so far: an oracle"
        elif per_task:
            where["retrains"] = "on the coreset of each task that is tested, chosen by its label"
        return Facts(
            subject=f"{described['method']} on {self.stream.name}",
            tasks=len(self.stream),
            shared_head=declared.head == "single",
            labels_at_test=self.told > 0 or declared.task_labels_at_test,
            resemblance=summarised(self.looked) if self.looked else None,
            same_inputs=declared.same_inputs or None,
            kept_samples=samples,
            kept_bytes=size,
            retrains=self.learner.oracle or per_task,
            borders_told=declared.boundaries_told,
            continuous=declared.continuous,
            overlapping=declared.overlapping,
            seconds=record.seconds.get("train_cpu"),
            held_bytes=[float(sum(record.bytes[name][k] for name in own)) for k in range(len(record.task_names))]
            or None,
            where=where,
        )


def audited_run(
    stream: Stream,
    learner: Learner,
    *,
    seed: int = 0,
    epochs: int = 1,
    batch_size: int = 64,
    reference: Record | None = None,
) -> Record:
    """`protocol.run` with a witness; the Record carries the audit."""
    witness = Witness(learner, stream, seed=seed)
    record = protocol.run(stream, witness, seed=seed, epochs=epochs, batch_size=batch_size, reference=reference)
    return replace(record, audit=audit_of(witness.facts(record)).to_json())


def audit(stream: Stream, learner: Learner, record: Record | None = None, *, seed: int = 0, epochs: int = 1) -> Audit:
    """The audit of `learner` on `stream`.

    A Record of this stream that carries an audit is taken at its word. Otherwise a copy of the learner is trained here,
    and watched; with a Record that carries none, time and memory are the Record's.
    """
    if record is not None:
        ran = record.config.get("stream", record.details.get("run", {}).get("stream"))
        if ran != stream.config:
            refuse("record", "audit", f"of the same stream, {stream.name}", f"one of {ran}")
        if record.audit is not None:
            return Audit.from_json(record.audit)
    witness = Witness(copy.deepcopy(learner), stream, seed=seed)
    watched = protocol.run(stream, witness, seed=seed, epochs=epochs)
    return audit_of(witness.facts(record or watched))
