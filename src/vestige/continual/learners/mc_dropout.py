"""Plain training with dropout that stays on at test time: Farquhar and Gal C.8.1, after Gal and Ghahramani (2015).

Each batch goes through one mask a row; the loss is its cross-entropy and `l2` times the squared weights, which stands
for the KL (see `nets.ensembles` for the factor that the theory gives). A prediction averages `test_samples` masks.
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
from vestige.core.checks import number, one_of, refuse, whole
from vestige.data.task import TaskInfo
from vestige.nets.ensembles import MCDropoutNet


@dataclass(frozen=True)
class MCDropoutConfig(TrainConfig):
    """The rate of dropout, the factor of the squared weights, and the masks behind a prediction."""

    dropout: float = 0.25
    l2: float = 0.01
    test_samples: int = 100


class MCDropout(Posterior):
    """Masks are its posterior."""

    config: MCDropoutConfig
    net: MCDropoutNet  # type: ignore[assignment]

    def __init__(self, spec: Spec, config: MCDropoutConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner, c = type(self).__name__, self.config
        number(c.dropout, "dropout", owner, low=0, high=1, open_low=True, open_high=True)
        number(c.l2, "l2", owner, low=0)
        whole(c.test_samples, "test_samples", owner, low=1)
        one_of(c.net, ("mlp", "conv"), "net", owner)
        if c.head != "fixed":
            refuse("head", owner, "'fixed'", repr(c.head))
        self.net = MCDropoutNet(self.whole_net(), c.dropout)
        self.steps = 0

    @classmethod
    def default_config(cls) -> MCDropoutConfig:
        """Dropout 0.25, l2 0.01 (C.8.1), 100 masks."""
        return MCDropoutConfig()

    @property
    def test_samples(self) -> int:
        """Masks behind one prediction."""
        return self.config.test_samples

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step under one mask a row, which follows from the seed and how many steps came before."""
        self.steps += 1
        logits = self.net(x, 1, rng.fork(self.seed, "mask", self.steps)).squeeze(0)
        return self.step(self.outputs.loss(logits, y) + self.config.l2 * self.net.squared_weights())

    def draws(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: torch.Generator, task: TaskInfo | None = None
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Logits under `samples` masks."""
        return self.net.draw(x, samples, generator)

    def method_state(self) -> dict[str, Tensor]:
        """And how many masks were drawn."""
        return super().method_state() | {"steps": torch.tensor(self.steps)}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        super().load_method_state(state)
        self.steps = int(state["steps"])
