"""f-GAN: the critic maximises a variational lower bound of an f-divergence, the generator lowers it.

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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor

from vestige.core.checks import option
from vestige.generators.adversarial import PAPER, Adversarial
from vestige.generators.source import Progress, ReplaySource
from vestige.ratios.losses import VARIATIONAL

TERMS = ("auto", "conjugate", "activation")
# whose activation grows like exp(-v), and whose conjugate like exp(v): how steep they are at the limit
STEEP_ACTIVATION: dict[str, Callable[[float], float]] = {
    "reverse_kl": lambda limit: math.exp(limit),
    "hellinger": lambda limit: math.exp(limit) / 2,
}
STEEP_CONJUGATE: dict[str, Callable[[float], float]] = {
    "kl": lambda limit: math.exp(limit - 1),
    "hellinger": lambda limit: math.exp(limit) / 2,
}


def activation(divergence: str, v: Float[Tensor, " n"], limit: float) -> Float[Tensor, " n"]:
    """g(v), along its tangent where v < -limit."""
    if divergence not in STEEP_ACTIVATION:
        return VARIATIONAL[divergence].activation(v)
    within = v.clamp(min=-limit)
    return VARIATIONAL[divergence].activation(within) + STEEP_ACTIVATION[divergence](limit) * (v - within)


def conjugate(divergence: str, v: Float[Tensor, " n"], limit: float) -> Float[Tensor, " n"]:
    """f*(g(v)), along its tangent where v > limit."""
    if divergence not in STEEP_CONJUGATE:
        return VARIATIONAL[divergence].conjugate(v)
    within = v.clamp(max=limit)
    return VARIATIONAL[divergence].conjugate(within) + STEEP_CONJUGATE[divergence](limit) * (v - within)


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
    generator_term: str = option("auto", among=TERMS)
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
