"""What learners train: a `body` that turns inputs into features (n, f), and a linear `head` that turns those to logits.

Samplers, nearest means and the closed forms of the Fisher rely on this shape. Logits always come as one vector over all
outputs of the stream. A head that grows has a row for each output that arrived so far, in the order of arrival, and
`outputs` says which they are; an output that has no row yet cannot be answered: its logit is -inf. `MLP` is the plain
multilayer perceptron.

How weights begin (`INITS`). "torch": what torch.nn's layers draw by themselves. "truncated_normal": that of RWalk's
authors: weights from a normal of deviation 0.1 cut at two deviations, biases 0.1, in linear layers and convolutions
alike; batch norm as it is.

`Dropout`: its masks follow from a seed and from how often it was called, and from nothing else. torch's own draws from
the global generator, which this package leaves alone, and a training that is saved in its middle could not go on with
the same masks. Here the count of calls is a buffer: it is saved with the network, and the next mask is the one that
would have come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.core import rng


class Classifier(nn.Module):
    """Logits of `head` on the features of `body`."""

    outputs: Tensor | None
    # Rows that pass at once where a whole task is looked at; bounds memory, changes nothing.
    rows_at_once: ClassVar[int] = 1024
    # Every layer is called once, on rows, and none works in place: the closed forms of the Fisher rest on it.
    plain_layers: ClassVar[bool] = True

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body, self.head, self.n_outputs = body, head, head.out_features
        self.register_buffer("outputs", None)  # None: row i is output i, from the start

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n k"]:
        """Logits."""
        return self.answer(self.body(x))

    def answer(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n k"]:
        """Logits of features, over all outputs."""
        logits = self.head(features)
        if self.outputs is None:
            return logits
        return logits.new_full((len(logits), self.n_outputs), -torch.inf).index_copy(1, self.outputs, logits)

    def weights_of(self, y: Int64[Tensor, " n"]) -> Float[Tensor, "n f"]:
        """The head's weights of each label, which must have a row."""
        if self.outputs is None:
            return self.head.weight[y]
        row = self.outputs.new_full((self.n_outputs,), -1)
        row[self.outputs] = torch.arange(len(self.outputs))
        return self.head.weight[row[y]]

    def hold(self, outputs: Sequence[int], weight: Float[Tensor, "r f"], bias: Float[Tensor, " r"]) -> None:
        """Answer for `outputs` alone, with these rows. The parameters are new ones: an optimiser must be told."""
        self.outputs = torch.tensor(list(outputs), dtype=torch.int64)
        learns, self.head.out_features = self.head.weight.requires_grad, len(self.outputs)
        self.head.weight = nn.Parameter(weight.detach().clone(), learns)
        self.head.bias = nn.Parameter(bias.detach().clone(), learns)

    def grow(self, new: Sequence[int], initial: Classifier) -> None:
        """A row for each of `new`, as `initial` (whose head is whole) has it; rows that are here stay as they are."""
        assert self.outputs is not None, "a whole head does not grow"
        rows = torch.tensor(list(new), dtype=torch.int64)
        weight = torch.cat([self.head.weight.detach(), initial.head.weight.detach()[rows]])
        bias = torch.cat([self.head.bias.detach(), initial.head.bias.detach()[rows]])
        self.hold([*self.outputs.tolist(), *rows.tolist()], weight, bias)

    def state_with(self, n_rows: int) -> dict[str, Tensor]:
        """The names and shapes of this network's state if its head had `n_rows`."""
        empty = {
            "outputs": torch.empty(n_rows, dtype=torch.int64),
            "head.weight": self.head.weight.new_empty(n_rows, self.head.in_features),
            "head.bias": self.head.bias.new_empty(n_rows),
        }
        return self.state_dict() | empty


def dense(widths: Sequence[int], activation: Callable[[], nn.Module] = nn.ReLU) -> list[nn.Module]:
    """Linear layers from each width to the next, an activation behind each."""
    return [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), activation())]


class MLP(Classifier):
    """Fully connected ReLU network on flattened inputs; emits logits."""

    def __init__(self, input_shape: Sequence[int], hidden: Sequence[int], n_outputs: int, *, seed: int) -> None:
        widths = [math.prod(input_shape), *hidden]
        with rng.guard(seed, "init"):
            body = nn.Sequential(nn.Flatten(), *dense(widths))
            super().__init__(body, nn.Linear(widths[-1], n_outputs))


class Dropout(nn.Module):
    """In training each entry is zero with probability `p` and divided by 1 - p otherwise; at test time it is itself."""

    calls: Tensor

    def __init__(self, p: float, *, seed: int, name: str | int = 0) -> None:
        super().__init__()
        self.p, self.seed, self.name = p, seed, name
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n *shape"]:
        """`x`, thinned out in training."""
        if not self.training or self.p == 0:
            return x
        generator = rng.fork(self.seed, "dropout", self.name, int(self.calls))
        self.calls += 1
        mask = torch.empty_like(x).bernoulli_(1 - self.p, generator=generator)
        return x * mask.div_(1 - self.p)


INITS = ("torch", "truncated_normal")
DEVIATION, CUT, BIAS = 0.1, 2.0, 0.1  # of "truncated_normal"; CUT in deviations


def truncated_normal(net: nn.Module, *, seed: int) -> None:
    """Draw every linear and convolutional layer of `net` anew, in place."""
    generator, edge = rng.fork(seed, "truncated normal"), CUT * DEVIATION
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(module.weight, 0.0, DEVIATION, -edge, edge, generator=generator)
            if module.bias is not None:
                nn.init.constant_(module.bias, BIAS)
