"""Networks that answer many times: mean-field layers, ensembles, and Monte Carlo dropout.

**Mean-field layers**: a Gaussian over their weights, each weight with its own mean and variance (Graves 2011).

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

The linear layer's draw knows its derivative, which is autograd's own with fewer passes over memory.

`BayesNet`: the weights of a plain network become means, and each gets a variance and a prior.

`forward` gives logits (samples, n, k) as one batched pass, and has a gradient. `draw` gives the same law for
predictions, a few samples at a time: the first layer's moments, which no sample changes, are computed once, later
layers draw weights instead of outputs where that is less, and no more than `rows_at_once` rows times samples are held.

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

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import number, refuse
from vestige.nets.classifier import MLP, Classifier
from vestige.nets.vae import gaussian_kl

PARTS = ("weight", "bias")


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
    """A `plain` layer with a Gaussian over its weights, and a prior. A child says how inputs meet them."""

    weight: Tensor
    bias: Tensor
    weight_log_var: Tensor
    bias_log_var: Tensor
    ndim: int  # of an input without the axis of samples

    def __init__(self, plain: nn.Linear | nn.Conv2d, *, log_var: float, prior_std: float) -> None:
        super().__init__()
        for name in PARTS:
            mean = getattr(plain, name).detach()
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
            total = total + gaussian_kl(*(v if rows is None else v[rows] for v in four)).sum()
        return total

    @torch.no_grad()
    def advance(self, rows: Tensor | None = None) -> None:
        """The posterior becomes the prior, of all outputs or of `rows` of them."""
        at = slice(None) if rows is None else rows
        for name in ("weight", "bias", "weight_log_var", "bias_log_var"):
            getattr(self, f"prior_{name}")[at] = getattr(self, name)[at]

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
        return _LocalDraw.apply(x, self.weight, self.bias, self.weight_log_var, self.bias_log_var, noise)  # type: ignore[no-untyped-call]

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
    """Convolution of images (n, c, h, w), or (samples, n, c, h, w), that moves by one pixel and pads with 0."""

    ndim = 4

    def __init__(self, plain: nn.Conv2d, *, log_var: float, prior_std: float) -> None:
        usual = {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
        for name, only in usual.items():
            if getattr(plain, name) != only:
                refuse(name, "a mean-field convolution", repr(only), repr(getattr(plain, name)))
        super().__init__(plain, log_var=log_var, prior_std=prior_std)
        self.padding = plain.padding

    def along(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x * W + b; samples and rows are one batch."""
        flat = x.flatten(0, -4) if x.ndim > 4 else x
        out = functional.conv2d(flat, weight, bias, padding=self.padding)
        return out.reshape(*x.shape[:-3], *out.shape[1:])


class BayesNet(nn.Module):
    """The layers of a `plain` network, each with a Gaussian over its weights.

    They stand one after another; which outputs count is the learner's to say.
    """

    def __init__(self, plain: Classifier, *, log_var: float = -6.0, prior_std: float = 1.0) -> None:
        super().__init__()
        layers: list[MeanField] = []
        self.between = [nn.Sequential()]  # what stands before each layer with weights
        for module in [*plain.body.children(), plain.head]:
            if isinstance(module, nn.Linear):
                layers.append(MeanFieldLinear(module, log_var=log_var, prior_std=prior_std))
            elif isinstance(module, nn.Conv2d):
                layers.append(MeanFieldConv2d(module, log_var=log_var, prior_std=prior_std))
            else:
                assert not list(module.parameters()), "every other layer is without weights"
                self.between[-1].append(nn.ReLU(inplace=True) if isinstance(module, nn.ReLU) else module)
                continue
            self.between.append(nn.Sequential())
        self.body, self.head = nn.ModuleList(layers[:-1]), layers[-1]
        # Rows times samples that `draw` holds at once: what fits a processor's cache. Changes nothing but the noise.
        self.rows_at_once = 512 if any(isinstance(layer, MeanFieldConv2d) for layer in layers) else 8192

    def enter(self, index: int, h: Tensor) -> Tensor:
        """What layer `index` takes of the one before it, or of the inputs; samples and rows are one batch."""
        between = self.between[index]
        return between(h) if index == 0 else between(h.flatten(0, 1)).unflatten(0, h.shape[:2])

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
    def start_at(self, fitted: Classifier, rows: Tensor | None = None) -> None:
        """Means at those of a `fitted` network, variances as at first; of the head only `rows`, if they are given."""
        plain = [module for module in fitted.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
        for layer, found in zip(self.layers(), plain, strict=True):
            at = slice(None) if layer is not self.head or rows is None else rows
            for name in PARTS:
                getattr(layer, name)[at] = getattr(found, name)[at]
                getattr(layer, f"{name}_log_var")[at] = layer.first_log_var


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
        plain = [MLP(input_shape, hidden, n_outputs, seed=member_seed(seed, i)) for i in range(members)]
        linear = [[m for m in net.modules() if isinstance(m, nn.Linear)] for net in plain]
        layers = [Stacked(of_all) for of_all in zip(*linear, strict=True)]
        self.body, self.head = nn.ModuleList(layers[:-1]), layers[-1]

    def forward(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "m n k"]:
        """Logits of every member."""
        h = x.flatten(1)
        for layer in self.body:
            h = layer(h).relu()
        return self.head(h)


def member_seed(seed: int, member: int) -> int:
    """Where a member's weights begin."""
    return rng.child_seed(seed, "member", member)


class MCDropoutNet(nn.Module):
    """A plain network, thinned behind each ReLU by masks that are drawn anew for each row and sample."""

    # Numbers in the largest tensor that `draw` makes at once; changes nothing but the masks.
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
        """The same, some samples and some rows at a time, without a gradient."""
        with torch.no_grad():
            shared = self.body[: self.first](x)
        for part in torch.arange(samples).split(max(self.numbers_at_once // shared.numel(), 1)):
            blocks = shared.split(max(self.numbers_at_once * len(shared) // shared.numel(), 1))
            with torch.no_grad():
                logits = torch.cat([self.thinned(block, len(part), generator) for block in blocks], 1)
            yield logits

    def thinned(self, shared: Float[Tensor, "n *f"], samples: int, generator: Generator) -> Float[Tensor, "s n k"]:
        """From the first ReLU on; samples and rows are one batch."""
        h = torch.cat([shared * self.mask(shared, generator) for _ in range(samples)])
        for module in list(self.body)[self.first :]:
            h = module(h)
            if isinstance(module, nn.ReLU):
                h = h * self.mask(h, generator)
        return self.head(h).unflatten(0, (samples, -1))

    def mask(self, like: Float[Tensor, "*shape"], generator: Generator) -> Float[Tensor, "*shape"]:
        """Zero with probability p, to 16 bits, else 1 / (1 - p), laid out in memory as `like` is.

        A draw of 64 bits decides on four numbers, where `bernoulli_` draws for each of them.
        """
        dropped, n = min(round(self.p * 2**16), 2**16 - 1), like.numel()
        bits = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
        kept = torch.ge(bits.view(torch.int16)[:n], dropped - 2**15, out=torch.empty(n, dtype=like.dtype))
        return kept.mul_(2**16 / (2**16 - dropped)).as_strided(like.shape, torch.empty_like(like).stride())

    def squared_weights(self) -> Float[Tensor, ""]:
        """Sum of squares over all weights, biases apart."""
        return torch.stack([p.square().sum() for p in self.parameters() if p.ndim > 1]).sum()
