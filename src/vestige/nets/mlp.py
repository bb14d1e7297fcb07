"""A plain multilayer perceptron with one output vector; which of its outputs count is the learner's to say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from vestige.core import rng
from vestige.nets.classifier import Classifier


class MLP(Classifier):
    """Fully connected ReLU network on flattened inputs; emits logits."""

    def __init__(self, input_shape: Sequence[int], hidden: Sequence[int], n_outputs: int, *, seed: int) -> None:
        widths = [math.prod(input_shape), *hidden]
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = [nn.Flatten()]
            for a, b in pairwise(widths):
                layers += [nn.Linear(a, b), nn.ReLU()]
            body = nn.Sequential(*layers)
            super().__init__(body, nn.Linear(widths[-1], n_outputs))
