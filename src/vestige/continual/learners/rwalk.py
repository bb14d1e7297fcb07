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
- `half_distance`: the 1/2 in Eq. 7's denominator, which the code leaves out;
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
from vestige.continual.learners.ewc_pp import RunningFisher, RunningFisherConfig
from vestige.continual.learners.penalty import NORMALISE, Named, copied, fitted, scaled, trained, zeros
from vestige.continual.learners.pi import GRADIENTS
from vestige.core.checks import option
from vestige.data.stream import Task


@dataclass(frozen=True)
class RWalkConfig(RunningFisherConfig):
    """`lam` weighs Eq. 8; alpha 0.9 and an interval of 10 are those for MNIST; the rest the paper leaves open."""

    lam: float = option(0.1, low=0)
    eps: float = option(1e-3, above=0)
    half_distance: bool = option(True)
    normalise: str = option("joint", among=NORMALISE)
    gradient: str = option("task", among=GRADIENTS)
    average: str = option("mean", among=("mean", "code"))


class RWalk(RunningFisher):
    """A penalty by Fisher and path score together."""

    config: RWalkConfig
    fall_: Named  # dL of the interval under way
    start_: Named  # where the interval began
    walked_: Named  # the score of this task
    score_: Named  # averaged over the tasks before

    def __init__(self, spec: Spec, config: RWalkConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.fall_, self.start_, self.walked_, self.score_ = zeros(self.net), copied(self.net), zeros(self.net), {}

    @property
    def strength(self) -> float:
        """lam: Eq. 8 has no factor 1/2."""
        return self.config.lam

    def begin_task(self, task: Task) -> None:
        """A new walk starts here."""
        super().begin_task(task)
        self.score_ = fitted(self.score_, self.net)
        self.fall_, self.start_, self.walked_ = zeros(self.net), copied(self.net), zeros(self.net)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step; every `interval` steps the Fisher is renewed and the interval's score taken."""
        info = self.backward(x, y)
        self.look(x, y)
        self.penalised_step(self.fall_, total=self.config.gradient == "total")
        self.steps_ += 1
        if self.steps_ % self.config.interval == 0:
            self.take_score()
        self.renew_from_interval()
        return info

    @torch.no_grad()
    def take_score(self) -> None:
        """Eq. 7's ratio over the interval that ends here; negative scores count as zero."""
        half = 0.5 if self.config.half_distance else 1.0
        for name, here in trained(self.net).items():
            far = half * self.running_[name] * (here - self.start_[name]).square() + self.config.eps
            self.walked_[name] += (self.fall_[name] / far).clamp_min(0)
            self.fall_[name].zero_()
            self.start_[name].copy_(here)

    def end_task(self, task: Task) -> None:
        """Average the scores, scale both parts to [0, 1], move the anchor."""
        super().end_task(task)
        if self.steps_ % self.config.interval:
            self.take_score()
        if not self.score_:
            self.score_ = {name: value.clone() for name, value in self.walked_.items()}
        else:
            old = 0.5 if self.config.average == "mean" else 1.5
            self.score_ = {name: old * self.score_[name] + 0.5 * value for name, value in self.walked_.items()}
        fisher, score = scaled(self.running_, self.config.normalise), scaled(self.score_, self.config.normalise)
        self.weight_ = {name: fisher[name] + score[name] for name in fisher}
        self.anchor_ = copied(self.net)
