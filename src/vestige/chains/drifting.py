"""The drifting Gaussians of CDRE section 4.1, of one task or of many: a test bed of chains whose truth is known.

A task's data p is seen at the step in which it arrives; the model at step t = 1, 2, ... is q_t. Steps and tasks are
numbered from 1, as in CDRE. Divergences between Gaussians are closed forms. `Drift` serves other distributions too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import number, refuse, whole
from vestige.ratios.divergences import Gaussian, gaussian_divergence

# D_mu = -D_sigma of the paper's Gaussians by dimension, and the distance between the means of two tasks.
PAPER_STEPS = {2: 0.05, 100: 0.02}
PAPER_SPACING = 2.0


@runtime_checkable
class Distribution(Protocol):
    """A density that can be drawn from."""

    def sample(self, n: int, *, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """`n` independent draws, float64."""

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log density of each row."""


@dataclass(frozen=True, eq=False)
class Drift:
    """The distribution of each task's data, and the model's at every step; samples of both, and the truth between them.

    With `multi_task` task k arrives at step k; otherwise task 1 is all there is.
    """

    name: str
    d: int
    n_steps: int
    real_distribution: Callable[[int], Distribution]  # of a task
    model_distribution: Callable[[int, int], Distribution]  # of a step and a task
    multi_task: bool = False

    def tasks(self, t: int) -> range:
        """The tasks learnt by step `t`."""
        whole(t, "t", self.name, low=1, high=self.n_steps)
        return range(1, t + 1) if self.multi_task else range(1, 2)

    def p(self, task: int = 1) -> Distribution:
        """The distribution of the data of `task`."""
        whole(task, "task", self.name, low=1, high=self.n_steps if self.multi_task else 1)
        return self.real_distribution(task)

    def q(self, t: int, task: int = 1) -> Distribution:
        """The model's distribution of `task` at step `t`."""
        if whole(task, "task", self.name, low=1) not in self.tasks(t):
            refuse("task", self.name, f"one that step {t} has learnt ({self.tasks(t)[-1]} at most)", task)
        return self.model_distribution(t, task)

    def real(self, task: int, n: int, seed: int) -> Float[Tensor, "n d"]:
        """`n` real samples of `task`, float64."""
        whole(n, "n", self.name, low=1)
        return self.p(task).sample(n, generator=rng.fork(seed, "real", task))

    def model(self, t: int, task: int, n: int, seed: int) -> Float[Tensor, "n d"]:
        """`n` samples of the model at step `t` for `task`, float64."""
        whole(n, "n", self.name, low=1)
        return self.q(t, task).sample(n, generator=rng.fork(seed, "model", t, task))

    def true_log_ratio(self, x: Float[Tensor, "n d"], t: int, task: int = 1) -> Float[Tensor, " n"]:
        """log p(x|task) / q_t(x|task)."""
        return self.p(task).log_prob(x) - self.q(t, task).log_prob(x)

    def true(self, name: str, t: int, task: int | None = None) -> float:
        """The true divergence `name` of p(.|task) from q_t(.|task); averaged over the tasks of step `t` when None."""
        tasks = self.tasks(t) if task is None else [task]
        return sum(self.true_of(name, t, i) for i in tasks) / len(tasks)  # CDRE Eq. 13

    def true_of(self, name: str, t: int, task: int) -> float:
        """The true divergence of one task, by the closed form of Gaussians; a drift of others overrides it."""
        p, q = self.p(task), self.q(t, task)
        assert isinstance(p, Gaussian)
        assert isinstance(q, Gaussian)
        return gaussian_divergence(name, p, q)


def gaussians(
    d: int = 2,
    *,
    n_steps: int = 10,
    multi_task: bool = False,
    mean_step: float | None = None,
) -> Drift:
    """The drifting Gaussians of CDRE section 4.1: a model that wanders off and narrows.

    One task: p = N(0, I), and the model at step t is q_t = N(D_mu t, (1 + D_sigma t)^2 I). Many tasks: task tau
    arrives at step tau, p(.|tau) = N(2 tau, I), and from then on q_t(.|tau) = N(2 tau + D_mu k, (1 + D_sigma k)^2 I)
    with k = t - tau + 1. The paper has D_mu = -D_sigma = 0.05 in 2 dimensions and 0.02 in 100; `mean_step` must be
    stated for others.
    """
    owner = "gaussians"
    whole(d, "d", owner, low=1)
    whole(n_steps, "n_steps", owner, low=1)
    if mean_step is None:
        if d not in PAPER_STEPS:
            refuse("mean_step", owner, f"stated for d = {d} (the paper has d = 2 and d = 100)", "None")
        mean_step = PAPER_STEPS[d]
    moved = number(mean_step, "mean_step", owner)
    if 1.0 - moved * n_steps <= 0:
        refuse("n_steps", owner, f"below {1 / moved:g}, where the model's std reaches 0", n_steps)
    apart = PAPER_SPACING if multi_task else 0.0

    def model(t: int, task: int) -> Distribution:
        k = t - task + 1
        return Gaussian.isotropic(apart * task + moved * k, 1.0 - moved * k, d)

    return Drift(owner, d, n_steps, lambda task: Gaussian.isotropic(apart * task, 1.0, d), model, multi_task)
