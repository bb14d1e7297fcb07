"""Values from logged episodes alone: the mean return, importance sampling, and doubly robust estimates.

rho_t = prod over t' <= t of pi_e(a|s) / pi_b(a|s). All weighted, that is normalised over episodes at each step t, w_t:

    per decision    sum_t discount^t sum_i w_t^i r_t^i                                    (Precup et al. 2000)
    doubly robust   the same with  r_t - Q_t(s_t, a_t)  for r_t, plus  w_{t-1}^i V_t(s_t)  (Thomas and Brunskill 2016)

where w_{-1} = 1/n. The first is the second with Q = V = 0. An episode that has ended keeps its weight and earns
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from vestige.policy.logs import Logs
from vestige.policy.policies import Policy


@dataclass(frozen=True)
class Episodes:
    """The first h steps of the e episodes that have them, side by side; zeros beyond an early end."""

    observations: Tensor  # (e, h, s)
    actions: Tensor  # (e, h, a)
    rewards: Float64[Tensor, "e h"]
    alive: Bool[Tensor, "e h"]
    log_ratio: Float64[Tensor, "e h"] | None  # log rho_t, summed up to and with step t

    @classmethod
    def of(cls, logs: Logs, horizon: int, policy: Policy | None = None) -> Episodes:
        """Of `logs`; with log rho of `policy` where the behaviour's log densities are logged."""
        rows, alive = logs.first(horizon)
        s, a = logs.observations[rows], logs.actions[rows]
        log_ratio = None
        if policy is not None and logs.log_probs is not None:
            step = policy.log_prob(s, a) - logs.log_probs[rows]
            log_ratio = (step * alive).cumsum(1)
        return cls(s, a, logs.rewards[rows] * alive, alive, log_ratio)

    def returns(self, discount: float = 1.0) -> Float64[Tensor, " e"]:
        """The logged return of each episode over the horizon."""
        return self.rewards @ discount ** torch.arange(self.rewards.shape[1], dtype=torch.float64)


def doubly_robust(
    log_ratio: Float64[Tensor, "e h"],
    rewards: Float64[Tensor, "e h"],
    counts: Float64[Tensor, "b e"],
    discount: float = 1.0,
    q: Float64[Tensor, "e h"] | None = None,
    v: Float64[Tensor, "e h"] | None = None,
) -> Float64[Tensor, " b"]:
    """The value under each of b weightings of the episodes: `counts` says how often an episode is drawn.

    Without `q` and `v` it is weighted per-decision importance sampling.
    """
    log_counts = counts.log()
    before = torch.softmax(log_counts, 1)  # rho_{-1} = 1
    value = torch.zeros(len(counts), dtype=torch.float64)
    for t in range(rewards.shape[1]):
        now = torch.softmax(log_counts + log_ratio[:, t], 1)
        gain = now @ (rewards[:, t] if q is None else rewards[:, t] - q[:, t])
        value += discount**t * (gain if v is None else gain + before @ v[:, t])
        before = now
    return value
