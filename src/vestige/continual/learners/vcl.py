"""Variational continual learning (Nguyen et al. 2018), as Farquhar and Gal examine it (Eq. 1, 6.2, B.2 to B.5).

A mean-field Gaussian over the weights is trained on each task by

    E_q[-log p(y | x, w)] + KL(q || prior) / N,     N the task's samples,

and when the task ends the posterior becomes the prior of the next. Means start at a maximum-likelihood fit of the first
task, the prior at N(0, 1). The network is fully connected, or with `net="conv"` that of C.8.1. Of the head only the
outputs that train take part: with a stream whose tasks train over their own outputs ("current") each task has a head of
its own, with "seen" or "all" the head is shared. Predictions average the softmax of `test_samples` posterior samples,
over the outputs of the task if it is told, of all tasks so far if not.

Deviations. The paper starts variances at 1e-6. Taken literally (`log_var=math.log(1e-6)`), nothing after the first task
is learnt: its posterior, hardly wider than it began, is the next prior and holds every weight. The authors of VCL start
log-variances at -6, and so do we. The maximum-likelihood fit is `fit_steps` batches long; the papers do not say how
long. Batches and epochs are the protocol's to say: `vestige_papers.robust.published` has those of Farquhar and Gal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Outputs, Spec, TrainConfig
from vestige.continual.learners.posterior import Posterior
from vestige.core import rng
from vestige.core.checks import option
from vestige.data.stream import Task, TaskInfo
from vestige.nets import Classifier, build_net
from vestige.nets.bayesian import BayesNet
from vestige.nets.training import adam, train


@dataclass(frozen=True)
class VCLConfig(TrainConfig):
    """Samples of the posterior a batch and a prediction; how variances, priors and the first means begin.

    The network is its own, and Adam fits it to the first task and to a coreset, so that there is no other choice.
    """

    net: str = option("mlp", among=("mlp", "conv"))
    init: str = option("torch", among=("torch",))
    head: str = option("fixed", among=("fixed",))
    optimizer: str = option("adam", among=("adam",))
    train_samples: int = option(10, low=1)
    test_samples: int = option(100, low=1)
    log_var: float = option(-6.0, low=-80, high=80)  # a float32 variance, neither zero nor infinite
    prior_std: float = option(1.0, above=0)
    fit_steps: int = option(200, low=0)
    fit_batch_size: int = option(256, low=1)


def maximum_likelihood(
    spec: Spec, config: VCLConfig, outputs: Outputs, x: Tensor, y: Tensor, *, seed: int
) -> Classifier:
    """A plain network of the same shape after `fit_steps` batches."""
    net = build_net(config.net, spec.input_shape, spec.n_outputs, hidden=config.hidden, seed=seed)

    def loss(step: int) -> Tensor:
        rows = torch.randint(len(y), (min(config.fit_batch_size, len(y)),), generator=rng.fork(seed, "fit", step))
        return outputs.loss(net(x[rows]), y[rows])

    train(adam(net.parameters(), loss, config.learning_rate), config.fit_steps)
    return net


class VCL(Posterior):
    """The posterior of one task is the prior of the next."""

    config: VCLConfig
    net: BayesNet  # type: ignore[assignment]
    rows_: int = 1  # of the task, those that train
    steps_: int = 0  # batches so far, from which the noise follows

    def __init__(self, spec: Spec, config: VCLConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        c = self.config
        plain = build_net(c.net, spec.input_shape, spec.n_outputs, hidden=c.hidden, seed=seed)
        self.net = BayesNet(plain, log_var=c.log_var, prior_std=c.prior_std)

    def begin_task(self, task: Task) -> None:
        """Take the task's outputs and its size; start the first one's means at a maximum-likelihood fit."""
        first = not self.seen_
        super().begin_task(task)
        kept_out = 0 if self.held_back_ is None else len(self.held_back_)
        if first and len(task.y) and self.config.fit_steps:
            rows = torch.arange(len(task.y))
            rows = rows if self.held_back_ is None else rows[~torch.isin(rows, self.held_back_)]
            found = maximum_likelihood(
                self.spec, self.config, self.outputs_, task.x[rows], task.y[rows], seed=self.seed
            )
            self.net.start_at(found, rows=self.outputs_.index)
        self.rows_ = max(task.info.n - kept_out, 1)

    def train_on(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step down the expected loss and the KL."""
        return self.step(self.likelihood_loss(x, y) + self.net.kl(self.outputs_.index) / self.rows_)

    def likelihood_loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """E_q[-log p(y | x, w)], a mean over rows and posterior samples."""
        return expected_loss(self.net, self.outputs_, x, y, self.config.train_samples, self.noise())

    def noise(self) -> torch.Generator:
        """The generator of the next batch, which follows from the seed and how many came before."""
        self.steps_ += 1
        return rng.fork(self.seed, "noise", self.steps_)

    def end_task(self, task: Task) -> None:
        """The posterior becomes the prior."""
        super().end_task(task)
        self.net.advance(self.outputs_.index)

    @property
    def test_samples(self) -> int:
        """Draws behind one prediction."""
        return self.config.test_samples

    def draws(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: torch.Generator, task: TaskInfo | None = None
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Logits of `samples` draws of the posterior."""
        return self.net.draw(x, samples, generator)


def expected_loss(
    net: BayesNet, outputs: Outputs, x: Tensor, y: Tensor, samples: int, generator: torch.Generator
) -> Float[Tensor, ""]:
    """Mean cross-entropy over rows and posterior samples, all of them one batch."""
    return outputs.loss(net(x, samples, generator).flatten(0, 1), y.repeat(samples))
