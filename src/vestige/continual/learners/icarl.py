"""iCaRL (Rebuffi et al. 2017): distillation to keep the features, exemplars to classify by their means.

Every output is a sigmoid of its own. On the task's data and the exemplars together (their Alg. 3)

    loss = sum over the task's outputs of BCE(g_y, label is y) + sum over older outputs of BCE(g_y, q_y)

with q the sigmoids of the network as it was when the task began, of which one frozen copy is kept. A sample belongs to
the class whose exemplars' mean is nearest in features (Alg. 1). Features have unit length, and so have the means.

`ICaRLHB1` ("hybrid 1") learns the same way and classifies by the network's outputs.

- Exemplars join as `replay` says; "mixed" is the paper's.
- Sigmoids do not compete, so the stream's `train_logits` has no say here: the outputs of the task and of those before
  it train, and no others.
- The loss is a sum over outputs and a mean over samples. Means are taken over the exemplars as they are, without
  mirrored copies, which would be other digits.
- A class without exemplars cannot be answered: its score is -inf.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.continual.learners.base import Spec
from vestige.continual.learners.pull import prefixed, stripped
from vestige.continual.learners.remember import features_of
from vestige.continual.learners.replay import Rehearsal, ReplayConfig
from vestige.continual.memory import unit_length
from vestige.data.task import Task, TaskInfo
from vestige.nets import Classifier


@dataclass(frozen=True)
class ICaRLConfig(ReplayConfig):
    """Herding on features of unit length; exemplars mixed with the data."""

    sampler: str = "herding"
    replay: str = "mixed"


def icarl_losses(
    logits: Float[Tensor, "n k"],
    y: Int64[Tensor, " n"],
    old_logits: Float[Tensor, "n k"] | None,
    current: Bool[Tensor, " k"],
    older: Bool[Tensor, " k"],
) -> Float[Tensor, " n"]:
    """Classification on `current` outputs, distillation on `older` ones, summed over outputs."""
    trains = current | older
    targets = functional.one_hot(y, logits.shape[1]).to(logits)
    if old_logits is not None:
        targets = torch.where(older, old_logits.sigmoid(), targets)
    losses = functional.binary_cross_entropy_with_logits(logits[:, trains], targets[:, trains], reduction="none")
    return losses.sum(1)


def class_means(features: Float[Tensor, "n f"], y: Int64[Tensor, " n"], k: int) -> Float[Tensor, "k f"]:
    """The mean of the unit-length features of each class, of unit length again; zero where there are none."""
    sums = features.new_zeros(k, features.shape[1]).index_add_(0, y, unit_length(features))
    return unit_length(sums)  # a mean has the direction of its sum


class ICaRLHB1(Rehearsal):
    """iCaRL's training under the network's own classifier."""

    probabilities = False  # a sigmoid for each output here, distances in iCaRL
    config: ICaRLConfig

    def __init__(self, spec: Spec, config: ICaRLConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.current = torch.zeros(spec.n_outputs, dtype=torch.bool)
        self.older = torch.zeros(spec.n_outputs, dtype=torch.bool)
        self.old: Classifier | None = None

    @classmethod
    def default_config(cls) -> ICaRLConfig:
        """Ten exemplars a class."""
        return ICaRLConfig()

    def begin_task(self, task: Task) -> None:
        """Freeze a copy of the network; outputs that are not the task's but trained before are distilled."""
        super().begin_task(task)
        trained = self.current | self.older
        self.old = copy.deepcopy(self.net).eval().requires_grad_(False) if trained.any() else None
        self.current = torch.zeros_like(trained)
        self.current[list(task.info.outputs)] = True
        self.older = trained & ~self.current

    def loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Classification and distillation."""
        x, y, weights = self.with_memory(x, y)
        old_logits = None if self.old is None else self.old(x)
        losses = icarl_losses(self.net(x), y, old_logits, self.current, self.older)
        return losses.mean() if weights is None else (weights * losses).mean()

    def method_state(self) -> dict[str, Tensor]:
        """And the frozen copy, with the outputs that it answers for."""
        old = {} if self.old is None else prefixed("old", self.old.state_dict())
        return super().method_state() | {"current": self.current, "older": self.older} | old

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        super().load_method_state(state)
        self.current, self.older = state["current"].clone(), state["older"].clone()
        weights = stripped("old", state)
        self.old = copy.deepcopy(self.net).eval().requires_grad_(False) if weights else None
        if self.old is not None:
            self.old.load_state_dict(weights)


class ICaRL(ICaRLHB1):
    """The nearest mean of exemplars."""

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "n *shape"], task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Minus the distance to each class's mean."""
        held, k = self.memory, self.spec.n_outputs
        if len(held) == 0:
            return torch.full((len(x), k), -torch.inf)
        means = class_means(features_of(self.net, held.x), held.y, k)
        # By differences, not by products: near a mean the latter round to zero.
        here = unit_length(features_of(self.net, x))
        scores = -torch.cdist(here, means, compute_mode="donot_use_mm_for_euclid_dist")
        return scores.masked_fill(held.y.bincount(minlength=k) == 0, -torch.inf)
