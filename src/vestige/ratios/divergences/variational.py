"""What critics and models of the ratio are trained by, on samples: lower bounds of divergences, and Bregman losses.

`f_bound` is f-GAN's (Nowozin et al. 2016, Eq. 4; for kl it is that of Nguyen, Wainwright and Jordan):
E_p[T] - E_q[f*(T)] <= D_f(p || q), equal where T = f'(r). `donsker_varadhan` is E_p[T] - log E_q[exp T] <= KL(p || q),
equal where T = log r + any constant. Means over samples: in expectation the first is a true lower bound, the second is
biased upward by about Var_q(exp T) / (2 n) over E_q[exp T]^2. `activation` of `family` takes any real number to the
domain of f*.

Density-ratio matching (Sugiyama, Suzuki, Kanamori 2012) minimises a Bregman divergence between ratio functions. For a
convex h, BR_h(r* || r) = E_q[h(r*) - h(r) - h'(r) (r* - r)]. Up to a term without r it needs samples alone:
loss(r) = E_q[h'(r) r - h(r)] - E_p[h'(r)]. The table names the estimators it covers:
- squared, h = (r - 1)^2 / 2: LSIF, loss E_q[r^2]/2 - E_p[r] - 1/2;
- kl, h = r log r - r: KLIEP without its constraint, loss E_q[r] - E_p[log r];
- binary_kl, h = r log r - (1 + r) log(1 + r): logistic regression, loss E_q[log(1 + r)] + E_p[log(1 + 1/r)].
Everything is evaluated from log r.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, checks
from vestige.core.checks import ArrayLike
from vestige.core.numerics import weighted_mean
from vestige.ratios.base import OnP, OnQ
from vestige.ratios.divergences import family
from vestige.ratios.divergences.estimate import Side
from vestige.ratios.losses import GENERATORS, ConvexFunction

BREGMAN: dict[str, ConvexFunction] = {
    "squared": GENERATORS["squared"],
    "kl": GENERATORS["kl"],
    "binary_kl": GENERATORS["logistic"],
}


def _critics(
    p: ArrayLike, q: ArrayLike, p_weights: ArrayLike | None, q_weights: ArrayLike | None, owner: str
) -> tuple[Side, Side]:
    out = []
    for name, values, weights in (("p", p, p_weights), ("q", q, q_weights)):
        x = checks.vector(values, f"critic_{name}", owner, min_rows=2)
        w = checks.weights(weights, len(x), f"{name}_weights", owner)
        out.append(Side.of(x, w))
    return out[0], out[1]


def f_bound(
    name: str,
    critic_p: ArrayLike,
    critic_q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
) -> Estimate:
    """E_p[T] - E_q[f*(T)]. T must lie in the domain of f*."""
    owner = "divergences.f_bound"
    div = family.get(name)
    p, q = _critics(critic_p, critic_q, p_weights, q_weights, owner)
    top = float(torch.maximum(p.log_ratio.max(), q.log_ratio.max()))
    dual = div.conjugate(q.log_ratio)
    if top > div.slope_below or not bool(torch.isfinite(dual).all()):
        checks.refuse("critic", owner, f"below {div.slope_below:.4g} for {div.name}", f"{top:.4g}")
    value = p.weights @ p.log_ratio - q.weights @ dual
    return Estimate.normal(float(value), math.sqrt(p.variance_of_mean(p.log_ratio) + q.variance_of_mean(dual)))


def donsker_varadhan(
    critic_p: ArrayLike,
    critic_q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
) -> Estimate:
    """E_p[T] - log E_q[exp T], a lower bound of KL(p || q); any constant in T cancels."""
    p, q = _critics(critic_p, critic_q, p_weights, q_weights, "divergences.donsker_varadhan")
    log_mean = torch.logsumexp(q.log_ratio + q.weights.log(), 0)
    relative: Float[Tensor, " n"] = (q.log_ratio - log_mean).exp()
    variance = p.variance_of_mean(p.log_ratio) + q.variance_of_mean(relative)
    return Estimate.normal(float(p.weights @ p.log_ratio - log_mean), math.sqrt(variance))


def bregman_loss(
    name: str, log_ratio_p: OnP, log_ratio_q: OnQ, p_weights: OnP | None = None, q_weights: OnQ | None = None
) -> Float[Tensor, ""]:
    """E_q[h'(r) r - h(r)] - E_p[h'(r)], differentiable: BR_h(r* || r) up to a term without r."""
    h = BREGMAN[checks.one_of(name, BREGMAN, "name", "divergences.bregman_loss")]
    return weighted_mean(h.rest(log_ratio_q), q_weights) - weighted_mean(h.slope(log_ratio_p), p_weights)


def bregman_divergence(
    name: str, log_true: ArrayLike, log_model: ArrayLike, *, q_weights: ArrayLike | None = None
) -> float:
    """BR_h(r* || r) from both log-ratios on samples of q; zero where they agree."""
    owner = "divergences.bregman_divergence"
    h = BREGMAN[checks.one_of(name, BREGMAN, "name", owner)]
    true = checks.vector(log_true, "log_true", owner)
    model = checks.vector(log_model, "log_model", owner, length=len(true))
    weights = checks.weights(q_weights, len(true), "q_weights", owner)
    # with h(r) = h'(r) r - rest(r), the terms in h'(r) r of the definition cancel
    gap = (h.slope(true) - h.slope(model)) * true.exp() - (h.rest(true) - h.rest(model))
    return float(weighted_mean(gap, weights))
