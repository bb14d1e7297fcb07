"""A plain multilayer perceptron with one output vector; which of its outputs count is the learner's to say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from vestige import rng


class MLP(nn.Module):
    """Fully connected ReLU network on flattened inputs; emits logits."""

    def __init__(self, input_shape: Sequence[int], hidden: Sequence[int], n_outputs: int, *, seed: int) -> None:
        super().__init__()
        widths = [math.prod(input_shape), *hidden]
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [nn.Flatten()]
            for a, b in pairwise(widths):
                layers += [nn.Linear(a, b), nn.ReLU()]
            self.body = nn.Sequential(*layers)
            self.head = nn.Linear(widths[-1], n_outputs)

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n k"]:
        """Logits."""
        return self.head(self.body(x))
