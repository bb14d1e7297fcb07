"""Gradient episodic memory (Lopez-Paz and Ranzato 2017): steps that do not raise the loss on past tasks' samples.

With g the gradient of the batch and the rows of G those of the memory of each past task (their Eq. 11):

    v = argmin 1/2 v' (G G' + ridge I) v + g' G' v   subject to v >= margin,     step along g + G' v

whenever some <g, G_k> is negative, and along g itself otherwise. With v = margin + u the dual is a non-negative least
squares in as many unknowns as there are past tasks, which `scipy.optimize.nnls` solves.

- `margin` and `ridge` are those of the authors' code, where the margin is a bound on v; the paper adds it to v instead.
- At the optimum G_k (g + G'v) >= -ridge v_k: the constraints hold up to the ridge, which is absolute in the authors'
  code and outweighs gradients shorter than its root. `ridge_scale="relative"` takes it as a part of the mean squared
  length of the past gradients.
- The authors keep the last samples of a task; here a sampler chooses among all of them (uniformly, by default).
- The authors step by plain gradient descent, where the constraints are about the step itself. Here, as in RWalk, all
  methods step by Adam, which is given the projected gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from scipy.optimize import nnls
from torch import Tensor, nn

from vestige.continual.learners.base import Info, Learner, Outputs, TrainConfig
from vestige.continual.learners.penalty import trained
from vestige.continual.memory import ExemplarMemory, Exemplars
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task


@dataclass(frozen=True)
class GEMConfig(TrainConfig):
    """`margin` bounds the dual from below; `ridge` keeps it well posed."""

    memory: Exemplars = Exemplars(sampler="uniform")  # noqa: RUF009 - it is frozen
    margin: float = option(0.5, low=0)
    ridge: float = option(1e-3, above=0)
    ridge_scale: str = option("absolute", among=("absolute", "relative"))


def dual(
    gram: Float[Tensor, "t t"], against: Float[Tensor, " t"], *, margin: float, ridge: float
) -> Float64[Tensor, " t"]:
    """argmin over v >= margin of 1/2 v' (gram + ridge I) v + against' v."""
    gram, against = gram.cpu().double(), against.cpu().double()  # of a few tasks, and for scipy
    values, vectors = torch.linalg.eigh(gram)
    # A Gram matrix has no negative eigenvalue; what is below zero is rounding.
    values = values.clamp_min(0) + ridge
    root = values.sqrt()[:, None] * vectors.mT  # root' root = gram + ridge I
    start = torch.full_like(against, margin)
    slope = root.mT @ (root @ start) + against
    target = -(vectors.mT @ slope) / values.sqrt()
    above, _ = nnls(root.numpy(), target.numpy())
    return start + torch.from_numpy(above)


def projected(
    gradient: Float[Tensor, " p"], past: Float[Tensor, "t p"], *, margin: float, ridge: float, relative: bool = False
) -> Float[Tensor, " p"]:
    """The gradient to step along; the one that came in where it raises no past loss."""
    against = past @ gradient
    if bool((against >= 0).all()):
        return gradient
    gram = past @ past.mT
    scale = float(gram.diagonal().mean()) if relative else 1.0
    return gradient + dual(gram, against, margin=margin, ridge=ridge * scale).to(past) @ past


def flat_gradient(net: nn.Module, loss: Float[Tensor, ""]) -> Float[Tensor, " p"]:
    """The gradient of all layers in one vector; zero where the loss does not reach."""
    parameters = list(trained(net).values())
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    parts = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
    return torch.cat([part.flatten() for part in parts])


def put_gradient(net: nn.Module, gradient: Float[Tensor, " p"]) -> None:
    """The inverse: what an optimiser is to step along."""
    parameters = list(trained(net).values())
    for p, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p)


class GEM(Learner):
    """One step a batch, along the nearest direction that no past task objects to."""

    config: GEMConfig
    memory: ExemplarMemory

    def fresh_memory(self) -> ExemplarMemory:
        """As the configuration has it; samples of several tasks meet in the loss."""
        self.outputs_ = Outputs.every(self.spec.n_outputs, by_class=True)
        return ExemplarMemory(self.config.memory, owner="GEM", seed=self.seed)

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task."""
        super().begin_task(task)
        self.memory.begin_task(task)

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step along the projected gradient."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        loss = self.loss(x, y)
        gradient = flat_gradient(self.net, loss)
        if len(self.memory):
            relative = self.config.ridge_scale == "relative"
            gradient = projected(
                gradient, self.past_gradients(), margin=self.config.margin, ridge=self.config.ridge, relative=relative
            )
        put_gradient(self.net, gradient)
        self.optimizer.step()
        self.memory.pass_by(x, y)
        return Info(loss.detach())

    def end_task(self, task: Task) -> None:
        """Fill the memory."""
        self.memory.remember(task, self.net, self.outputs_.outputs)

    def loss(self, x: Inputs, y: Labels) -> Float[Tensor, ""]:
        """Cross-entropy, each sample among the outputs of its own task where the stream trains those alone."""
        return self.outputs_.loss(self.net(x), y)

    def past_gradients(self) -> Float[Tensor, "t p"]:
        """A row for each past task: the gradient of the loss on its samples."""
        rows = []
        for task in self.memory.task.unique():
            mine = self.memory.task == task
            rows.append(flat_gradient(self.net, self.loss(self.memory.x[mine], self.memory.y[mine])))
        return torch.stack(rows)
