"""Conditional GANs: two networks, the loop in which they alternate, and what each of them minimises, kind by kind.

CDRE section 4.2 and App. A.3: conditional GANs with task indices as conditions, Adam with one rate for each network,
trained on each task in turn. `Adversarial` is what all share; a subclass says in a few lines what the critic and the
generator minimise.

What neither says, and stands so here: both optimisers begin afresh with each fit; the generator that a fit leaves is
a running average over its steps (`average`; 0 leaves the last); `betas` are (0.5, 0.99). The preset
"paper" has the networks, rates, batches and epochs of App. A.3; beyond it the Wasserstein GANs have their authors' five
steps of the critic, and the f-GANs keep their safeguards (see below). "small", whose values are the defaults, has dense
networks that learn ten classes, one after another, in a minute on one core. There the generator's gates and the
critic's projection make them keep which sample belongs to which condition.

A GAN circles around where it should rest, so a fit leaves the running average of the generator's weights. Statistics of
batch normalisation cannot be averaged with them: they belong to the layers' inputs under the very weights that are
used, so they are taken anew, from a pass in which every condition has the same share.

**f-GAN.** The critic maximises a variational lower bound of an f-divergence, the generator lowers it.

Nowozin, Cseke and Tomioka 2016, Eq. 6: F = E_p[g(v)] - E_q[f*(g(v))], v the critic's output, g the output activation
and f* the conjugate of the divergence, in the table of `ratios.losses` (js, kl, reverse_kl, hellinger, pearson). The
critic maximises F; at its optimum F is the divergence. What the generator does about it is `generator_term`:

    "conjugate"   minimises F: it maximises E_q[f*(g(v))];
    "activation"  maximises E_q[g(v)] instead, their section 3.2: the gradient does not vanish while samples are poor;
    "auto"        "conjugate" for reverse_kl, whose f*(g(v)) = v - 1 never saturates, and "activation" for the others.

Exponentials grow no steeper than at `exponent_limit`: where the critic's output asks for more, the term goes on along
its tangent. (Were it constant there, the critic would gain without end by moving every output beyond the limit.) The
curve "limited" says which share of the outputs that was. `gradient_clip` bounds either network's gradient. And where
there are exponentials the critic's last layer begins each fit at zero: to the critic of earlier conditions a new one
looks like nothing real, and the exponential of that verdict would take most of a fit to unlearn.

**WGAN.** The critic's mean difference between real and generated rows bounds their Wasserstein distance from below.

Arjovsky, Chintala and Bottou 2017, Algorithm 1: the critic maximises E_p[D] - E_q[D] (their Eq. 3, one condition at a
time) and each of its weights is clipped to [-clip, clip] after each step; the generator maximises E_q[D]. Adam instead
of RMSProp, as CDRE App. A.3 has it. Their bound of 0.01 and five steps of the critic for one of the generator are in
the preset "paper"; the small networks have one step and a wider bound.

**WGAN-GP.** Wasserstein GAN whose critic is held to slope one by a penalty instead of clipped weights.

Gulrajani et al. 2017, Eq. 3: the critic minimises E_q[D] - E_p[D] + penalty E[(|grad_x D(x, c)| - 1)^2] at points drawn
evenly between a real and a generated row of the same condition; the gradient is with respect to the row alone. The
critic never normalises over batches (their section 4). CDRE App. A.3 has it do so: the preset "paper" deviates there.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Generator as Noise
from torch import Tensor, nn

from vestige.core import checks, rng
from vestige.core.checks import learnt, option
from vestige.generators.base import ROWS, STRETCHES, Generator, Progress, ReplaySource, curves, must_be_finite
from vestige.nets.convolutional import FILTERS, image_shape
from vestige.nets.gan import ConditionalCritic, ConditionalGenerator
from vestige.ratios.losses import VARIATIONAL


class Player:
    """A network with its Adam; counts how often its gradient was scaled down."""

    def __init__(self, net: nn.Module, learning_rate: float, betas: Sequence[float]) -> None:
        self.parameters = list(net.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=learning_rate, betas=(betas[0], betas[1]), fused=True)
        self.steps = self.clipped = 0

    def descend(self, loss: Float[Tensor, ""], clip: float | None) -> None:
        """One step down `loss`, its gradient scaled to norm `clip` at most; no other network's gradient is taken."""
        for parameter, gradient in zip(self.parameters, torch.autograd.grad(loss, self.parameters), strict=True):
            parameter.grad = gradient.contiguous()  # fused Adam on the CPU reads memory in order, whatever the strides
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
ADVICE = "A smaller 'learning_rate' and 'critic_learning_rate', or a 'gradient_clip', help."


@dataclass(eq=False)
class Adversarial(Generator):
    """A conditional generator and the critic that trains it."""

    version: ClassVar[int] = 2  # 2: gradients of convolutions reach the weights that they are of

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
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], noise: Noise
    ) -> dict[str, Tensor]:
        """What the critic minimises, as "critic", and whatever else a curve should show."""

    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """What the generator minimises, from the critic's values of its samples: -E_q[D], of most."""
        return -values.mean()

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
        filters, norm = (FILTERS, self.critic_norm) if self.net == "conv" else (None, False)
        sizes = (self.codes, self.conditions, self.hidden, self.shape)
        self.generator_ = ConditionalGenerator(
            *sizes, filters=filters, keep=self.keep, bounded=self.bounded, seed=first
        )
        critic_sizes = (self.shape, self.conditions, self.critic_hidden)
        self.critic_ = ConditionalCritic(
            *critic_sizes, filters=filters, projection=self.projection, norm=norm, seed=second
        )

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
                must_be_finite(torch.stack(losses), self.name, ADVICE)
                on_progress(step / steps, f"step {step} of {steps}")
        shares = torch.tensor(source.conditions).repeat(-(-ROWS // len(source.conditions)))
        settle(averaged, torch.randn(len(shares), self.codes, generator=noise), shares)
        self.generator_ = averaged
        report: dict[str, Any] = {"steps": steps, "curves": curves(torch.stack(losses), ["generator", *terms])}
        if self.gradient_clip is not None:
            shares_clipped = {"generator": generator.clipped / generator.steps, "critic": critic.clipped / critic.steps}
            report["gradient_clipped"] = shares_clipped
        return report


# How steep, times exp(limit), activations that grow like exp(-v) and conjugates that grow like exp(v) are at the limit.
STEEP_ACTIVATION = {"reverse_kl": 1.0, "hellinger": 0.5}
STEEP_CONJUGATE = {"kl": math.exp(-1), "hellinger": 0.5}


def activation(divergence: str, v: Float[Tensor, " n"], limit: float) -> Float[Tensor, " n"]:
    """g(v), along its tangent where v < -limit."""
    if divergence not in STEEP_ACTIVATION:
        return VARIATIONAL[divergence].activation(v)
    within = v.clamp(min=-limit)
    return VARIATIONAL[divergence].activation(within) + STEEP_ACTIVATION[divergence] * math.exp(limit) * (v - within)


def conjugate(divergence: str, v: Float[Tensor, " n"], limit: float) -> Float[Tensor, " n"]:
    """f*(g(v)), along its tangent where v > limit."""
    if divergence not in STEEP_CONJUGATE:
        return VARIATIONAL[divergence].conjugate(v)
    within = v.clamp(max=limit)
    return VARIATIONAL[divergence].conjugate(within) + STEEP_CONJUGATE[divergence] * math.exp(limit) * (v - within)


def limited(
    divergence: str, v_real: Float[Tensor, " n"], v_fake: Float[Tensor, " n"], limit: float
) -> Float[Tensor, ""]:
    """The share of outputs beyond the limit."""
    beyond = torch.zeros((), dtype=v_real.dtype)
    if divergence in STEEP_ACTIVATION:
        beyond = beyond + (v_real < -limit).sum()
    if divergence in STEEP_CONJUGATE:
        beyond = beyond + (v_fake > limit).sum()
    return beyond / (len(v_real) + len(v_fake))


@dataclass(eq=False)
class FGAN(Adversarial):
    """GAN for an f-divergence."""

    name: ClassVar[str] = "fgan"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {},
        "paper": PAPER,
        # "longer training makes it worse"
        "paper_reverse_kl": PAPER | {"divergence": "reverse_kl", "epochs": 6},
    }

    divergence: str = option("js", among=VARIATIONAL)
    generator_term: str = option("auto", among=("auto", "conjugate", "activation"))
    exponent_limit: float = option(5.0, above=0, below=math.inf)
    gradient_clip: float | None = option(0.5, above=0, below=math.inf)
    critic_learning_rate: float = option(1e-3, above=0, below=math.inf)

    def _fit(self, source: ReplaySource, seed: int, on_progress: Progress) -> dict[str, Any]:
        if self.divergence in STEEP_ACTIVATION or self.divergence in STEEP_CONJUGATE:
            with torch.no_grad():
                for parameter in self.critic_.get_submodule("last").parameters():
                    parameter.zero_()
        return super()._fit(source, seed, on_progress)

    def critic_terms(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], noise: Noise
    ) -> dict[str, Tensor]:
        """-F."""
        v_real, v_fake = self.compared(real, fake, conditions)
        name, limit = self.divergence, self.exponent_limit
        bound = activation(name, v_real, limit).mean() - conjugate(name, v_fake, limit).mean()
        return {"critic": -bound, "limited": limited(name, v_real.detach(), v_fake.detach(), limit)}

    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """Minus the term that `generator_term` names."""
        term = self.generator_term
        if term == "auto":
            term = "conjugate" if self.divergence == "reverse_kl" else "activation"
        chosen = conjugate if term == "conjugate" else activation
        return -chosen(self.divergence, values, self.exponent_limit).mean()


@dataclass(eq=False)
class WGAN(Adversarial):
    """Wasserstein GAN with clipped weights."""

    name: ClassVar[str] = "wgan"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"small": {}, "paper": PAPER | {"critic_steps": 5, "clip": 0.01}}

    clip: float = option(0.05, above=0, below=math.inf)
    critic_learning_rate: float = option(1e-3, above=0, below=math.inf)

    def critic_terms(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], noise: Noise
    ) -> dict[str, Tensor]:
        """E_q[D] - E_p[D]."""
        value_real, value_fake = self.compared(real, fake, conditions)
        return {"critic": value_fake.mean() - value_real.mean()}

    @torch.no_grad()
    def constrain(self) -> None:
        """Every weight of the critic into [-clip, clip]."""
        for parameter in self.critic_.parameters():
            parameter.clamp_(-self.clip, self.clip)


def gradient_penalty(
    critic: Callable[[Tensor, Tensor], Tensor], x: Float[Tensor, "n d"], conditions: Shaped[Tensor, "n *rest"]
) -> Float[Tensor, ""]:
    """Mean over rows of (|grad_x critic(x, c)| - 1)^2, itself differentiable in the critic's weights."""
    x = x.detach().requires_grad_()
    # a row's value depends on that row alone, so the gradient of the sum holds every row's own
    (gradient,) = torch.autograd.grad(critic(x, conditions).sum(), x, create_graph=True)
    return (gradient.norm(dim=1) - 1).square().mean()


@dataclass(eq=False)
class WGANGP(Adversarial):
    """Wasserstein GAN with gradient penalty."""

    name: ClassVar[str] = "wgan_gp"
    critic_norm: ClassVar[bool] = False
    presets: ClassVar[dict[str, dict[str, Any]]] = {"small": {}, "paper": PAPER | {"critic_steps": 5}}

    penalty: float = option(10.0, low=0, below=math.inf)

    def critic_terms(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], noise: Noise
    ) -> dict[str, Tensor]:
        """E_q[D] - E_p[D] + penalty, and the two parts."""
        value_real, value_fake = self.compared(real, fake, conditions)
        between = torch.lerp(fake, real, torch.rand(len(real), 1, generator=noise))
        distance = value_real.mean() - value_fake.mean()
        penalty = gradient_penalty(self.critic_, between, conditions)
        return {"critic": self.penalty * penalty - distance, "distance": distance, "penalty": penalty}
