"""Lower bounds of a divergence from the values of any critic T on samples of p and of q.

`f_bound` is f-GAN's (Nowozin et al. 2016, Eq. 4; for kl it is that of Nguyen, Wainwright and Jordan):
E_p[T] - E_q[f*(T)] <= D_f(p || q), equal where T = f'(r). `donsker_varadhan` is E_p[T] - log E_q[exp T] <= KL(p || q),
equal where T = log r + any constant. Means over samples: in expectation the first is a true lower bound, the second is
biased upward by about Var_q(exp T) / (2 n) over E_q[exp T]^2. `activation` of `family` takes any real number to the
domain of f*.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.ratios.divergences import family
from vestige.ratios.divergences.terms import Side


class Bound(NamedTuple):
    """The value on the samples and its sampling error."""

    value: float
    std_error: float


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
) -> Bound:
    """E_p[T] - E_q[f*(T)]. T must lie in the domain of f*."""
    owner = "divergences.f_bound"
    div = family.get(name)
    p, q = _critics(critic_p, critic_q, p_weights, q_weights, owner)
    top = float(torch.maximum(p.log_ratio.max(), q.log_ratio.max()))
    dual = div.conjugate(q.log_ratio)
    if top > div.slope_below or not bool(torch.isfinite(dual).all()):
        checks.refuse("critic", owner, f"below {div.slope_below:.4g} for {div.name}", f"{top:.4g}")
    value = p.weights @ p.log_ratio - q.weights @ dual
    return Bound(float(value), math.sqrt(p.variance_of_mean(p.log_ratio) + q.variance_of_mean(dual)))


def donsker_varadhan(
    critic_p: ArrayLike,
    critic_q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
) -> Bound:
    """E_p[T] - log E_q[exp T], a lower bound of KL(p || q); any constant in T cancels."""
    p, q = _critics(critic_p, critic_q, p_weights, q_weights, "divergences.donsker_varadhan")
    log_mean = torch.logsumexp(q.log_ratio + q.weights.log(), 0)
    relative: Float[Tensor, " n"] = (q.log_ratio - log_mean).exp()
    variance = p.variance_of_mean(p.log_ratio) + q.variance_of_mean(relative)
    return Bound(float(p.weights @ p.log_ratio - log_mean), math.sqrt(variance))
