"""What both kinds of the stack's networks are trained by: batches of either side, and Adam over one vector.

One vector lies under all parameters and one under all gradients, so that an optimiser step is a handful of calls; at
the size of these networks that spares half of the time. The decay is decoupled (Loshchilov and Hutter).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.nets.training import systematic

FIRST, FLOOR = 0.9, 1e-8  # of Adam


@dataclass(eq=False)
class FlatAdam:
    """Parameters that are parts of `flat`, and the state of Adam; `slots` are the parts of `gradient`."""

    flat: Float[Tensor, " m"]
    gradient: Float[Tensor, " m"]
    slots: list[Tensor]
    shrink: Float[Tensor, " m"]  # the decay of each number
    second: float  # decay of the mean square
    means: tuple[Float[Tensor, " m"], Float[Tensor, " m"]]  # of the gradient and of its square
    steps: int = 0

    @classmethod
    def under(cls, tensors: Sequence[Tensor], decays: Sequence[Float[Tensor, " k"]], *, second: float) -> FlatAdam:
        """Move the tensors, whose first axis is the k networks, onto one vector; a decay a network and tensor."""
        flat = torch.cat([t.detach().reshape(-1) for t in tensors])
        for t, part in zip(tensors, views(flat, tensors), strict=True):
            t.data = part
        gradient = torch.zeros_like(flat)
        shrink = torch.cat([v.repeat_interleave(t[0].numel()) for v, t in zip(decays, tensors, strict=True)])
        means = torch.zeros_like(flat), torch.zeros_like(flat)
        return cls(flat, gradient, views(gradient, tensors), shrink, second, means)

    def step(self, rate: float) -> None:
        """Move the parameters by the gradient that was written."""
        self.steps += 1
        mean, square = self.means
        mean.lerp_(self.gradient, 1 - FIRST)
        square.mul_(self.second).addcmul_(self.gradient, self.gradient, value=1 - self.second)
        scale = (square / (1 - self.second**self.steps)).sqrt_().add_(FLOOR)
        self.flat.addcmul_(self.flat, self.shrink, value=-rate)
        self.flat.addcdiv_(mean, scale, value=-rate / (1 - FIRST**self.steps))


def views(vector: Float[Tensor, " m"], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Parts of the vector in the shapes of the tensors."""
    parts = vector.split([t.numel() for t in tensors])
    return [part.view(t.shape) for t, part in zip(tensors, parts, strict=True)]


def batches(
    weights: Float[Tensor, "folds n"], n_p: int, per_epoch: int, batch: int, *, generator: torch.Generator
) -> Iterator[Int[Tensor, "folds b"]]:
    """Rows of p (the first `n_p`), then as many of q, of every fold, for ever; an epoch's draws at a time."""
    while True:
        sides = [
            torch.stack([systematic(w, per_epoch * batch, generator=generator) for w in side]).view(
                -1, per_epoch, batch
            )
            for side in (weights[:, :n_p], weights[:, n_p:])
        ]
        yield from torch.cat([sides[0], sides[1] + n_p], 2).unbind(1)
