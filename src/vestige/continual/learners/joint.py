"""Joint: trained anew at each task on all data of tasks 1..k. The reference of intransigence (RWalk Eq. 4).

It keeps everything, in a memory without budget, and is told every border: an oracle, not a contestant. Each batch of
the current task brings its share of old samples along; together they are shuffled and cut into batches of the same
size, so that one epoch over the current task is one epoch over the union, without repeats.

Intransigence of the last task, which RWalk's Table 1 prints, asks for a*_k of the last task alone: `since` lets it keep
the tasks before and train at that one, which of ten tasks of one size saves more than four fifths of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Int64
from torch import Tensor
from torch.nn import functional

from vestige.continual.learners.base import Info, Learner, TrainConfig
from vestige.continual.memory import Memory
from vestige.core import rng
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task, TaskInfo


@dataclass(frozen=True)
class JointConfig(TrainConfig):
    """`since` is the first task, from 0, at which it trains; the tasks before it are kept."""

    since: int = option(0, low=0)


class Joint(Learner):
    """A fresh network on the union of all tasks so far."""

    config: JointConfig
    oracle: ClassVar[bool] = True
    memory: Memory
    allowed_: Bool[Tensor, "t k"]  # by task: the outputs that compete
    order_: Int64[Tensor, " m"]
    generator_: torch.Generator
    n_: int
    epoch_: int
    seen_: int
    drawn_: int

    def fresh_memory(self) -> Memory:
        """Everything."""
        return Memory(budget=None)

    def set_up(self) -> None:
        """Before the first task."""
        self.allowed_ = torch.empty(0, self.spec.n_outputs, dtype=torch.bool)
        self._start_epoch(0, 0)

    def begin_task(self, task: Task) -> None:
        """Start anew: same initial weights, all outputs that the stream lets this task train on."""
        held = self.net.outputs
        self.net, self.optimizer = self.whole_net(), None
        self.allowed_ = self._outputs_by_task(task.info)
        if held is not None:  # a head that grows: the outputs of the tasks before, as they began
            self.net.hold(held.tolist(), self.net.head.weight[held], self.net.head.bias[held])
        self.grow_head(task.info)
        self.optimizer = self.fresh_optimizer()
        self._start_epoch(task.info.n, 0)

    def _outputs_by_task(self, info: TaskInfo) -> Bool[Tensor, "t k"]:
        """Row j: the outputs over which samples of task j compete, now that the task is `info`."""
        rows = torch.zeros(info.index + 1, self.spec.n_outputs, dtype=torch.bool)
        rows[:, list(info.train_outputs)] = True
        if info.train_logits == "current":
            rows[:-1] = self.allowed_[: info.index]
        return rows

    def _start_epoch(self, n: int, epoch: int) -> None:
        self.n_, self.epoch_, self.seen_, self.drawn_ = n, epoch, 0, 0
        g = rng.fork(self.seed, "joint", len(self.memory), epoch)
        self.order_ = torch.randperm(len(self.memory), generator=g)
        self.generator_ = g

    def observe(self, x: Inputs, y: Labels) -> Info:
        """Steps over this batch and its share of the old samples, mixed."""
        if len(self.allowed_) <= self.config.since:  # a row for each task so far
            return Info(torch.zeros(()))
        if self.seen_ >= self.n_:
            self._start_epoch(self.n_, self.epoch_ + 1)
        self.seen_ += len(y)
        until = min(len(self.memory), round(len(self.memory) * self.seen_ / self.n_))
        old, self.drawn_ = self.order_[self.drawn_ : until], until
        task = torch.full((len(y),), len(self.allowed_) - 1, dtype=torch.int64)
        if len(old):
            x, y = torch.cat([x, self.memory.x[old]]), torch.cat([y, self.memory.y[old]])
            task = torch.cat([task, self.memory.task[old]])
        mix = torch.randperm(len(y), generator=self.generator_)
        info = Info(torch.zeros(()))
        for part in mix.tensor_split(max(1, round(len(y) / (len(y) - len(old))))):
            logits = self.net(x[part]).masked_fill(~self.allowed_[task[part]], -torch.inf)
            info = self.step(functional.cross_entropy(logits, y[part]))
        return info

    def end_task(self, task: Task) -> None:
        """Keep it all: the memory has no budget, and says so to an audit."""
        self.memory.add(task.x, task.y, task.info.index)
