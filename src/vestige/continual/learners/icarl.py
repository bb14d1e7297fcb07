"""iCaRL (Rebuffi et al. 2017): distillation to keep the features, exemplars to classify by their means.

Every output is a sigmoid of its own. On the task's data and the exemplars together (their Alg. 3)

    loss = sum over the task's outputs of BCE(g_y, label is y) + sum over older outputs of BCE(g_y, q_y)

with q the sigmoids of the network as it was when the task began, of which one frozen copy is kept. A sample belongs to
the class whose exemplars' mean is nearest in features (Alg. 1). Features have unit length, and so have the means.

`ICaRLHB1` ("hybrid 1") learns the same way and classifies by the network's outputs.

- Exemplars join as `replay` of the memory says; "mixed" is the paper's.
- Sigmoids do not compete, so the stream's `train_logits` has no say here: the outputs of the task and of those before
  it train, and no others.
- The loss is a sum over outputs and a mean over samples. Means are taken over the exemplars as they are, without
  mirrored copies, which would be other digits.
- A class without exemplars cannot be answered: its score is -inf.
- `temperature` T softens the targets, q_y = sigmoid(old output / T), and not the answers: 1 in the paper, 2 in the code
  of van de Ven and Tolias.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from vestige.continual.learners.vanilla import Vanilla, VanillaConfig
from vestige.continual.memory import Rehearsal, RehearsalMemory, features_of
from vestige.continual.samplers import unit_length
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task, TaskInfo


@dataclass(frozen=True)
class ICaRLConfig(VanillaConfig):
    """Herding on features of unit length; exemplars mixed with the data; `temperature` is that of old outputs."""

    memory: Rehearsal = Rehearsal(sampler="herding", replay="mixed")  # noqa: RUF009 - it is frozen
    temperature: float = option(1.0, above=0)


def icarl_losses(
    logits: Float[Tensor, "n k"],
    y: Labels,
    old_logits: Float[Tensor, "n k"] | None,
    current: Bool[Tensor, " k"],
    older: Bool[Tensor, " k"],
    temperature: float = 1.0,
) -> Float[Tensor, " n"]:
    """Classification on `current` outputs, distillation on `older` ones, summed over outputs."""
    trains = current | older
    targets = functional.one_hot(y, logits.shape[1]).to(logits)
    if old_logits is not None:
        targets = torch.where(older, (old_logits / temperature).sigmoid(), targets)
    losses = functional.binary_cross_entropy_with_logits(logits[:, trains], targets[:, trains], reduction="none")
    return losses.sum(1)


def class_means(features: Float[Tensor, "n f"], y: Labels, k: int) -> Float[Tensor, "k f"]:
    """The mean of the unit-length features of each class, of unit length again; zero where there are none."""
    sums = features.new_zeros(k, features.shape[1]).index_add_(0, y, unit_length(features))
    return unit_length(sums)  # a mean has the direction of its sum


class ICaRLHB1(Vanilla):
    """iCaRL's training under the network's own classifier."""

    probabilities = False  # a sigmoid for each output here, distances in iCaRL
    config: ICaRLConfig
    memory: RehearsalMemory
    current_: Bool[Tensor, " k"]
    older_: Bool[Tensor, " k"]
    old_: dict[str, Tensor]  # the network as it was when the task began; empty in the first task

    def set_up(self) -> None:
        """No output has trained yet."""
        self.current_ = torch.zeros(self.spec.n_outputs, dtype=torch.bool)
        self.older_ = self.current_.clone()

    def begin_task(self, task: Task) -> None:
        """Freeze a copy of the network; outputs that are not the task's but trained before are distilled."""
        super().begin_task(task)
        trained = self.current_ | self.older_
        self.old_ = {name: value.clone() for name, value in self.net.state_dict().items()} if trained.any() else {}
        self.current_ = torch.zeros_like(trained)
        self.current_[list(task.info.outputs)] = True
        self.older_ = trained & ~self.current_

    def loss(self, x: Inputs, y: Labels) -> Float[Tensor, ""]:
        """Classification and distillation."""
        x, y, weights = self.memory.joined(x, y)
        old_logits = self.answer_of(self.old_, x) if self.old_ else None
        losses = icarl_losses(self.net(x), y, old_logits, self.current_, self.older_, self.config.temperature)
        return losses.mean() if weights is None else (weights * losses).mean()


class ICaRL(ICaRLHB1):
    """The nearest mean of exemplars."""

    @torch.no_grad()
    def predict(self, x: Inputs, task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Minus the distance to each class's mean."""
        held, k = self.memory, self.spec.n_outputs
        if len(held) == 0:
            return torch.full((len(x), k), -torch.inf)
        means = class_means(features_of(self.net, held.x), held.y, k)
        # By differences, not by products: near a mean the latter round to zero.
        here = unit_length(features_of(self.net, x))
        scores = -torch.cdist(here, means, compute_mode="donot_use_mm_for_euclid_dist")
        return scores.masked_fill(held.y.bincount(minlength=k) == 0, -torch.inf)
