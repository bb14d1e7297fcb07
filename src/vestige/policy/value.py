"""How often each trajectory, episode or classifier is drawn in each of many resamples; row 0 draws all of them once.

The value of a policy from simulated trajectories whose bias is corrected by weights (LFIW Eqs. 10, 11 and 6).

A trajectory's log weight is the sum of its transitions' log-ratios over the first H steps; H = 0 is the plain model,
H = T all of Eq. 11. Weights are self-normalised (Eq. 6), for each classifier by itself, and the values averaged over
classifiers, as in the paper. Products of a hundred ratios leave one trajectory with all the weight; `tempered` flattens
them (Eq. 7) by the largest exponent that keeps a share of the trajectories effective, which is no part of the paper.

`shuffled` is the control: the same weights, handed out at random. It shows what weights that know nothing do.
Intervals are percentiles of a bootstrap over members, trajectories and classifiers, exponents as they were found.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.ratios import weights


def _with_all(drawn: Tensor, n: int) -> Float64[Tensor, "b n"]:
    counts = torch.zeros(len(drawn), n, dtype=torch.float64)
    counts.scatter_add_(1, drawn, torch.ones(drawn.shape, dtype=torch.float64))
    return torch.cat([torch.ones(1, n, dtype=torch.float64), counts])


def episode_counts(n: int, draws: int, generator: torch.Generator) -> Float64[Tensor, "b n"]:
    """n of n with replacement, `draws` times."""
    return _with_all(torch.randint(n, (draws, n), generator=generator), n)


def trajectory_counts(n: int, members: int, draws: int, generator: torch.Generator) -> Float64[Tensor, "b n"]:
    """In two stages: members with replacement, then trajectories of each; those of a member stand together."""
    each = n // members
    member = torch.randint(members, (draws, members, 1), generator=generator)
    within = torch.randint(each, (draws, members, each), generator=generator)
    return _with_all((member * each + within).flatten(1), n)


def interval(values: Float64[Tensor, " b"], level: float = 0.95) -> tuple[float, float]:
    """Percentiles."""
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(values, ends).tolist()
    return low, high


@dataclass(frozen=True)
class Weighted:
    """Weighted values for each H of `hs`: the mean over classifiers, its interval, and what each classifier says."""

    hs: tuple[int, ...]
    values: Float64[Tensor, " k"]
    low: Float64[Tensor, " k"]
    high: Float64[Tensor, " k"]
    by_classifier: Float64[Tensor, "c k"]
    ess: Float64[Tensor, " k"]  # effective trajectories, mean over classifiers
    alpha: Float64[Tensor, " k"]  # exponents, mean over classifiers


def trajectory_log_weights(log_ratio: Float64[Tensor, "c n h"], first: int) -> Float64[Tensor, "c n"]:
    """log of the product over the first `first` steps (Eq. 10; Eq. 11 truncated)."""
    return log_ratio[:, :, :first].sum(2)


def self_normalised(
    log_weights: Float64[Tensor, "c n"], returns: Float64[Tensor, " n"], counts: Float64[Tensor, "b n"]
) -> Float64[Tensor, "b c"]:
    """Eq. 6 for each classifier and each resample, in which a trajectory counts as often as it was drawn."""
    log_counts = counts.log()
    return torch.stack([torch.softmax(log_w + log_counts, 1) @ returns for log_w in log_weights], 1)


def weighted_values(
    log_ratio: Float64[Tensor, "c n h"],
    returns: Float64[Tensor, " n"],
    hs: tuple[int, ...],
    counts: Float64[Tensor, "b n"],
    classifier_counts: Float64[Tensor, "b c"],
    *,
    min_ess: float | None = None,
) -> Weighted:
    """Values for each H, self-normalised; tempered to an ESS of `min_ess` of the trajectories where that is given.

    Row 0 of both counts is the sample itself.
    """
    mix = classifier_counts / classifier_counts.sum(1, keepdim=True)
    found: list[tuple[Tensor, ...]] = []
    for h in hs:
        log_w = trajectory_log_weights(log_ratio, h)
        alphas = torch.ones(len(log_w), dtype=torch.float64)
        if min_ess is not None:
            tempered = [weights.temper(row, min_ess) for row in log_w]
            log_w = torch.stack([t.log_weights for t in tempered])
            alphas = torch.tensor([t.alpha for t in tempered], dtype=torch.float64)
        each = self_normalised(log_w, returns, counts)
        mean = (mix * each).sum(1)
        low, high = interval(mean[1:])
        ess = torch.tensor([weights.ess(row) for row in log_w], dtype=torch.float64).mean()
        found.append((mean[0], torch.tensor(low), torch.tensor(high), each[0], ess, alphas.mean()))
    values, low_, high_, each_, ess_, alpha_ = (torch.stack(part).double() for part in zip(*found, strict=True))
    return Weighted(hs, values, low_, high_, each_.mT, ess_, alpha_)


def shuffled(
    log_weights: Float64[Tensor, "c n"], returns: Float64[Tensor, " n"], draws: int, *, generator: torch.Generator
) -> Float64[Tensor, " b"]:
    """Values under weights that were dealt to the trajectories at random, averaged over classifiers."""
    shares = torch.softmax(log_weights, 1)
    order = torch.rand(draws, len(returns), generator=generator).argsort(1)
    return (returns[order] @ shares.mT).mean(1)
