"""Vanilla: plain training on whatever comes, nothing kept. The floor for every other method, and the file to copy."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, Outputs, Spec, TrainConfig
from vestige.data.task import Task


class Vanilla(Learner):
    """Cross-entropy on the current task, one Adam step a batch."""

    def __init__(self, spec: Spec, config: TrainConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.net = self.fresh_net()
        self.outputs = Outputs(range(spec.n_outputs), spec.n_outputs)

    def begin_task(self, task: Task) -> None:
        """Take the task's outputs; a fresh optimiser, so that old momentum does not move the new task."""
        self.outputs = Outputs(task.info.train_outputs, self.spec.n_outputs)
        self.grow_head(task.info)
        if self.optimizer is None or self.config.reset_optimizer:
            self.optimizer = self.fresh_optimizer()

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step."""
        return self.step(self.loss(x, y))

    def loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """What a step goes down: here the batch's own loss; a method with a memory adds what it remembers."""
        return self.outputs.loss(self.net(x), y)

    def end_task(self, task: Task) -> None:
        """Nothing is kept."""

    def method_state(self) -> dict[str, Tensor]:
        """The outputs in use, so that a learner saved in the middle of a task goes on in it."""
        return {"outputs": torch.tensor(self.outputs.outputs)}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        self.outputs = Outputs(state["outputs"].tolist(), self.spec.n_outputs)
