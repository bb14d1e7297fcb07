"""Elastic weight consolidation (Kirkpatrick et al. 2017), with a Fisher and an anchor for every past task.

    loss + lam / 2 * sum_k sum_i F_i^k (theta_i - theta_i^k)^2

The paper stores every F^k and theta^k. Their sum is one quadratic in theta: with A = sum F^k and B = sum F^k theta^k
its gradient is lam (A theta - B), so two vectors are kept whatever the number of tasks, and the penalty is the same.
Where A is zero B is zero too, and the anchor B / A of that weight does not matter.

`EWCHuszar` keeps the latest weights as the only anchor and sums the Fishers (Huszar 2018; Farquhar and Gal A.1, B.3):
the penalty that follows from Bayes' rule, in which older tasks are not counted twice.

The Fisher is `fisher_empirical` by default: exact, per sample, at the observed labels, over the outputs that trained.
The other two (`fisher="true"`, `"batch"`) are options under their own names; they differ by orders of magnitude.
`half_penalty=False` leaves the 1/2 out, and `normalise` scales each task's Fisher to [0, 1] before it is added, as
RWalk does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Spec
from vestige.continual.learners.penalty import NORMALISE, Named, Penalised, copied, scaled, zeros
from vestige.continual.learners.vanilla import Vanilla, VanillaConfig
from vestige.core import rng
from vestige.core.checks import option, refuse
from vestige.data.stream import Task
from vestige.nets.fisher import fisher_batch, fisher_empirical, fisher_true


@dataclass(frozen=True)
class EWCConfig(VanillaConfig):
    """`lam` weighs the penalty; `fisher` says which Fisher.

    `fisher_batch_size` bounds memory and changes nothing (None: what the network takes at once), except for "batch",
    which is defined by it and needs a number. `fisher_samples` of the task, drawn by the seed, stand for all (None: all
    of them).
    """

    lam: float = option(100.0, low=0)
    half_penalty: bool = option(True)
    fisher: str = option("empirical", among=("empirical", "true", "batch"))
    fisher_batch_size: int | None = option(None, low=1)
    fisher_samples: int | None = option(None, low=1)
    normalise: str = option("none", among=NORMALISE)


def task_fisher(learner: Vanilla, task: Task, kind: str, batch_size: int | None, samples: int | None = None) -> Named:
    """The Fisher of the task, or of `samples` of it, at the weights of now, over the outputs that the task trains."""
    net, outputs, rows = learner.net, learner.outputs_, batch_size or learner.net.rows_at_once
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


class EWC(Penalised):
    """Every past task pulls the weights back to where it left them, each weight by its Fisher."""

    config: EWCConfig

    def __init__(self, spec: Spec, config: EWCConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        if self.config.fisher == "batch" and self.config.fisher_batch_size is None:
            refuse("fisher_batch_size", type(self).__name__, "a whole number where 'fisher' is 'batch'", None)

    @property
    def strength(self) -> float:
        """lam / 2, or lam."""
        return self.config.lam / 2 if self.config.half_penalty else self.config.lam

    def fisher_of(self, task: Task) -> Named:
        """The Fisher of the task that is ending, at the weights of now, scaled as asked for."""
        c = self.config
        fisher = task_fisher(self, task, c.fisher, c.fisher_batch_size, c.fisher_samples)
        return scaled(fisher, c.normalise)

    def end_task(self, task: Task) -> None:
        """Add this task's quadratic to those before it."""
        super().end_task(task)
        self.consolidate(task)

    def consolidate(self, task: Task) -> None:
        """The sum of all quadratics: its weight is A, its anchor B / A."""
        fisher, here = self.fisher_of(task), copied(self.net)
        if not self.weight_:
            self.weight_, self.anchor_ = fisher, here
            return
        for name, new in fisher.items():
            total = self.weight_[name] + new
            pulled = self.weight_[name] * self.anchor_[name] + new * here[name]
            self.anchor_[name] = torch.where(total > 0, pulled / total, here[name])
            self.weight_[name] = total


class EWCHuszar(EWC):
    """One anchor, the latest weights, under the sum of all Fishers."""

    def consolidate(self, task: Task) -> None:
        """Add the Fisher, move the anchor."""
        self.weight_ = {name: value + self.weight_.get(name, 0) for name, value in self.fisher_of(task).items()}
        self.anchor_ = copied(self.net)
