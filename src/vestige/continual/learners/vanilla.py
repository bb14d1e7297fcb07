"""Vanilla: plain training on whatever comes. The floor for every other method, and the file to copy.

Its argument `memory` adds rehearsal: samples of earlier tasks that join each batch (see `memory`). Every
method that is a child of this one has it. `vanilla_s` is a name for it with the memory of RWalk Table 1 filled in.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, Outputs, TrainConfig
from vestige.continual.memory import Rehearsal, RehearsalMemory
from vestige.data.stream import Inputs, Labels, Task


@dataclass(frozen=True)
class VanillaConfig(TrainConfig):
    """Plain training; `memory` says what of earlier tasks is rehearsed, and how (None: nothing)."""

    memory: Rehearsal | None = None


class Vanilla(Learner):
    """Cross-entropy on the batch and on what joins it from the memory, one step a batch."""

    config: VanillaConfig
    memory: RehearsalMemory | None

    def fresh_memory(self) -> RehearsalMemory | None:
        """As the configuration has it; samples of several tasks then meet in the loss."""
        if self.config.memory is None:
            return None
        self.outputs_ = Outputs.every(self.spec.n_outputs, by_class=True)
        return RehearsalMemory(self.config.memory, self.spec.n_outputs, owner=type(self).__name__, seed=self.seed)

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task, and the samples that will join it."""
        super().begin_task(task)
        if self.memory is not None:
            self.memory.begin_task(task)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step."""
        return self.step(self.loss(x, y))

    def loss(self, x: Inputs, y: Labels) -> Float[Tensor, ""]:
        """What a step goes down."""
        x, y, weights = (x, y, None) if self.memory is None else self.memory.joined(x, y)
        return self.outputs_.loss(self.net(x), y, weights)

    def end_task(self, task: Task) -> None:
        """Fill the memory and, where it is asked for, train on it alone."""
        if self.memory is not None:
            self.memory.remember(task, self.net, self.outputs_.outputs)
            for x, y in self.memory.finetuning():
                self.observe(x, y)
