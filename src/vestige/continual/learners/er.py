"""Experience replay (Chaudhry et al. 2019, "On tiny episodic memories in continual learning", Alg. 1).

Every step is one of plain training on the batch and a draw from the memory together. The memory is a reservoir by
default, which needs no borders of tasks. `share` says how the two parts of a batch are weighed:

- "rows": the mean over all rows, as in Alg. 1;
- "tasks": 1 / k for the batch of the k-th task and 1 - 1/k for the replay (van de Ven et al. 2022), for memories that
  stand for all earlier tasks in equal parts.

Deviations: samples are drawn without replacement; as many as the batch has, unless the memory says otherwise. The
paper's other ways to fill the memory are those of `memory.Exemplars`, such as `fill="task_end"` by a sampler.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vestige.continual.learners.vanilla import Vanilla, VanillaConfig
from vestige.continual.memory import Rehearsal, RehearsalMemory
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task

RESERVOIR = Rehearsal(per_class=None, total=200, fill="reservoir", replay="beside")
SHARES = ("rows", "tasks")


@dataclass(frozen=True)
class ERConfig(VanillaConfig):
    """The memory, a reservoir of 200, and how its rows are weighed against those of the batch."""

    memory: Rehearsal = RESERVOIR
    share: str = option("rows", among=SHARES)


def weighed(losses: Float[Tensor, " n"], new: int, tasks: int | None) -> Float[Tensor, ""]:
    """The mean over all rows; with the number of `tasks`, 1 / tasks of it is that over the first `new`."""
    if tasks is None or new == len(losses):
        return losses.mean()
    return losses[:new].mean() / tasks + (1 - 1 / tasks) * losses[new:].mean()


class ER(Vanilla):
    """Rows of the memory beside those of the batch."""

    config: ERConfig
    memory: RehearsalMemory
    tasks_: int = 0  # that have begun

    def begin_task(self, task: Task) -> None:
        """Count it."""
        super().begin_task(task)
        self.tasks_ += 1

    def loss(self, x: Inputs, y: Labels) -> Float[Tensor, ""]:
        """Cross-entropy of the batch and of what joins it."""
        new = len(y)
        x, y, _ = self.memory.joined(x, y)
        losses: Tensor = self.outputs_.losses(self.net(x), y)
        return weighed(losses, new, self.tasks_ if self.config.share == "tasks" else None)
