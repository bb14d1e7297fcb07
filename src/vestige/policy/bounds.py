"""Bounds of the action space: that of logs, of a policy, of an environment, and whether they are one space.

A policy that draws beyond a space from which actions were cut has another law than the one that would run there, and
its `log_prob` is no mass at the bounds: every estimate would be of a policy that does not exist.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike
from vestige.policy.policies import Policy

# How far beyond its bounds an action may lie, as a share of their distance: the rounding of float32.
ACTION_TOLERANCE = 1e-5


def bounds_of(a: Tensor, low: ArrayLike | None, high: ArrayLike | None, owner: str) -> dict[str, Any]:
    """Both bounds of the space of actions `a` or none, and every action between them."""
    if low is None and high is None:
        return {}
    if low is None or high is None:
        missing = "action_low" if low is None else "action_high"
        checks.refuse(missing, owner, "given together with its opposite", "none")
    bottom = checks.vector(low, "action_low", owner, length=a.shape[1])
    top = checks.vector(high, "action_high", owner, length=a.shape[1])
    if bool((bottom >= top).any()):
        checks.refuse("action_low", owner, "below 'action_high'", f"{float((bottom - top).max()):+.4g} above it")
    require_inside(a, bottom, top, owner)
    return {"action_low": bottom, "action_high": top}


def require_inside(
    actions: Float[Tensor, "m a"], low: Float[Tensor, " a"], high: Float[Tensor, " a"], owner: str
) -> None:
    """Refuse an action outside of the space, with its row and dimension."""
    slack = ACTION_TOLERANCE * (high - low)
    outside = ((actions < low - slack) | (actions > high + slack)).nonzero()
    if len(outside):
        row, i = (int(v) for v in outside[0])
        told = f"{float(actions[row, i]):.6g} in row {row}, dimension {i} (from 0)"
        checks.refuse("actions", owner, f"within the space, here [{float(low[i]):g}, {float(high[i]):g}]", told)


def require_bounds(
    policy: Policy,
    low: Float[Tensor, " a"],
    high: Float[Tensor, " a"],
    observations: Float[Tensor, "n s"],
    *,
    space: str,
    owner: str,
    narrower: bool = False,
) -> None:
    """Refuse a policy whose bounds are missing or not those of `space`; with `narrower` they may lie within it.

    A policy that names no bounds is asked for an action at each of `observations` instead, and none may lie outside.
    """
    if not hasattr(policy, "low") or not hasattr(policy, "high"):
        drawn = policy.act(observations, generator=rng.fork(0, "bounds"))
        require_inside(drawn, low, high, "the policy")
        return
    must = f"bounded as {space} (give it low= and high=)"
    if policy.low is None or policy.high is None:
        checks.refuse("policy", owner, must, "one without bounds")
    slack = ACTION_TOLERANCE * (high - low)
    below, above = low - policy.low, policy.high - high  # how much wider it is on either side
    off = (below > slack) | (above > slack) if narrower else (below.abs() > slack) | (above.abs() > slack)
    if bool(off.any()):
        i = int(off.nonzero()[0])
        have, want = (f"[{float(a[i]):g}, {float(b[i]):g}]" for a, b in ((policy.low, policy.high), (low, high)))
        checks.refuse("policy", owner, must, f"{have} for {want} in dimension {i} (from 0)")
