"""`evaluate(logs, policy)`: what is a policy worth, by every estimate that the logs carry, and which can be trusted.

    model            the plain model value, v-tilde of LFIW section 3.3
    lfiw             Eq. 11 over all steps, self-normalised (Eq. 6), mean over classifiers
    lfiw_tempered    the same with log-ratios cut to those of the middle 1 - 2 `cut` of the real rows, and weights
                     flattened to a share `ess` of effective trajectories
    shuffled         the tempered weights dealt at random: the control
    logged           the behaviour policy's own mean return
    per_decision     weighted per-decision importance sampling, where the logs hold action densities
    fitted_q         fitted-Q evaluation with linear features
    doubly_robust    both of the last two, likewise

All are over the first `horizon` steps. Intervals are at 95 % and say how far resampling moves an estimate; a bias that
members, classifiers or features share is not in them. What speaks against a number stands in `warnings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.estimate import Estimate
from vestige.policy.bounds import require_bounds, require_inside
from vestige.policy.dynamics import Dynamics, Reward, require_rows
from vestige.policy.estimates import coverage, from_logs, from_model, judge, transition_log_ratios
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.policy.regression import Settings
from vestige.policy.transitions import TransitionRatio
from vestige.policy.value import Weighted

OWNER = "policy.evaluate"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that was found, and what to think of it."""

    estimates: dict[str, Estimate]
    curves: dict[str, Weighted]  # "lfiw" and "lfiw_tempered" over H
    deals: Float64[Tensor, " b"]  # the control: the value under each random deal of the tempered weights
    horizon: int
    outside: float  # share of simulated steps beyond the logs; 0.01 of the logs' own rows are
    verdict: str  # good, usable with care, or unreliable
    warnings: tuple[str, ...]
    report: dict[str, Any] = field(default_factory=dict)  # of the fits: dynamics, classifiers, clips

    def to_json(self) -> dict[str, Any]:
        """The fields but for `deals` as plain JSON; None where a number is not finite."""
        curves = {
            name: {key: value.tolist() if isinstance(value, Tensor) else list(value) for key, value in vars(c).items()}
            for name, c in self.curves.items()
        }
        plain = {name: getattr(self, name) for name in ("horizon", "outside", "verdict", "report")}
        estimates = {name: asdict(estimate) for name, estimate in self.estimates.items()}
        found = {"estimates": estimates, "curves": curves, **plain, "warnings": list(self.warnings)}
        return _finite(found)


def _finite(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def evaluate(
    logs: Logs,
    policy: Policy,
    *,
    horizon: int = 100,
    hs: Sequence[int] | None = None,
    discount: float = 1.0,
    trajectories: int = 1000,
    members: int = 5,
    classifiers: int = 5,
    ess: float = 0.1,
    reward: Reward | None = None,
    settings: Settings | None = None,
    sees: str = "residual",
    cut: float = 0.01,
    resamples: int = 500,
    seed: int = 0,
    tell: Callable[[str, float], None] | None = None,
) -> Evaluation:
    """The value of `policy` over `horizon` steps from the logs' first states.

    `hs` are the numbers of weighted steps of the curves (eleven between 0 and `horizon`); `reward` is r(s, a, s')
    where it is known; `settings` are those of the dynamics; `trajectories` is rounded up to a multiple of `members`;
    `tell` hears what is going on and which share is done.
    """
    dynamics, ratio = Dynamics(members, settings, reward=reward), TransitionRatio(classifiers, sees=sees, cut=cut)
    steps = _checked(horizon, hs, discount, trajectories, resamples, ess)
    require_rows(logs, members, OWNER)
    _suits(logs, policy)
    gap = (0.0, 0.0) if reward is None else reward_gap(logs, reward)
    told = tell or (lambda what, share: None)
    told("the dynamics are learnt", 0.0)
    dynamics.fit(logs, seed=seed, tell=lambda done: told("the dynamics are learnt", 0.7 * done))
    told("trajectories are simulated", 0.7)
    each = math.ceil(trajectories / members)
    starts = torch.randint(len(logs.initial), (each * members,), generator=rng.fork(seed, "starts"))
    simulated = dynamics.rollout(policy, logs.initial[starts], horizon, generator=rng.fork(seed, "rollout"))
    told("classifiers are trained", 0.75)
    ratio.fit(dynamics, logs, dynamics.folds(logs, seed), seed=seed)
    log_ratio = transition_log_ratios(ratio, simulated)
    within = ratio.within(log_ratio)
    told("values are estimated", 0.9)
    drawn = {"resamples": resamples, "seed": seed}
    estimates, curves, deals = from_model(
        simulated, log_ratio, steps, discount=discount, members=members, ess=ess, cut=within, **drawn
    )
    estimates |= from_logs(logs, policy, horizon, discount=discount, resamples=resamples, seed=seed)
    reached = coverage(logs, simulated)
    verdict, warnings = judge(
        {name: (e.value, e.low, e.high) for name, e in estimates.items()},
        trajectories=len(simulated.rewards),
        raw_ess=float(curves["lfiw"].ess[-1]),
        alpha=float(curves["lfiw_tempered"].alpha[-1]),
        outside=reached.outside,
        own=reached.own,
        clipped=simulated.clipped,
        accuracy=max(ratio.report_["accuracy"]),
        terminal=logs.terminated is not None and bool(logs.terminated.any()),
        episodes=len(logs.lengths),
        whole=len(logs.first(horizon)[0]),
        horizon=horizon,
        lost=estimates["fitted_q"].details.get("lost", 0.0),
        reward_gap=gap,
    )
    told("done", 1.0)
    report = {"dynamics": dynamics.report_, "classifiers": ratio.report_, "states_clipped": simulated.clipped}
    report |= {"outside_by_step": reached.by_step.tolist(), "episodes": len(logs.lengths), "rows": len(logs)}
    report |= {"reward_gap": gap[0], "reward_shift": gap[1], "ratios_cut": float((within != log_ratio).double().mean())}
    return Evaluation(estimates, curves, deals, horizon, reached.outside, verdict, warnings, report)


def _checked(
    horizon: int, hs: Sequence[int] | None, discount: float, trajectories: int, resamples: int, ess: float
) -> tuple[int, ...]:
    """Refuse numbers that cannot be used; returns the numbers of weighted steps."""
    checks.whole(horizon, "horizon", OWNER, low=1)
    checks.whole(trajectories, "trajectories", OWNER, low=10)
    checks.whole(resamples, "resamples", OWNER, low=10)
    checks.number(discount, "discount", OWNER, low=0, high=1, open_low=True)
    checks.number(ess, "ess", OWNER, low=0, high=1, open_low=True)
    if hs is None:
        return tuple(sorted({round(horizon * i / 10) for i in range(11)}))
    return tuple(sorted({checks.whole(h, "hs", OWNER, low=0, high=horizon) for h in hs} | {0, horizon}))


def _suits(logs: Logs, policy: Policy) -> None:
    """Refuse a policy for other widths than the logs', or for another space of actions."""
    _require_widths(logs, policy, "policy")
    low, high = getattr(policy, "low", None), getattr(policy, "high", None)
    if logs.action_low is not None and logs.action_high is not None:
        first = logs.initial
        require_bounds(policy, logs.action_low, logs.action_high, first, space="the logs' actions are", owner=OWNER)
    elif low is not None and high is not None:
        require_inside(logs.actions, low, high, "the logs")


def _require_widths(logs: Logs, given: object, name: str) -> None:
    """Refuse a policy or a reward function, where it tells its `widths`, for other ones than the logs'."""
    widths, have = getattr(given, "widths", None), (logs.observations.shape[1], logs.actions.shape[1])
    if widths is not None and tuple(widths) != have:
        must = f"one for observations {have[0]} wide and actions {have[1]} wide, as the logs have them"
        checks.refuse(name, OWNER, must, f"one for {widths[0]} and {widths[1]}")


def reward_gap(logs: Logs, reward: Reward) -> tuple[float, float]:
    """Root mean square and mean of r(s, a, s') less the logged reward, in deviations of the logged one.

    Asked as the simulation asks: in float32, members first. Rewards that hardly differ count as 1e-3 of their size
    apart, so that rounding is no gap.
    """
    _require_widths(logs, reward, "reward")
    given = reward(*(x.float()[None] for x in (logs.observations, logs.actions, logs.next_observations)))
    if given.shape != (1, len(logs)):
        checks.refuse("reward", OWNER, f"one number a row, here (1, {len(logs)})", f"shape {tuple(given.shape)}")
    off, paid = given[0].double() - logs.rewards, logs.rewards
    if not bool(torch.isfinite(off).all()):
        checks.refuse("reward", OWNER, "finite on the logs", f"{int((~torch.isfinite(off)).sum())} values that are not")
    scale = max(float(paid.std()), 1e-3 * float(paid.square().mean().sqrt()), torch.finfo(torch.float64).tiny)
    return float(off.square().mean().sqrt()) / scale, float(off.mean()) / scale
