"""EWC++ (RWalk section 4.1, Eq. 5 and 6): one Fisher, a moving average over the batches of training.

    loss + lam * KL,  KL = 1/2 sum_i F_i (theta_i - theta_i^{k-1})^2                                         (Eq. 5, 2)
    F <- alpha * F(batch) + (1 - alpha) * F                                                                  (Eq. 6)

Alpha is on the new term, as printed. F is renewed every `interval` steps (10 for MNIST in the authors' code, where the
paper has 1). It runs on over borders; at a border it is copied, and the copy pulls during the next task. Memory does
not grow. What the paper leaves open is a field, our reading of it the default, the authors' code the other choice:
- `fisher`: "empirical", the exact mean of per-sample squares of the task's batch (Eq. 1), or "batch", the square of the
  mean gradient at hand, memory included, as in the code;
- `accumulate`: "batch", each renewal looks at the batch of that moment (section 4.1: "the current batch"), or
  "interval", it takes the mean over the batches since the last one, as in the code. An interval that a border cuts off
  is then not looked at;
- `normalise`: "none" or, as in the code, "joint": F scaled to [0, 1] over all layers when a task ends;
- `half_penalty`: the 1/2 of Eq. 2, which the code leaves out.

`RunningFisher` is what RWalk shares with it: all but the strength of the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Spec
from vestige.continual.learners.penalty import NORMALISE, Named, Penalised, copied, fitted, gradients_of, scaled, zeros
from vestige.continual.learners.vanilla import VanillaConfig
from vestige.core.checks import option
from vestige.data.stream import Task
from vestige.nets.fisher import fisher_empirical


@dataclass(frozen=True)
class RunningFisherConfig(VanillaConfig):
    """`lam` weighs the penalty; `alpha` is that of Eq. 6; `interval` the steps between two updates of F."""

    lam: float = option(100.0, low=0)
    alpha: float = option(0.9, low=0, high=1)
    interval: int = option(10, low=1)
    fisher: str = option("empirical", among=("empirical", "batch"))
    accumulate: str = option("batch", among=("batch", "interval"))
    normalise: str = option("none", among=NORMALISE)


@dataclass(frozen=True)
class EWCPPConfig(RunningFisherConfig):
    """`half_penalty` is the 1/2 of Eq. 2."""

    half_penalty: bool = option(True)


class RunningFisher(Penalised):
    """One Fisher, gathered while training."""

    config: RunningFisherConfig
    running_: Named  # F of Eq. 6
    gathered_: Named  # the sum since the last renewal, where it is asked for
    steps_: int = 0

    def __init__(self, spec: Spec, config: RunningFisherConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.running_, self.gathered_ = zeros(self.net), {}

    def begin_task(self, task: Task) -> None:
        """The Fisher runs on; the count of steps starts anew, so that each task's first batch is looked at."""
        super().begin_task(task)
        self.running_ = fitted(self.running_, self.net)
        self.gathered_ = zeros(self.net) if self.config.accumulate == "interval" else {}
        self.steps_ = 0

    def look(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> None:
        """The Fisher of this batch, where one is due: before the step, with the gradients of the loss alone at hand."""
        every = self.config.accumulate == "interval"
        if not every and self.steps_ % self.config.interval:
            return
        if self.config.fisher == "batch":
            new = {name: g.square_() for name, g in gradients_of(self.net).items()}
        else:
            outputs = self.outputs_
            new = fisher_empirical(self.net, x, y, loss=lambda logits, y: outputs.loss(logits, y) * len(y))
        if every:
            torch._foreach_add_(list(self.gathered_.values()), [new[name] for name in self.gathered_])
        else:
            self.renew_fisher(new, 1.0)

    def renew_fisher(self, new: Named, scale: float) -> None:
        """Eq. 6 with `scale` times `new`."""
        alpha = self.config.alpha
        torch._foreach_mul_(list(self.running_.values()), 1 - alpha)
        torch._foreach_add_(list(self.running_.values()), [new[name] for name in self.running_], alpha=alpha * scale)

    def renew_from_interval(self) -> None:
        """At the end of an interval: Eq. 6 with the mean of what was gathered in it."""
        if self.gathered_ and self.steps_ % self.config.interval == 0:
            self.renew_fisher(self.gathered_, 1 / self.config.interval)
            torch._foreach_zero_(list(self.gathered_.values()))


class EWCPP(RunningFisher):
    """A penalty by one Fisher that was gathered while training."""

    config: EWCPPConfig

    @property
    def strength(self) -> float:
        """lam / 2, or lam."""
        return self.config.lam / 2 if self.config.half_penalty else self.config.lam

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step, and every `interval` steps a look at the Fisher."""
        info = self.backward(x, y)
        self.look(x, y)
        self.penalised_step()
        self.steps_ += 1
        self.renew_from_interval()
        return info

    def end_task(self, task: Task) -> None:
        """Store F and the weights (section 4.1)."""
        super().end_task(task)
        self.weight_ = {name: value.clone() for name, value in scaled(self.running_, self.config.normalise).items()}
        self.anchor_ = copied(self.net)
