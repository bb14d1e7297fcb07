"""How much of what a ratio found rests on a group of features: permutation importance (Breiman 2001, section 10).

The gain of a classifier is log 2 less its held-out log-loss, with either side at half of the mass: an estimate of the
Jensen-Shannon divergence that falls short of it. The features of a group are shuffled over the rows of both sides
together, so that they say nothing of the side, nor of the other features; each row is judged by a fit that has not seen
it. What is left of the gain is taken after a calibration of the shuffled scores (Platt), so that it lies between 0 and
the log-loss of a coin: combinations that no row has may drive a score anywhere.

    share = 1 - gain with the group shuffled / gain

Shares need not add up to one: of two features that say the same, either can be shuffled at little loss; where two tell
something only together, each of them carries all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.core import rng
from vestige.ratios.calibration import held_out_figures, platt
from vestige.ratios.cross_fit import HeldOut

ROWS = 1000  # of either side that are shuffled
LEAST_GAIN = 1e-3  # nats, below which there is nothing to share out


def shares_of_gain(
    found: HeldOut,
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    groups: Sequence[Sequence[int]],
    *,
    p_weights: Float[Tensor, " n_p"] | None = None,
    q_weights: Float[Tensor, " n_q"] | None = None,
    seed: int,
) -> list[float]:
    """The share of the held-out gain that is lost with each group of features; NaN where there is no gain.

    `p` and `q` are the rows that `found` is of. Weighted rows are drawn by weight, at most ROWS of either side.
    """
    folds = found.folds
    if folds is None:
        return [math.nan] * len(groups)
    few = min(len(folds.rows_p), len(folds.rows_q), ROWS)
    picked = [
        _picked(len(rows), None if weights is None else weights[rows], few, rng.fork(seed, "importance", side))
        for side, rows, weights in (("p", folds.rows_p, p_weights), ("q", folds.rows_q, q_weights))
    ]
    x = torch.cat([p[folds.rows_p[picked[0]]], q[folds.rows_q[picked[1]]]]).to(torch.float64)
    fold = torch.cat([folds.fold_p[picked[0]], folds.fold_q[picked[1]]])
    gain = _gain(folds.log_ratio(x, fold), few)
    if gain < LEAST_GAIN:
        return [math.nan] * len(groups)
    out = []
    for i, group in enumerate(groups):
        order = torch.randperm(len(x), generator=rng.fork(seed, "shuffled", i))
        shuffled = x.clone()
        shuffled[:, list(group)] = x[order][:, list(group)]
        out.append(min(max(1 - _gain(folds.log_ratio(shuffled, fold), few) / gain, 0.0), 1.0))
    return out


def _picked(n: int, weights: Tensor | None, few: int, generator: torch.Generator) -> Int[Tensor, " few"]:
    if weights is None:
        return torch.randperm(n, generator=generator)[:few]
    return torch.multinomial(weights, few, replacement=True, generator=generator)


def _gain(log_ratio: Float[Tensor, " n"], n_p: int) -> float:
    """Nats below the log-loss of a coin, after calibration."""
    p, q = log_ratio[:n_p], log_ratio[n_p:]
    even = torch.full_like(p, 1 / n_p), torch.full_like(q, 1 / len(q))
    affine = platt(p, q, *even)
    return math.log(2) - float(held_out_figures(affine(p), affine(q), *even)["log_loss"])
