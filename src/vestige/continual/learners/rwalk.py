"""EWC++ and Riemannian Walk (Chaudhry et al. 2018).

**EWC++** (section 4.1, Eq. 5 and 6): one Fisher, a moving average over the batches of training.

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

**RWalk.** EWC++'s Fisher plus a score of the path walked, both scaled to [0, 1].

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

The Riemannian distance, 1/2 F_i d_i^2, never exceeds eps, here or with the settings of the authors' code: on Split
MNIST (256-256, 500 rows a class, 8 epochs of Adam at 1e-3) the largest of any weight and interval is 9e-4 by the
paper's reading and 1e-4 by the code's, for an eps of 1e-3, and dividing by it takes 2 % and 0.005 % from the sum of all
scores. So the score is PI's path integral over a constant, and what RWalk adds to EWC++ is that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vestige.continual.learners.base import Info
from vestige.continual.learners.penalty import (
    GRADIENTS,
    NORMALISE,
    Named,
    Penalised,
    PenaltyConfig,
    copied,
    fisher_notes,
    fitted,
    gradients_of,
    scaled,
    trained,
    zeros,
)
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task
from vestige.nets.fisher import can_follow, fisher_empirical, following


@dataclass(frozen=True)
class RunningFisherConfig(PenaltyConfig):
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

    def begin_task(self, task: Task) -> None:
        """The Fisher runs on; the count of steps starts anew, so that each task's first batch is looked at."""
        super().begin_task(task)
        self.running_ = fitted(self.running_, self.net) or zeros(self.net)
        self.gathered_ = zeros(self.net) if self.config.accumulate == "interval" else {}
        self.steps_ = 0

    def notes(self) -> dict[str, Any]:
        """And how the Fisher of a user's own network is had."""
        return super().notes() | fisher_notes(self, self.config.fisher)

    @cached_property
    def followed(self) -> bool:
        """Whether a training pass shows the Fisher of its batch: of a mean over the batch's rows and nothing else."""
        return self.config.fisher == "empirical" and self.memory is None and can_follow(self.net)

    @contextmanager
    def seeing_fisher(self, x: Inputs, y: Labels) -> Iterator[None]:
        """Around the passes of the loss alone: after them, where one is due, the Fisher of this batch at the weights of
        now, seen in those passes, of the gradients at hand, or by a pass of its own."""
        every = self.config.accumulate == "interval"
        if not every and self.steps_ % self.config.interval:
            yield
            return
        if self.followed:
            with following(self.net) as seen:
                yield
            new = seen.fisher()
        elif self.config.fisher == "batch":
            yield
            new = {name: g.square_() for name, g in gradients_of(self.net).items()}
        else:
            yield
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

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step, and every `interval` steps a look at the Fisher."""
        with self.seeing_fisher(x, y):
            info = self.backward(self.loss(x, y))
        self.penalised_step()
        self.steps_ += 1
        self.renew_from_interval()
        return info

    def end_task(self, task: Task) -> None:
        """Store F and the weights (section 4.1)."""
        super().end_task(task)
        self.weight_ = {name: value.clone() for name, value in scaled(self.running_, self.config.normalise).items()}
        self.anchor_ = copied(self.net)


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

    def begin_task(self, task: Task) -> None:
        """A new walk starts here."""
        super().begin_task(task)
        self.score_ = fitted(self.score_, self.net)
        self.fall_, self.start_, self.walked_ = zeros(self.net), copied(self.net), zeros(self.net)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step; every `interval` steps the Fisher is renewed and the interval's score taken."""
        with self.seeing_fisher(x, y):
            info = self.backward(self.loss(x, y))
        self.penalised_step(self.fall_, total=self.config.gradient == "total")
        self.steps_ += 1
        if self.steps_ % self.config.interval == 0:
            self.take_score()
        self.renew_from_interval()
        return info

    @torch.no_grad()
    def take_score(self) -> None:
        """Eq. 7's ratio over the interval that ends here; negative scores count as zero."""
        here = trained(self.net)
        now: list[Tensor] = list(here.values())
        fall, start, fisher, walked = (
            [of[name] for name in here] for of in (self.fall_, self.start_, self.running_, self.walked_)
        )
        far, double = self.scratch("far", now), 2.0 if self.config.half_distance else 1.0
        for gap, at, began in zip(far, now, start, strict=True):
            torch.sub(at, began, out=gap)
        torch._foreach_mul_(far, far)
        torch._foreach_mul_(far, fisher)
        torch._foreach_add_(far, double * self.config.eps)  # dL / (x / 2 + eps) is 2 dL / (x + 2 eps), to the bit
        torch._foreach_clamp_min_(fall, 0)
        torch._foreach_addcdiv_(walked, fall, far, double)
        torch._foreach_zero_(fall)
        torch._foreach_copy_(start, now)

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
