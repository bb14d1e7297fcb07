"""Networks with a mean-field Gaussian over their weights, each with its own mean and variance (Graves 2011).

A layer never draws weights. It draws its outputs, which given the inputs are Gaussian with mean x mu + m and variance
x^2 sigma^2 + s^2 (the local reparameterisation of Kingma et al. 2015): independent noise for each row, so the gradient
is less noisy and `samples` of the posterior are one batched product; the first layer, whose input is the same for all
of them, is computed once. For one row of a fully connected network the joint law of all layers is that of drawn
weights; between rows it is not, which no loss or prediction here depends on. In a convolution the pixels of one output
share their weights but not their noise: their marginals are right, their correlation is left out, as is usual.

Every layer carries its prior, as buffers: N(0, `prior_std`^2) at first, and whatever posterior it is replaced by. The
KL of posterior from prior is the closed form. Names: `weight` and `bias` are means, `*_log_var` the log-variances.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional

from vestige import rng

PARTS = ("weight", "bias")


def gaussian_kl(
    mean: Float[Tensor, "*shape"],
    log_var: Float[Tensor, "*shape"],
    prior_mean: Float[Tensor, "*shape"],
    prior_log_var: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    """KL(N(mean, var) || N(prior_mean, prior_var)), summed over all entries."""
    gap = prior_log_var - log_var
    return 0.5 * (gap + (-gap).exp() + (mean - prior_mean).square() * (-prior_log_var).exp() - 1).sum()


class MeanField(nn.Module, ABC):
    """What both kinds of layer share: means, log-variances and a prior. A child says how inputs meet them."""

    weight: Tensor
    bias: Tensor
    weight_log_var: Tensor
    bias_log_var: Tensor
    ndim: int  # of an input without the axis of samples

    def __init__(self, weight: Tensor, bias: Tensor, *, log_var: float, prior_std: float) -> None:
        super().__init__()
        for name, mean in zip(PARTS, (weight, bias), strict=True):
            mean = mean.detach()
            self.register_parameter(name, nn.Parameter(mean.clone()))
            self.register_parameter(f"{name}_log_var", nn.Parameter(torch.full_like(mean, log_var)))
            self.register_buffer(f"prior_{name}", torch.zeros_like(mean))
            self.register_buffer(f"prior_{name}_log_var", torch.full_like(mean, 2 * math.log(prior_std)))
        self.first_log_var, self.prior_std = log_var, prior_std

    @abstractmethod
    def along(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The linear map of this layer."""

    def forward(self, x: Float[Tensor, "..."], samples: int, generator: Generator) -> Float[Tensor, "..."]:
        """`samples` draws of the outputs: of one input for all of them, or, where x has that axis, of one each."""
        mean = self.along(x, self.weight, self.bias)
        var = self.along(x.square(), self.weight_log_var.exp(), self.bias_log_var.exp())
        shape = (samples, *mean.shape) if x.ndim == self.ndim else mean.shape
        return mean + var.sqrt() * torch.randn(shape, generator=generator, dtype=mean.dtype)

    def kl(self, rows: Tensor | None = None) -> Float[Tensor, ""]:
        """KL of the posterior from the prior, over all outputs of the layer or over `rows` of them."""
        total = self.weight.new_zeros(())
        for name in PARTS:
            four = [getattr(self, n) for n in (name, f"{name}_log_var", f"prior_{name}", f"prior_{name}_log_var")]
            total = total + gaussian_kl(*(v if rows is None else v[rows] for v in four))
        return total

    @torch.no_grad()
    def advance(self, rows: Tensor | None = None) -> None:
        """The posterior becomes the prior, of all outputs or of `rows` of them."""
        for name in ("weight", "bias", "weight_log_var", "bias_log_var"):
            prior, here = getattr(self, f"prior_{name}"), getattr(self, name)
            if rows is None:
                prior.copy_(here)
            else:
                prior[rows] = here[rows]

    @torch.no_grad()
    def forget_prior(self) -> None:
        """The prior is N(0, prior_std^2) again."""
        for name in PARTS:
            getattr(self, f"prior_{name}").zero_()
            getattr(self, f"prior_{name}_log_var").fill_(2 * math.log(self.prior_std))


class MeanFieldLinear(MeanField):
    """Fully connected."""

    ndim = 2

    def along(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x W' + b."""
        return functional.linear(x, weight, bias)


class MeanFieldConv2d(MeanField):
    """Convolution of images (n, c, h, w), or (samples, n, c, h, w)."""

    ndim = 4

    def __init__(self, weight: Tensor, bias: Tensor, *, log_var: float, prior_std: float, padding: int = 0) -> None:
        super().__init__(weight, bias, log_var=log_var, prior_std=prior_std)
        self.padding = padding

    def along(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x * W + b; samples and rows are one batch."""
        flat = x.flatten(0, -4) if x.ndim > 4 else x
        out = functional.conv2d(flat, weight, bias, padding=self.padding)
        return out.reshape(*x.shape[:-3], *out.shape[1:])


class BayesMLP(nn.Module):
    """A fully connected ReLU network of mean-field layers; which outputs count is the learner's to say."""

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
        widths = [math.prod(input_shape), *hidden, n_outputs]
        with rng.guard(seed, "init"):
            plain = [nn.Linear(a, b) for a, b in pairwise(widths)]
        settings = {"log_var": log_var, "prior_std": prior_std}
        layers = [MeanFieldLinear(layer.weight, layer.bias, **settings) for layer in plain]
        self.body = nn.ModuleList(layers[:-1])
        self.head = layers[-1]

    def forward(self, x: Float[Tensor, "n *shape"], samples: int, generator: Generator) -> Float[Tensor, "s n k"]:
        """Logits of `samples` draws from the posterior."""
        h = x.flatten(1)
        for layer in self.body:
            h = layer(h, samples, generator).relu()
        return self.head(h, samples, generator)

    def layers(self) -> list[MeanFieldLinear]:
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
