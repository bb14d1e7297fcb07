"""What speaks against an evaluation, in words: limits are fields of `Limits`, and each sentence names its number.

Does the evaluated policy go where the logs have been? The share of simulated steps that lie beyond them.

Beyond is further from the mean of the logs' (s, a), in their covariance (Mahalanobis), than `level` of the logs' own
rows. A share near 1 - level says that first and second moments cover the policy; it does not see holes in between.

Estimates of the value: from simulated trajectories with their weights, and from the logs without a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige.core import rng
from vestige.core.estimate import Estimate
from vestige.core.numerics import Moments
from vestige.policy.dynamics import Trajectories
from vestige.policy.fitted_q import FittedQ, fitted_q
from vestige.policy.importance import Episodes, doubly_robust
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.policy.transitions import TransitionRatio
from vestige.policy.value import (
    Weighted,
    episode_counts,
    interval,
    shuffled,
    trajectory_counts,
    trajectory_log_weights,
    weighted_values,
)
from vestige.ratios import weights
from vestige.ratios.standardise import Standardiser


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
    lost: float = 0.05  # share of resamples in which fitted Q runs away
    reward_gap: float = 0.5  # root mean square of r(s, a, s') less the logged reward, in deviations of the latter
    reward_shift: float = 0.1  # its mean, likewise


def judge(
    estimates: Mapping[str, tuple[float, float, float]],
    *,
    trajectories: int,
    raw_ess: float,
    alpha: float,
    outside: float,
    own: float,
    clipped: float,
    accuracy: float,
    terminal: bool,
    episodes: int,
    whole: int,
    horizon: int,
    lost: float = 0.0,
    reward_gap: tuple[float, float] = (0.0, 0.0),
    limits: Limits | None = None,
) -> tuple[str, tuple[str, ...]]:
    """The verdict, and what it rests on; `estimates` are (value, low, high) by name.

    `whole` episodes have `horizon` steps or ended before; `lost` is the share of fitted Q's resamples that ran away;
    `reward_gap` is (root mean square, mean) of the known reward less the logged one, in deviations of the latter.
    """
    limits = limits or Limits()
    bad: list[str] = []
    care: list[str] = []
    if outside > limits.outside:
        (bad if outside > limits.outside_bad else care).append(
            f"{outside:.0%} of the simulated steps lie beyond the logs ({own:.0%} of the logs' own rows do): the "
            "policy goes where nothing was seen, and neither the model nor its weights know what happens there."
        )
    if clipped > limits.clipped:
        bad.append(f"{clipped:.1%} of the simulated states ran to the limits of the state space: the model diverges.")
    if accuracy > limits.accuracy:
        bad.append(
            f"A classifier tells real transitions from simulated ones with accuracy {accuracy:.3f}: "
            "the model is too far off for weights to mend."
        )
    if alpha < limits.alpha:
        care.append(
            f"Untempered, the weights are worth {raw_ess:.1f} trajectories; they were flattened with exponent "
            f"{alpha:.2g}. That is a soft choice of trajectories that look real, not the whole correction."
        )
    value, (_, low, high) = estimates["lfiw_tempered"][0], estimates["shuffled"]
    if low <= value <= high and raw_ess < limits.equal * trajectories:
        care.append(
            f"Weights dealt at random give {low:.4g} to {high:.4g}: the weighted value {value:.4g} is no correction."
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
    if not math.isfinite(estimates["fitted_q"][0]):
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


NAN = math.nan
RAN_AWAY = "the recursion ran away: the features do not carry this policy"


def _resampled(
    value: float, ends: tuple[float, float], said: str, ess: float | None = None, **details: float | None
) -> Estimate:
    """A value with its interval from resamples, what it rests on in words, and further numbers that are known."""
    known = {name: number for name, number in details.items() if number is not None}
    return Estimate(value, *ends, ess=ess, notes=(said,), details=known)


def transition_log_ratios(ratio: TransitionRatio, simulated: Trajectories) -> Float64[Tensor, "c n h"]:
    """log w of every simulated transition by every classifier."""
    n, h, _ = simulated.actions.shape
    s, a = simulated.observations[:, :-1].flatten(0, 1), simulated.actions.flatten(0, 1)
    after, members = simulated.observations[:, 1:].flatten(0, 1), simulated.members.repeat_interleave(h)
    return ratio.log_ratio(s, a, after, members).reshape(-1, n, h)


def from_model(
    simulated: Trajectories,
    log_ratio: Float64[Tensor, "c n h"],
    hs: tuple[int, ...],
    *,
    discount: float = 1.0,
    members: int,
    ess: float = 0.1,
    resamples: int = 500,
    seed: int = 0,
    cut: Float64[Tensor, "c n h"] | None = None,
) -> tuple[dict[str, Estimate], dict[str, Weighted], Float64[Tensor, " b"]]:
    """The plain model's value, the weighted ones with their curves over H, and the control, permutation by permutation.

    `cut` are the log-ratios that are tempered, where those are not `log_ratio` (see `TransitionRatio.within`).
    """
    cut = log_ratio if cut is None else cut
    returns = simulated.returns(discount)
    counts = trajectory_counts(len(returns), members, resamples, rng.fork(seed, "trajectories"))
    mix = episode_counts(len(log_ratio), resamples, rng.fork(seed, "classifiers"))
    curves = {
        "lfiw": weighted_values(log_ratio, returns, hs, counts, mix),
        "lfiw_tempered": weighted_values(cut, returns, hs, counts, mix, min_ess=ess),
    }
    plain = counts @ returns / counts.sum(1)
    found = {"model": _resampled(float(plain[0]), interval(plain[1:]), f"{len(returns)} simulated trajectories")}
    log_w = trajectory_log_weights(log_ratio, hs[-1])
    dealt = torch.stack([weights.temper(row, ess).log_weights for row in trajectory_log_weights(cut, hs[-1])])
    tails = {"lfiw": _tail(log_w), "lfiw_tempered": _tail(dealt)}
    notes = {"lfiw": f"all {hs[-1]} steps weighted", "lfiw_tempered": f"weights flattened to an ESS of {ess:.0%}"}
    for name, curve in curves.items():
        ends = (float(part[-1]) for part in (curve.values, curve.low, curve.high, curve.ess))
        value, low, high, size = ends
        alpha = float(curve.alpha[-1])
        found[name] = _resampled(value, (low, high), notes[name], size, pareto_k=tails[name], alpha=alpha)
    control = shuffled(dealt, returns, resamples, generator=rng.fork(seed, "shuffled"))
    found["shuffled"] = _resampled(float(control.mean()), interval(control), "the same weights, permuted at random")
    return found, curves, control


def _tail(log_w: Float64[Tensor, "c n"]) -> float | None:
    """Pareto k, the mean over classifiers whose weights have a tail."""
    tails = [k for row in log_w if (k := weights.tail_index(row)) is not None]
    return sum(tails) / len(tails) if tails else None


def from_logs(
    logs: Logs, policy: Policy, horizon: int, *, discount: float = 1.0, resamples: int = 500, seed: int = 0
) -> dict[str, Estimate]:
    """What the logs say without a model of the dynamics."""
    known = fitted_q(logs, policy, horizon, discount, generator=rng.fork(seed, "fitted q"))
    fitted = _fitted(known)
    episodes = Episodes.of(logs, horizon, policy)
    n = len(episodes.rewards)
    if n < 2:
        missing = Estimate.refused(f"no two logged episodes have {horizon} steps")
        return {"logged": missing, "per_decision": missing, "fitted_q": fitted, "doubly_robust": missing}
    counts = episode_counts(n, resamples, rng.fork(seed, "episodes"))
    logged = counts @ episodes.returns(discount) / n
    found = {"logged": _resampled(float(logged[0]), interval(logged[1:]), f"{n} logged episodes")}
    if episodes.log_ratio is None:
        missing = Estimate.refused("the logs hold no action densities")
        return found | {"per_decision": missing, "fitted_q": fitted, "doubly_robust": missing}
    last = episodes.log_ratio[:, -1]
    size, k = weights.ess(last), weights.tail_index(last)
    values = doubly_robust(episodes.log_ratio, episodes.rewards, counts, discount)
    found["per_decision"] = _resampled(float(values[0]), interval(values[1:]), f"{n} logged episodes", size, pareto_k=k)
    found["fitted_q"] = fitted
    if not math.isfinite(known.value):
        return found | {"doubly_robust": Estimate.refused(RAN_AWAY)}
    left = (horizon - torch.arange(horizon)).expand(n, -1).flatten()
    s, a = episodes.observations.flatten(0, 1), episodes.actions.flatten(0, 1)
    q = known.q(s, a, left).reshape(n, horizon) * episodes.alive
    v = known.v(s, left, generator=rng.fork(seed, "doubly robust")).reshape(n, horizon) * episodes.alive
    values = doubly_robust(episodes.log_ratio, episodes.rewards, counts, discount, q, v)
    note = "fitted-Q corrected by per-decision weights"
    return found | {"doubly_robust": _resampled(float(values[0]), interval(values[1:]), note, size, pareto_k=k)}


def _fitted(known: FittedQ) -> Estimate:
    """Fitted Q's value; without an interval where it, or more than a few of its resamples, ran away."""
    if not math.isfinite(known.value):
        return Estimate.refused(RAN_AWAY, details={"lost": known.lost})
    note = f"features: {known.form} quadratic"
    if known.lost > Limits().lost:
        return _resampled(
            known.value, (NAN, NAN), f"{note}; {known.lost:.0%} of the resamples ran away", lost=known.lost
        )
    return _resampled(known.value, interval(known.resampled), note, lost=known.lost)
