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
- `half`: the 1/2 of Eq. 2, which the code leaves out.
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
    gradients_of,
    prefixed,
    pull_value,
    scaled,
    stripped,
    zeros,
)
from vestige.continual.learners.vanilla import Vanilla
from vestige.core.checks import number, one_of, whole
from vestige.data.task import Task
from vestige.nets.fisher import fisher_empirical


@dataclass(frozen=True)
class EWCPPConfig(TrainConfig):
    """`lam` weighs the KL of Eq. 5; `alpha` is that of Eq. 6; `interval` the steps between two updates of F."""

    lam: float = 100.0
    half: bool = True
    alpha: float = 0.9
    interval: int = 10
    fisher: str = "empirical"
    accumulate: str = "batch"
    normalise: str = "none"


class EWCPP(Vanilla):
    """A pull by one Fisher that was gathered while training."""

    config: EWCPPConfig

    def __init__(self, spec: Spec, config: EWCPPConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner = type(self).__name__
        number(self.config.lam, "lam", owner, low=0)
        number(self.config.alpha, "alpha", owner, low=0, high=1)
        whole(self.config.interval, "interval", owner, low=1)
        one_of(self.config.fisher, ("empirical", "batch"), "fisher", owner)
        one_of(self.config.accumulate, ("batch", "interval"), "accumulate", owner)
        one_of(self.config.normalise, NORMALISE, "normalise", owner)
        self.strength = self.config.lam / 2 if self.config.half else self.config.lam
        self.running: Named = zeros(self.net)  # F of Eq. 6
        self.gathered: Named = {}  # the sum since the last renewal, where it is asked for
        self.weight: Named = {}  # the copy of F at the last border
        self.anchor: Named = {}
        self.steps = 0

    @classmethod
    def default_config(cls) -> EWCPPConfig:
        """Alpha 0.9, every 10 steps."""
        return EWCPPConfig()

    def begin_task(self, task: Task) -> None:
        """The Fisher runs on; the count of steps starts anew, so that each task's first batch is looked at."""
        super().begin_task(task)
        self.weight, self.anchor = fitted(self.weight, self.net), fitted(self.anchor, self.net)
        self.running = fitted(self.running, self.net)
        self.gathered = zeros(self.net) if self.config.accumulate == "interval" else {}
        self.steps = 0

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step, and every `interval` steps a look at the Fisher."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.look(x, y)
        add_pull(self.net, self.weight, self.anchor, self.strength)
        self.optimizer.step()
        self.steps += 1
        self.renew_from_interval()
        return Info(loss.detach())

    def look(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> None:
        """The Fisher of this batch, where one is due: before the step, with the gradients of the loss alone at hand."""
        every = self.config.accumulate == "interval"
        if not every and self.steps % self.config.interval:
            return
        if self.config.fisher == "batch":
            new = {name: g.square_() for name, g in gradients_of(self.net).items()}
        else:
            outputs = self.outputs
            new = fisher_empirical(self.net, x, y, loss=lambda logits, y: outputs.loss(logits, y) * len(y))
        if every:
            torch._foreach_add_(list(self.gathered.values()), [new[name] for name in self.gathered])
        else:
            self.renew_fisher(new, 1.0)

    def renew_fisher(self, new: Named, scale: float) -> None:
        """Eq. 6 with `scale` times `new`."""
        alpha = self.config.alpha
        torch._foreach_mul_(list(self.running.values()), 1 - alpha)
        torch._foreach_add_(list(self.running.values()), [new[name] for name in self.running], alpha=alpha * scale)

    def renew_from_interval(self) -> None:
        """At the end of an interval: Eq. 6 with the mean of what was gathered in it."""
        if self.gathered and self.steps % self.config.interval == 0:
            self.renew_fisher(self.gathered, 1 / self.config.interval)
            torch._foreach_zero_(list(self.gathered.values()))

    def end_task(self, task: Task) -> None:
        """Store F and the weights (section 4.1)."""
        self.weight = {name: value.clone() for name, value in scaled(self.running, self.config.normalise).items()}
        self.anchor = copied(self.net)

    def penalty(self) -> float:
        """The pull at this moment."""
        return self.strength * pull_value(self.net, self.weight, self.anchor)

    def method_state(self) -> dict[str, Tensor]:
        """Both Fishers, the anchor, and where in the interval we are."""
        rooms = {"weight": self.weight, "anchor": self.anchor, "running": self.running, "gathered": self.gathered}
        named = {key: value for room, values in rooms.items() for key, value in prefixed(room, values).items()}
        return super().method_state() | named | {"steps": torch.tensor(self.steps)}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        self.outputs = Outputs(state["outputs"].tolist(), self.spec.n_outputs)
        self.weight, self.anchor = stripped("weight", state), stripped("anchor", state)
        self.running, self.gathered = stripped("running", state), stripped("gathered", state)
        self.steps = int(state["steps"])
