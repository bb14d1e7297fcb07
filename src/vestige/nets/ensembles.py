"""Networks that answer many times: ensembles, and Monte Carlo dropout.

`EnsembleMLP`: several fully connected networks of one shape as one, each layer a single batched product. Members begin
as `MLP` does, each from a seed of its own, and never meet: what one learns does not depend on how many there are.

`MCDropoutNet`: a network whose dropout stays on at test time, each mask a draw from a posterior. Gal and Ghahramani
(2015, 2016), as in Farquhar and Gal C.8.1: any plain network gets dropout behind each of its ReLUs, before each layer
that follows one (`MCDropoutNet(Conv(...), 0.25)` is the network of the paper, `MCDropoutNet(MLP(...), p)` its fully
connected sibling). `samples` masks are one batched pass; what lies before the first mask is the same for all of them
and is computed once. Inputs themselves are not dropped.

The prior term. For a prior N(0, 1 / l^2) and N samples, dropout with rate p is variational inference with
    KL / N = l^2 (1 - p) / (2 N) sum W^2 + constant,
weight decay and nothing else. C.8.1 takes "an L2 regularization with weight 0.01", that is 0.01 sum W^2 beside the mean
loss, whatever N is: far stronger (at l = 1 and N = 12000 the formula says 0.00003). `squared_weights` is the sum, over
weights and not over biases; its factor is the learner's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import number
from vestige.nets.classifier import MLP, Classifier


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


class MCDropoutNet(nn.Module):
    """A plain network, thinned behind each ReLU by masks that are drawn anew for each row and sample."""

    # Numbers in the largest tensor that `draw` holds at once; changes nothing but the masks.
    numbers_at_once: ClassVar[int] = 2**22

    def __init__(self, plain: Classifier, p: float) -> None:
        super().__init__()
        modules = list(plain.body.children())
        first = next(i for i, module in enumerate(modules) if isinstance(module, nn.ReLU)) + 1
        self.p = number(p, "p", "MCDropoutNet", low=0, high=1, open_high=True)
        self.body, self.head, self.first = nn.Sequential(*modules), plain.head, first

    def forward(self, x: Float[Tensor, "n *shape"], samples: int, generator: Generator) -> Float[Tensor, "s n k"]:
        """Logits under `samples` masks."""
        return self.thinned(self.body[: self.first](x), samples, generator)

    def draw(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: Generator
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """The same, some samples at a time, without a gradient."""
        with torch.no_grad():
            shared = self.body[: self.first](x)
        for part in torch.arange(samples).split(max(self.numbers_at_once // shared.numel(), 1)):
            with torch.no_grad():
                logits = self.thinned(shared, len(part), generator)
            yield logits

    def thinned(self, shared: Float[Tensor, "n *f"], samples: int, generator: Generator) -> Float[Tensor, "s n k"]:
        """From the first ReLU on; samples and rows are one batch."""
        h = (shared * self.mask((samples, *shared.shape), shared.dtype, generator)).flatten(0, 1)
        for module in list(self.body)[self.first :]:
            h = module(h)
            if isinstance(module, nn.ReLU):
                h = h * self.mask(h.shape, h.dtype, generator)
        logits: Tensor = self.head(h)
        return logits.unflatten(0, (samples, -1))

    def mask(self, shape: tuple[int, ...], dtype: torch.dtype, generator: Generator) -> Float[Tensor, "..."]:
        """Zero with probability p, else 1 / (1 - p)."""
        return torch.empty(shape, dtype=dtype).bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)

    def squared_weights(self) -> Float[Tensor, ""]:
        """Sum of squares over all weights, biases apart."""
        return torch.stack([p.square().sum() for p in self.parameters() if p.ndim > 1]).sum()
