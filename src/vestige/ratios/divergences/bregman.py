"""Bregman divergences between ratio functions: what density-ratio matching minimises (Sugiyama, Suzuki, Kanamori 2012).

For a convex h, BR_h(r* || r) = E_q[h(r*) - h(r) - h'(r) (r* - r)]. Up to a term without r it needs samples alone:
loss(r) = E_q[h'(r) r - h(r)] - E_p[h'(r)]. The table names the estimators it covers:
- squared, h = (r - 1)^2 / 2: LSIF, loss E_q[r^2]/2 - E_p[r] - 1/2;
- kl, h = r log r - r: KLIEP without its constraint, loss E_q[r] - E_p[log r];
- binary_kl, h = r log r - (1 + r) log(1 + r): logistic regression, loss E_q[log(1 + r)] + E_p[log(1 + 1/r)].
Everything is evaluated from log r.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.core.numerics import weighted_mean
from vestige.ratios.divergences.family import Map


@dataclass(frozen=True)
class Potential:
    """h, h' and the two integrands of the loss, all maps of log r."""

    h: Map
    slope: Map
    on_p: Map  # -h'(r)
    on_q: Map  # h'(r) r - h(r)


def _entropy_like(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return x.exp() * logsigmoid(x) + logsigmoid(-x)  # r log r - (1 + r) log(1 + r)


# x is log r.
BREGMAN: dict[str, Potential] = {
    "squared": Potential(
        h=lambda x: x.expm1().square() / 2,
        slope=torch.expm1,
        on_p=lambda x: -x.expm1(),
        on_q=lambda x: (2 * x).expm1() / 2,
    ),
    "kl": Potential(h=lambda x: x.exp() * (x - 1), slope=lambda x: x, on_p=torch.neg, on_q=torch.exp),
    "binary_kl": Potential(
        h=_entropy_like, slope=logsigmoid, on_p=lambda x: -logsigmoid(x), on_q=lambda x: -logsigmoid(-x)
    ),
}


def bregman_loss(
    name: str,
    log_ratio_p: Float[Tensor, " n_p"],
    log_ratio_q: Float[Tensor, " n_q"],
    p_weights: Float[Tensor, " n_p"] | None = None,
    q_weights: Float[Tensor, " n_q"] | None = None,
) -> Float[Tensor, ""]:
    """E_q[h'(r) r - h(r)] - E_p[h'(r)], differentiable: BR_h(r* || r) up to a term without r."""
    h = BREGMAN[checks.one_of(name, BREGMAN, "name", "divergences.bregman_loss")]
    return weighted_mean(h.on_p(log_ratio_p), p_weights) + weighted_mean(h.on_q(log_ratio_q), q_weights)


def bregman_divergence(
    name: str, log_true: ArrayLike, log_model: ArrayLike, *, q_weights: ArrayLike | None = None
) -> float:
    """BR_h(r* || r) from both log-ratios on samples of q; zero where they agree."""
    owner = "divergences.bregman_divergence"
    h = BREGMAN[checks.one_of(name, BREGMAN, "name", owner)]
    true = checks.vector(log_true, "log_true", owner)
    model = checks.vector(log_model, "log_model", owner, length=len(true))
    weights = checks.weights(q_weights, len(true), "q_weights", owner)
    gap = h.h(true) - h.h(model) - h.slope(model) * (true.exp() - model.exp())
    return float(weighted_mean(gap, weights))
