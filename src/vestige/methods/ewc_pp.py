"""EWC++ (RWalk section 4.1, Eq. 5 and 6): one Fisher, a moving average over the batches of training.

    loss + lam * KL,  KL = 1/2 sum_i F_i (theta_i - theta_i^{k-1})^2                                         (Eq. 5, 2)
    F <- alpha * F(batch) + (1 - alpha) * F                                                                  (Eq. 6)

Alpha is on the new term, as printed. F is renewed every `interval` steps from the batch at hand (10 for MNIST in the
authors' code, where the paper has 1), with the exact per-sample squares, not the square of the batch's mean gradient.
It runs on over borders; at a border it is copied, and the copy pulls during the next task. Memory does not grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.checks import number, whole
from vestige.data.task import Task
from vestige.methods.base import Info, Outputs, Spec, TrainConfig
from vestige.methods.pull import Named, add_pull, copied, prefixed, pull_value, stripped, zeros
from vestige.methods.vanilla import Vanilla
from vestige.nets.fisher import fisher_empirical


@dataclass(frozen=True)
class EWCPPConfig(TrainConfig):
    """`lam` weighs the KL of Eq. 5; `alpha` is that of Eq. 6; `interval` the steps between two updates of F."""

    lam: float = 100.0
    alpha: float = 0.9
    interval: int = 10


class EWCPP(Vanilla):
    """A pull by one Fisher that was gathered while training."""

    config: EWCPPConfig

    def __init__(self, spec: Spec, config: EWCPPConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner = type(self).__name__
        number(self.config.lam, "lam", owner, low=0)
        number(self.config.alpha, "alpha", owner, low=0, high=1)
        whole(self.config.interval, "interval", owner, low=1)
        self.running: Named = zeros(self.net)  # F of Eq. 6
        self.weight: Named = {}  # its copy at the last border
        self.anchor: Named = {}
        self.steps = 0

    @classmethod
    def default_config(cls) -> EWCPPConfig:
        """Alpha 0.9, every 10 steps."""
        return EWCPPConfig()

    def begin_task(self, task: Task) -> None:
        """The Fisher runs on; the count of steps starts anew, so that each task's first batch is looked at."""
        super().begin_task(task)
        self.steps = 0

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step, and every `interval` steps a look at the Fisher."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        if self.steps % self.config.interval == 0:
            self.renew_fisher(x, y)
        self.steps += 1
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        add_pull(self.net, self.weight, self.anchor, self.config.lam / 2)
        self.optimizer.step()
        return Info(loss.detach())

    def renew_fisher(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> None:
        """Eq. 6 with the Fisher of this batch."""
        outputs, alpha = self.outputs, self.config.alpha
        new = fisher_empirical(self.net, x, y, loss=lambda logits, y: outputs.loss(logits, y) * len(y))
        torch._foreach_mul_(list(self.running.values()), 1 - alpha)
        torch._foreach_add_(list(self.running.values()), [new[name] for name in self.running], alpha=alpha)

    def end_task(self, task: Task) -> None:
        """Store F and the weights (section 4.1)."""
        self.weight = {name: value.clone() for name, value in self.running.items()}
        self.anchor = copied(self.net)

    def penalty(self) -> float:
        """The pull at this moment."""
        return self.config.lam / 2 * pull_value(self.net, self.weight, self.anchor)

    def method_state(self) -> dict[str, Tensor]:
        """Both Fishers, the anchor, and where in the interval we are."""
        named = prefixed("weight", self.weight) | prefixed("anchor", self.anchor) | prefixed("running", self.running)
        return super().method_state() | named | {"steps": torch.tensor(self.steps)}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        self.outputs = Outputs(state["outputs"].tolist(), self.spec.n_outputs)
        self.weight, self.anchor = stripped("weight", state), stripped("anchor", state)
        self.running, self.steps = stripped("running", state), int(state["steps"])
