"""A stream of tasks: yields each in order and withdraws it when the next begins.

A stream is a list of `Segment`s (which rows of which data set, how transformed, under which labels) and a `Declared`:
every property that an audit of the evaluation asks about, stated once, where the stream is made. Iterating again
starts a fresh pass with fresh copies; the test sets are the protocol's and never reach a learner.

Which rows a task has is decided on the CPU, so that it is the same on every machine; a task and a test set are handed
out on the device that tensors are made on (`torch.device` as a context).

What a learner may know of a task for ever is its `TaskInfo`; the data of a `Task` goes when the next task begins.
Withdrawal is physical. The stream hands out a copy of the rows and, when the task is over, overwrites that copy with
NaN (labels with -1) before it lets go of it: a learner that kept a reference holds nothing, and touching the task
raises `DataGone`. A learner that wants to remember copies through `vestige.continual.memory`, where it is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import DataGone, InputError
from vestige.core.checks import whole
from vestige.core.machine import on_cpu
from vestige.data.dataset import DataSet, every_nth

Inputs = Float[Tensor, "n *shape"]
Labels = Int64[Tensor, " n"]
Head = Literal["single", "multi"]
Scenario = Literal["class", "task", "domain"]
TrainLogits = Literal["current", "seen", "all"]


@dataclass(frozen=True)
class Declared:
    """What the stream says of itself; the desiderata of Farquhar and Gal section 5 are read from here.

    `head`: one output vector shared by all tasks, or one for each. `train_logits`: over which outputs the loss is
    taken. `task_labels_at_test`: whether `predict` is told the task. `boundaries_told`: whether the learner hears of a
    new task. `ordered`: samples come in a fixed order, once. `continuous`: class probabilities drift rather than jump.
    `overlapping`: some class appears in several tasks. `same_inputs`: tasks differ in inputs only by a fixed map
    (permutation, rotation), which is what Farquhar and Gal section 4.1 objects to. `scenario` is that of van de Ven and
    Tolias (2019): a task brings new outputs and the task must be found out ("class"), is told ("task"), or brings new
    inputs for the same outputs ("domain").
    """

    head: Head
    train_logits: TrainLogits
    task_labels_at_test: bool
    boundaries_told: bool = True
    ordered: bool = False
    continuous: bool = False
    overlapping: bool = False
    same_inputs: bool = False
    scenario: Scenario = "class"


@dataclass(frozen=True)
class TaskInfo:
    """What is no secret after the data is gone.

    `outputs` are the places in the network's output that this task's labels use; `train_outputs` are those over which
    the loss is taken while it trains ("current", "seen" or "all" of the stream). Both are in ascending order.
    """

    index: int
    name: str
    outputs: tuple[int, ...]
    train_outputs: tuple[int, ...]
    train_logits: TrainLogits
    n: int


class Task:
    """One task's training (and validation) data, until it is withdrawn."""

    def __init__(
        self,
        info: TaskInfo,
        x: Float[Tensor, "n *shape"],
        y: Int64[Tensor, " n"],
        val_x: Float[Tensor, "m *shape"],
        val_y: Int64[Tensor, " m"],
    ) -> None:
        self.info = info
        self._data: dict[str, Tensor] | None = {"x": x, "y": y, "val_x": val_x, "val_y": val_y}

    def _get(self, key: str) -> Tensor:
        if self._data is None:
            raise DataGone(
                f"The data of task {self.info.index} ({self.info.name}) is gone: the stream withdrew it when the next "
                "task began. Keep what you may keep in a memory, whose budget is counted."
            )
        return self._data[key]

    @property
    def x(self) -> Tensor:
        """Training inputs, float32."""
        return self._get("x")

    @property
    def y(self) -> Tensor:
        """Training labels: places in the network's output."""
        return self._get("y")

    @property
    def val_x(self) -> Tensor:
        """Validation inputs; empty unless the stream was asked for a validation fraction."""
        return self._get("val_x")

    @property
    def val_y(self) -> Tensor:
        """Validation labels."""
        return self._get("val_y")

    @property
    def gone(self) -> bool:
        """Whether the data was withdrawn."""
        return self._data is None

    def __len__(self) -> int:
        return self.info.n

    def withdraw(self) -> None:
        """Destroy the data. Called by the stream; calling it again changes nothing."""
        if self._data is not None:
            for tensor in self._data.values():
                erase(tensor)
            self._data = None

    def __repr__(self) -> str:
        state = "gone" if self.gone else f"{self.info.n} samples"
        return f"Task({self.info.index}, {self.info.name!r}, outputs {list(self.info.outputs)}, {state})"


def erase(tensor: Tensor) -> None:
    """Overwrite in place: NaN for floats, -1 for labels, so that a kept reference fails loudly."""
    with torch.no_grad():
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)


@dataclass(frozen=True)
class Segment:
    """One task to be: rows of a data set, a map of the inputs, and the outputs that its labels take."""

    name: str
    dataset: DataSet
    train_rows: Int64[Tensor, " n"]
    val_rows: Int64[Tensor, " v"]
    test_rows: Int64[Tensor, " m"]
    output_of_class: Int64[Tensor, " c"]  # by class of the data set; -1 where the class does not belong
    transform: Callable[[Tensor], Tensor] | None = None

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """Outputs used by this segment, ascending."""
        used = self.output_of_class[self.output_of_class >= 0]
        return tuple(sorted({int(i) for i in used}))

    @on_cpu()
    def rows(self, split: Literal["train", "val", "test"]) -> tuple[Tensor, Tensor]:
        """A fresh copy of the inputs (float32) and labels of one split."""
        source_x = self.dataset.test_x if split == "test" else self.dataset.train_x
        source_y = self.dataset.test_y if split == "test" else self.dataset.train_y
        rows = {"train": self.train_rows, "val": self.val_rows, "test": self.test_rows}[split]
        x = self.dataset.floats(source_x[rows])
        x = x if self.transform is None else self.transform(x)
        return x.contiguous(), self.output_of_class[source_y[rows]]


@dataclass(frozen=True)
class TestSet:
    """A task's test data, held by the protocol."""

    __test__ = False  # not a test class, whatever its name suggests to pytest

    x: Float[Tensor, "n *shape"]
    y: Int64[Tensor, " n"]
    outputs: tuple[int, ...]


class Stream:
    """Tasks in order, each withdrawn when the next begins."""

    def __init__(
        self, name: str, segments: Sequence[Segment], declared: Declared, config: dict[str, Any], n_outputs: int
    ) -> None:
        self.name, self.declared, self.config, self.n_outputs = name, declared, config, n_outputs
        self._segments = tuple(segments)
        if not self._segments:
            raise InputError(f"The 'tasks' of {name} must be at least one. Got none instead.")
        shapes = {tuple(s.dataset.train_x.shape[1:]) for s in self._segments}
        if len(shapes) > 1:
            raise InputError(f"The 'data sets' of {name} must have one input shape. Got {sorted(shapes)} instead.")
        self.input_shape: tuple[int, ...] = shapes.pop()
        for segment in self._segments:
            if len(segment.train_rows) == 0:
                raise InputError(
                    f"The tasks of {name} must each hold a training sample. Got none for {segment.name} instead."
                )

    def __len__(self) -> int:
        return len(self._segments)

    def info(self, index: int) -> TaskInfo:
        """What a learner may know of task `index`."""
        segment = self._segments[index]
        wide = {"current": [segment], "seen": self._segments[: index + 1], "all": self._segments}
        outputs = {o for s in wide[self.declared.train_logits] for o in s.outputs}
        logits, n = self.declared.train_logits, len(segment.train_rows)
        return TaskInfo(index, segment.name, segment.outputs, tuple(sorted(outputs)), logits, n)

    def __iter__(self) -> Iterator[Task]:
        """A fresh pass over all tasks."""
        return self.tasks()

    def tasks(self, first: int = 0) -> Iterator[Task]:
        """A fresh pass from task `first` on; those before it are not built.

        The task of the step before is destroyed before the next one is built.
        """
        for index, segment in enumerate(self._segments[first:], first):
            task = Task(self.info(index), *placed(segment.rows("train")), *placed(segment.rows("val")))
            yield task
            task.withdraw()

    def test_sets(self) -> list[TestSet]:
        """The test data of every task: for the protocol alone."""
        return [TestSet(*placed(segment.rows("test")), segment.outputs) for segment in self._segments]

    def smallest_class(self) -> int:
        """Training rows of the smallest class of a task."""
        found = (s.dataset.train_y[s.train_rows].unique(return_counts=True)[1] for s in self._segments)
        return min(int(counts.min()) for counts in found)

    def validation(self, nth: int, tasks: int | None = None) -> Stream:
        """The stream that settings are chosen on: of the first `tasks` (None: of all), and without a test row.

        Every n-th training row of a class is tested on in place of the test set, and trained on in no task. Where no
        border is told, a stretch of time is tested on those that came in it.
        """
        owner = f"validation of {self.name}"
        kept = self._segments[: None if tasks is None else whole(tasks, "tasks", owner, low=1, high=len(self))]
        nth, segments = whole(nth, "nth", owner, low=2), []
        for segment in kept:
            source = segment.dataset
            held = every_nth(source.train_y, nth)
            mine = segment.output_of_class[source.train_y] >= 0
            if not self.declared.boundaries_told:
                mine = torch.zeros_like(held).index_fill_(0, segment.train_rows, True)
            test = (held & mine).nonzero().flatten()
            train, val = (rows[~held[rows]] for rows in (segment.train_rows, segment.val_rows))
            without = replace(source, test_x=source.train_x, test_y=source.train_y)
            segments.append(replace(segment, dataset=without, train_rows=train, val_rows=val, test_rows=test))
        config = self.config | {"validation": {"nth": nth, "tasks": len(kept)}}
        return Stream(self.name, segments, self.declared, config, self.n_outputs)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {len(self)} tasks, {self.declared.head}-head, {self.n_outputs} outputs)"


def placed(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Inputs and labels on the device that tensors are made on; a copy that stayed behind is destroyed."""
    here, there = rows, tuple(part.to(torch.get_default_device()) for part in rows)
    for part, moved in zip(here, there, strict=True):
        if moved.device != part.device:
            erase(part)
    return there[0], there[1]


def seen_outputs(stream: Stream, upto: int) -> list[int]:
    """Outputs of tasks 0..upto: the space of a single-head prediction after task `upto`."""
    return sorted({o for k in range(upto + 1) for o in stream.info(k).outputs})


def hold_out(
    rows: Int64[Tensor, " n"], fraction: float, generator: torch.Generator
) -> tuple[Int64[Tensor, " a"], Int64[Tensor, " b"]]:
    """Split rows into (train, validation). Rounds down, so one sample always stays in training."""
    if fraction == 0:
        return rows, rows[:0]
    shuffled = rows[torch.randperm(len(rows), generator=generator)]
    held = int(len(rows) * fraction)
    return shuffled[held:].sort().values, shuffled[:held].sort().values
