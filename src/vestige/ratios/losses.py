"""Losses whose minimiser is a density ratio, as pure functions of a network's outputs on p and on q.

Each takes `out_p` (m, n_p) and `out_q` (m, n_q) of m members, weights that sum to one in each row, and returns one
loss a member (m,). Unless the name says otherwise an output is psi = log r.

- `logistic`: LFIW section 2.3, the classifier of Proposition 1. With class share pi of p the logit is
  psi + log(pi / (1 - pi)), so gamma = (1 - pi) / pi of Eq. 4 is divided out inside the loss and psi is log p/q for
  every pi: 1/2 is the balanced loss, n_p / (n_p + n_q) the one of plain cross-entropy with the prior corrected.
- `kliep`: CDRE Eq. 2 with the log-linear model of Eq. 3, as a minimisation.
- `least_squares`: LSIF, E_q[r^2] / 2 - E_p[r].
- `bregman`: ratio matching (Sugiyama, Suzuki and Kanamori 2012, Eq. 5 of "Density-ratio matching under the Bregman
  divergence"): E_q[f'(r) r - f(r)] - E_p[f'(r)], which is the Bregman divergence from p/q to r under q up to a
  constant. GENERATORS holds both terms as functions of log r.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus


def logistic(
    out_p: Float[Tensor, "m n_p"],
    out_q: Float[Tensor, "m n_q"],
    w_p: Float[Tensor, "m n_p"],
    w_q: Float[Tensor, "m n_q"],
    *,
    share: float = 0.5,
) -> Float[Tensor, " m"]:
    """Cross-entropy of telling p from q where p has the class share `share`."""
    prior = math.log(share / (1 - share))
    on_p, on_q = (w_p * softplus(-out_p - prior)).sum(1), (w_q * softplus(out_q + prior)).sum(1)
    return share * on_p + (1 - share) * on_q


def logistic_slope(
    w_p: Float[Tensor, "m n_p"], w_q: Float[Tensor, "m n_q"], *, share: float = 0.5
) -> Callable[[Tensor], Tensor]:
    """d `logistic` / d outputs, for outputs on p and q side by side: weight * (sigmoid(logit) - label)."""
    prior = math.log(share / (1 - share))
    weights = torch.cat([share * w_p, (1 - share) * w_q], 1)
    label = torch.cat([torch.ones_like(w_p), torch.zeros_like(w_q)], 1)
    return lambda out: torch.sigmoid(out + prior).sub_(label).mul_(weights)


def kliep(
    out_p: Float[Tensor, "m n_p"],
    out_q: Float[Tensor, "m n_q"],
    w_p: Float[Tensor, "m n_p"],
    w_q: Float[Tensor, "m n_q"],
) -> Float[Tensor, " m"]:
    """log E_q[exp psi] - E_p[psi]: minus Eq. 2's objective; adding a constant to psi changes nothing."""
    return torch.logsumexp(out_q + w_q.log(), 1) - (w_p * out_p).sum(1)


def least_squares(
    r_p: Float[Tensor, "m n_p"],
    r_q: Float[Tensor, "m n_q"],
    w_p: Float[Tensor, "m n_p"],
    w_q: Float[Tensor, "m n_q"],
) -> Float[Tensor, " m"]:
    """E_q[r^2] / 2 - E_p[r], of ratios (not of their logarithms)."""
    return (w_q * r_q.square()).sum(1) / 2 - (w_p * r_p).sum(1)


@dataclass(frozen=True)
class Generator:
    """A convex f, through the two functions of log r that ratio matching needs."""

    slope: Callable[[Tensor], Tensor]  # f'(r)
    rest: Callable[[Tensor], Tensor]  # f'(r) r - f(r)


def power_generator(power: float) -> Generator:
    """f(r) = (r^(1+a) - r) / a, Basu's power divergence: towards KL as a -> 0, twice the squared one at a = 1."""
    return Generator(
        lambda psi: ((1 + power) * torch.exp(power * psi) - 1) / power,
        lambda psi: torch.exp((1 + power) * psi),
    )


GENERATORS: dict[str, Generator] = {
    # f(r) = (r - 1)^2 / 2: LSIF
    "squared": Generator(lambda psi: torch.expm1(psi), lambda psi: torch.expm1(2 * psi) / 2),
    # f(r) = r log r - r: KLIEP without its normalisation (unnormalised KL)
    "kl": Generator(lambda psi: psi, lambda psi: torch.exp(psi)),
    # f(r) = r log r - (1 + r) log(1 + r): binary KL, twice the balanced logistic loss
    "logistic": Generator(lambda psi: -softplus(-psi), lambda psi: softplus(psi)),
    # f(r) = -2 sqrt r: the exponential loss of boosting
    "exponential": Generator(lambda psi: -torch.exp(-psi / 2), lambda psi: torch.exp(psi / 2)),
}


def bregman(
    out_p: Float[Tensor, "m n_p"],
    out_q: Float[Tensor, "m n_q"],
    w_p: Float[Tensor, "m n_p"],
    w_q: Float[Tensor, "m n_q"],
    *,
    generator: Generator,
) -> Float[Tensor, " m"]:
    """E_q[f'(r) r - f(r)] - E_p[f'(r)] with r = exp(out)."""
    return (w_q * generator.rest(out_q)).sum(1) - (w_p * generator.slope(out_p)).sum(1)
