"""Variational generative replay (Farquhar and Gal C.1 to C.6, Algorithm 1): the past speaks by its likelihood.

VCL keeps the past in its prior. VGR keeps the prior that it began with, N(0, 1), and puts generated samples of the
earlier tasks into the likelihood: on the task's data and the samples together it minimises Eq. 8,

    E_q[-log p(y | x, w)] + KL(q || prior) / (N T),     N samples in each of T tasks so far,

a mean over mini-batches. When a task ends a generator of its own is trained on it and kept, and from then on replays
`samples_per_class` rows of each of its classes, drawn anew for each task (C.4). Means and variances go on from the
previous task. Each batch brings its share of replay, which is "a batch size of 256 times the number of seen tasks,
ensuring that the number of batches is held constant" (C.4). A joined batch that is larger than `batch_cap` is mixed and
cut into equal parts, a step each (C.5: 30 000).

`VGRVCL` is the merged form that C.1 mentions, the prior being "the posterior from the previous task"; `VGRMCDropout`
(see `vgr_mc_dropout`) has masks for a posterior.

Readings. Eq. 5 divides the KL among T tasks and Eq. 4 sums over N_t samples of each, so that N T is how many real
samples all tasks so far had: their sum is taken, which for tasks of one size is N T. Eq. 8 is printed as what is
"minimised" with the signs of what is maximised. Eq. 7 has 1 / N_t where a sum over N_t samples becomes N_t times a
mean. How the loss of a set that has fewer samples than its task had is to be weighted is not said: every row, real or
generated, weighs the same, so that fewer samples are a lighter past. The first task begins as VCL's does (B.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Spec
from vestige.continual.learners.generated import GeneratedConfig, Generating
from vestige.continual.learners.posterior import Posterior
from vestige.continual.learners.vcl import VCL, VCLConfig
from vestige.core import rng
from vestige.core.checks import whole
from vestige.data.task import Task


@dataclass(frozen=True)
class ReplayedConfig(GeneratedConfig):
    """How many rows one step takes at most."""

    batch_cap: int | None = None


# The method's config comes first, so that its defaults win over those of plain training.
@dataclass(frozen=True)
class VGRConfig(VCLConfig, ReplayedConfig):
    """A mean-field posterior, and generators."""


class GenerativeReplay(Generating, Posterior):
    """A posterior that trains on real and generated rows together, a generator for each task."""

    per_task = True
    config: ReplayedConfig

    def __init__(self, spec: Spec, config: ReplayedConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        if self.config.batch_cap is not None:
            whole(self.config.batch_cap, "batch_cap", type(self).__name__, low=1)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """A step on the batch and its share of the replay; several where they are more rows than one step takes."""
        x, y = self.joined(x, y)
        step = super().observe  # type: ignore[safe-super]  # of the method that this is mixed with
        cap = self.config.batch_cap
        if cap is None or len(y) <= cap:
            return step(x, y)
        order = torch.randperm(len(y), generator=rng.fork(self.seed, "mix", self.place.task, self.place.seen))
        losses = [step(x[rows], y[rows]).loss for rows in order.tensor_split(-(-len(y) // cap))]
        return Info(torch.stack(losses).mean())


class VGR(GenerativeReplay, VCL):
    """The prior stays, the likelihood grows."""

    moves_prior: ClassVar[bool] = False
    config: VGRConfig

    @classmethod
    def default_config(cls) -> VGRConfig:
        """VCL's training, a small convolutional GAN for each class."""
        return VGRConfig()

    def begin_task(self, task: Task) -> None:
        """The KL is divided by the samples of all tasks so far."""
        before = self.n if self.seen else 0
        super().begin_task(task)
        self.n += before

    def end_task(self, task: Task) -> None:
        """Train the task's generator; VCL's step from posterior to prior is undone, unless it is wanted."""
        super().end_task(task)
        if not self.moves_prior:
            self.net.forget_prior()


class VGRVCL(VGR):
    """VGR whose prior is the last posterior."""

    moves_prior = True
