"""Elastic weight consolidation (Kirkpatrick et al. 2017), with a Fisher and an anchor for every past task.

    loss + lam / 2 * sum_k sum_i F_i^k (theta_i - theta_i^k)^2

The paper stores every F^k and theta^k. Their sum is one quadratic in theta: with A = sum F^k and B = sum F^k theta^k
its gradient is lam (A theta - B), so two vectors are kept whatever the number of tasks, and the penalty is the same.
Where A is zero B is zero too, and the anchor B / A of that weight does not matter.

`EWCHuszar` keeps the latest weights as the only anchor and sums the Fishers (Huszar 2018; Farquhar and Gal A.1, B.3):
the penalty that follows from Bayes' rule, in which older tasks are not counted twice.

The Fisher is `fisher_empirical` by default: exact, per sample, at the observed labels, over the outputs that trained.
The other two (`fisher="true"`, `"batch"`) are options under their own names; they differ by orders of magnitude.
`half=False` leaves the 1/2 out, and `normalise` scales each task's Fisher to [0, 1] before it is added, as RWalk does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Outputs, Spec, TrainConfig
from vestige.continual.learners.pull import (
    NORMALISE,
    Named,
    add_pull,
    copied,
    fitted,
    prefixed,
    pull_value,
    scaled,
    stripped,
    zeros,
)
from vestige.continual.learners.vanilla import Vanilla
from vestige.core import rng
from vestige.core.checks import number, one_of, whole
from vestige.data.task import Task
from vestige.nets.fisher import fisher_batch, fisher_empirical, fisher_true

FISHERS = ("empirical", "true", "batch")


@dataclass(frozen=True)
class EWCConfig(TrainConfig):
    """`lam` weighs the pull; `fisher` says which Fisher.

    `fisher_batch_size` bounds memory and changes nothing (None: what the network takes at once), except for "batch",
    which is defined by it and needs a number. `fisher_samples` of the task, drawn by the seed, stand for all (None: all
    of them).
    """

    lam: float = 100.0
    half: bool = True
    fisher: str = "empirical"
    fisher_batch_size: int | None = None
    fisher_samples: int | None = None
    normalise: str = "none"


def task_fisher(learner: Vanilla, task: Task, kind: str, batch_size: int | None, samples: int | None = None) -> Named:
    """The Fisher of the task, or of `samples` of it, at the weights of now, over the outputs that the task trains."""
    net, outputs, rows = learner.net, learner.outputs, batch_size or learner.net.rows_at_once
    task_x, task_y = task.x, task.y
    if samples is not None and samples < len(task_y):
        generator = rng.fork(learner.seed, "fisher", task.info.index)
        drawn = torch.randperm(len(task_y), generator=generator)[:samples]
        task_x, task_y = task_x[drawn], task_y[drawn]

    def summed(logits: Float[Tensor, "n k"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        return outputs.loss(logits, y) * len(y)

    if kind == "empirical":
        return fisher_empirical(net, task_x, task_y, loss=summed, rows=rows)
    if kind == "true":
        return fisher_true(net, task_x, outputs=list(outputs.outputs), rows=rows)
    mean = zeros(net)
    for x, y in zip(task_x.split(rows), task_y.split(rows), strict=True):
        for name, value in fisher_batch(net, x, y, loss=summed).items():
            mean[name] += value * (len(y) / len(task_y))
    return mean


class EWC(Vanilla):
    """Every past task pulls the weights back to where it left them, each weight by its Fisher."""

    config: EWCConfig

    def __init__(self, spec: Spec, config: EWCConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        number(self.config.lam, "lam", type(self).__name__, low=0)
        one_of(self.config.fisher, FISHERS, "fisher", type(self).__name__)
        one_of(self.config.normalise, NORMALISE, "normalise", type(self).__name__)
        if self.config.fisher_batch_size is not None or self.config.fisher == "batch":
            whole(self.config.fisher_batch_size, "fisher_batch_size", type(self).__name__, low=1)
        if self.config.fisher_samples is not None:
            whole(self.config.fisher_samples, "fisher_samples", type(self).__name__, low=1)
        self.strength = self.config.lam / 2 if self.config.half else self.config.lam
        self.weight: Named = {}  # A, empty before the first task has ended
        self.anchor: Named = {}  # B / A

    @classmethod
    def default_config(cls) -> EWCConfig:
        """lam 100, the exact empirical Fisher."""
        return EWCConfig()

    def begin_task(self, task: Task) -> None:
        """Nothing pulls at outputs that are new."""
        super().begin_task(task)
        self.weight, self.anchor = fitted(self.weight, self.net), fitted(self.anchor, self.net)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step down the task's loss and the pull."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        add_pull(self.net, self.weight, self.anchor, self.strength)
        self.optimizer.step()
        return Info(loss.detach())

    def fisher_of(self, task: Task) -> Named:
        """The Fisher of the task that is ending, at the weights of now, scaled as asked for."""
        c = self.config
        fisher = task_fisher(self, task, c.fisher, c.fisher_batch_size, c.fisher_samples)
        return scaled(fisher, c.normalise)

    def end_task(self, task: Task) -> None:
        """Add this task's quadratic to those before it."""
        fisher, here = self.fisher_of(task), copied(self.net)
        if not self.weight:
            self.weight, self.anchor = fisher, here
            return
        for name, new in fisher.items():
            total = self.weight[name] + new
            pulled = self.weight[name] * self.anchor[name] + new * here[name]
            self.anchor[name] = torch.where(total > 0, pulled / total, here[name])
            self.weight[name] = total

    def penalty(self) -> float:
        """The pull at this moment, up to the constant that does not depend on the weights."""
        return self.strength * pull_value(self.net, self.weight, self.anchor)

    def method_state(self) -> dict[str, Tensor]:
        """The quadratic."""
        return super().method_state() | prefixed("weight", self.weight) | prefixed("anchor", self.anchor)

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        self.outputs = Outputs(state["outputs"].tolist(), self.spec.n_outputs)
        self.weight, self.anchor = stripped("weight", state), stripped("anchor", state)


class EWCHuszar(EWC):
    """One anchor, the latest weights, under the sum of all Fishers."""

    def end_task(self, task: Task) -> None:
        """Add the Fisher, move the anchor."""
        self.weight = {name: value + self.weight.get(name, 0) for name, value in self.fisher_of(task).items()}
        self.anchor = copied(self.net)
