"""Riemannian Walk (Chaudhry et al. 2018): EWC++'s Fisher plus a score of the path walked, both scaled to [0, 1].

    s_i += max(0, dL_i / (1/2 F_i d_i^2 + eps))     every `interval` steps, d_i the change of theta_i over them  (Eq. 7)
    s <- 1/2 (s of the tasks before + s of this task)                                                  at a border
    loss + lam * sum_i (F_i + s_i) (theta_i - theta_i^{k-1})^2                                                   (Eq. 8)

with dL_i = -sum of g_i times the change of theta_i over the interval. What the paper leaves open is a field, its
reading the default, the authors' code the other choice:
- `gradient`: "task" (the loss without the pull, both in Eq. 7 and in the code) or "total";
- `average`: "mean" (as printed) or "code", which computes 3/2 s + 1/2 (new) where the text says average;
- `normalise`: "joint" (min and max over all layers together, as the code does), "layer" or "none"; only weights that
  exist count, so a head that grew is normalised without the rows to come;
- `half`: the 1/2 in Eq. 7's denominator, which the code leaves out;
- `eps`: 1e-3 in the code, not given in the paper;
- `fisher` and `accumulate`: as in EWC++. With "interval" the score is taken with the F of the interval before, as in
  the code. (That also forgets to empty its sum of squares within a task; here it is emptied at each renewal.)
The first task's score is taken as it is: there is nothing to average it with.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Spec
from vestige.continual.learners.ewc_pp import EWCPP, EWCPPConfig
from vestige.continual.learners.pi import GRADIENTS
from vestige.continual.learners.pull import (
    Named,
    add_fall,
    add_pull,
    copied,
    fitted,
    gradients_of,
    prefixed,
    pull_value,
    scaled,
    stripped,
    trained,
    zeros,
)
from vestige.core.checks import number, one_of
from vestige.data.task import Task


@dataclass(frozen=True)
class RWalkConfig(EWCPPConfig):
    """`lam` weighs Eq. 8; the other fields are choices that the paper leaves open."""

    lam: float = 0.1
    eps: float = 1e-3
    normalise: str = "joint"
    gradient: str = "task"
    average: str = "mean"


class RWalk(EWCPP):
    """A pull by Fisher and path score together."""

    config: RWalkConfig

    def __init__(self, spec: Spec, config: RWalkConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner = type(self).__name__
        number(self.config.eps, "eps", owner, low=0, open_low=True)
        one_of(self.config.gradient, GRADIENTS, "gradient", owner)
        one_of(self.config.average, ("mean", "code"), "average", owner)
        self.fall: Named = zeros(self.net)  # dL of the interval under way
        self.start: Named = copied(self.net)  # where the interval began
        self.walked: Named = zeros(self.net)  # the score of this task
        self.score: Named = {}  # averaged over the tasks before

    @classmethod
    def default_config(cls) -> RWalkConfig:
        """Alpha 0.9 and an interval of 10, as for MNIST in the paper."""
        return RWalkConfig()

    def begin_task(self, task: Task) -> None:
        """A new walk starts here."""
        super().begin_task(task)
        self.score = fitted(self.score, self.net)
        self.fall, self.start, self.walked = zeros(self.net), copied(self.net), zeros(self.net)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step; every `interval` steps the Fisher is renewed and the interval's score taken."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        self.look(x, y)
        gradient, before = gradients_of(self.net), copied(self.net)
        add_pull(self.net, self.weight, self.anchor, self.config.lam)
        if self.config.gradient == "total":
            gradient = gradients_of(self.net)
        self.optimizer.step()
        add_fall(self.fall, gradient, self.net, before)
        self.steps += 1
        if self.steps % self.config.interval == 0:
            self.take_score()
        self.renew_from_interval()
        return Info(loss.detach())

    @torch.no_grad()
    def take_score(self) -> None:
        """Eq. 7's ratio over the interval that ends here; negative scores count as zero."""
        half = 0.5 if self.config.half else 1.0
        for name, here in trained(self.net).items():
            far = half * self.running[name] * (here - self.start[name]).square() + self.config.eps
            self.walked[name] += (self.fall[name] / far).clamp_min(0)
            self.fall[name].zero_()
            self.start[name].copy_(here)

    def end_task(self, task: Task) -> None:
        """Average the scores, scale both parts to [0, 1], move the anchor."""
        if self.steps % self.config.interval:
            self.take_score()
        if not self.score:
            self.score = {name: value.clone() for name, value in self.walked.items()}
        else:
            old = 0.5 if self.config.average == "mean" else 1.5
            self.score = {name: old * self.score[name] + 0.5 * value for name, value in self.walked.items()}
        fisher, score = scaled(self.running, self.config.normalise), scaled(self.score, self.config.normalise)
        self.weight = {name: fisher[name] + score[name] for name in fisher}
        self.anchor = copied(self.net)

    def penalty(self) -> float:
        """The pull at this moment (Eq. 8 has no factor 1/2)."""
        return self.config.lam * pull_value(self.net, self.weight, self.anchor)

    def method_state(self) -> dict[str, Tensor]:
        """All of EWC++'s, and the walk so far."""
        walk = {"fall": self.fall, "start": self.start, "walked": self.walked, "score": self.score}
        named = {key: value for room, values in walk.items() for key, value in prefixed(room, values).items()}
        return super().method_state() | named

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        super().load_method_state(state)
        self.fall, self.start = stripped("fall", state), stripped("start", state)
        self.walked, self.score = stripped("walked", state), stripped("score", state)
