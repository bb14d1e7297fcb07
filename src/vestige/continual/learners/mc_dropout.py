"""Plain training with dropout that stays on at test time: Farquhar and Gal C.8.1, after Gal and Ghahramani (2015).

Each batch goes through one mask a row; the loss is its cross-entropy and `l2` times the squared weights, which stands
for the KL (see `nets.bayesian` for the factor that the theory gives). A prediction averages `test_samples` masks.
Nothing is kept from task to task: it forgets as vanilla does, and says how sure it is.

The paper's setting is net="conv", dropout 0.25, l2 0.01, 25 epochs, with generated replay, which this learner has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Spec, TrainConfig
from vestige.continual.learners.posterior import Posterior
from vestige.core import rng
from vestige.core.checks import option
from vestige.data.stream import TaskInfo
from vestige.nets.bayesian import MCDropoutNet


@dataclass(frozen=True)
class MCDropoutConfig(TrainConfig):
    """The rate of dropout, the factor of the squared weights (C.8.1 has 0.25 and 0.01), the masks of a prediction."""

    net: str = option("mlp", among=("mlp", "conv"))
    head: str = option("fixed", among=("fixed",))
    dropout: float = option(0.25, above=0, below=1)
    l2: float = option(0.01, low=0)
    test_samples: int = option(100, low=1)


class MCDropout(Posterior):
    """Masks are its posterior."""

    config: MCDropoutConfig
    net: MCDropoutNet  # type: ignore[assignment]
    steps_: int = 0  # masks drawn so far

    def __init__(self, spec: Spec, config: MCDropoutConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.net = MCDropoutNet(self.whole_net(), self.config.dropout)

    @property
    def test_samples(self) -> int:
        """Masks behind one prediction."""
        return self.config.test_samples

    def train_on(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step under one mask a row, which follows from the seed and how many steps came before."""
        self.steps_ += 1
        logits = self.net(x, 1, rng.fork(self.seed, "mask", self.steps_)).squeeze(0)
        return self.step(self.outputs_.loss(logits, y) + self.config.l2 * self.net.squared_weights())

    def draws(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: torch.Generator, task: TaskInfo | None = None
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Logits under `samples` masks."""
        return self.net.draw(x, samples, generator)
