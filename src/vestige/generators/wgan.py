"""WGAN: the critic's mean difference between real and generated rows bounds their Wasserstein distance from below.

Arjovsky, Chintala and Bottou 2017, Algorithm 1: the critic maximises E_p[D] - E_q[D] (their Eq. 3, one condition at a
time) and each of its weights is clipped to [-clip, clip] after each step; the generator maximises E_q[D]. Adam instead
of RMSProp, as CDRE App. A.3 has it. Their bound of 0.01 and five steps of the critic for one of the generator are in
the preset "paper"; the small networks have one step and a wider bound.

WGAN-GP: Wasserstein GAN whose critic is held to slope one by a penalty instead of clipped weights.

Gulrajani et al. 2017, Eq. 3: the critic minimises E_q[D] - E_p[D] + penalty E[(|grad_x D(x, c)| - 1)^2] at points drawn
evenly between a real and a generated row of the same condition; the gradient is with respect to the row alone. The
critic never normalises over batches (their section 4). CDRE App. A.3 has it do so: the preset "paper" deviates there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Generator as Noise
from torch import Tensor

from vestige.core.checks import option
from vestige.generators.adversarial import PAPER, Adversarial


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

    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """-E_q[D]."""
        return -values.mean()

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

    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """-E_q[D]."""
        return -values.mean()
