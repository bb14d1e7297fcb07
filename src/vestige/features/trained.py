"""Maps that are trained: the codes of an auto-encoder, and the last hidden layer of a classifier.

Training is Adam over shuffled batches, with weighted rows and weight decay on matrices.

`ClassifierFeatures`: the last hidden layer of a small convolutional network trained on labels (CDRE section 4, A.1).

The paper trains it once, on real samples of all classes, and takes FID, KID and PRD in its features; then only `fit`
is called. When classes come one after another, `update` goes on from the weights of the step before with the labels of
the new samples and of the generated ones, and the head gets a row for each new class. Nothing ties its features
between steps: see `base` for what that asks of a chain.

App. A.1: batches of 100, Adam 1e-3, 100 epochs. Deviations: 10 epochs (`preset="paper"` brings 100 back); one dense
layer of 64 where the appendix can be read to ask for another of 6272 before it (`preset="literal"`; see
`nets.convolutional`). The appendix states L2 for the VAE alone, so here `weight_decay` is 0.

`VAEFeatures`: the encoder's mean as features, learnt without labels. CDRE section 3 and App. A.1.

Loss of one sample: -E_q(z|x) log p(x|z) + KL(q(z|x) || prior), one draw of z by reparametrisation. App. A.1: encoder
[512, 256], 64 codes, decoder [256, 256], "variance of noise" 0.1, L2 with multiplier 0.001, Adam 1e-3, batches of 100.

Read into it, where the appendix is silent: the noise is that of p(x|z) = N(decoder(z), 0.1 I); the L2 term is
0.001 |W|^2 / 2 over weight matrices, as TensorFlow's l2 regulariser counts; the decoder's output is linear. Deviation:
30 epochs instead of 100, which `preset="paper"` brings back. Samples should be on the scale of pixels, in [0, 1].

With so much noise on few pixels no code may be worth its KL: "active_codes" in the report says how many are used, and
none earns a warning.

`update` goes on from the weights of the step before (`warm`) or from new ones, with the N(0, I) prior either way:
nothing holds codes in place between steps. That is what `cvae` adds.

`CVAE`, the continual VAE of CDRE Eq. 15: a VAE whose codes of step t are tied to those of step t-1.

    L_t = NLL + KL(q_t(z|x) || q_{t-1}(z|x)),    NLL = -(1/t) sum over tasks of E_x E_q_t(z|x) log p(x|z; decoder_t)

x runs over generated samples of the old tasks and real samples of the new one, every task with weight 1/t. At t = 1
there is no q_0, and N(0, I) stands in its place: an ordinary VAE.

Read into Eq. 15: it writes q_t(z) without saying over which x the KL is taken; the text ("similar z for a similar x at
different time t") makes it the KL between the two posteriors of one x, averaged over the same x as the NLL, new ones
included. After the first step nothing draws codes to N(0, I), so the decoder is not a generator there. Each step starts
at the weights of the one before (the paper does not say): without that the tie has to be learnt anew. `tie` weighs the
KL of the steps after the first; Eq. 15 has 1. Other readings and the deviation in epochs are those of the VAE.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import NotEstimable, VestigeWarning, checks, rng
from vestige.core.checks import learnt, option
from vestige.features.base import FeatureMap
from vestige.features.rows import Layout, Rows
from vestige.nets import training
from vestige.nets.convolutional import StridedConv
from vestige.nets.vae import VAENet, gaussian_kl, gaussian_nll

ACTIVE_VARIANCE = 0.01  # Burda, Grosse and Salakhutdinov (2016) count a code of smaller variance as unused


def batches(n: int, size: int, generator: torch.Generator) -> tuple[Int64[Tensor, " _"], ...]:
    """Every row once, shuffled, in batches of at least `size` rows (one batch if there are fewer)."""
    return torch.tensor_split(torch.randperm(n, generator=generator), max(1, n // size))


@dataclass(eq=False)
class TrainedFeatures(FeatureMap):
    """Features of a network that is trained on the data, and goes on with every update."""

    consistent: ClassVar[bool] = False
    min_rows: ClassVar[int] = 2

    dims: int = option(64, low=1)
    epochs: int = option(10, low=1)
    batch_size: int = option(100, low=2)
    learning_rate: float = option(1e-3, above=0, below=math.inf)
    weight_decay: float = option(0.0, low=0, below=math.inf)

    def _width(self, shape: tuple[int, ...]) -> int:
        return self.dims

    def _train(
        self, net: nn.Module, loss: Callable[[Tensor], Tensor], weights: Float[Tensor, " n"], seed: int
    ) -> list[float]:
        """Train `net` in place on `loss`, from row numbers to the loss of each; returns the mean loss of each epoch.

        `weight_decay` is as in `vestige.nets.training.adam`; the mean is weighted, and the penalty not counted.
        """
        n, losses = len(weights), list[float]()
        order = rng.fork(seed, "batches")
        every_batch = chain.from_iterable(batches(n, self.batch_size, order) for _ in range(self.epochs))
        total = torch.zeros((), dtype=torch.float64)

        def batch_loss(_: int) -> Tensor:
            rows = next(every_batch)
            weighted = weights[rows] * loss(rows)
            total.add_(weighted.detach().sum())
            return weighted.mean()

        def end_epoch(_: int) -> bool:
            losses.append(float(total) / n)
            total.zero_()
            if not math.isfinite(losses[-1]):
                raise NotEstimable(
                    f"The training of {type(self).__name__} diverged in epoch {len(losses)}; the map is as it was. "
                    "Samples on the scale of pixels, in [0, 1], and a smaller 'learning_rate' help."
                )
            return True

        per_epoch = max(1, n // self.batch_size)
        parameters = net.train().parameters()
        descend = training.adam(parameters, batch_loss, self.learning_rate, weight_decay=self.weight_decay)
        training.train(descend, self.epochs * per_epoch, check_every=per_epoch, check=end_epoch)
        net.eval()
        return losses


@dataclass(eq=False)
class ClassifierFeatures(TrainedFeatures):
    """Features that tell classes apart; `dims` of them, after dense layers of `hidden` units."""

    name: ClassVar[str] = "classifier"
    keeps: ClassVar[str] = "the weights of a network trained on the data and its labels"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"epochs": 100},
        "literal": {"epochs": 100, "hidden": (6272,)},
    }

    hidden: tuple[int, ...] = option((), low=1)  # dense layers between the convolutions and the features
    image: tuple[int, ...] | None = None  # the shape of a sample, where samples come as flat rows

    classes_: int = learnt(0)  # rows of the head
    net_: StridedConv = learnt()

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        return Layout.of(shape, self.image, "ClassifierFeatures.fit")

    def _net(self, shape: tuple[int, ...], n_classes: int, seed: int) -> StridedConv:
        at = self._layout(shape)
        size = (at.channels, at.height, at.width)
        return StridedConv(size, n_classes, dense=(*self.hidden, self.dims), seed=seed)

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        y = _labels(rows, "fit")
        return self._learn(self._net(shape, int(y.max()) + 1, seed), rows, y, shape, seed)

    def _update(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        y = _labels(rows, "update")
        net = copy.deepcopy(self.net_)
        net.widen(int(y.max()) + 1, seed=seed)
        return self._learn(net, rows, y, shape, seed)

    def _learn(self, net: StridedConv, rows: Rows, y: Tensor, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        images = self._layout(shape)(rows.x)

        def loss(i: Tensor) -> Tensor:
            return functional.cross_entropy(net(images[i]), y[i], reduction="none")

        losses = self._train(net, loss, rows.weights, seed)
        self.net_, self.classes_ = net, net.head.out_features
        return {"losses": losses, "classes": self.classes_}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return self.net_.body(self._layout(shape)(x))

    @torch.no_grad()
    def called(self, codes: Float[Tensor, "n f"]) -> Int64[Tensor, " n"]:
        """The class that the network gives to samples with these features."""
        return self.net_.head(codes).argmax(1)

    def _rebuild(self) -> None:
        if self.shape_ is not None:
            self.net_ = self._net(self.shape_, self.classes_, 0).eval()


def _labels(rows: Rows, call: str) -> Int64[Tensor, " n"]:
    if rows.y is None:
        checks.refuse("y", f"ClassifierFeatures.{call}", "given: a classifier learns from labels", "none")
    if call == "fit" and len(torch.unique(rows.y)) < 2:
        checks.refuse("y", "ClassifierFeatures.fit", "of at least 2 classes", "one class")
    return rows.y


@dataclass(frozen=True)
class Prior:
    """A Gaussian for the code of each row, and how much the KL to it counts."""

    mean: Float[Tensor, "n f"]
    log_var: Float[Tensor, "n f"]
    weight: float = 1.0

    @classmethod
    def standard(cls, n: int, f: int) -> Prior:
        """N(0, I) for every row, without n rows of zeros."""
        zeros = torch.zeros(1, f).expand(n, f)
        return cls(zeros, zeros)

    def __getitem__(self, rows: Int64[Tensor, " b"]) -> Prior:
        return Prior(self.mean[rows], self.log_var[rows], self.weight)


def vae_loss(
    net: VAENet, x: Float[Tensor, "n d"], noise: Float[Tensor, "n f"], prior: Prior, variance: float
) -> Float[Tensor, " n"]:
    """The negative evidence bound of each row, in nats, for the code drawn with standard normal `noise`."""
    decoded, mean, log_var = net(x, noise)
    kl = gaussian_kl(mean, log_var, prior.mean, prior.log_var).sum(1)
    return gaussian_nll(x, decoded, variance) + prior.weight * kl


@torch.no_grad()
def active_codes(net: VAENet, x: Float[Tensor, "n d"]) -> int:
    """How many codes say anything: the variance of their mean over samples exceeds `ACTIVE_VARIANCE`."""
    return int((net.encode(x)[0].var(0) > ACTIVE_VARIANCE).sum())


@dataclass(eq=False)
class VAEFeatures(TrainedFeatures):
    """A variational auto-encoder whose codes are free to move from step to step."""

    name: ClassVar[str] = "vae"
    keeps: ClassVar[str] = "the weights of a network trained on the data"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"paper": {"epochs": 100}}

    encoder: tuple[int, ...] = option((512, 256), low=1)
    decoder: tuple[int, ...] = option((256, 256), low=1)
    noise: float = option(0.1, above=0)  # variance of p(x|z)
    weight_decay: float = option(1e-3, low=0, below=math.inf)
    epochs: int = option(30, low=1)
    warm: bool = True

    net_: VAENet = learnt()

    def _net(self, shape: tuple[int, ...], seed: int) -> VAENet:
        return VAENet(math.prod(shape), self.dims, self.encoder, self.decoder, seed=seed)

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        return self._learn(self._net(shape, seed), rows, Prior.standard(len(rows), self.dims), seed)

    def _update(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        net = copy.deepcopy(self.net_) if self.warm else self._net(shape, seed)
        return self._learn(net, rows, self._next_prior(rows.x), seed)

    def _next_prior(self, x: Float[Tensor, "n d"]) -> Prior:
        """The prior of each row at a step after the first."""
        return Prior.standard(len(x), self.dims)

    def _learn(self, net: VAENet, rows: Rows, prior: Prior, seed: int) -> dict[str, Any]:
        draws = rng.fork(seed, "codes")

        def loss(i: Tensor) -> Tensor:
            noise = torch.randn(len(i), self.dims, generator=draws)
            return vae_loss(net, rows.x[i], noise, prior[i], self.noise)

        losses = self._train(net, loss, rows.weights, seed)
        active = active_codes(net, rows.x)
        if not active:
            warnings.warn(
                f"The codes of {type(self).__name__} say nothing: none varies from sample to sample. "
                f"More epochs, or a smaller 'noise' than {self.noise:g}, make details worth coding.",
                VestigeWarning,
                stacklevel=4,
            )
        self.net_ = net
        return {"losses": losses, "active_codes": active}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return self.net_.encode(x)[0]

    def _rebuild(self) -> None:
        if self.shape_ is not None:
            self.net_ = self._net(self.shape_, 0).eval()


@dataclass(eq=False)
class CVAE(VAEFeatures):
    """A variational auto-encoder that gives a sample nearly the code that it gave a step ago."""

    name: ClassVar[str] = "cvae"

    tie: float = option(1.0, low=0)

    @torch.no_grad()
    def _next_prior(self, x: Float[Tensor, "n d"]) -> Prior:
        """What the encoder of the step before says of each row: q_{t-1}(z|x)."""
        mean, log_var = self.net_.encode(x)
        return Prior(mean, log_var, self.tie)
