"""Tails that no sample settles: is the KL of these columns finite?

KL(a || b) is infinite where E_a[-log b(x)] is. Let a column of `a` have a power-law tail of Pareto index xi (moments
below 1 / xi exist) and let -log of b's tail grow like x^(1 / theta): theta = 1/2 for a normal, 1 for an exponential,
and ever larger for power laws themselves, whose logarithm is no burden. Then E_a[-log b] is infinite from xi = theta
on. As KL of columns is at most that of rows, one such column decides. xi is the shape of a generalised Pareto fit to
the largest values (`weights.diagnosis`); theta the Weibull-tail coefficient of Gardes and Girard (2006), the mean log
spacing over that of log log(n / i). Student t of two degrees against a normal has xi = theta = 1/2. From theta / 2 on
the terms of KL have no variance, so that no sample tells a finite value from an infinite one: that is the limit here,
xi must be three standard errors above zero, and a's largest value `FARTHER` times as far out as b's: within b's range a
bounded column may have any shape.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.ratios.weights.diagnosis import SHORTEST_TAIL, gpd_fit

SHARE_OF = 0.5  # of theta, from which on E_a[(log b)^2] is infinite
SIGMAS = 3.0
FARTHER = 2.0


def _largest(x: Float[Tensor, " n"]) -> Float[Tensor, " m"]:
    """The largest min(n / 5, 3 sqrt n) values and the one below them, ascending."""
    size = int(min(len(x) / 5, 3 * math.sqrt(len(x))))
    return torch.topk(x, size + 1).values.flip(0)


def pareto_index(x: Float[Tensor, " n"]) -> tuple[float, int]:
    """xi of the upper tail of `x`, and the number of values it rests on; -inf where there is no tail."""
    top = _largest(x)
    excess = top[1:] - top[0]
    excess = excess[excess > 0]  # ties with the cutoff carry no shape
    if len(excess) < SHORTEST_TAIL or len(torch.unique(excess)) < SHORTEST_TAIL:
        return -math.inf, len(excess)
    return gpd_fit(excess)[0], len(excess)


def weibull_tail(x: Float[Tensor, " n"]) -> float:
    """theta of the upper tail of positive `x`: -log of its survival grows like x^(1 / theta)."""
    top = _largest(x)
    if float(top[0]) <= 0 or len(top) <= SHORTEST_TAIL:
        return math.inf
    i = torch.arange(1, len(top), dtype=top.dtype)
    levels = (len(x) / i).log().log() - math.log(math.log(len(x) / len(top)))
    return float((top[1:] / top[0]).log().mean() / levels.mean())


def heavier(a: Float[Tensor, "n_a d"], b: Float[Tensor, "n_b d"]) -> tuple[int, float, float] | None:
    """The column whose tail in `a` forbids KL(a || b), with xi of a and theta of b; None where none does.

    Where several do, the one in which xi exceeds its limit most.
    """
    worst: tuple[float, int, float, float] | None = None
    middle = b.median(0).values
    for j in range(a.shape[1]):
        for sign in (1.0, -1.0):
            of_a, of_b = sign * (a[:, j] - middle[j]), sign * (b[:, j] - middle[j])
            xi, rows = pareto_index(of_a)
            if xi <= SIGMAS / math.sqrt(max(rows, 1)) or float(of_a.max()) < FARTHER * float(of_b.max()):
                continue
            theta = weibull_tail(of_b)
            if xi >= SHARE_OF * theta and (worst is None or xi - SHARE_OF * theta > worst[0]):
                worst = xi - SHARE_OF * theta, j, xi, theta
    return None if worst is None else worst[1:]
