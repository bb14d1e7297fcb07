"""The generators of variational generative replay: a GAN for each condition, trained on it alone and kept for ever.

Farquhar and Gal C.1: "we train a GAN to produce pairs for each class in each dataset as it arrives. After that dataset
is used, the data are discarded and the generator is kept." So nothing is replayed into it, and what was learnt of a
condition never changes unless that condition comes again, which is then learnt anew. `gan_dense` has the networks of
C.4, `gan_conv` those of C.5 (see `nets.gan` for what is not printed); both are trained by Adam with rate 2e-4
and beta1 0.5, the first for 200 epochs on each digit and the second for 50: the preset "paper". Loss (Goodfellow et al.
2014, in the form that does not saturate, as everyone trains it), a step of each in turn:

    discriminator:  softplus(-D(x)) + softplus(D(G(z))),    generator:  softplus(-D(G(z))).

Deviations. The batch is not printed: 64. Each discriminator goes when its condition is learnt; the generators alone
are kept. The preset "small" has narrower networks, a faster rate and fewer epochs, and keeps a running mean of the
generator's weights and moments (`average`, 0 in print), which spares short training the swings of its last steps.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor, nn
from torch.nn.functional import softplus

from vestige.core import NotEstimable, checks, rng
from vestige.core.checks import learnt, option
from vestige.generators.base import Generator, Progress, ReplaySource, curves
from vestige.nets import gan
from vestige.nets.convolutional import image_shape

STRETCHES = 20  # points of the curves in the report
SMALL: dict[str, Any] = {"epochs": 15, "batch_size": 32, "average": 0.98}


def discriminator_loss(real: Float[Tensor, " n"], drawn: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """-log sigmoid of the logits of real rows, -log(1 - sigmoid) of those of drawn ones; the mean of each."""
    return softplus(-real).mean() + softplus(drawn).mean()


def generator_loss(drawn: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """-log sigmoid of the logits of drawn rows."""
    return softplus(-drawn).mean()


def descend(optimizer: torch.optim.Optimizer, loss: Float[Tensor, ""]) -> None:
    """One step down `loss`; no other network's gradient is taken."""
    optimizer.zero_grad()
    loss.backward(inputs=[p for group in optimizer.param_groups for p in group["params"]])
    optimizer.step()


@dataclass(eq=False)
class PerClassGAN(Generator):
    """A generator for each condition that was learnt; a child says of which networks."""

    epochs: int = option(50, low=1)
    batch_size: int = option(64, low=2)  # batch normalisation needs two
    learning_rate: float = option(2e-4, above=0)
    beta1: float = option(0.5, low=0, below=1)
    average: float = option(0.0, low=0, below=1)
    output: str = option("sigmoid", among=gan.OUTPUTS)

    generators_: dict[int, nn.Module] = learnt(factory=dict)

    @abstractmethod
    def _pair(self) -> tuple[nn.Module, nn.Module]:
        """A generator and its discriminator, as they begin."""

    def _build(self, seed: int) -> None:
        self.generators_ = {}

    def _fit(self, source: ReplaySource, seed: int, on_progress: Progress) -> dict[str, Any]:
        if self.output == "sigmoid":
            source.must_be_pixels(f"{type(self).__name__}.fit")
        # Samples that are given of a condition without a generator are all there is to learn it from.
        given = source.replay if isinstance(source.replay, Mapping) else {}
        taught = source.real | {c: x for c, x in given.items() if c not in self.generators_}
        found: dict[int, Tensor] = {}
        for i, (c, rows) in enumerate(taught.items()):
            on_progress(i / len(taught), f"condition {c}")
            with rng.guard(seed, "init", c):
                generator, discriminator = self._pair()
            found[c] = self._train(generator, discriminator, rows, rng.fork(seed, "train", c))
            if not all(bool(torch.isfinite(p).all()) for p in generator.parameters()):
                raise NotEstimable(f"The training of {self.name} diverged on condition {c}: weights are not finite.")
            self.generators_[c] = generator
        stretches = min(STRETCHES, *map(len, found.values()))
        seen: dict[str, list[float]] = {}
        for c, losses in found.items():
            seen |= curves(losses, (f"discriminator {c}", f"generator {c}"), stretches)
        return {"steps": sum(map(len, found.values())), "curves": seen, "replayed": []}

    def _train(
        self, generator: nn.Module, discriminator: nn.Module, x: Float[Tensor, "n d"], noise: Noise
    ) -> Float[Tensor, "steps 2"]:
        """Alternate steps of discriminator and generator; returns the losses of both."""
        of_generator, of_discriminator = (
            torch.optim.Adam(net.parameters(), self.learning_rate, (self.beta1, 0.999), fused=True)
            for net in (generator, discriminator)
        )
        # What is kept: a running mean of weights and running moments, or with `average` 0 the last of them.
        now = [value for value in generator.state_dict().values() if value.is_floating_point()]
        mean = [value.clone() for value in now]
        batch = min(self.batch_size, len(x))
        steps = len(x) // batch
        losses: list[Tensor] = []
        for _ in range(self.epochs):
            order = torch.randperm(len(x), generator=noise)[: steps * batch]
            codes = torch.randn(steps, self.batch_size, gan.CODES, generator=noise)
            for real, z in zip(x[order].split(batch), codes, strict=True):
                drawn = generator(z)
                logits = discriminator(torch.cat([real, drawn.detach()]))
                discriminated = discriminator_loss(logits[: len(real)], logits[len(real) :])
                descend(of_discriminator, discriminated)
                loss = generator_loss(discriminator(drawn))
                descend(of_generator, loss)
                # The mean of all so far until the running mean is longer: the first weights are worth nothing.
                torch._foreach_lerp_(mean, now, 1 - min(self.average, len(losses) / (len(losses) + 1)))
                losses.append(torch.stack([discriminated.detach(), loss.detach()]))
        torch._foreach_copy_(now, mean)
        return torch.stack(losses)

    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        codes = torch.randn(len(conditions), gan.CODES, generator=noise)
        drawn = codes.new_empty(len(conditions), math.prod(self.shape))
        for c in conditions.unique().tolist():
            drawn[conditions == c] = self.generators_[c](codes[conditions == c])
        return drawn

    def _rebuild(self) -> None:
        super()._rebuild()
        with rng.guard(0, "init"):
            self.generators_ = {c: self._pair()[0] for c in self.known_}


@dataclass(eq=False)
class DenseGAN(PerClassGAN):
    """C.4: fully connected."""

    name: ClassVar[str] = "gan_dense"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": SMALL | {"widths": (128, 256), "critic_widths": (256, 128), "learning_rate": 5e-4},
    }

    epochs: int = option(200, low=1)
    widths: tuple[int, ...] = option((256, 512, 1024), low=1, least=1)
    critic_widths: tuple[int, ...] = option((512, 256), low=1, least=1)

    def _pair(self) -> tuple[nn.Module, nn.Module]:
        columns = math.prod(self.shape)
        generator = gan.dense_class_generator(self.widths, columns, self.output)
        return generator, gan.dense_discriminator(self.critic_widths, columns)


@dataclass(eq=False)
class ConvGAN(PerClassGAN):
    """C.5: convolutional, for images."""

    name: ClassVar[str] = "gan_conv"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": SMALL | {"filters": (16, 8), "critic_filters": (16, 32), "learning_rate": 1e-3},
    }

    filters: tuple[int, ...] = option((128, 64), low=1, least=2)  # from the coarse maps to the fine ones
    critic_filters: tuple[int, ...] = option((64, 128), low=1, least=2)  # and back

    def check(self) -> None:
        """Two widths each, and the shape of an image."""
        image_shape(self.shape, type(self).__name__)
        for name in ("filters", "critic_filters"):
            if len(getattr(self, name)) != 2:
                checks.refuse(name, type(self).__name__, "two widths", getattr(self, name))

    def _pair(self) -> tuple[nn.Module, nn.Module]:
        generator = gan.conv_class_generator(self.shape, self.filters, self.output)
        return generator, gan.conv_discriminator(self.shape, self.critic_filters)
