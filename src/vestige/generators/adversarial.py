"""What all conditional GANs share: two networks, the loop in which they alternate, curves, and a watch for divergence.

CDRE section 4.2 and App. A.3: conditional GANs with task indices as conditions, Adam with one rate for each network,
trained on each task in turn. A subclass says in a few lines what the critic and the generator minimise.

What neither says, and stands so here: both optimisers begin afresh with each fit; the generator that a fit leaves is
a running average over its steps (`average`; 0 leaves the last; see `players`); `betas` are (0.5, 0.99). The preset
"paper" has the networks, rates, batches and epochs of App. A.3; beyond it the Wasserstein GANs have their authors' five
steps of the critic, and the f-GANs keep the safeguards of `fgan`. "small", whose values are the defaults, has dense
networks that learn ten classes, one after another, in a minute on one core. There the generator's gates and the
critic's projection make them keep which sample belongs to which condition.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor, nn

from vestige.core import checks, rng
from vestige.core.errors import NotEstimable
from vestige.generators.base import ROWS, Generator
from vestige.generators.players import Player, follow, settle
from vestige.generators.source import Source, Tell
from vestige.nets.convolutional import image_shape
from vestige.nets.gan import ConvCritic, ConvGenerator, DenseCritic, DenseGenerator

STRETCHES = 50  # points of a training curve
PAPER: dict[str, Any] = {
    "net": "conv",
    "hidden": (1024,),
    "critic_hidden": (1024,),
    "keep": 1.0,
    "projection": False,
    "critic_lr": 2e-4,
    "steps": None,
    "epochs": 15,
    "average": 0.0,
}


@dataclass(eq=False)
class Adversarial(Generator):
    """A conditional generator and the critic that trains it."""

    # whether the critic may normalise over batches; it cannot where its gradient is penalised row by row
    critic_norm: ClassVar[bool] = True

    net: str = "dense"  # or "conv"
    hidden: tuple[int, ...] = (128, 256)  # of the generator; with "conv", its dense layers
    critic_hidden: tuple[int, ...] = (256, 128)
    codes: int = 64  # normal numbers that a sample is made of
    keep: float = 0.5  # share of the generator's hidden units that work for a condition
    projection: bool = True  # whether the critic has weights of its own for each condition
    bounded: bool = True  # samples in (0, 1); if not, on the whole line
    batch: int = 64
    steps: int | None = 300  # of the generator, each fit; None: as many as `epochs` take
    epochs: int = 15  # counted in the critic's batches
    critic_steps: int = 1  # for each of the generator's
    lr: float = 1e-3
    critic_lr: float = 2e-4
    betas: tuple[float, ...] = (0.5, 0.99)
    average: float = 0.99  # what the running average of the generator's weights keeps in a step
    gradient_clip: float | None = None  # largest norm of either network's gradient

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        owner = type(self).__name__
        checks.one_of(self.net, ("dense", "conv"), "net", owner)
        if self.net == "conv":
            image_shape(self.shape, owner)
        for name in ("hidden", "critic_hidden"):
            if not getattr(self, name):
                checks.refuse(name, owner, "at least one hidden layer", "none")
            for width in getattr(self, name):
                checks.whole(width, name, owner, low=1)
        for name in ("codes", "epochs", "critic_steps"):
            checks.whole(getattr(self, name), name, owner, low=1)
        checks.whole(self.batch, "batch", owner, low=2)
        if self.steps is not None:
            checks.whole(self.steps, "steps", owner, low=1)
        if len(self.betas) != 2:
            checks.refuse("betas", owner, "two numbers", f"{len(self.betas)}")
        for name, values in (("betas", self.betas), ("average", (self.average,))):
            for value in values:
                checks.number(value, name, owner, low=0, high=1, open_high=True)
        checks.number(self.keep, "keep", owner, low=0, open_low=True, high=1)
        positive = ["lr", "critic_lr"] + ["gradient_clip"] * (self.gradient_clip is not None)
        for name in positive:
            checks.number(getattr(self, name), name, owner, low=0, open_low=True, high=math.inf, open_high=True)

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

    def judge(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"]
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """The critic's values of real and of generated rows, in one pass unless it normalises over batches."""
        if self.net == "conv" and self.critic_norm:
            return self.critic_(real, conditions), self.critic_(fake, conditions)
        both = self.critic_(torch.cat([real, fake]), torch.cat([conditions, conditions]))
        return both[: len(real)], both[len(real) :]

    def _build(self, seed: int) -> None:
        first, second = rng.child_seed(seed, "generator"), rng.child_seed(seed, "critic")
        makes, judges = (self.codes, self.conditions, self.hidden), (self.conditions, self.critic_hidden)
        keep, bounded, projection = self.keep, self.bounded, self.projection
        self.generator_: nn.Module
        self.critic_: nn.Module
        if self.net == "conv":
            image, norm = image_shape(self.shape, type(self).__name__), self.critic_norm
            self.generator_ = ConvGenerator(*makes, image, keep=keep, bounded=bounded, seed=first)
            self.critic_ = ConvCritic(image, *judges, projection=projection, norm=norm, seed=second)
        else:
            columns = math.prod(self.shape)
            self.generator_ = DenseGenerator(*makes, columns, keep=keep, bounded=bounded, seed=first)
            self.critic_ = DenseCritic(columns, *judges, projection=projection, seed=second)

    def _nets(self) -> dict[str, nn.Module]:
        return {"generator": self.generator_, "critic": self.critic_}

    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        return self.generator_(torch.randn(len(conditions), self.codes, generator=noise), conditions)

    def _fit(self, source: Source, seed: int, tell: Tell) -> dict[str, Any]:
        if self.bounded:
            source.must_be_pixels(f"{type(self).__name__}.fit")
        steps = self.steps or max(source.steps(self.epochs, self.batch) // self.critic_steps, 1)
        batches = source.batches(self.batch, steps * self.critic_steps, rng.fork(seed, "batches"))
        noise, averaged = rng.fork(seed, "codes"), copy.deepcopy(self.generator_)
        maker = Player(self.generator_.train(), self.lr, self.betas)
        judge = Player(self.critic_.train(), self.critic_lr, self.betas)
        losses: list[Tensor] = []
        for step in range(steps):
            for _ in range(self.critic_steps):
                real, conditions = next(batches)
                with torch.no_grad():
                    fake = self._draw(conditions, noise)
                terms = self.critic_terms(real, fake, conditions, noise)
                judge.descend(terms["critic"], self.gradient_clip)
                self.constrain()
            loss = self.generator_loss(self.critic_(self._draw(conditions, noise), conditions))
            maker.descend(loss, self.gradient_clip)
            # a plain mean at first, so that the weights that the fit began with do not linger
            follow(averaged, self.generator_, min(self.average, step / (step + 1)))
            losses.append(torch.stack([loss, *terms.values()]).detach())
            if step % max(steps // STRETCHES, 1) == 0 or step == steps - 1:
                self._still_finite(losses)
                tell(step / steps, f"step {step} of {steps}")
        shares = torch.tensor(source.conditions).repeat(-(-ROWS // len(source.conditions)))
        settle(averaged, torch.randn(len(shares), self.codes, generator=noise), shares)
        self.generator_ = averaged
        parts = torch.stack(losses).cpu().double().tensor_split(min(STRETCHES, steps))
        curves = torch.stack([part.mean(0) for part in parts]).T.tolist()
        report: dict[str, Any] = {"steps": steps, "curves": dict(zip(["generator", *terms], curves, strict=True))}
        if self.gradient_clip is not None:
            shares_clipped = {"generator": maker.clipped / maker.steps, "critic": judge.clipped / judge.steps}
            report["gradient_clipped"] = shares_clipped
        return report

    def _still_finite(self, losses: list[Tensor]) -> None:
        bad = (~torch.stack(losses).isfinite().all(1)).nonzero()
        if len(bad):
            raise NotEstimable(
                f"The training of {self.name} diverged at step {int(bad[0]) + 1}. "
                "A smaller 'lr' and 'critic_lr', or a 'gradient_clip', help."
            )
