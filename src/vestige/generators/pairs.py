"""Pairs of images of one class, and a Wasserstein critic of them (Antoniou et al. 2017; LFIW App. C.4).

C.4: the critic tells (x_i, G(x_i, z)) from (x_i, x_j), where x_i and x_j have the same label. It leaves the loss to
Antoniou et al.: Wasserstein with gradient penalty (Gulrajani et al. 2017, Eq. 3). As both pairs begin with the same
example a, the points of the penalty lie between their second members; with c drawn evenly from the line between G(z, a)
and another image b of a's class, the critic minimises

    E[D(G(z, a), a)] - E[D(b, a)] + penalty E[(|grad_c D(c, a)| - 1)^2].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor, nn

from vestige.generators.wgan_gp import gradient_penalty


@dataclass(frozen=True)
class Classes:
    """Rows of one class after another: where each class begins, and how many rows it has, two at least."""

    first: Int64[Tensor, " k"]
    count: Int64[Tensor, " k"]

    def pairs(self, n: int, noise: Noise) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
        """Places of n examples and of another row of the class of each; every class has the same chance."""
        c = torch.randint(len(self.count), (n,), generator=noise)
        count, u = self.count[c], torch.rand(2, n, dtype=torch.float64, generator=noise)
        one = (u[0] * count).long()
        apart = 1 + (u[1] * (count - 1)).long()  # 1 .. count - 1: never the example itself
        return self.first[c] + one, self.first[c] + (one + apart) % count


def critic_terms(
    critic: nn.Module,
    others: Float[Tensor, "n d"],
    made: Float[Tensor, "n d"],
    examples: Float[Tensor, "n d"],
    penalty: float,
    noise: Noise,
) -> dict[str, Float[Tensor, ""]]:
    """What the critic minimises, and its two parts."""
    values = critic(torch.cat([others, made]), examples.repeat(2, 1))
    distance = values[: len(others)].mean() - values[len(others) :].mean()
    between = torch.lerp(made, others, torch.rand(len(made), 1, generator=noise))
    slope = gradient_penalty(critic, between, examples)
    return {"critic": penalty * slope - distance, "distance": distance, "penalty": slope}
