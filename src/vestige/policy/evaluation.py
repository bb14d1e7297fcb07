"""`evaluate(logs, policy)`: what is a policy worth, by every estimate that the logs carry, and which can be trusted.

    calibration      the policy that ran, simulated in the learnt model, beside what it earned: the one place where the
                     model's answer is known. Without that policy its logged actions are replayed,
                     which do not answer to the model's states: exact for a right model only without noise
    corrected        v(pi_e) - v(pi_b) + v_logged: the model says what changes, the logs where it starts from
    model            the plain model's value, v-tilde of LFIW section 3.3
    fitted_q         fitted-Q evaluation with linear features
    doubly_robust    it, corrected by importance weights, where the logs hold action densities
    per_decision     weighted per-decision importance sampling, likewise; refused where its effective sample size is
                     below 5
    logged           the behaviour policy's own mean return

and, with `diagnostics=True`, what LFIW's weights do. They are no headline: in measurement they lead away from the truth
more often than towards it (REPRODUCTIONS.md, lfiw-table3).

    unweighted       the trajectories that are weighted, drawn with noise
    lfiw             Eq. 11 over all steps, self-normalised (Eq. 6), mean over classifiers
    lfiw_tempered    the same with log-ratios cut to those of the middle 1 - 2 `cut` of the real rows, and weights
                     flattened to a share `ess` of effective trajectories
    shuffled         the tempered weights in a random order: the control

All are over the first `horizon` steps. Values of the evaluated policy have a spread, which promises nothing: an
interval is one that holds the truth in at least 90 % of measured cells, and those of the corrected value held in 0.86
of the cells where nothing spoke against them (docs/evaluate_a_policy.md). They stand in `details["withdrawn"]`, beside
the reason: the calibration is off by more than its error, estimates disagree beyond theirs, the verdict is
"unreliable", logged actions had to be replayed, or none of these.

`judge` says it in words: limits are fields of `Limits`, and each sentence names its number. `coverage` asks whether the
policy goes where the logs have been: the share of simulated steps that lie beyond them. Beyond is further from the mean
of the logs' (s, a), in their covariance (Mahalanobis), than `LEVEL` of the logs' own rows. A share near 1 - LEVEL says
that first and second moments cover the policy; it does not see holes in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vestige import show
from vestige.core import Estimate, NotFitted, checks, rng
from vestige.core.numerics import Moments
from vestige.core.plain import plain
from vestige.policy.dynamics import ROLLOUTS, Dynamics, Settings, Trajectories, TransitionRatio, require_rows
from vestige.policy.environments import Reward
from vestige.policy.estimators import (
    FEWEST_EFFECTIVE,
    MOST_LOST,
    Episodes,
    Simulated,
    Weighted,
    from_logs,
    from_simulated,
    from_weights,
)
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy, require_bounds, require_inside, require_widths
from vestige.ratios.standardise import Standardiser

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEADS = ("corrected", "model")  # the headline, the leading one first
ORDER = (*LEADS, "fitted_q", "doubly_robust", "per_decision", "logged")
OTHERS = ORDER[2:-1]  # further estimates of the evaluated policy, with which the headline must agree


@dataclass(frozen=True)
class Calibration:
    """The policy that ran in the learnt model, beside what it earned in truth.

    `gap` is the simulated return less the logged one; `replayed` says that logged actions were replayed, because the
    policy itself was not given. All are refused where no two logged episodes are as long as the horizon.
    """

    simulated: Estimate
    logged: Estimate
    gap: Estimate
    replayed: bool

    @property
    def holds(self) -> bool:
        """Whether the gap is within its error; false where there is no gap to look at."""
        return self.gap.known and self.gap.low <= 0 <= self.gap.high


@dataclass(frozen=True)
class Limits:
    """Where a warning begins; `outside_bad`, `clipped` and `gap_bad` make the verdict "unreliable"."""

    outside: float = 0.05  # share of simulated steps beyond the logs
    outside_bad: float = 0.25
    clipped: float = 0.01  # share of simulated states that met the limits of the state space
    gap_bad: float = 0.5  # of the calibration, in what the policy would change (at least the logs' deviation)
    apart: float = 2.0  # joint errors that two estimates may lie apart
    episodes: int = 20
    whole: int = 2  # logged episodes that have all steps of the horizon
    lost: float = MOST_LOST  # share of resamples in which fitted Q diverges
    reward_gap: float = 0.5  # root mean square of r(s, a, s') less the logged reward, in deviations of the latter
    reward_shift: float = 0.1  # its mean, likewise


def leading(estimates: Mapping[str, Estimate]) -> str:
    """The headline: the first of `LEADS` that is not refused."""
    return LEADS[0] if estimates[LEADS[0]].known else LEADS[1]


def disagreements(estimates: Mapping[str, Estimate]) -> list[str]:
    """Names of the estimates that lie further from the headline than both errors allow.

    Without the other headline, whose distance is the calibration's gap, and without those that rest on fewer than
    `FEWEST_EFFECTIVE` episodes: a spread of one episode says nothing.
    """
    lead = estimates[leading(estimates)]

    def apart(other: Estimate) -> bool:
        if not other.known or (other.ess is not None and other.ess < FEWEST_EFFECTIVE):
            return False
        errors = [e.std_error for e in (lead, other) if math.isfinite(e.std_error)]
        return abs(other.value - lead.value) > Limits.apart * math.hypot(*errors)

    return [name for name in OTHERS if apart(estimates[name])]


def withdrawal(estimates: Mapping[str, Estimate], calibration: Calibration, verdict: str) -> str:
    """Why no estimate of the policy has an interval."""
    if not calibration.holds:
        return "no interval: the model does not reproduce the logs"
    if disagreements(estimates):
        return "no interval: estimates disagree"
    if verdict == "unreliable":
        return "no interval: the model leaves what the logs have seen"
    return "no interval without the policy that ran" if calibration.replayed else TOO_SELDOM


# What an interval of the corrected value was worth where nothing else spoke against it (docs/evaluate_a_policy.md).
TOO_SELDOM = "no interval: those of its kind held the truth in fewer than nine of ten measured cells"
UNANSWERED = (
    " Replayed actions do not answer to what happens in the model, which can open a gap by itself where the system is "
    "noisy: give the policy that ran, if there is one."
)


def judge(
    estimates: Mapping[str, Estimate],
    *,
    calibration: Calibration,
    outside: float,
    clipped: float,
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
    limits = Limits()
    bad: list[str] = []
    care: list[str] = []
    if calibration.gap.known and not calibration.holds:
        gap, ran = calibration.gap, "The logged actions earn" if calibration.replayed else "The policy that ran earns"
        lead = estimates[leading(estimates)]
        scale = max(abs(lead.value - calibration.logged.value), calibration.logged.std_error)
        (bad if abs(gap.value) > limits.gap_bad * scale else care).append(
            f"{ran} {calibration.simulated.value:.4g} in the learnt model and {calibration.logged.value:.4g} in the "
            f"logs, a gap of {gap.value:+.3g} with an error of {gap.std_error:.2g}: the model is wrong where it can be "
            f"checked, so it may be as wrong about the other policy.{UNANSWERED if calibration.replayed else ''}"
        )
    if apart := disagreements(estimates):
        told = ", ".join(f"{WORDS[name]} {estimates[name].value:.4g}" for name in (leading(estimates), *apart))
        care.append(f"Estimates disagree by more than their errors ({told}): at least one of them is wrong.")
    if outside > limits.outside:
        (bad if outside > limits.outside_bad else care).append(
            f"{outside:.0%} of the simulated steps lie beyond the logs ({1 - LEVEL:.0%} of the logs' own rows do): the "
            "policy goes where nothing was seen, and the model does not know what happens there."
        )
    if clipped > limits.clipped:
        bad.append(f"{clipped:.1%} of the simulated states ran to the limits of the state space: the model diverges.")
    if terminal:
        care.append("The logs hold terminal states; the model simulates on as if no episode ended.")
    if episodes < limits.episodes:
        care.append(f"There are {episodes} logged episodes: their first states stand for all that may be.")
    if whole < limits.whole:
        care.append(
            f"{'One logged episode has' if whole == 1 else 'No logged episode has'} {horizon} steps: the model cannot "
            "be checked against the logs, and what is said of the later steps is its word alone."
        )
    fitted = estimates["fitted_q"]
    if not math.isfinite(fitted.value):
        care.append("Fitted-Q evaluation diverged: its features do not fit this policy.")
    elif (lost := fitted.details.get("lost", 0.0)) > limits.lost:
        care.append(f"Fitted-Q evaluation diverged in {lost:.0%} of the resamples: its value rests on few episodes.")
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

    estimates: dict[str, Estimate]  # the headline first
    calibration: Calibration
    horizon: int
    outside: float  # share of simulated steps beyond the logs; 0.01 of the logs' own rows are
    verdict: str  # good, usable with care, or unreliable
    warnings: tuple[str, ...]
    diagnostics: dict[str, Estimate] = field(default_factory=dict)  # what LFIW's weights do, on request
    curves: dict[str, Weighted] = field(default_factory=dict)  # "lfiw" and "lfiw_tempered" over H, likewise
    permuted: Float64[Tensor, " b"] | None = None  # the value under each random order of the tempered weights, likewise
    report: dict[str, Any] = field(default_factory=dict)  # of the fits: dynamics, classifiers, clips

    def to_json(self) -> dict[str, Any]:
        """The fields but for `permuted` as plain JSON; None where a number is not finite."""
        return plain({name: value for name, value in vars(self).items() if name != "permuted"})


AUTO = "auto"


def evaluate(
    logs: Logs,
    policy: Policy,
    *,
    behaviour: Policy | None = None,
    horizon: int = 100,
    discount: float = 1.0,
    rollouts: str = "auto",
    trajectories: int = 1000,
    members: int = 5,
    reward: Reward | None = None,
    settings: Settings | None = None,
    dynamics: Dynamics | None = None,
    diagnostics: bool = False,
    classifiers: int = 5,
    ess: float = 0.1,
    sees: str = "residual",
    cut: float = 0.01,
    resamples: int = 500,
    seed: int = 0,
    on_progress: Callable[[float, str], None] | None = None,
) -> Evaluation:
    """The value of `policy` over `horizon` steps from the logs' first states.

    Parameters
    ----------
    behaviour
        The policy that ran. Without it the logged actions are replayed in the model where it would be simulated, and no
        interval is given.
    rollouts
        "mean": a trajectory follows the model's means; "noise": each s' is drawn around them. "auto" begins with means
        and, where the policy that ran does not earn in them what it earned, takes the one of both that comes nearer.
    trajectories
        At least so many over all members, which begin at the same first states of the logs.
    reward
        r(s, a, s') where it is known; it is learned from the logs if not.
    settings
        Those of the dynamics.
    dynamics
        Dynamics that were fitted on these logs before: several policies then cost one fit. They bring `members`,
        `reward` and `settings` of their own.
    diagnostics
        Train `classifiers` and weight simulated trajectories by how real they look (LFIW); `ess`, `sees` and `cut` are
        about those alone. The curves have eleven numbers of weighted steps between 0 and `horizon`.
    on_progress
        Hears the share that is done and what is going on.
    """
    model = (
        _given(dynamics, logs, reward, settings)
        if dynamics
        else Dynamics(members, settings or Settings(), reward=reward)
    )
    members, reward = model.members, model.reward
    ratio = TransitionRatio(classifiers, sees=sees, cut=cut)
    checks.whole(horizon, "horizon", OWNER, low=1)
    checks.whole(trajectories, "trajectories", OWNER, low=10)
    checks.whole(resamples, "resamples", OWNER, low=10)
    checks.number(discount, "discount", OWNER, low=0, high=1, open_low=True)
    checks.number(ess, "ess", OWNER, low=0, high=1, open_low=True)
    checks.one_of(rollouts, (AUTO, *ROLLOUTS), "rollouts", OWNER)
    require_rows(logs, members, OWNER)
    _suits(logs, policy, "policy")
    if behaviour is not None:
        _suits(logs, behaviour, "behaviour")
    gap = (0.0, 0.0) if reward is None else reward_gap(logs, reward)
    report_progress = on_progress or (lambda share, words: None)
    report_progress(0.0, "the dynamics are learnt")
    if dynamics is None:
        model.fit(logs, seed=seed, on_progress=lambda done: report_progress(0.8 * done, "the dynamics are learnt"))
    report_progress(0.8, "trajectories are simulated")
    starts = choose_starts(logs, horizon, math.ceil(trajectories / members), rng.fork(seed, "starts"))
    options: dict[str, Any] = {"horizon": horizon, "discount": discount, "seed": seed}
    tried = []
    for mode in ROLLOUTS if rollouts == AUTO else (rollouts,):
        simulated, found = simulate(model, logs, policy, behaviour, starts, rollouts=mode, **options)
        estimates, off = from_simulated(found)
        tried.append((mode, simulated, found, estimates, off))
        if not off.known or off.low <= 0 <= off.high:
            break
    rollouts, simulated, found, estimates, off = min(
        tried, key=lambda one: abs(one[-1].value) if one[-1].known else 0.0
    )
    drawn: dict[str, Any] = {"discount": discount, "resamples": resamples, "seed": seed}
    estimates |= from_logs(logs, policy, horizon, **drawn)
    calibration = _calibrated(found, estimates["logged"], off, replayed=behaviour is None)
    beyond = coverage(logs, simulated)
    outside = float(beyond.mean())
    verdict, warnings = judge(
        estimates,
        calibration=calibration,
        outside=outside,
        clipped=simulated.clipped,
        terminal=logs.terminated is not None and bool(logs.terminated.any()),
        episodes=len(logs.lengths),
        whole=len(logs.first(horizon)[0]),
        horizon=horizon,
        reward_gap=gap,
    )
    report = {"dynamics": model.report_, "states_clipped": simulated.clipped, "rollouts": rollouts}
    report |= {"outside_by_step": beyond.tolist(), "episodes": len(logs.lengths), "rows": len(logs)}
    report |= {"reward_gap": gap[0], "reward_shift": gap[1], "starts": len(starts.episodes)}
    report["by_member"] = {
        "evaluated": found.evaluated.mean(1).tolist(),
        "behaviour": found.behaviour.mean(1).tolist() if found.behaviour.shape[1] else [],
    }
    extra: dict[str, Any] = {}
    if diagnostics:
        report_progress(0.85, "classifiers are trained")
        initial = starts.states(logs, members)
        noisy = model.rollout(policy, initial, horizon, generator=rng.fork(seed, "rollout"), rollouts="noise")
        assert model.folds_ is not None
        ratio.fit(model, logs, model.folds_, seed=seed)
        log_ratio = ratio.of_trajectories(noisy)
        within = ratio.within(log_ratio)
        steps = tuple(sorted({round(horizon * i / 10) for i in range(11)}))
        weighted = from_weights(noisy, log_ratio, steps, members=members, ess=ess, cut=within, **drawn)
        extra = dict(zip(("diagnostics", "curves", "permuted"), weighted, strict=True))
        report["classifiers"] = ratio.report_ | {"ratios_cut": float((within != log_ratio).double().mean())}
    ordered = {name: estimates[name] for name in ORDER}
    why = withdrawal(estimates, calibration, verdict)
    given = [name for name in (*LEADS, *OTHERS) if ordered[name].verdict == "ok"]
    ordered |= {name: ordered[name].without_interval(why) for name in given}
    report_progress(1.0, "done")
    return Evaluation(ordered, calibration, horizon, outside, verdict, warnings, **extra, report=report)


@dataclass(frozen=True)
class Starts:
    """Episodes at whose first states every member begins; the first `whole` of them can be compared with their logs."""

    episodes: Int64[Tensor, " n"]
    whole: int
    copies: int

    def states(self, logs: Logs, members: int, *, whole: bool = False) -> Float[Tensor, "kcn s"]:
        """First states: members, then copies, then episodes."""
        chosen = self.episodes[: self.whole] if whole else self.episodes
        return logs.initial[chosen].repeat(members * self.copies, 1)

    def returns(self, simulated: Trajectories, members: int, discount: float) -> Float64[Tensor, "k n"]:
        """Of every member and episode, the mean over copies."""
        return simulated.returns(discount).reshape(members, self.copies, -1).mean(1)


def choose_starts(logs: Logs, horizon: int, each: int, generator: torch.Generator) -> Starts:
    """All episodes, in copies until there are `each`; or `each` of them at random. Those with `horizon` steps first."""
    episodes = len(logs.lengths)
    chosen = torch.randperm(episodes, generator=generator)[:each] if each < episodes else torch.arange(episodes)
    whole = ((logs.lengths >= horizon) | logs.ended)[chosen]
    return Starts(torch.cat([chosen[whole], chosen[~whole]]), int(whole.sum()), max(1, math.ceil(each / episodes)))


def simulate(
    dynamics: Dynamics,
    logs: Logs,
    policy: Policy,
    behaviour: Policy | None,
    starts: Starts,
    *,
    horizon: int,
    discount: float,
    rollouts: str,
    seed: int,
) -> tuple[Trajectories, Simulated]:
    """Trajectories of `policy`, and its returns beside those of the policy that ran, simulated with the same noise.

    Without `behaviour` its logged actions are replayed; after the end of an episode they earn nothing.
    """
    members = dynamics.members

    def options() -> dict[str, Any]:
        return {"generator": rng.fork(seed, "rollout"), "rollouts": rollouts}

    evaluated = dynamics.rollout(policy, starts.states(logs, members), horizon, **options())
    rows, alive = logs.first(horizon)
    at = (((logs.lengths >= horizon) | logs.ended).cumsum(0) - 1)[starts.episodes[: starts.whole]]
    x_b = torch.zeros(members, 0, dtype=torch.float64)
    if starts.whole:
        initial = starts.states(logs, members, whole=True)
        if behaviour is None:
            copies = members * starts.copies
            ran = dynamics.replay(logs.actions[rows[at]].repeat(copies, 1, 1), initial, **options())
            ran = replace(ran, rewards=ran.rewards * alive[at].repeat(copies, 1))
        else:
            ran = dynamics.rollout(behaviour, initial, horizon, **options())
        x_b = starts.returns(ran, members, discount)
    logged = Episodes.of(logs, horizon).returns(discount)
    return evaluated, Simulated(starts.returns(evaluated, members, discount), x_b, at, logged)


def _calibrated(found: Simulated, logged: Estimate, gap: Estimate, *, replayed: bool) -> Calibration:
    simulated = gap
    if gap.known:
        error = float(found.behaviour.mean(1).std()) if len(found.behaviour) > 1 else math.nan
        simulated = Estimate.spread(float(found.behaviour.mean()), error)
    return Calibration(simulated, logged, gap, replayed)


def _given(dynamics: Dynamics, logs: Logs, reward: Reward | None, settings: Settings | None) -> Dynamics:
    """Refuse dynamics of other logs, and options that they would not heed."""
    for name, value in (("reward", reward), ("settings", settings)):
        if value is not None:
            checks.refuse(name, OWNER, "left to the 'dynamics' that were given", "both")
    if dynamics.folds_ is None:
        raise NotFitted("The dynamics that policy.evaluate was given were not fitted.")
    if len(dynamics.folds_) != len(logs):
        must = f"fitted on these logs, of {len(logs)} transitions"
        checks.refuse("dynamics", OWNER, must, f"dynamics of {len(dynamics.folds_)}")
    return dynamics


def _suits(logs: Logs, policy: Policy, name: str) -> None:
    """Refuse a policy for other widths than the logs', or for another space of actions."""
    _require_widths(logs, policy, name)
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


WORDS = {
    "corrected": "corrected",
    "model": "model alone",
    "fitted_q": "fitted Q",
    "doubly_robust": "doubly robust",
    "per_decision": "importance sampling",
    "logged": "logged return",
    "unweighted": "unweighted, with noise",
    "lfiw": "weighted (LFIW)",
    "lfiw_tempered": "weighted, tempered",
    "shuffled": "shuffled weights",
}


def picture(found: Evaluation, *, truth: float | None = None) -> Figure:
    """Every estimate with its interval or its spread, below the calibration; `truth` is drawn where it is known."""
    simulated = {"policy that ran, simulated": found.calibration.simulated}
    shown = {WORDS[name]: estimate for name, estimate in (found.estimates | found.diagnostics).items()}
    return show.estimates(
        simulated | {WORDS["logged"]: shown.pop(WORDS["logged"])} | shown,
        title="Value of the policy",
        x_label=f"return over {found.horizon} steps",
        reference=None if truth is None else {"truth": truth},
    )
