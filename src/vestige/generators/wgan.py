"""WGAN: the critic's mean difference between real and generated rows bounds their Wasserstein distance from below.

Arjovsky, Chintala and Bottou 2017, Algorithm 1: the critic maximises E_p[D] - E_q[D] (their Eq. 3, one condition at a
time) and each of its weights is clipped to [-clip, clip] after each step; the generator maximises E_q[D]. Adam instead
of RMSProp, as CDRE App. A.3 has it. Their bound of 0.01 and five steps of the critic for one of the generator are in
the preset "paper"; the small networks have one step and a wider bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor

from vestige.core import checks
from vestige.generators.adversarial import PAPER, Adversarial


@dataclass(eq=False)
class WGAN(Adversarial):
    """Wasserstein GAN with clipped weights."""

    name: ClassVar[str] = "wgan"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"small": {}, "paper": PAPER | {"critic_steps": 5, "clip": 0.01}}

    clip: float = 0.05
    critic_lr: float = 1e-3

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        checks.number(self.clip, "clip", "WGAN", low=0, open_low=True, high=math.inf, open_high=True)

    def critic_terms(
        self, real: Float[Tensor, "n d"], fake: Float[Tensor, "n d"], conditions: Int64[Tensor, " n"], noise: Noise
    ) -> dict[str, Tensor]:
        """E_q[D] - E_p[D]."""
        value_real, value_fake = self.judge(real, fake, conditions)
        return {"critic": value_fake.mean() - value_real.mean()}

    def generator_loss(self, values: Float[Tensor, " n"]) -> Float[Tensor, ""]:
        """-E_q[D]."""
        return -values.mean()

    @torch.no_grad()
    def constrain(self) -> None:
        """Every weight of the critic into [-clip, clip]."""
        for parameter in self.critic_.parameters():
            parameter.clamp_(-self.clip, self.clip)
