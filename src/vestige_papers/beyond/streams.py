"""Two small streams on which a generator really forgets, for `beyond-matrix`.

gaussians   the drifting Gaussians of CDRE section 4.1, many tasks; the truth is known
mixtures    images as principal components, a few classes a task, and a continual generator: Gaussian mixtures with
            a budget of components that the tasks seen so far share. At each step old tasks are refitted to samples
            of their former selves, with fewer components: that is forgetting. New ones get fewer than they would
            get alone: that is intransigence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from vestige.chains import gaussians
from vestige.core import rng
from vestige.features import PCA
from vestige_papers.cdre import static as cdre_static


@dataclass(frozen=True)
class Config:
    """`generator` is set by the arms: a drift a step for "gaussians", a budget of components for "mixtures"."""

    stream: str = ""
    drifts: tuple[float, ...] = (0.02, 0.05, 0.08)
    budgets: tuple[float, ...] = (8.0, 16.0, 40.0)
    generator: float = 0.0
    tasks: int = 5
    n: int = 3000
    data: str = "mnist"
    dims: int = 8


class Stage:
    """A stream and its generator: samples of real tasks, and of the generator after step t."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.seed = config, seed
        if config.stream == "gaussians":
            self.bed = gaussians(2, n_steps=config.tasks, multi_task=True, mean_step=config.generator)
            self.data = {k: self.bed.real(k, config.n, seed) for k in range(1, config.tasks + 1)}
        else:
            self.data = tasks_of(config, seed)
            self.models: dict[int, GaussianMixture] = {}

    def train(self, t: int) -> None:
        """Step t: task t from its data, older ones from what the generator remembers of them."""
        if self.config.stream == "mixtures":
            share = max(int(self.config.generator) // t, 1)
            n = len(self.data[t])
            told = {k: self._sampled(model, n, "replay", t, k) for k, model in self.models.items()}
            told[t] = self.data[t]
            self.models = {k: self._mixture(x, share, t, k) for k, x in told.items()}

    def sample(self, t: int, task: int) -> Tensor:
        """What the generator gives for `task` after step `t`, which must be the newest."""
        if self.config.stream == "gaussians":
            return self.bed.model(t, task, self.config.n, self.seed)
        return self._sampled(self.models[task], len(self.data[task]), "sample", t, task)

    def reference(self, task: int) -> Tensor | None:
        """Samples of a generator that has the task to itself; None where that would be exact."""
        if self.config.stream == "gaussians":
            return None
        alone = self._mixture(self.data[task], int(self.config.generator), 0, task)
        return self._sampled(alone, len(self.data[task]), "alone", 0, task)

    def _mixture(self, x: Tensor, components: int, t: int, task: int) -> GaussianMixture:
        state = rng.child_seed(self.seed, "mixture", t, task) % 2**32
        few = min(components, len(x) // 20)
        return GaussianMixture(few, covariance_type="diag", reg_covar=1e-3, random_state=state).fit(x.numpy())

    def _sampled(self, model: GaussianMixture, n: int, *names: str | int) -> Tensor:
        """`n` draws; the model's own method would move its random state along."""
        numbers = rng.fork_numpy(self.seed, *names)
        which = numbers.choice(len(model.weights_), n, p=model.weights_)
        noise = numbers.standard_normal((n, model.means_.shape[1]))
        return torch.from_numpy(model.means_[which] + np.sqrt(model.covariances_[which]) * noise)


def tasks_of(config: Config, seed: int) -> dict[int, Tensor]:
    """Images of the first, second, ... group of classes as `dims` principal components, at most `n` a task."""
    source = cdre_static.load(config.data)
    x, y = (rows[: 2 * config.n * config.tasks] for rows in cdre_static.shuffled(source, seed))
    codes = PCA(dims=config.dims, whiten=True).fit(x.flatten(1)).transform(x.flatten(1)).double()
    task = torch.div(y, len(source.names) // config.tasks, rounding_mode="floor") + 1
    return {k: codes[task == k][: config.n] for k in range(1, config.tasks + 1)}
