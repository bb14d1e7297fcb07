"""Averaged gradient episodic memory, A-GEM (Chaudhry et al. 2019, "Efficient lifelong learning with A-GEM").

One reference gradient in the place of GEM's one for each past task: that of the mean loss on a batch drawn from the
memory of all of them. Where the gradient g of the batch would raise that loss it is projected (their Eq. 11):

    g~ = g - (g' g_ref) / (g_ref' g_ref) g_ref      where g' g_ref < 0,  g otherwise

Deviations: the authors step by plain gradient descent, here Adam is given the projected gradient, as in `gem`. Samples
of the memory are drawn without replacement, `reference_batch` of them (None: as many as the batch has).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, Outputs, TrainConfig
from vestige.continual.learners.gem import flat_gradient, put_gradient
from vestige.continual.memory import ExemplarMemory, Exemplars
from vestige.core import rng
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task


@dataclass(frozen=True)
class AGEMConfig(TrainConfig):
    """The memory, and how many of its samples a step looks at."""

    memory: Exemplars = Exemplars(sampler="uniform")  # noqa: RUF009 - it is frozen
    reference_batch: int | None = option(None, low=1)


def projected_on(gradient: Float[Tensor, " p"], reference: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """Eq. 11."""
    against = gradient @ reference
    return gradient if bool(against >= 0) else gradient - against / (reference @ reference) * reference


class AGEM(Learner):
    """One step a batch, along the nearest direction that the memory as a whole does not object to."""

    config: AGEMConfig
    memory: ExemplarMemory
    steps_: int = 0

    def fresh_memory(self) -> ExemplarMemory:
        """As the configuration has it; samples of several tasks meet in the loss."""
        self.outputs_ = Outputs.every(self.spec.n_outputs, by_class=True)
        return ExemplarMemory(self.config.memory, owner="AGEM", seed=self.seed)

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task."""
        super().begin_task(task)
        self.memory.begin_task(task)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step along the projected gradient."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        loss = self.outputs_.loss(self.net(x), y)
        gradient = flat_gradient(self.net, loss)
        if len(self.memory):
            generator = rng.fork(self.seed, "reference", self.steps_)
            drawn = torch.randperm(len(self.memory), generator=generator)[: self.config.reference_batch or len(y)]
            past = self.outputs_.loss(self.net(self.memory.x[drawn]), self.memory.y[drawn])
            gradient = projected_on(gradient, flat_gradient(self.net, past))
        put_gradient(self.net, gradient)
        self.optimizer.step()
        self.steps_ += 1
        self.memory.pass_by(x, y)
        return Info(loss.detach())

    def end_task(self, task: Task) -> None:
        """Fill the memory."""
        self.memory.remember(task, self.net, self.outputs_.outputs)
