"""Variational auto-encoders with diagonal Gaussians on both sides, and the two terms of their loss.

`VAENet` is the network of CDRE App. A.1: an encoder with dense ReLU layers [512, 256] and a decoder with [256, 256].
The decoder's mean is linear, since a Gaussian likelihood has no bounds (the appendix does not say).

`GatedVAENet` is conditional: its decoder is told the condition by gates, fixed random masks. In each hidden layer of
the decoder every condition has its own units, drawn once and for all (a share `keep` of them); the others are switched
off for it. Conditions share weights where their masks overlap and cannot be confused by the code: with the condition as
one more input the code ends up carrying it, and learning in sequence then loses it. Gates for tasks are of Masse, Grant
and Freedman (2018); in the decoder of a replay they are of van de Ven et al. (2020). The encoder does not see the
condition, so that a code can be had for any sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.core import rng
from vestige.nets.classifier import dense


def gaussian_kl(
    mean: Float[Tensor, "*shape"],
    log_var: Float[Tensor, "*shape"],
    prior_mean: Float[Tensor, "*shape"],
    prior_log_var: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    """KL(N(mean, var) || N(prior mean, prior var)) of each entry."""
    gap = log_var - prior_log_var
    return 0.5 * (torch.expm1(gap) - gap + (mean - prior_mean).square() * (-prior_log_var).exp())


def gaussian_nll(
    x: Float[Tensor, "n d"], mean: Float[Tensor, "n d"], variance: Float[Tensor, "... d"] | float
) -> Float[Tensor, " n"]:
    """-log N(x; mean, diag(variance)) of each row, the variance one number or one a column."""
    variance = torch.as_tensor(variance, dtype=x.dtype)
    return 0.5 * ((x - mean).square() / variance + variance.log() + math.log(2 * math.pi)).sum(1)


class GaussianEncoder(nn.Module):
    """x -> N(mean, var) over codes."""

    def __init__(self, n_inputs: int, n_codes: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.n_codes = n_codes
        self.encoder = nn.Sequential(*dense([n_inputs, *hidden, 2 * n_codes])[:-1])

    def encode(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n f"]]:
        """Mean and log-variance of the code of each row."""
        mean, log_var = self.encoder(x).split(self.n_codes, 1)
        return mean, log_var


class VAENet(GaussianEncoder):
    """x -> N(mean, var) over codes; code -> mean of x."""

    def __init__(
        self, n_inputs: int, n_codes: int, encoder: Sequence[int], decoder: Sequence[int], *, seed: int
    ) -> None:
        with rng.guard(seed, "init"):
            super().__init__(n_inputs, n_codes, encoder)
            self.decoder = nn.Sequential(*dense([n_codes, *decoder, n_inputs])[:-1])

    def decode(self, z: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """The mean of x for each code."""
        return self.decoder(z)

    def forward(
        self, x: Float[Tensor, "n d"], noise: Float[Tensor, "n f"]
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n f"], Float[Tensor, "n f"]]:
        """The decoded mean of a code drawn with standard normal `noise`, and that code's mean and log-variance."""
        mean, log_var = self.encode(x)
        return self.decode(mean + noise * torch.exp(0.5 * log_var)), mean, log_var


def gates(n_conditions: int, width: int, keep: float, generator: torch.Generator) -> Float[Tensor, "k w"]:
    """1 where a unit works for a condition: the same number of units, at least one, for each."""
    on = max(round(keep * width), 1)
    return (torch.rand(n_conditions, width, generator=generator).argsort(1) < on).float()


class GatedVAENet(GaussianEncoder):
    """x -> N(mean, var) over codes; code and condition -> the parameters of x."""

    def __init__(
        self,
        n_inputs: int,
        n_codes: int,
        n_conditions: int,
        encoder: Sequence[int],
        decoder: Sequence[int],
        *,
        keep: float,
        seed: int,
    ) -> None:
        with rng.guard(seed, "init"):
            super().__init__(n_inputs, n_codes, encoder)
            self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise([n_codes, *decoder])])
            self.last = nn.Linear(decoder[-1], n_inputs)
        generator = rng.fork(seed, "gates")
        for i, width in enumerate(decoder):
            self.register_buffer(f"gates_{i}", gates(n_conditions, width, keep, generator))

    def decode(self, z: Float[Tensor, "n f"], conditions: Int64[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """What the likelihood of x needs (logits or a mean) for each code."""
        for i, layer in enumerate(self.hidden):
            z = torch.relu(layer(z)) * self.get_buffer(f"gates_{i}")[conditions]
        return self.last(z)
