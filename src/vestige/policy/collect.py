"""Episodes of a policy in an environment: logs to learn from, and what the policy is truly worth there.

Episode i begins with a seed of its own that depends on `seed` and i alone, so the same episodes begin alike for every
policy and however many environments stand side by side. Actions are those that were carried out, and each comes with
its log density, so that importance sampling can be set beside what is learned. An environment that ends an episode
early is not stepped further; its rewards beyond are zero, and the logs say that the state was terminal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core import checks, rng
from vestige.policy.environments import Environments, Space, make
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy, require_bounds

AT_ONCE = 50  # environments side by side: a policy is asked once for all of them


@dataclass(frozen=True)
class Truth:
    """Mean return over the first `horizon` steps and its standard error over the episodes."""

    value: float
    se: float
    returns: Float64[Tensor, " n"]
    horizon: int


def collect(
    name: str,
    policy: Policy,
    *,
    episodes: int = 100,
    horizon: int = 100,
    seed: int = 0,
    on_progress: Callable[[float, str], None] | None = None,
) -> Logs:
    """Logs of `episodes` episodes of at most `horizon` steps."""
    checks.whole(episodes, "episodes", "policy.collect", low=2)
    checks.whole(horizon, "horizon", "policy.collect", low=1)
    report = on_progress or (lambda share, words: None)
    parts: list[dict[str, Tensor]] = []
    with make(name, min(episodes, AT_ONCE)) as environments:
        _fits(policy, environments.space, horizon)
        for first in range(0, episodes, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, episodes))
            parts.append(_together(environments, policy, numbers, horizon, seed))
            report(numbers[-1] / episodes, f"{name}: {numbers[-1] + 1} of {episodes} episodes")
        bounds = {"action_low": environments.space.low, "action_high": environments.space.high}
    whole = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return Logs.of(**whole, **bounds, owner="policy.collect")


def truth_of(logs: Logs, horizon: int) -> Truth:
    """The Monte Carlo value of the policy that `logs` are of: LFIW's ground truth v(pi_e)."""
    rows, alive = logs.first(horizon)
    if len(rows) < 2:
        checks.refuse("logs", "truth_of", f"two or more episodes of {horizon} steps", f"{len(rows)}")
    returns = (logs.rewards[rows] * alive).sum(1)
    return Truth(float(returns.mean()), float(returns.std()) / math.sqrt(len(returns)), returns, horizon)


def _together(environments: Environments, policy: Policy, numbers: range, horizon: int, seed: int) -> dict[str, Tensor]:
    """The episodes of these numbers, row by row, one after the other."""
    seeds = [rng.child_seed(seed, "episode", i) % 2**31 for i in numbers]
    stream = rng.fork(seed, "actions", numbers[0])
    observations = environments.reset(seeds)
    alive = torch.ones(len(numbers), dtype=torch.bool)
    steps: list[dict[str, Tensor]] = []
    for _ in range(horizon):
        actions = policy.act(observations, generator=stream).float()
        log_probs = policy.log_prob(observations, actions)
        step = environments.step(actions, alive)
        steps.append(
            {
                "observations": observations,
                "actions": actions,
                "rewards": step.rewards,
                "next_observations": step.observations,
                "episodes": torch.tensor(numbers),
                "terminated": step.terminated,
                "log_probs": log_probs,
                "alive": alive,
            }
        )
        observations, alive = step.observations, alive & ~step.over
        if not bool(alive.any()):
            break
    # (episode, step) in the order of rows, without what lies beyond an end
    flat = {key: torch.stack([one[key] for one in steps], 1).flatten(0, 1) for key in steps[0]}
    kept = flat.pop("alive")
    return {key: value[kept] for key, value in flat.items()}


def _fits(policy: Policy, space: Space, horizon: int) -> None:
    """Refuse a policy for other widths or wider bounds than the environment's, and episodes longer than there are."""
    if space.limit is not None:
        checks.whole(horizon, "horizon", f"policy.collect in {space.name}", high=space.limit)
    widths = getattr(policy, "widths", None)
    if widths is not None and tuple(widths) != (space.observations, space.actions):
        must = f"one for observations {space.observations} wide and actions {space.actions} wide, as {space.name} has"
        checks.refuse("policy", "policy.collect", must, f"one for {widths[0]} and {widths[1]}")
    anywhere = torch.zeros(1, space.observations, dtype=torch.float64)
    require_bounds(
        policy, space.low, space.high, anywhere, space=f"{space.name} is", owner="policy.collect", narrower=True
    )
