"""The drifting Gaussians of cdre section 4.1, with their true divergences: data whose every answer is known.

One task: p = N(0, I) is seen at step 1, and the model at step t = 1, 2, ... is q_t = N(D_mu t, (1 + D_sigma t)^2 I).
Many tasks: task tau arrives at step tau, p(.|tau) = N(2 tau, I), and from then on
q_t(.|tau) = N(2 tau + D_mu k, (1 + D_sigma k)^2 I) with k = t - tau + 1.
The paper has D_mu = -D_sigma = 0.05 in 2 dimensions and 0.02 in 100: a model that wanders off and narrows. Steps and
tasks are numbered from 1, as there.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vestige.core import rng
from vestige.core.checks import number, refuse, whole
from vestige.ratios.divergences import Gaussian, gaussian_divergence

# D_mu = -D_sigma by dimension, and the distance between the means of two tasks, as in the paper.
PAPER_STEPS = {2: 0.05, 100: 0.02}
PAPER_SPACING = 2.0


@dataclass(frozen=True)
class DriftingGaussians:
    """Real Gaussians by task, model Gaussians by step and task, samples of both, and the truth between them."""

    d: int
    n_steps: int
    multi_task: bool
    mean_step: float
    std_step: float
    spacing: float

    def tasks(self, t: int) -> range:
        """The tasks learnt by step `t`: 1..t, or task 1 alone."""
        whole(t, "t", "gaussians", low=1, high=self.n_steps)
        return range(1, t + 1) if self.multi_task else range(1, 2)

    def p(self, task: int = 1) -> Gaussian:
        """The real Gaussian of `task`."""
        return Gaussian.isotropic(self._mean(task), 1.0, self.d)

    def q(self, t: int, task: int = 1) -> Gaussian:
        """The model's Gaussian for `task` at step `t`."""
        if whole(task, "task", "gaussians", low=1) not in self.tasks(t):
            refuse("task", "gaussians", f"one that step {t} has learnt ({self.tasks(t)[-1]} at most)", task)
        k = t - task + 1
        return Gaussian.isotropic(self._mean(task) + self.mean_step * k, 1.0 + self.std_step * k, self.d)

    def real(self, task: int, n: int, seed: int) -> Float[Tensor, "n d"]:
        """`n` real samples of `task`, float64."""
        return self.p(task).sample(_rows(n), generator=rng.fork(seed, "real", task))

    def model(self, t: int, task: int, n: int, seed: int) -> Float[Tensor, "n d"]:
        """`n` samples of the model at step `t` for `task`, float64."""
        return self.q(t, task).sample(_rows(n), generator=rng.fork(seed, "model", t, task))

    def true(self, name: str, t: int, task: int | None = None) -> float:
        """The true divergence `name` of p(.|task) from q_t(.|task); averaged over the tasks of step `t` when None."""
        tasks = self.tasks(t) if task is None else [task]
        values = [gaussian_divergence(name, self.p(i), self.q(t, i)) for i in tasks]
        return sum(values) / len(values)  # cdre Eq. 13

    def true_log_ratio(self, x: Float[Tensor, "n d"], t: int, task: int = 1) -> Float[Tensor, " n"]:
        """log p(x|task) / q_t(x|task)."""
        return self.p(task).log_prob(x) - self.q(t, task).log_prob(x)

    def _mean(self, task: int) -> float:
        whole(task, "task", "gaussians", low=1, high=self.n_steps if self.multi_task else 1)
        return self.spacing * task if self.multi_task else 0.0


def gaussians(
    d: int = 2,
    *,
    n_steps: int = 10,
    multi_task: bool = False,
    mean_step: float | None = None,
    std_step: float | None = None,
    spacing: float = PAPER_SPACING,
) -> DriftingGaussians:
    """Drifting Gaussians in `d` dimensions; the paper's drift for d = 2 and 100, and one to be stated for others."""
    owner = "gaussians"
    whole(d, "d", owner, low=1)
    whole(n_steps, "n_steps", owner, low=1)
    if mean_step is None:
        if d not in PAPER_STEPS:
            refuse("mean_step", owner, f"stated for d = {d} (the paper has d = 2 and d = 100)", "None")
        mean_step = PAPER_STEPS[d]
    mean_step = number(mean_step, "mean_step", owner)
    std_step = -mean_step if std_step is None else number(std_step, "std_step", owner)
    if 1.0 + std_step * n_steps <= 0:
        refuse("n_steps", owner, f"below {-1 / std_step:g}, where the model's std reaches 0", n_steps)
    return DriftingGaussians(d, n_steps, multi_task, mean_step, std_step, number(spacing, "spacing", owner))


def _rows(n: int) -> int:
    return whole(n, "n", "gaussians", low=1)
