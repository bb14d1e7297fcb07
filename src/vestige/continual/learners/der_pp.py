"""Dark experience replay, DER++ (Buzzega et al. 2020): rows of a reservoir with the logits that they once got.

    CE(batch) + alpha * MSE(h(x'), z') + beta * CE(h(x''), y'')

(the objective of "Dark Experience Replay++"; not cited by number, as the print was not at hand), with (x', z') and
(x'', y'') two draws from one reservoir, each as large as the batch, and z' the logits of x' at the moment when it was
taken in. alpha 0.1 and beta 0.5 are of the authors' range for small images.

- MSE is the mean over rows and outputs, as in the authors' code; the paper writes a squared norm, which is as many
  times larger as there are outputs.
- Logits of all outputs are held, of classes to come among them. With a head that grows the others are left out.
- Samples are drawn without replacement.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.continual.learners.base import Info, Learner, Outputs, TrainConfig
from vestige.continual.memory import Memory
from vestige.core import rng
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task


class DarkMemory(Memory):
    """A reservoir whose samples have the logits that they got."""

    def __init__(self, budget: int, n_outputs: int) -> None:
        super().__init__(budget)
        self.z: Tensor = torch.empty(0, n_outputs)

    @property
    def bytes(self) -> int:
        """With the logits."""
        return super().bytes + self.z.numel() * self.z.element_size()

    def take(self, x: Inputs, y: Labels, z: Float[Tensor, "n k"], task: int, *, generator: torch.Generator) -> None:
        """Let a batch and its logits into the reservoir."""
        free, taken, rows = self.offer(x, y, task, generator=generator)
        self.z = torch.cat([self.z, z[:free]])
        self.z[taken] = z[rows]

    def state_dict(self) -> dict[str, Tensor]:
        """And the logits."""
        return super().state_dict() | {"z": self.z}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state_dict`."""
        self.z = state["z"].clone()
        super().load_state_dict({key: value for key, value in state.items() if key != "z"})


@dataclass(frozen=True)
class DERPPConfig(TrainConfig):
    """`total` samples are kept; alpha and beta weigh their logits and labels."""

    total: int = option(200, low=1)
    alpha: float = option(0.1, low=0)
    beta: float = option(0.5, low=0)


def logit_error(logits: Float[Tensor, "n k"], z: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """The mean squared difference over rows and outputs; those that had no row when they were kept do not count."""
    known = z.isfinite() & logits.isfinite()
    return functional.mse_loss(logits[known], z[known])


class DERPP(Learner):
    """Rows of a reservoir beside the batch, by their labels and by their old logits."""

    config: DERPPConfig
    memory: DarkMemory
    steps_: int = 0
    task_: int = 0

    def fresh_memory(self) -> DarkMemory:
        """A reservoir; samples of several tasks meet in the loss."""
        self.outputs_ = Outputs.every(self.spec.n_outputs, by_class=True)
        return DarkMemory(self.config.total, self.spec.n_outputs)

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task."""
        super().begin_task(task)
        self.task_ = task.info.index

    def drawn(self, n: int, what: str) -> Int64[Tensor, " m"]:
        """Places of a draw from the memory."""
        return torch.randperm(len(self.memory), generator=rng.fork(self.seed, what, self.steps_))[:n]

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step down the objective; then the batch, with the logits that it just got, passes by the reservoir."""
        c, held, n = self.config, self.memory, len(y)
        if len(held):
            dark, light = self.drawn(n, "logits"), self.drawn(n, "labels")
            logits = self.net(torch.cat([x, held.x[dark], held.x[light]]))
            own, of_dark, of_light = logits.split([n, len(dark), len(light)])
            loss = self.outputs_.loss(own, y)
            loss = loss + c.alpha * logit_error(of_dark, held.z[dark])
            loss = loss + c.beta * self.outputs_.loss(of_light, held.y[light])
        else:
            own = self.net(x)
            loss = self.outputs_.loss(own, y)
        info = self.step(loss)
        generator = rng.fork(self.seed, "reservoir", held.offered_, device="cpu")
        held.take(x, y, own.detach(), self.task_, generator=generator)
        self.steps_ += 1
        return info
