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

The variational estimators of f-GAN (Nowozin, Cseke and Tomioka 2016), with the ratio read off the optimum.

D_f(p || q) = E_q f(p/q) >= E_p[T] - E_q[f*(T)], with equality at T = f'(p/q). The network's output v passes through
the output activation of the paper's Table 2, T = g(v), and the ratio is r = (f')^-1(T):

    divergence  f(r)                                   T = g(v)             f*(T)               log r
    kl          r log r                                v                    exp(T - 1)          v - 1
    reverse_kl  -log r                                 -exp(-v)             -1 - log(-T)        v
    js          [r log r - (1 + r) log((1 + r)/2)]/2   [log 2 - sp(-v)]/2   -log(2 - e^2T)/2    v
    hellinger   (sqrt r - 1)^2 / 2                     (1 - exp(-v)) / 2    T / (1 - 2T)        2 v
    pearson     (r - 1)^2                              v                    T^2 / 4 + T         log(1 + v/2)

(sp is softplus.) `bound` in the report is the right-hand side on held-out rows: a lower bound of the divergence.

Deviations: js and hellinger carry the factor 1/2 that makes them the Jensen-Shannon divergence and 1 - the
Bhattacharyya coefficient, which scales T and leaves the optimum alone; hellinger's activation has the sign that makes v
grow with r. The f*(g(v)) below are simplified by hand so that nothing saturates. Pearson's T may fall below -2, where
no ratio corresponds to it (CDRE section 3 says the same): r is floored at `ratio_floor`, and the report says how
often; `nets.LSIF` is the same divergence with a positive link.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

# A number for each row of p, and for each row of q, of every member.
OfP: TypeAlias = Float[Tensor, "m n_p"]
OfQ: TypeAlias = Float[Tensor, "m n_q"]


def logistic(out_p: OfP, out_q: OfQ, w_p: OfP, w_q: OfQ, *, share: float = 0.5) -> Float[Tensor, " m"]:
    """Cross-entropy of telling p from q where p has the class share `share`."""
    prior = math.log(share / (1 - share))
    on_p, on_q = (w_p * softplus(-out_p - prior)).sum(1), (w_q * softplus(out_q + prior)).sum(1)
    return share * on_p + (1 - share) * on_q


def logistic_slope(w_p: OfP, w_q: OfQ, *, share: float = 0.5) -> Callable[[Tensor], Tensor]:
    """d `logistic` / d outputs, for outputs on p and q side by side: weight * (sigmoid(logit) - label)."""
    prior = math.log(share / (1 - share))
    weights = torch.cat([share * w_p, (1 - share) * w_q], 1)
    label = torch.cat([torch.ones_like(w_p), torch.zeros_like(w_q)], 1)
    return lambda out: torch.sigmoid(out + prior).sub_(label).mul_(weights)


def kliep(out_p: OfP, out_q: OfQ, w_p: OfP, w_q: OfQ) -> Float[Tensor, " m"]:
    """log E_q[exp psi] - E_p[psi]: minus Eq. 2's objective; adding a constant to psi changes nothing."""
    return torch.logsumexp(out_q + w_q.log(), 1) - (w_p * out_p).sum(1)


def least_squares(r_p: OfP, r_q: OfQ, w_p: OfP, w_q: OfQ) -> Float[Tensor, " m"]:
    """E_q[r^2] / 2 - E_p[r], of ratios (not of their logarithms)."""
    return (w_q * r_q.square()).sum(1) / 2 - (w_p * r_p).sum(1)


@dataclass(frozen=True)
class ConvexFunction:
    """A convex f, through the two functions of log r that ratio matching needs."""

    slope: Callable[[Tensor], Tensor]  # f'(r)
    rest: Callable[[Tensor], Tensor]  # f'(r) r - f(r)


def power_generator(power: float) -> ConvexFunction:
    """f(r) = (r^(1+a) - r) / a, Basu's power divergence: towards KL as a -> 0, twice the squared one at a = 1."""
    return ConvexFunction(
        lambda psi: ((1 + power) * torch.exp(power * psi) - 1) / power,
        lambda psi: torch.exp((1 + power) * psi),
    )


GENERATORS: dict[str, ConvexFunction] = {
    # f(r) = (r - 1)^2 / 2: LSIF
    "squared": ConvexFunction(lambda psi: torch.expm1(psi), lambda psi: torch.expm1(2 * psi) / 2),
    # f(r) = r log r - r: KLIEP without its normalisation (unnormalised KL)
    "kl": ConvexFunction(lambda psi: psi, lambda psi: torch.exp(psi)),
    # f(r) = r log r - (1 + r) log(1 + r): binary KL, twice the balanced logistic loss
    "logistic": ConvexFunction(lambda psi: -softplus(-psi), lambda psi: softplus(psi)),
    # f(r) = -2 sqrt r: the exponential loss of boosting
    "exponential": ConvexFunction(lambda psi: -torch.exp(-psi / 2), lambda psi: torch.exp(psi / 2)),
}


def bregman(out_p: OfP, out_q: OfQ, w_p: OfP, w_q: OfQ, *, generator: ConvexFunction) -> Float[Tensor, " m"]:
    """E_q[f'(r) r - f(r)] - E_p[f'(r)] with r = exp(out)."""
    return (w_q * generator.rest(out_q)).sum(1) - (w_p * generator.slope(out_p)).sum(1)


@dataclass(frozen=True)
class Variational:
    """One row of the table, as functions of the network's output v."""

    activation: Callable[[Tensor], Tensor]  # T = g(v)
    conjugate: Callable[[Tensor], Tensor]  # f*(g(v))
    ratio: Callable[[Tensor], Tensor]  # log r, before any floor (NaN or -inf where there is none)


VARIATIONAL: dict[str, Variational] = {
    "kl": Variational(lambda v: v, lambda v: torch.exp(v - 1), lambda v: v - 1),
    "reverse_kl": Variational(lambda v: -torch.exp(-v), lambda v: v - 1, lambda v: v),
    "js": Variational(
        lambda v: (math.log(2) - softplus(-v)) / 2, lambda v: (softplus(v) - math.log(2)) / 2, lambda v: v
    ),
    "hellinger": Variational(lambda v: -torch.expm1(-v) / 2, lambda v: torch.expm1(v) / 2, lambda v: 2 * v),
    "pearson": Variational(lambda v: v, lambda v: v.square() / 4 + v, lambda v: torch.log1p(v / 2)),
}
