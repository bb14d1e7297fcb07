"""Several fully connected networks of one shape as one: each layer is a single batched product.

Members begin as `MLP` does, each from a seed of its own, and never meet: what one learns does not depend on how many
there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.nets.mlp import MLP


class Stacked(nn.Module):
    """Linear layers (m, k, d) side by side."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x: Float[Tensor, "... n d"]) -> Float[Tensor, "m n k"]:
        """Of one input for all members, which is one wide layer, or of (m, n, d), one each."""
        if x.ndim == 2:
            wide = functional.linear(x, self.weight.flatten(0, 1), self.bias.flatten())
            return wide.unflatten(1, self.bias.shape).transpose(0, 1)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight.mT)


class EnsembleMLP(nn.Module):
    """`members` MLPs; logits (m, n, k)."""

    def __init__(
        self, input_shape: Sequence[int], hidden: Sequence[int], n_outputs: int, *, members: int, seed: int
    ) -> None:
        super().__init__()
        seeds = [member_seed(seed, i) for i in range(members)]
        plain = [MLP(input_shape, hidden, n_outputs, seed=each) for each in seeds]
        linear = [[m for m in net.modules() if isinstance(m, nn.Linear)] for net in plain]
        layers = [Stacked(of_all) for of_all in zip(*linear, strict=True)]
        self.body, self.head = nn.ModuleList(layers[:-1]), layers[-1]

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "m n k"]:
        """Logits of every member."""
        h = x.flatten(1)
        for layer in self.body:
            h = layer(h).relu()
        logits: Tensor = self.head(h)
        return logits


def member_seed(seed: int, member: int) -> int:
    """Where a member's weights begin."""
    return rng.child_seed(seed, "member", member)
