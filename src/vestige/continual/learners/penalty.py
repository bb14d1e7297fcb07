"""The quadratic penalty that EWC, EWC++, PI and RWalk share: strength * sum_i w_i (theta_i - anchor_i)^2.

Its gradient is known, so it is added to the task's gradient after the backward pass, by `_foreach` operations over all
layers at once; autograd never sees it. State is a dict by parameter name: what is absent from the anchor is not pulled
at. Where a head grew, its new rows get zeros in every such dict (`fitted`): no importance, so that nothing pulls at
them either, and the rows of old outputs keep theirs.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.continual.learners.base import Info, Spec, padded
from vestige.continual.learners.vanilla import Vanilla, VanillaConfig
from vestige.data.stream import Task

Named = dict[str, Tensor]


def trained(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn, by name."""
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def copied(net: nn.Module) -> Named:
    """A copy of the parameters as they are now."""
    return {name: p.detach().clone() for name, p in trained(net).items()}


def zeros(net: nn.Module) -> Named:
    """Nothing, in the shape of the parameters."""
    return {name: torch.zeros_like(p) for name, p in trained(net).items()}


def fitted(values: Named, net: nn.Module) -> Named:
    """`values` in the shape of the parameters as they are now: zeros for rows that a grown head has got since."""
    shapes = {name: p.shape for name, p in trained(net).items()}
    return {name: padded(value, shapes[name]) for name, value in values.items()}


@torch.no_grad()
def pull_value(net: nn.Module, weight: Named, anchor: Named) -> float:
    """sum_i w_i (theta_i - anchor_i)^2."""
    here = trained(net)
    return sum(float((weight[n] * (here[n] - anchor[n]).square()).sum()) for n in anchor)


@torch.no_grad()
def add_pull(net: nn.Module, weight: Named, anchor: Named, strength: float) -> None:
    """Add the gradient of `strength` * sum_i w_i (theta_i - anchor_i)^2 to the gradients at hand."""
    here = trained(net)
    gradients = {n: here[n].grad for n in anchor}
    names = [n for n, g in gradients.items() if g is not None]
    if not names or strength == 0:
        return
    gap = torch._foreach_sub([here[n].data for n in names], [anchor[n] for n in names])
    found = [g for g in gradients.values() if g is not None]
    torch._foreach_addcmul_(found, [weight[n] for n in names], list(gap), value=2 * strength)


@torch.no_grad()
def gradients_of(net: nn.Module) -> Named:
    """A copy of the gradients at hand; zero where a parameter has none."""
    here = trained(net)
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in here.items()}


@torch.no_grad()
def add_fall(path: Named, gradient: Named, net: nn.Module, before: Named) -> None:
    """path_i <- path_i - g_i * (theta_i - before_i): the fall of the loss along each weight, to first order."""
    here = trained(net)
    moved = torch._foreach_sub([here[n].data for n in path], [before[n] for n in path])
    torch._foreach_addcmul_(list(path.values()), [gradient[n] for n in path], list(moved), value=-1.0)


@torch.no_grad()
def unit_range(values: Named) -> Named:
    """All layers together shifted and scaled to [0, 1]; all zeros where nothing differs."""
    low = min(float(v.min()) for v in values.values())
    high = max(float(v.max()) for v in values.values())
    if high <= low:
        return {name: torch.zeros_like(v) for name, v in values.items()}
    return {name: (v - low) / (high - low) for name, v in values.items()}


NORMALISE = ("none", "joint", "layer")


def scaled(values: Named, normalise: str) -> Named:
    """Values as they are, or in [0, 1] over all layers together, or layer by layer."""
    if normalise == "none":
        return dict(values)
    if normalise == "joint":
        return unit_range(values)
    return {name: unit_range({name: value})[name] for name, value in values.items()}


class Penalised(Vanilla):
    """Training under a quadratic penalty; what the weights of the penalty are is a method's own."""

    weight_: Named  # of each parameter, empty before the first task has ended
    anchor_: Named

    def __init__(self, spec: Spec, config: VanillaConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        self.weight_, self.anchor_ = {}, {}

    @property
    @abstractmethod
    def strength(self) -> float:
        """What the penalty is multiplied by."""

    def begin_task(self, task: Task) -> None:
        """Nothing pulls at outputs that are new."""
        super().begin_task(task)
        self.weight_, self.anchor_ = fitted(self.weight_, self.net), fitted(self.anchor_, self.net)

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step down the loss and the penalty."""
        info = self.backward(x, y)
        self.penalised_step()
        return info

    def backward(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """The gradients of the loss alone."""
        assert self.optimizer is not None, "begin_task makes the optimiser"
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        return Info(loss.detach())

    def penalised_step(self, path: Named | None = None, *, total: bool = False) -> None:
        """Add the gradient of the penalty, and step.

        To `path` is added how far the loss (`total`: with the penalty) fell along each weight.
        """
        assert self.optimizer is not None, "begin_task makes the optimiser"
        followed = path is not None
        # Copies, since the penalty is about to be added to the gradients and the step to move the weights.
        gradient, before = (gradients_of(self.net), copied(self.net)) if followed else ({}, {})
        add_pull(self.net, self.weight_, self.anchor_, self.strength)
        if followed and total:
            gradient = gradients_of(self.net)
        self.optimizer.step()
        if path is not None:
            add_fall(path, gradient, self.net, before)

    def penalty(self) -> float:
        """The penalty at this moment, up to a constant that does not depend on the weights."""
        return self.strength * pull_value(self.net, self.weight_, self.anchor_)
