"""Variational generative replay (Farquhar and Gal C.1 to C.6, Algorithm 1): the past speaks by its likelihood.

VCL keeps the past in its prior. VGR keeps the prior that it began with, N(0, 1), and puts generated samples of the
earlier tasks into the likelihood: on the task's data and the samples together it minimises Eq. 8,

    E_q[-log p(y | x, w)] + KL(q || prior) / (N T),     N samples in each of T tasks so far,

a mean over mini-batches. When a task ends a generator of its own is trained on it and kept, and from then on replays
`samples_per_class` rows of each of its classes, drawn anew for each task (C.4). Means and variances go on from the
previous task. Each batch brings its share of replay, which is "a batch size of 256 times the number of seen tasks,
ensuring that the number of batches is held constant" (C.4). A joined batch that is larger than `batch_cap` is mixed and
cut into equal parts, a step each (C.5: 30 000).

`VGRVCL` is the merged form that C.1 mentions, the prior being "the posterior from the previous task". `VGRMCDropout`
has masks for a posterior (C.8.1): the loss and the masks are those of `mc_dropout`, the rows those of VGR; "an L2
regularization with weight 0.01 produced the KL divergence", whatever the number of samples. The paper's network is
net="conv", trained for 25 epochs.

Readings. Eq. 5 divides the KL among T tasks and Eq. 4 sums over N_t samples of each, so that N T is how many real
samples all tasks so far had: their sum is taken, which for tasks of one size is N T. Eq. 8 is printed as what is
"minimised" with the signs of what is maximised. Eq. 7 has 1 / N_t where a sum over N_t samples becomes N_t times a
mean. How the loss of a set that has fewer samples than its task had is to be weighted is not said: every row, real or
generated, weighs the same, so that fewer samples are a lighter past. The first task begins as VCL's does (B.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vestige.continual.learners.generative_replay import GeneratedReplay, GeneratorReplay
from vestige.continual.learners.posterior import MCDropout, MCDropoutConfig
from vestige.continual.learners.vcl import VCL, VCLConfig
from vestige.core.checks import option
from vestige.data.stream import Task


@dataclass(frozen=True)
class VGRConfig(VCLConfig):
    """A mean-field posterior, a generator for each task, and how many rows one step takes at most."""

    replay: GeneratedReplay = GeneratedReplay()  # noqa: RUF009 - it is frozen
    batch_cap: int | None = option(None, low=1)


@dataclass(frozen=True)
class VGRMCDropoutConfig(MCDropoutConfig):
    """Dropout, a generator for each task, and how many rows one step takes at most."""

    replay: GeneratedReplay = GeneratedReplay()  # noqa: RUF009 - it is frozen
    batch_cap: int | None = option(None, low=1)


class VGR(VCL):
    """The prior stays, the likelihood grows."""

    moves_prior: ClassVar[bool] = False
    config: VGRConfig
    replay_: GeneratorReplay

    def set_up(self) -> None:
        """No generator has learnt anything yet."""
        self.replay_ = generators_of(self)

    def begin_task(self, task: Task) -> None:
        """The KL is divided by the samples of all tasks so far."""
        before = self.rows_ if self.seen_ else 0
        super().begin_task(task)
        self.rows_ += before

    def end_task(self, task: Task) -> None:
        """VCL's step from posterior to prior is undone, unless it is wanted."""
        super().end_task(task)
        if not self.moves_prior:
            self.net.forget_prior()


class VGRVCL(VGR):
    """VGR whose prior is the last posterior."""

    moves_prior = True


class VGRMCDropout(MCDropout):
    """Masks are its posterior, generated samples its past."""

    config: VGRMCDropoutConfig
    replay_: GeneratorReplay

    def set_up(self) -> None:
        """No generator has learnt anything yet."""
        self.replay_ = generators_of(self)


def generators_of(learner: VGR | VGRMCDropout) -> GeneratorReplay:
    """A generator for each task, as its configuration has them."""
    config, owner = learner.config, type(learner).__name__
    replay = GeneratorReplay(config.replay, learner.spec, per_task=True, owner=owner, seed=learner.seed)
    replay.batch_cap = config.batch_cap
    return replay
