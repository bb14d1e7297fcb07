"""Layers with a mean-field Gaussian over their weights, each weight with its own mean and variance (Graves 2011).

In training a layer never draws weights. It draws its outputs, which given the inputs are Gaussian with mean x mu + m
and variance x^2 sigma^2 + s^2 (the local reparameterisation of Kingma et al. 2015): independent noise for each row, so
the gradient is less noisy and `samples` of the posterior are one batched product; a layer whose input is the same for
all of them computes both moments once. For one row of a fully connected network the joint law of all layers is that of
drawn weights; between rows it is not, which no loss or prediction here depends on. In a convolution the pixels of one
output share their weights but not their noise: their marginals are right, their correlation is left out, as is usual.

For predictions a fully connected layer may draw its weights after all (`drawn`): one product instead of two, and
d k numbers a sample instead of n k. The law of each row is the same.

Every layer carries its prior, as buffers: N(0, `prior_std`^2) at first, and whatever posterior it is replaced by. The
KL of posterior from prior is the closed form. Names: `weight` and `bias` are means, `*_log_var` the log-variances.

Both the linear layer's draw and the KL know their derivatives, which are autograd's own with fewer passes over memory.

Networks of mean-field layers: the weights of a plain network become means, and each gets a variance and a prior.

`forward` gives logits (samples, n, k) as one batched pass, and has a gradient. `draw` gives the same law for
predictions, a few samples at a time: the first layer's moments, which no sample changes, are computed once, later
layers draw weights instead of outputs where that is less, and no more than `rows_at_once` rows times samples are held.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional

from vestige.core.checks import refuse
from vestige.nets.classifier import MLP, Classifier
from vestige.nets.convolutional import Conv, Images

PARTS = ("weight", "bias")


class _KL(torch.autograd.Function):
    """The sum of Gaussian KLs; its slopes are a by-product of its value."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_var: Tensor, prior_mean: Tensor, prior_log_var: Tensor) -> Tensor:  # noqa: ANN401
        gap, distance = log_var - prior_log_var, mean - prior_mean
        by_mean, by_log_var = distance * (-prior_log_var).exp(), torch.expm1(gap)
        ctx.save_for_backward(by_mean, by_log_var)
        return 0.5 * ((by_log_var - gap).sum() + distance.mul_(by_mean).sum())

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        by_mean, by_log_var = ctx.saved_tensors
        return by_mean * slope, by_log_var * (0.5 * slope), None, None


def gaussian_kl(
    mean: Float[Tensor, "*shape"],
    log_var: Float[Tensor, "*shape"],
    prior_mean: Float[Tensor, "*shape"],
    prior_log_var: Float[Tensor, "*shape"],
) -> Float[Tensor, ""]:
    """KL(N(mean, var) || N(prior_mean, prior_var)), summed over all entries; the prior is held fixed."""
    found: Tensor = _KL.apply(mean, log_var, prior_mean, prior_log_var)  # type: ignore[no-untyped-call]
    return found


class _LocalDraw(torch.autograd.Function):
    """x W' + b + sqrt(x^2 V' + v) * noise, for x of (n, d) under all samples or of (s, n, d)."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        w: Tensor,
        b: Tensor,
        w_log_var: Tensor,
        b_log_var: Tensor,
        noise: Tensor,
    ) -> Tensor:
        flat = x.flatten(0, -2)
        squares, w_var, b_var = flat * flat, w_log_var.exp(), b_log_var.exp()
        mean = torch.addmm(b, flat, w.mT)
        std = torch.addmm(b_var, squares, w_var.mT).sqrt_()
        ctx.save_for_backward(flat, squares, w, w_var, b_var, std, noise)
        ctx.x_shape = x.shape
        shape = (*x.shape[:-1], len(w))
        return torch.addcmul(mean.view(shape), std.view(shape), noise)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        flat, squares, w, w_var, b_var, std, noise = ctx.saved_tensors
        by_std = g * noise
        if len(ctx.x_shape) == 2:
            g, by_std = g.sum(0), by_std.sum(0)
        by_mean = g.flatten(0, -2)
        by_var = by_std.flatten(0, -2).div_(std).mul_(0.5)
        by_x = None
        if ctx.needs_input_grad[0]:
            by_x = (by_var @ w_var).mul_(flat).mul_(2).addmm_(by_mean, w).view(ctx.x_shape)
        by_w_log_var = (by_var.mT @ squares).mul_(w_var)
        return by_x, by_mean.mT @ flat, by_mean.sum(0), by_w_log_var, by_var.sum(0).mul_(b_var), None


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

    def moments(self, x: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
        """Mean and standard deviation of the outputs, given the inputs."""
        var = self.along(x.square(), self.weight_log_var.exp(), self.bias_log_var.exp())
        return self.along(x, self.weight, self.bias), var.sqrt()

    def forward(self, x: Float[Tensor, "..."], samples: int, generator: Generator) -> Float[Tensor, "..."]:
        """`samples` draws of the outputs: of one input for all of them, or, where x has that axis, of one each."""
        mean, std = self.moments(x)
        shape = (samples, *mean.shape) if x.ndim == self.ndim else mean.shape
        return mean + std * torch.randn(shape, generator=generator, dtype=mean.dtype)

    def drawn(self, x: Float[Tensor, "s n *shape"], generator: Generator) -> Float[Tensor, "s n *out"]:
        """One draw for each sample's input, in whichever way is cheapest; not for training."""
        return self(x, len(x), generator)

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

    def forward(self, x: Float[Tensor, "..."], samples: int, generator: Generator) -> Float[Tensor, "..."]:
        """As above, with its own derivative."""
        shape = (samples, x.shape[-2], len(self.weight))
        noise = torch.randn(shape, generator=generator, dtype=x.dtype)
        mean = (self.weight, self.bias)
        found: Tensor = _LocalDraw.apply(x, *mean, self.weight_log_var, self.bias_log_var, noise)  # type: ignore[no-untyped-call]
        return found

    @torch.no_grad()
    def drawn(self, x: Float[Tensor, "s n d"], generator: Generator) -> Float[Tensor, "s n k"]:
        """x W_s' + b_s: weights are fewer than outputs where there are more rows than inputs."""
        if x.shape[1] < x.shape[2]:
            return self(x, len(x), generator)
        w, b = (
            torch.randn(len(x), *mean.shape, generator=generator, dtype=x.dtype)
            .mul_(log_var.mul(0.5).exp_())
            .add_(mean)
            for mean, log_var in ((self.weight, self.weight_log_var), (self.bias, self.bias_log_var))
        )
        return torch.baddbmm(b.unsqueeze(1), x, w.mT)


class MeanFieldConv2d(MeanField):
    """Convolution of images (n, c, h, w), or (samples, n, c, h, w)."""

    ndim = 4

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        *,
        log_var: float,
        prior_std: float,
        padding: int | str | tuple[int, ...] = 0,
    ) -> None:
        super().__init__(weight, bias, log_var=log_var, prior_std=prior_std)
        self.padding = padding

    def along(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x * W + b; samples and rows are one batch."""
        flat = x.flatten(0, -4) if x.ndim > 4 else x
        out = functional.conv2d(flat, weight, bias, padding=self.padding)
        return out.reshape(*x.shape[:-3], *out.shape[1:])


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
