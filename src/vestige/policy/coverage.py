"""Does the evaluated policy go where the logs have been? The share of simulated steps that lie beyond them.

Beyond is further from the mean of the logs' (s, a), in their covariance (Mahalanobis), than `level` of the logs' own
rows. A share near 1 - level says that first and second moments cover the policy; it does not see holes in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import Moments
from vestige.policy.dynamics import Trajectories
from vestige.policy.logs import Logs
from vestige.ratios.standardise import Standardiser

# Added to the covariance of standardised (s, a): a direction without any spread in the logs is beyond them at once.
RIDGE = 1e-4


@dataclass(frozen=True)
class Coverage:
    """Shares of simulated steps beyond the logs: of all, of each step, and of the logs' own rows by definition."""

    outside: float
    by_step: Float[Tensor, " h"]
    own: float


def coverage(logs: Logs, trajectories: Trajectories, *, level: float = 0.99, ridge: float = RIDGE) -> Coverage:
    """How much of the simulated trajectories lies beyond the logs."""
    seen = torch.cat([logs.observations.double(), logs.actions.double()], 1)
    standardise = Standardiser.of(seen)
    covariance = Moments.of(standardise(seen)).covariance()
    factor = torch.linalg.cholesky(covariance + ridge * torch.eye(len(covariance), dtype=torch.float64))

    def distance(x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor, standardise(x).mT, upper=False).square().sum(0)

    limit = torch.sort(distance(seen)).values[min(int(level * len(seen)), len(seen) - 1)]
    n, h, _ = trajectories.actions.shape
    states = trajectories.observations[:, :-1].double()
    steps = torch.cat([states, trajectories.actions.double()], 2).flatten(0, 1)
    beyond = (distance(steps) > limit).double().reshape(n, h)
    return Coverage(float(beyond.mean()), beyond.mean(0), 1 - level)
