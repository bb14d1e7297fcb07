"""How often each trajectory, episode or classifier is drawn in each of many resamples; row 0 draws all of them once."""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor


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
