"""A deep ensemble (Lakshminarayanan et al. 2017): `members` plain networks that differ in where their weights began.

They train as one batched network, each exactly as it would alone: the loss is the sum of theirs. Predictions average
their probabilities; where they are sure and disagree, the mutual information is high. Nothing is kept from task to
task: each member forgets as vanilla does.

Deviation: the paper also shuffles the data for each member; here the task loop hands all of them the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Spec, TrainConfig
from vestige.continual.learners.posterior import Posterior
from vestige.core.checks import option, refuse
from vestige.data.stream import TaskInfo
from vestige.nets.bayesian import EnsembleMLP


@dataclass(frozen=True)
class EnsembleConfig(TrainConfig):
    """How many networks; they are its own, so that there is no other choice of them."""

    net: str = option("mlp", among=("mlp",))
    init: str = option("torch", among=("torch",))
    head: str = option("fixed", among=("fixed",))
    members: int = option(5, low=2)


class Ensemble(Posterior):
    """Its draws are its members, each once."""

    config: EnsembleConfig
    net: EnsembleMLP  # type: ignore[assignment]

    def __init__(self, spec: Spec, config: EnsembleConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        c = self.config
        self.net = EnsembleMLP(spec.input_shape, c.hidden, spec.n_outputs, members=c.members, seed=seed)

    @property
    def test_samples(self) -> int:
        """Every member."""
        return self.config.members

    def train_on(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step of every member down its own loss; what is told is their mean."""
        members = self.config.members
        mean = self.outputs_.loss(self.net(x).flatten(0, 1), y.repeat(members))
        return Info(self.step(mean * members).loss / members)

    def draws(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: torch.Generator, task: TaskInfo | None = None
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Logits of the members; there are as many draws as members, and another number is refused."""
        if samples != self.config.members:
            refuse("samples", "Ensemble", f"{self.config.members}, its members", samples)
        yield self.net(x).detach()
