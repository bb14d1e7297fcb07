"""The fit to a coreset from the first prior: section 6.2's third variant to the letter.

"The prior used for variational inference is the initial prior each time." `CoresetOnly` resets it for each task and
then fits the coreset as VCL's authors do with theirs: with the KL from the posterior before it, over the coreset's
size. Weights whose posterior is as narrow as after 120 steps (a deviation of 0.05) are held there by that KL: on
single-headed Split MNIST 120 steps on 200 samples then leave the old tasks almost where they were. Here the fit too has
the first prior, N(0, 1), which hardly holds anything. Which of the two is meant decides Fig. 6; both are run.
"""

from __future__ import annotations

import copy

import torch

from vestige import rng
from vestige.methods.base import Outputs
from vestige.methods.vcl import expected_loss
from vestige.methods.vcl_coreset import CoresetOnly, VCLCoreset
from vestige.nets.bayes import BayesNet


class FromFirstPrior(VCLCoreset):
    """VCL with a coreset, whose fit to it is held by the first prior alone."""

    def fitted(self, tasks: list[int]) -> BayesNet:
        """The network of now after training on the coresets of `tasks`; they share their outputs, or are one."""
        net = copy.deepcopy(self.net)
        net.forget_prior()
        rows = torch.isin(self.memory.task, torch.tensor(tasks))
        x, y, outputs = (
            self.memory.x[rows],
            self.memory.y[rows],
            Outputs(self.outputs_of(tasks[0]), self.spec.n_outputs),
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=self.config.lr, fused=True)
        for step in range(self.config.coreset_steps):
            optimizer.zero_grad()
            generator = rng.fork(self.seed, "coreset fit", len(self.rivals), tasks[0], len(tasks), step)
            loss = expected_loss(net, outputs, x, y, self.config.train_samples, generator) + net.kl() / len(y)
            loss.backward()
            optimizer.step()
        return net


class OnlyFromFirstPrior(FromFirstPrior, CoresetOnly):
    """Nothing but the coreset remembers, in the fit as well."""
