"""`evaluate(logs, policy)`: what is a policy worth, by every estimate that the logs carry, and which can be trusted.

    model            the plain model value, v-tilde of LFIW section 3.3
    lfiw             Eq. 11 over all steps, self-normalised (Eq. 6), mean over classifiers
    lfiw_tempered    the same with log-ratios cut to those of the middle 1 - 2 `cut` of the real rows, and weights
                     flattened to a share `ess` of effective trajectories
    shuffled         the tempered weights in a random order: the control
    logged           the behaviour policy's own mean return
    per_decision     weighted per-decision importance sampling, where the logs hold action densities
    fitted_q         fitted-Q evaluation with linear features
    doubly_robust    both of the last two, likewise

All are over the first `horizon` steps. Intervals are at 95 % and say how far resampling moves an estimate; a bias that
members, classifiers or features share is not in them. What speaks against a number stands in `warnings`.

`judge` says it in words: limits are fields of `Limits`, and each sentence names its number. `coverage` asks whether the
policy goes where the logs have been: the share of simulated steps that lie beyond them. Beyond is further from the mean
of the logs' (s, a), in their covariance (Mahalanobis), than `LEVEL` of the logs' own rows. A share near 1 - LEVEL says
that first and second moments cover the policy; it does not see holes in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import show
from vestige.core import Estimate, checks, rng
from vestige.core.numerics import Moments
from vestige.core.plain import plain
from vestige.policy.dynamics import Dynamics, Settings, Trajectories, TransitionRatio, require_rows
from vestige.policy.environments import Reward
from vestige.policy.estimators import MOST_LOST, Weighted, from_logs, from_model
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy, require_bounds, require_inside, require_widths
from vestige.ratios.standardise import Standardiser

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Limits:
    """Where a warning begins; `outside_bad`, `clipped` and `accuracy` make the verdict "unreliable"."""

    outside: float = 0.05  # share of simulated steps beyond the logs
    outside_bad: float = 0.25
    clipped: float = 0.01  # share of simulated states that met the limits of the state space
    accuracy: float = 0.95  # of a classifier that tells real transitions from simulated ones
    alpha: float = 0.1  # exponent below which weights only choose softly
    equal: float = 0.99  # effective share above which weights are equal: there is nothing to correct
    episodes: int = 20
    whole: int = 2  # logged episodes that have all steps of the horizon
    lost: float = MOST_LOST  # share of resamples in which fitted Q runs away
    reward_gap: float = 0.5  # root mean square of r(s, a, s') less the logged reward, in deviations of the latter
    reward_shift: float = 0.1  # its mean, likewise


def judge(
    estimates: Mapping[str, Estimate],
    *,
    trajectories: int,
    outside: float,
    clipped: float,
    accuracy: float,
    terminal: bool,
    episodes: int,
    whole: int,
    horizon: int,
    reward_gap: tuple[float, float] = (0.0, 0.0),
) -> tuple[str, tuple[str, ...]]:
    """The verdict, and what it rests on.

    `whole` episodes have `horizon` steps or ended before; `reward_gap` is (root mean square, mean) of the known reward
    less the logged one, in deviations of the latter.
    """
    limits, tempered, control = Limits(), estimates["lfiw_tempered"], estimates["shuffled"]
    raw_ess, alpha = estimates["lfiw"].ess or 0.0, tempered.details["alpha"]
    fitted, lost = estimates["fitted_q"], estimates["fitted_q"].details.get("lost", 0.0)
    bad: list[str] = []
    care: list[str] = []
    if outside > limits.outside:
        (bad if outside > limits.outside_bad else care).append(
            f"{outside:.0%} of the simulated steps lie beyond the logs ({1 - LEVEL:.0%} of the logs' own rows do): the "
            "policy goes where nothing was seen, and neither the model nor its weights know what happens there."
        )
    if clipped > limits.clipped:
        bad.append(f"{clipped:.1%} of the simulated states ran to the limits of the state space: the model diverges.")
    if accuracy > limits.accuracy:
        bad.append(
            f"A classifier tells real transitions from simulated ones with accuracy {accuracy:.3f}: "
            "the model is too far off for weights to correct."
        )
    if alpha < limits.alpha:
        care.append(
            f"Untempered, the weights are worth {raw_ess:.1f} trajectories; they were flattened with exponent "
            f"{alpha:.2g}. That is a soft choice of trajectories that look real, not the whole correction."
        )
    if control.low <= tempered.value <= control.high and raw_ess < limits.equal * trajectories:
        care.append(
            f"Weights in random orders give {control.low:.4g} to {control.high:.4g}: the weighted value "
            f"{tempered.value:.4g} is no correction."
        )
    if terminal:
        care.append("The logs hold terminal states; the model simulates on as if no episode ended.")
    if episodes < limits.episodes:
        care.append(f"There are {episodes} logged episodes: their first states stand for all that may be.")
    if whole < limits.whole:
        care.append(
            f"{'One logged episode has' if whole == 1 else 'No logged episode has'} {horizon} steps: what is said of "
            "the later ones is the model's word alone."
        )
    if not math.isfinite(fitted.value):
        care.append("Fitted-Q evaluation ran away: its features do not carry this policy.")
    elif lost > limits.lost:
        care.append(f"Fitted-Q evaluation ran away in {lost:.0%} of the resamples: its value hangs on few episodes.")
    spread, shift = reward_gap
    if spread > limits.reward_gap or abs(shift) > limits.reward_shift:
        care.append(
            f"The reward function that was given is not what the logs paid: it is off by {spread:.2g} deviations of "
            f"the logged reward (root mean square), {shift:+.2g} on average."
        )
    return "unreliable" if bad else "usable with care" if care else "good", (*bad, *care)


# Added to the covariance of standardised (s, a): a direction without any spread in the logs is beyond them at once.
RIDGE = 1e-4
LEVEL = 0.99


def coverage(logs: Logs, trajectories: Trajectories) -> Float64[Tensor, " h"]:
    """The share of the simulated trajectories beyond the logs at each step; of the logs' own rows 1 - LEVEL are."""
    seen = torch.cat([logs.observations.double(), logs.actions.double()], 1)
    standardise = Standardiser.of(seen)
    covariance = Moments.of(standardise(seen)).covariance()
    factor = torch.linalg.cholesky(covariance + RIDGE * torch.eye(len(covariance), dtype=torch.float64))

    def distance(x: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor, standardise(x).mT, upper=False).square().sum(0)

    limit = torch.sort(distance(seen)).values[min(int(LEVEL * len(seen)), len(seen) - 1)]
    n, h, _ = trajectories.actions.shape
    states = trajectories.observations[:, :-1].double()
    steps = torch.cat([states, trajectories.actions.double()], 2).flatten(0, 1)
    return (distance(steps) > limit).double().reshape(n, h).mean(0)


OWNER = "policy.evaluate"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that was found, and what to think of it."""

    estimates: dict[str, Estimate]
    curves: dict[str, Weighted]  # "lfiw" and "lfiw_tempered" over H
    permuted: Float64[Tensor, " b"]  # the control: the value under each random order of the tempered weights
    horizon: int
    outside: float  # share of simulated steps beyond the logs; 0.01 of the logs' own rows are
    verdict: str  # good, usable with care, or unreliable
    warnings: tuple[str, ...]
    report: dict[str, Any] = field(default_factory=dict)  # of the fits: dynamics, classifiers, clips

    def to_json(self) -> dict[str, Any]:
        """The fields but for `permuted` as plain JSON; None where a number is not finite."""
        return plain({name: value for name, value in vars(self).items() if name != "permuted"})


def evaluate(
    logs: Logs,
    policy: Policy,
    *,
    horizon: int = 100,
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
    on_progress: Callable[[float, str], None] | None = None,
) -> Evaluation:
    """The value of `policy` over `horizon` steps from the logs' first states.

    `reward` is r(s, a, s') where it is known; `settings` are those of the dynamics; `trajectories` is rounded up to a
    multiple of `members`; `on_progress` hears the share that is done and what is going on. The curves have eleven
    numbers of weighted steps between 0 and `horizon`.
    """
    dynamics = Dynamics(members, settings or Settings(), reward=reward)
    ratio = TransitionRatio(classifiers, sees=sees, cut=cut)
    checks.whole(horizon, "horizon", OWNER, low=1)
    checks.whole(trajectories, "trajectories", OWNER, low=10)
    checks.whole(resamples, "resamples", OWNER, low=10)
    checks.number(discount, "discount", OWNER, low=0, high=1, open_low=True)
    checks.number(ess, "ess", OWNER, low=0, high=1, open_low=True)
    require_rows(logs, members, OWNER)
    _suits(logs, policy)
    gap = (0.0, 0.0) if reward is None else reward_gap(logs, reward)
    report_progress = on_progress or (lambda share, words: None)
    report_progress(0.0, "the dynamics are learnt")
    dynamics.fit(logs, seed=seed, on_progress=lambda done: report_progress(0.7 * done, "the dynamics are learnt"))
    report_progress(0.7, "trajectories are simulated")
    each = math.ceil(trajectories / members)
    starts = torch.randint(len(logs.initial), (each * members,), generator=rng.fork(seed, "starts"))
    simulated = dynamics.rollout(policy, logs.initial[starts], horizon, generator=rng.fork(seed, "rollout"))
    report_progress(0.75, "classifiers are trained")
    ratio.fit(dynamics, logs, dynamics.folds(logs, seed), seed=seed)
    log_ratio = ratio.of_trajectories(simulated)
    within = ratio.within(log_ratio)
    report_progress(0.9, "values are estimated")
    steps = tuple(sorted({round(horizon * i / 10) for i in range(11)}))
    drawn: dict[str, Any] = {"discount": discount, "resamples": resamples, "seed": seed}
    estimates, curves, permuted = from_model(simulated, log_ratio, steps, members=members, ess=ess, cut=within, **drawn)
    estimates |= from_logs(logs, policy, horizon, **drawn)
    beyond = coverage(logs, simulated)
    outside = float(beyond.mean())
    verdict, warnings = judge(
        estimates,
        trajectories=len(simulated.rewards),
        outside=outside,
        clipped=simulated.clipped,
        accuracy=max(ratio.report_["accuracy"]),
        terminal=logs.terminated is not None and bool(logs.terminated.any()),
        episodes=len(logs.lengths),
        whole=len(logs.first(horizon)[0]),
        horizon=horizon,
        reward_gap=gap,
    )
    report_progress(1.0, "done")
    report = {"dynamics": dynamics.report_, "classifiers": ratio.report_, "states_clipped": simulated.clipped}
    report |= {"outside_by_step": beyond.tolist(), "episodes": len(logs.lengths), "rows": len(logs)}
    report |= {"reward_gap": gap[0], "reward_shift": gap[1], "ratios_cut": float((within != log_ratio).double().mean())}
    return Evaluation(estimates, curves, permuted, horizon, outside, verdict, warnings, report)


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
    require_widths(given, (logs.observations.shape[1], logs.actions.shape[1]), "the logs have them", name, OWNER)


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


WEIGHTED = {"lfiw_tempered": "weighted, tempered", "lfiw": "weighted"}
BESIDE = {"model": "model", "logged": "logged", "fitted_q": "fitted Q"}


def picture(found: Evaluation, *, truth: float | None = None) -> Figure:
    """Curves over H with their intervals; `truth` is drawn where it is known."""
    series = {WEIGHTED[name]: found.curves[name].values for name in WEIGHTED}
    bands = {WEIGHTED[name]: (found.curves[name].low, found.curves[name].high) for name in WEIGHTED}
    estimates = {BESIDE[name]: found.estimates[name].value for name in BESIDE if name in found.estimates}
    beside = {name: value for name, value in estimates.items() if math.isfinite(value)}
    return show.curves(
        series | {name: [value] * len(found.curves["lfiw"].hs) for name, value in beside.items()},
        list(found.curves["lfiw"].hs),
        title="Value of the policy",
        x_label="weighted steps",
        y_label=f"return over {found.horizon} steps",
        bands=bands,
        reference=None if truth is None else {"truth": truth},
    )
