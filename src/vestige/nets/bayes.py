"""Networks of mean-field layers: the weights of a plain network become means, and each gets a variance and a prior.

`forward` gives logits (samples, n, k) as one batched pass, and has a gradient. `draw` gives the same law for
predictions, a few samples at a time: the first layer's moments, which no sample changes, are computed once, later
layers draw weights instead of outputs where that is less, and no more than `rows_at_once` rows times samples are held.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional

from vestige.core.checks import refuse
from vestige.nets.bayes_layers import MeanField, MeanFieldConv2d, MeanFieldLinear
from vestige.nets.bayes_layers import gaussian_kl as gaussian_kl
from vestige.nets.classifier import Classifier
from vestige.nets.conv import Conv
from vestige.nets.convolutional import Images
from vestige.nets.mlp import MLP


def weighted_layers(net: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """The layers of a plain network that have weights, from the input to the head."""
    return [m for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def mean_field(layer: nn.Linear | nn.Conv2d, *, log_var: float, prior_std: float) -> MeanField:
    """The same layer with a Gaussian over its weights; of convolutions those that move by one pixel and pad with 0."""
    assert layer.bias is not None, "every layer here has a bias"
    if isinstance(layer, nn.Linear):
        return MeanFieldLinear(layer.weight, layer.bias, log_var=log_var, prior_std=prior_std)
    usual = {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
    for name, only in usual.items():
        if getattr(layer, name) != only:
            refuse(name, "a mean-field convolution", repr(only), repr(getattr(layer, name)))
    return MeanFieldConv2d(layer.weight, layer.bias, log_var=log_var, prior_std=prior_std, padding=layer.padding)


class BayesNet(nn.Module, ABC):
    """A chain of mean-field layers; which outputs count is the learner's to say."""

    # Rows times samples that `draw` holds at once: what fits a processor's cache. Changes nothing but the noise.
    rows_at_once: ClassVar[int] = 8192
    plain: ClassVar[Callable[..., Classifier]]  # the network whose weights become means
    head: MeanFieldLinear

    def __init__(
        self,
        input_shape: Sequence[int],
        hidden: Sequence[int],
        n_outputs: int,
        *,
        seed: int,
        log_var: float = -6.0,
        prior_std: float = 1.0,
    ) -> None:
        super().__init__()
        plain = type(self).plain(input_shape, hidden, n_outputs, seed=seed)
        layers = [mean_field(layer, log_var=log_var, prior_std=prior_std) for layer in weighted_layers(plain)]
        self.body = nn.ModuleList(layers[:-1])
        assert isinstance(layers[-1], MeanFieldLinear), "a head is fully connected"
        self.head = layers[-1]

    @abstractmethod
    def enter(self, index: int, h: Tensor) -> Tensor:
        """What layer `index` takes of the one before it, or of the inputs."""

    def forward(self, x: Float[Tensor, "n *shape"], samples: int, generator: Generator) -> Float[Tensor, "s n k"]:
        """Logits of `samples` draws from the posterior."""
        h: Tensor = x
        for index, layer in enumerate(self.layers()):
            h = layer(self.enter(index, h), samples, generator)
        return h

    def draw(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: Generator
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Logits of `samples` draws, some at a time, without a gradient."""
        first, *rest = self.layers()
        with torch.no_grad():
            mean, std = first.moments(self.enter(0, x))
        for part in torch.arange(samples).split(max(self.rows_at_once // len(x), 1)):
            with torch.no_grad():
                noise = torch.randn(len(part), *mean.shape, generator=generator, dtype=mean.dtype)
                h = noise.mul_(std).add_(mean)
                for index, layer in enumerate(rest, 1):
                    h = layer.drawn(self.enter(index, h), generator)
            yield h

    def layers(self) -> list[MeanField]:
        """From the input to the head."""
        return [*self.body, self.head]

    def kl(self, outputs: Tensor | None = None) -> Float[Tensor, ""]:
        """KL of the posterior from the prior; of the head only the rows of `outputs`, if they are given."""
        return torch.stack([layer.kl() for layer in self.layers()[:-1]] + [self.head.kl(outputs)]).sum()

    def advance(self, outputs: Tensor | None = None) -> None:
        """The posterior becomes the prior."""
        for layer in self.layers()[:-1]:
            layer.advance()
        self.head.advance(outputs)

    def forget_prior(self) -> None:
        """The first prior again."""
        for layer in self.layers():
            layer.forget_prior()

    @torch.no_grad()
    def start_at(self, weights: Sequence[Tensor], biases: Sequence[Tensor], rows: Tensor | None = None) -> None:
        """Means at a maximum-likelihood fit, variances as at first; of the head only `rows`, if they are given."""
        for layer, weight, bias in zip(self.layers(), weights, biases, strict=True):
            at = slice(None) if layer is not self.head or rows is None else rows
            layer.weight[at] = weight[at]
            layer.bias[at] = bias[at]
            layer.weight_log_var[at] = layer.first_log_var
            layer.bias_log_var[at] = layer.first_log_var


class BayesMLP(BayesNet):
    """Fully connected, with ReLU."""

    plain = MLP

    def enter(self, index: int, h: Tensor) -> Tensor:
        """Inputs flat, then rectified outputs."""
        return h.flatten(1) if index == 0 else h.relu_()


class BayesConv(BayesNet):
    """The shape of `Conv`: two convolutions, one pooling layer, fully connected layers."""

    plain = Conv
    rows_at_once: ClassVar[int] = 512
    images: ClassVar[Images] = Images()  # it has no weights

    def enter(self, index: int, h: Tensor) -> Tensor:
        """Images; rectified, and after the second convolution pooled and flat. Samples and rows are one batch."""
        if index == 0:
            found: Tensor = self.images(h)
            return found
        h = h.relu_()
        if index != 2:
            return h
        pooled = functional.max_pool2d(h.flatten(0, -4), 2).flatten(1)
        return pooled.unflatten(0, (math.prod(h.shape[:-4]), h.shape[-4]))


BAYES_NETS: dict[str, Callable[..., BayesNet]] = {"mlp": BayesMLP, "conv": BayesConv}
