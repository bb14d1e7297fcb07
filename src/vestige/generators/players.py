"""One network of a GAN with its optimiser, and what becomes of the generator when a fit ends.

A GAN circles around where it should rest, so a fit leaves the running average of the generator's weights. Statistics of
batch normalisation cannot be averaged with them: they belong to the layers' inputs under the very weights that are
used, so they are taken anew, from a pass in which every condition has the same share.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn


class Player:
    """A network with its Adam; counts how often its gradient was scaled down."""

    def __init__(self, net: nn.Module, lr: float, betas: Sequence[float]) -> None:
        self.parameters = list(net.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=lr, betas=(betas[0], betas[1]), fused=True)
        self.steps = self.clipped = 0

    def descend(self, loss: Float[Tensor, ""], clip: float | None) -> None:
        """One step down `loss`, its gradient scaled to norm `clip` at most; no other network's gradient is taken."""
        for parameter, gradient in zip(self.parameters, torch.autograd.grad(loss, self.parameters), strict=True):
            parameter.grad = gradient
        if clip is not None:
            self.clipped += int(nn.utils.clip_grad_norm_(self.parameters, clip) > clip)
        self.optimizer.step()
        self.steps += 1


@torch.no_grad()
def follow(averaged: nn.Module, net: nn.Module, keep: float) -> None:
    """averaged <- keep averaged + (1 - keep) net, for every weight."""
    for a, b in zip(averaged.parameters(), net.parameters(), strict=True):
        a.lerp_(b, 1 - keep)


@torch.no_grad()
def settle(net: nn.Module, codes: Float[Tensor, "n z"], conditions: Shaped[Tensor, "n *rest"]) -> None:
    """Running statistics of batch normalisation become those of one pass over `codes` and what they are drawn for."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # torch's word for a plain mean over passes
    net.train()(codes, conditions)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
