"""Vanilla: plain training on whatever comes. The floor for every other method, and the file to copy.

Its argument `memory` adds rehearsal: samples of earlier tasks that join each batch (see `memory.rehearsal`). Every
method that is a child of this one has it. `vanilla_s` is a name for it with the memory of RWalk Table 1 filled in.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, Outputs, Spec, TrainConfig
from vestige.continual.memory import Rehearsal, RehearsalMemory
from vestige.data.stream import Task


@dataclass(frozen=True)
class VanillaConfig(TrainConfig):
    """Plain training; `memory` says what of earlier tasks is rehearsed, and how (None: nothing)."""

    memory: Rehearsal | None = None


class Vanilla(Learner):
    """Cross-entropy on the batch and on what joins it from the memory, one step a batch."""

    config: VanillaConfig
    memory: RehearsalMemory | None

    def __init__(self, spec: Spec, config: VanillaConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.net = self.fresh_net()
        if self.config.memory is not None:
            self.memory = RehearsalMemory(self.config.memory, spec.n_outputs, owner=type(self).__name__, seed=seed)
            self.outputs_ = Outputs.every(spec.n_outputs, by_class=True)

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task, and the samples that will join it."""
        super().begin_task(task)
        if self.memory is not None:
            self.memory.begin_task(task)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step."""
        return self.step(self.loss(x, y))

    def loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """What a step goes down."""
        x, y, weights = (x, y, None) if self.memory is None else self.memory.joined(x, y)
        return self.outputs_.loss(self.net(x), y, weights)

    def end_task(self, task: Task) -> None:
        """Fill the memory and, where it is asked for, train on it alone."""
        if self.memory is not None:
            self.memory.remember(task, self.net, self.outputs_.outputs)
            for x, y in self.memory.finetuning():
                self.observe(x, y)
