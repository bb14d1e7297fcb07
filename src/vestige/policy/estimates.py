"""Estimates of the value: from simulated trajectories with their weights, and from the logs without a model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core import rng
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


@dataclass(frozen=True)
class Estimate:
    """One number for the value. ESS, Pareto k and exponent where it rests on weights; NaN where there is no value."""

    value: float
    low: float = NAN
    high: float = NAN
    ess: float | None = None
    pareto_k: float | None = None
    alpha: float | None = None
    lost: float | None = None  # share of resamples that gave no value, where that can be
    note: str = ""


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
    """The plain model's value, the weighted ones with their curves over H, and the control with each of its deals.

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
    found = {"model": Estimate(float(plain[0]), *interval(plain[1:]), note=f"{len(returns)} simulated trajectories")}
    log_w = trajectory_log_weights(log_ratio, hs[-1])
    dealt = torch.stack([weights.temper(row, ess).log_weights for row in trajectory_log_weights(cut, hs[-1])])
    tails = {"lfiw": _tail(log_w), "lfiw_tempered": _tail(dealt)}
    notes = {"lfiw": f"all {hs[-1]} steps weighted", "lfiw_tempered": f"weights flattened to an ESS of {ess:.0%}"}
    for name, curve in curves.items():
        ends = (float(part[-1]) for part in (curve.values, curve.low, curve.high, curve.ess))
        value, low, high, size = ends
        found[name] = Estimate(value, low, high, size, tails[name], float(curve.alpha[-1]), note=notes[name])
    control = shuffled(dealt, returns, resamples, generator=rng.fork(seed, "shuffled"))
    found["shuffled"] = Estimate(float(control.mean()), *interval(control), note="the same weights dealt at random")
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
        note = f"no two logged episodes have {horizon} steps"
        missing = Estimate(NAN, note=note)
        return {"logged": missing, "per_decision": missing, "fitted_q": fitted, "doubly_robust": missing}
    counts = episode_counts(n, resamples, rng.fork(seed, "episodes"))
    logged = counts @ episodes.returns(discount) / n
    found = {"logged": Estimate(float(logged[0]), *interval(logged[1:]), note=f"{n} logged episodes")}
    if episodes.log_ratio is None:
        missing = Estimate(NAN, note="the logs hold no action densities")
        return found | {"per_decision": missing, "fitted_q": fitted, "doubly_robust": missing}
    last = episodes.log_ratio[:, -1]
    size, k = weights.ess(last), weights.tail_index(last)
    values = doubly_robust(episodes.log_ratio, episodes.rewards, counts, discount)
    found["per_decision"] = Estimate(float(values[0]), *interval(values[1:]), size, k, note=f"{n} logged episodes")
    found["fitted_q"] = fitted
    if not math.isfinite(known.value):
        return found | {"doubly_robust": Estimate(NAN, note=RAN_AWAY)}
    left = (horizon - torch.arange(horizon)).expand(n, -1).flatten()
    s, a = episodes.observations.flatten(0, 1), episodes.actions.flatten(0, 1)
    q = known.q(s, a, left).reshape(n, horizon) * episodes.alive
    v = known.v(s, left, generator=rng.fork(seed, "doubly robust")).reshape(n, horizon) * episodes.alive
    values = doubly_robust(episodes.log_ratio, episodes.rewards, counts, discount, q, v)
    note = "fitted-Q corrected by per-decision weights"
    return found | {"doubly_robust": Estimate(float(values[0]), *interval(values[1:]), size, k, note=note)}


def _fitted(known: FittedQ) -> Estimate:
    """Fitted Q's value; without an interval where it, or more than a few of its resamples, ran away."""
    if not math.isfinite(known.value):
        return Estimate(NAN, lost=known.lost, note=RAN_AWAY)
    note = f"features: {known.form} quadratic"
    if known.lost > Limits().lost:
        return Estimate(known.value, lost=known.lost, note=f"{note}; {known.lost:.0%} of the resamples ran away")
    return Estimate(known.value, *interval(known.resampled), lost=known.lost, note=note)
