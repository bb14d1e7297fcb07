"""What all conditional GANs share: two networks, the loop in which they alternate, curves, and a watch for divergence.

CDRE section 4.2 and App. A.3: conditional GANs with task indices as conditions, Adam with one rate for each network,
trained on each task in turn. A subclass says in a few lines what the critic and the generator minimise.

What neither says, and stands so here: both optimisers begin afresh with each fit; the generator that a fit leaves is
a running average over its steps (`average`; 0 leaves the last); `betas` are (0.5, 0.99). The preset
"paper" has the networks, rates, batches and epochs of App. A.3; beyond it the Wasserstein GANs have their authors' five
steps of the critic, and the f-GANs keep the safeguards of `fgan`. "small", whose values are the defaults, has dense
networks that learn ten classes, one after another, in a minute on one core. There the generator's gates and the
critic's projection make them keep which sample belongs to which condition.

A GAN circles around where it should rest, so a fit leaves the running average of the generator's weights. Statistics of
batch normalisation cannot be averaged with them: they belong to the layers' inputs under the very weights that are
used, so they are taken anew, from a pass in which every condition has the same share.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Generator as Noise
from torch import Tensor, nn

from vestige.core import NotEstimable, checks, rng
from vestige.core.checks import learnt, option
from vestige.generators.base import ROWS, Generator
from vestige.generators.source import Progress, ReplaySource
from vestige.nets.convolutional import image_shape
from vestige.nets.gan import ConvCritic, ConvGenerator, DenseCritic, DenseGenerator


class Player:
    """A network with its Adam; counts how often its gradient was scaled down."""

    def __init__(self, net: nn.Module, learning_rate: float, betas: Sequence[float]) -> None:
        self.parameters = list(net.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=learning_rate, betas=(betas[0], betas[1]), fused=True)
        self.steps = self.clipped = 0

    def descend(self, loss: Float[Tensor, ""], clip: float | None) -> None:
        """One step down `loss`, its gradient scaled to norm `clip` at most; no other network's gradient is taken."""
        for parameter, gradient in zip(self.parameters, torch.autograd.grad(loss, self.parameters), strict=True):
            parameter.grad = gradient
        if clip is not None:
            self.clipped += int(nn.utils.clip_grad_norm_(self.parameters, clip) > clip)
        self.optimizer.step()
        self.steps += 1


@torch.no_grad()
def follow(averaged: nn.Module, net: nn.Module, keep: float) -> None:
    """averaged <- keep averaged + (1 - keep) net, for every weight."""
    for a, b in zip(averaged.parameters(), net.parameters(), strict=True):
        a.lerp_(b, 1 - keep)


@torch.no_grad()
def settle(net: nn.Module, codes: Float[Tensor, "n z"], conditions: Shaped[Tensor, "n *rest"]) -> None:
    """Running statistics of batch normalisation become those of one pass over `codes` and what they are drawn for."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # torch's word for a plain mean over passes
    net.train()(codes, conditions)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


STRETCHES = 50  # points of a training curve
PAPER: dict[str, Any] = {
    "net": "conv",
    "hidden": (1024,),
    "critic_hidden": (1024,),
    "keep": 1.0,
    "projection": False,
    "critic_learning_rate": 2e-4,
    "steps": None,
    "epochs": 15,
    "average": 0.0,
}


@dataclass(eq=False)
class Adversarial(Generator):
    """A conditional generator and the critic that trains it."""

    # whether the critic may normalise over batches; it cannot where its gradient is penalised row by row
    critic_norm: ClassVar[bool] = True

    net: str = option("dense", among=("dense", "conv"))
    hidden: tuple[int, ...] = option((128, 256), low=1, least=1)  # of the generator; with "conv", its dense layers
    critic_hidden: tuple[int, ...] = option((256, 128), low=1, least=1)
    codes: int = option(64, low=1)  # normal numbers that a sample is made of
    keep: float = option(0.5, above=0, high=1)  # share of the generator's hidden units that work for a condition
    projection: bool = True  # whether the critic has weights of its own for each condition
    bounded: bool = True  # samples in (0, 1); if not, on the whole line
    batch_size: int = option(64, low=2)
    steps: int | None = option(300, low=1)  # of the generator, each fit; None: as many as `epochs` take
    epochs: int = option(15, low=1)  # counted in the critic's batches
    critic_steps: int = option(1, low=1)  # for each of the generator's
    learning_rate: float = option(1e-3, above=0, below=math.inf)
    critic_learning_rate: float = option(2e-4, above=0, below=math.inf)
    betas: tuple[float, ...] = option((0.5, 0.99), low=0, below=1, least=2)
    average: float = option(0.99, low=0, below=1)  # what the running average of the generator's weights keeps in a step
    gradient_clip: float | None = option(None, above=0, below=math.inf)  # largest norm of either network's gradient

    generator_: nn.Module = learnt()
    critic_: nn.Module = learnt()

    def check(self) -> None:
        """Two betas, and images for convolutions."""
        if self.net == "conv":
            image_shape(self.shape, type(self).__name__)
        if len(self.betas) != 2:
            checks.refuse("betas", type(self).__name__, "two numbers", f"{len(self.betas)}")

    @abstractmethod
    def critic_terms(
        self,
        real: Float[Tensor, "n d"],
        fake: Float[Tensor, "n d"],
        conditions: Int64[Tensor, " n"],
        noise: Noise,
    ) -> dict[str, Tensor]:
        """What the critic minimises, as "critic", and whatever else a curve should show."""

    @abstractmethod
    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """What the generator minimises, from the critic's values of its samples."""

    def constrain(self) -> None:
        """Called after each step of the critic; most are free."""

    def compared(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """The critic's values of real and of generated rows, in one pass unless it normalises over batches."""
        if self.net == "conv" and self.critic_norm:
            return self.critic_(real, conditions), self.critic_(fake, conditions)
        both = self.critic_(torch.cat([real, fake]), torch.cat([conditions, conditions]))
        return both[: len(real)], both[len(real) :]

    def _build(self, seed: int) -> None:
        first, second = rng.child_seed(seed, "generator"), rng.child_seed(seed, "critic")
        sizes, critic_sizes = (self.codes, self.conditions, self.hidden), (self.conditions, self.critic_hidden)
        keep, bounded, projection = self.keep, self.bounded, self.projection
        if self.net == "conv":
            image, norm = image_shape(self.shape, type(self).__name__), self.critic_norm
            self.generator_ = ConvGenerator(*sizes, image, keep=keep, bounded=bounded, seed=first)
            self.critic_ = ConvCritic(image, *critic_sizes, projection=projection, norm=norm, seed=second)
        else:
            columns = math.prod(self.shape)
            self.generator_ = DenseGenerator(*sizes, columns, keep=keep, bounded=bounded, seed=first)
            self.critic_ = DenseCritic(columns, *critic_sizes, projection=projection, seed=second)

    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        return self.generator_(torch.randn(len(conditions), self.codes, generator=noise), conditions)

    def _fit(self, source: ReplaySource, seed: int, on_progress: Progress) -> dict[str, Any]:
        if self.bounded:
            source.must_be_pixels(f"{type(self).__name__}.fit")
        steps = self.steps or max(source.steps(self.epochs, self.batch_size) // self.critic_steps, 1)
        batches = source.batches(self.batch_size, steps * self.critic_steps, rng.fork(seed, "batches"))
        noise, averaged = rng.fork(seed, "codes"), copy.deepcopy(self.generator_)
        generator = Player(self.generator_.train(), self.learning_rate, self.betas)
        critic = Player(self.critic_.train(), self.critic_learning_rate, self.betas)
        losses: list[Tensor] = []
        for step in range(steps):
            for _ in range(self.critic_steps):
                real, conditions = next(batches)
                with torch.no_grad():
                    fake = self._draw(conditions, noise)
                terms = self.critic_terms(real, fake, conditions, noise)
                critic.descend(terms["critic"], self.gradient_clip)
                self.constrain()
            loss = self.generator_loss(self.critic_(self._draw(conditions, noise), conditions))
            generator.descend(loss, self.gradient_clip)
            # a plain mean at first, so that the weights that the fit began with do not linger
            follow(averaged, self.generator_, min(self.average, step / (step + 1)))
            losses.append(torch.stack([loss, *terms.values()]).detach())
            if step % max(steps // STRETCHES, 1) == 0 or step == steps - 1:
                self._still_finite(losses)
                on_progress(step / steps, f"step {step} of {steps}")
        shares = torch.tensor(source.conditions).repeat(-(-ROWS // len(source.conditions)))
        settle(averaged, torch.randn(len(shares), self.codes, generator=noise), shares)
        self.generator_ = averaged
        parts = torch.stack(losses).cpu().double().tensor_split(min(STRETCHES, steps))
        curves = torch.stack([part.mean(0) for part in parts]).T.tolist()
        report: dict[str, Any] = {"steps": steps, "curves": dict(zip(["generator", *terms], curves, strict=True))}
        if self.gradient_clip is not None:
            shares_clipped = {"generator": generator.clipped / generator.steps, "critic": critic.clipped / critic.steps}
            report["gradient_clipped"] = shares_clipped
        return report

    def _still_finite(self, losses: list[Tensor]) -> None:
        bad = (~torch.stack(losses).isfinite().all(1)).nonzero()
        if len(bad):
            raise NotEstimable(
                f"The training of {self.name} diverged at step {int(bad[0]) + 1}. "
                "A smaller 'learning_rate' and 'critic_learning_rate', or a 'gradient_clip', help."
            )
