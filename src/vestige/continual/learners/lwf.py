"""Learning without forgetting (Li and Hoiem 2016): the network of before the task labels the task's own inputs.

With y_o the old network's probabilities of the old outputs on a new input, and T a temperature,

    loss = lam * L_old + L_new,   L_new the cross-entropy of the labels
    L_old = - sum_o y'_o log yhat'_o,   y'_o = y_o^(1/T) / sum y^(1/T), and yhat' the same of the network

(their section "Learning without Forgetting"; its equations are not cited by number, as the print was not at hand),
L_old summed over old tasks where each has outputs of its own ("current"); where outputs of all tasks compete the old
ones are one group, in a domain-incremental stream all outputs. No data is kept but the old network.

Two forms are those of van de Ven's code, k the tasks so far. In both the new outputs compete in yhat' too where outputs
of all tasks do, with the target 0:
- `form="van_de_ven"`, of the article of 2022: L_new + L_old, L_old once for each old task, but once in all where the
  task is found out;
- `form="van_de_ven_2019"`, of the preprints: 1 / k of L_new and 1 - 1/k of the mean of T^2 L_old over the old tasks.

Deviations: the paper warms a new head up before all weights train, which is left out; the weight decay R is the user's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, TrainConfig
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task


@dataclass(frozen=True)
class LwFConfig(TrainConfig):
    """`lam` weighs the old outputs (lambda_o), `temperature` is T; both as in the paper."""

    lam: float = option(1.0, low=0)
    temperature: float = option(2.0, above=0)
    form: str = option("li_hoiem", among=("li_hoiem", "van_de_ven", "van_de_ven_2019"))


def distilled(
    logits: Float[Tensor, "n k"],
    old_logits: Float[Tensor, "n k"],
    old: tuple[int, ...],
    competing: tuple[int, ...],
    temperature: float,
) -> Float[Tensor, ""]:
    """L_old, a mean over rows: targets among `old` outputs, answers among those that compete with them."""
    targets = torch.zeros_like(logits)
    targets[:, list(old)] = (old_logits[:, list(old)] / temperature).softmax(1)
    log_p = (logits[:, list(competing)] / temperature).log_softmax(1)
    return -(targets[:, list(competing)] * log_p).sum(1).mean()


class LwF(Learner):
    """Cross-entropy on the batch, and the old network's answers to it."""

    config: LwFConfig
    groups_: dict[int, tuple[int, ...]]  # old outputs by task, or all of them under 0
    old_: dict[str, Tensor]  # the network as it was when the task began; empty in the first task
    tasks_: int = 0

    def begin_task(self, task: Task) -> None:
        """Put the network aside, which labels the inputs of the task."""
        before = self.outputs_.outputs if self.tasks_ else ()
        super().begin_task(task)
        self.old_ = {k: v.clone() for k, v in self.net.state_dict().items()} if self.tasks_ else {}
        self.tasks_ += 1
        if before and task.info.train_logits == "current":
            self.groups_[len(self.groups_)] = before
        elif before:
            self.groups_ = {0: tuple(sorted({*self.groups_.get(0, ()), *before}))}

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step."""
        return self.step(self.loss(x, y))

    def loss(self, x: Inputs, y: Labels) -> Float[Tensor, ""]:
        """The labels of the batch, and what the old network makes of it."""
        logits: Tensor = self.net(x)
        new = self.outputs_.loss(logits, y)
        if not self.old_:
            return new
        c, theirs, old_logits = self.config, self.config.form != "li_hoiem", self.answer_of(self.old_, x)
        parts, found_out = [], False
        for outputs in self.groups_.values():
            alone = len(self.groups_) > 1 or not theirs or not set(outputs) <= set(self.outputs_.outputs)
            competing = outputs if alone else self.outputs_.outputs
            found_out = len(competing) > len(outputs)
            parts.append(distilled(logits, old_logits, outputs, competing, c.temperature))
        if not theirs:
            return new + c.lam * torch.stack(parts).sum()
        old = torch.stack(parts).mean()
        if c.form == "van_de_ven":
            return new + old * (1 if found_out else self.tasks_ - 1)
        return new / self.tasks_ + (1 - 1 / self.tasks_) * c.temperature**2 * old
