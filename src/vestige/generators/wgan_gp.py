"""WGAN-GP: Wasserstein GAN whose critic is held to slope one by a penalty instead of clipped weights.

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

from vestige.core import checks
from vestige.generators.adversarial import PAPER, Adversarial


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

    penalty: float = 10.0

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        checks.number(self.penalty, "penalty", "WGANGP", low=0, high=math.inf, open_high=True)

    def critic_terms(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], noise: Noise
    ) -> dict[str, Tensor]:
        """E_q[D] - E_p[D] + penalty, and the two parts."""
        value_real, value_fake = self.judge(real, fake, conditions)
        between = torch.lerp(fake, real, torch.rand(len(real), 1, generator=noise))
        distance = value_real.mean() - value_fake.mean()
        penalty = gradient_penalty(self.critic_, between, conditions)
        return {"critic": self.penalty * penalty - distance, "distance": distance, "penalty": penalty}

    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """-E_q[D]."""
        return -values.mean()
