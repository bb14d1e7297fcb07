"""Estimates of the value: from simulated trajectories with their weights, and from the logs without a model."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core import rng
from vestige.core.estimate import Estimate
from vestige.policy.dynamics import Trajectories
from vestige.policy.fitted_q import FittedQ, fitted_q
from vestige.policy.importance import Episodes, doubly_robust
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy
from vestige.policy.resampling import episode_counts, interval, trajectory_counts
from vestige.policy.transitions import TransitionRatio
from vestige.policy.value import Weighted, shuffled, trajectory_log_weights, weighted_values
from vestige.policy.verdicts import Limits
from vestige.ratios import weights

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
