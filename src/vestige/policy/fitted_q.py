"""Fitted-Q evaluation with linear features and a finite horizon (Le, Voloshin and Yue 2019), from logs alone.

    Q_h(s, a) = E[r + discount V_{h-1}(s')],   V_h(s) = E_{a ~ pi} Q_h(s, a),   V_0 = 0,

each Q_h a least-squares fit on phi = [1, x, x_i x_j] of standardised x = (s, a) ([1, x, x_i^2] where rows are too few
for all products, or products too many). For linear dynamics with quadratic rewards that is exact. The regressions
share one Gram matrix, so that h -> h + 1 is a product with one matrix: theta_{h+1} = b + discount A theta_h.

The expectation over a is a mean over `draws` actions. A terminal s' is worth nothing. The interval resamples blocks of
episodes, whose moments are summed once. Where the recursion runs away, beyond what the largest logged reward could
earn over the horizon, there is no value; `lost` is the share of resamples in which it does, which an interval of the
others would leave out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.policy.value import episode_counts
from vestige.ratios.logistic import design
from vestige.ratios.standardise import Standardiser

ROWS_A_PRODUCT = 100  # rows that each product x_i x_j asks for
MOST_COLUMNS = 1000  # beyond so many the products are left out


@dataclass(frozen=True, eq=False)
class FittedQ:
    """theta[h] for h = 0 ... horizon; `value` is NaN where the recursion ran away; `resampled` its bootstrap."""

    standardise: Standardiser
    form: str
    theta: Float64[Tensor, "h_1 f"]
    value: float
    resampled: Float64[Tensor, " b"]  # those that did not run away
    lost: float  # the share of resamples that did
    policy: Policy
    draws: int

    def q(self, s: Tensor, a: Tensor, left: Tensor) -> Float64[Tensor, " n"]:
        """Q(s, a) with `left` steps to go, row by row."""
        return (_features(self.standardise, self.form, s, a) * self.theta[left]).sum(1)

    def v(self, s: Tensor, left: Tensor, *, generator: torch.Generator) -> Float64[Tensor, " n"]:
        """V(s) with `left` steps to go, row by row."""
        phi = _expected(self.standardise, self.form, s, self.policy, self.draws, generator)
        return (phi * self.theta[left]).sum(1)


def _features(standardise: Standardiser, form: str, s: Tensor, a: Tensor) -> Float64[Tensor, "n f"]:
    return design(standardise(torch.cat([s.double(), a.double()], 1)), form)


def _expected(
    standardise: Standardiser, form: str, s: Tensor, policy: Policy, draws: int, generator: torch.Generator
) -> Float64[Tensor, "n f"]:
    """Features averaged over the policy's actions."""
    total = _features(standardise, form, s, policy.act(s, generator=generator))
    for _ in range(draws - 1):
        total += _features(standardise, form, s, policy.act(s, generator=generator))
    return total / draws


def fitted_q(
    logs: Logs,
    policy: Policy,
    horizon: int,
    discount: float = 1.0,
    *,
    generator: torch.Generator,
    ridge: float = 1e-6,
    draws: int = 16,
    blocks: int = 20,
    resamples: int = 100,
) -> FittedQ:
    """Q of `policy` for every number of steps to go, and its value from the logs' first states."""
    x = torch.cat([logs.observations.double(), logs.actions.double()], 1)
    standardise = Standardiser.of(x)
    products = x.shape[1] * (x.shape[1] + 1) // 2
    full = products <= min(len(x) / ROWS_A_PRODUCT, MOST_COLUMNS)
    form = "full" if full else "diagonal"
    episodes = len(logs.lengths)
    blocks = min(blocks, episodes)
    block_of = torch.arange(episodes) * blocks // episodes
    sums = []
    for block in range(blocks):
        inside = block_of == block
        rows = inside[logs.episodes]
        phi = _features(standardise, form, logs.observations[rows], logs.actions[rows])
        after = _expected(standardise, form, logs.next_observations[rows], policy, draws, generator)
        if logs.terminated is not None:
            after[logs.terminated[rows]] = 0.0
        first = _expected(standardise, form, logs.initial[inside], policy, draws, generator).sum(0)
        sums.append((phi.mT @ phi, phi.mT @ after, phi.mT @ logs.rewards[rows], first, inside.sum().double()))
    moments = [torch.stack(part) for part in zip(*sums, strict=True)]
    # As much as the largest logged reward at every step, tenfold for noise.
    most = 10 * float(logs.rewards.abs().max()) * sum(discount**t for t in range(horizon))
    counts = episode_counts(blocks, resamples, generator)
    theta, value = _solve(moments, counts[0], horizon, discount, ridge)
    drawn = torch.stack([_solve(moments, row, horizon, discount, ridge)[1] for row in counts[1:]])
    found = float(value) if float(value.abs()) <= most else math.nan
    kept = drawn[drawn.abs() <= most]
    return FittedQ(standardise, form, theta, found, kept, 1 - len(kept) / resamples, policy, draws)


def _solve(
    moments: list[Tensor], counts: Float64[Tensor, " j"], horizon: int, discount: float, ridge: float
) -> tuple[Float[Tensor, "h_1 f"], Float64[Tensor, ""]]:
    """theta_h for all h and the value, with each block counted as often as `counts` says."""
    gram, carried, reward, first, episodes = (torch.tensordot(counts, part, dims=1) for part in moments)
    eye = torch.eye(len(gram), dtype=torch.float64)
    factor = torch.linalg.cholesky(gram + ridge * gram.diagonal().mean() * eye)
    solved = torch.cholesky_solve(torch.cat([carried, reward[:, None]], 1), factor)
    a, b = solved[:, :-1], solved[:, -1]
    theta = [torch.zeros_like(b)]
    for _ in range(horizon):
        theta.append(b + discount * (a @ theta[-1]))
    return torch.stack(theta), first @ theta[-1] / episodes
