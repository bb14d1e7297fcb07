"""Balancing: weights of one set under which its features have the means of another's (Hainmueller 2012).

Of all weights the nearest, in KL, to those that are given, under which `q` has p's means of phi = [1, z, products of
z] and of random ReLU features of z. Log-ratios that were learnt are right on average but a little rough; weights that
come of them are smoothed in this way, and what has to be known of p are means alone.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import rng
from vestige.core.numerics import log_normalise, weighted_mean
from vestige.ratios.base import Sample
from vestige.ratios.standardise import design, mixture_standardiser, quadratic_form

NEWTON_STEPS = 50  # at most
TOLERANCE = 1e-10  # what another step of Newton's would gain


def random_relu(z: Float[Tensor, "n d"], count: int, *, generator: torch.Generator) -> Float[Tensor, "n count"]:
    """relu(a . z + b) with a ~ N(0, I / d) and b ~ N(0, 1): kinks spread over standardised coordinates."""
    d = z.shape[1]
    directions = torch.randn(d, count, generator=generator, dtype=z.dtype) / math.sqrt(d)
    return (z @ directions + torch.randn(count, generator=generator, dtype=z.dtype)).relu()


def entropy_balance(
    log_weights: Float[Tensor, " n"], centred: Float[Tensor, "n m"], *, ridge: float = 1e-4
) -> Float[Tensor, " n"]:
    """Logarithms of the weights w exp(lambda . centred) under which features less their targets average to zero.

    They do so up to the ridge on lambda, which minimises log sum_i w_i exp(lambda . centred_i) + ridge/2 |lambda|^2,
    convex, by Newton's method with step halving; the ridge keeps it finite where no weights reach the targets.
    """
    lam = centred.new_zeros(centred.shape[1])
    eye = ridge * torch.eye(len(lam), dtype=lam.dtype)

    def objective(lam: Tensor) -> tuple[Tensor, Tensor]:
        raw = log_weights + centred @ lam
        return raw, torch.logsumexp(raw, 0) + ridge / 2 * lam.square().sum()

    raw, value = objective(lam)
    for _ in range(NEWTON_STEPS):
        w = torch.softmax(raw, 0)
        mean = w @ centred
        spread = (centred - mean) * w.sqrt()[:, None]
        slope = mean + ridge * lam
        step = -torch.linalg.solve(spread.mT @ spread + eye, slope)
        along = float(slope @ step)
        for halvings in range(21):
            size = 0.5**halvings
            raw_moved, value_moved = objective(lam + size * step)
            if bool(value_moved <= value + 1e-4 * size * along):
                break
        if bool(value_moved > value):  # rounding is all that is left
            break
        lam, raw, value = lam + size * step, raw_moved, value_moved
        if -along / 2 <= TOLERANCE:
            break
    return log_normalise(raw)


def balance_to(
    p: Float[Tensor, "n_p d"],
    p_weights: Float[Tensor, " n_p"] | None,
    q: Float[Tensor, "n_q d"],
    log_weights: Float[Tensor, " n_q"],
    *,
    clip: float,
    rows_a_product: float,
    relu: int,
    ridge: float,
    seed: int,
) -> Float[Tensor, " n_q"]:
    """`log_weights` of q's rows, balanced to the means of p's features. Nothing of p is in what is returned.

    A coordinate that is constant on q and not on p can be balanced by no weights, and is left out: asked for all the
    same, it would leave a single row its weight.
    """
    stuck = (q.amax(0) == q.amin(0)) & (p.amax(0) > p.amin(0))
    if bool(stuck.all()):
        return log_normalise(log_weights)
    p, q = p[:, ~stuck], q[:, ~stuck]
    sample = Sample(p, q, p_weights)
    w_p = sample.w_p
    standardise = mixture_standardiser(sample, clip=clip)
    form = quadratic_form(p.shape[1], min(1 / float(w_p.square().sum()), len(q)), rows_a_product)

    def seen(x: Tensor) -> Tensor:
        z = standardise(x)
        drawn = random_relu(z, relu, generator=rng.fork(seed, "relu"))
        return torch.cat([design(z, form)[:, 1:], drawn], 1)

    on_p, on_q = seen(p), seen(q)
    target = weighted_mean(on_p, w_p)
    scale = weighted_mean((on_p - target).square(), w_p).sqrt()
    varies = scale > 1e-9 * scale.max()  # a feature that is constant on p carries no target worth a division
    return entropy_balance(log_weights, (on_q[:, varies] - target[varies]) / scale[varies], ridge=ridge)
