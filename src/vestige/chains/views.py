"""One divergence, seen in every way that applies: what they disagree by tells how far to trust the chain.

D_f(p || q_t) from log r_t = log p/q_t, each way on samples of its own:
- `eq4`: E_q[f(r_t)] on this step's samples (CDRE Eq. 4). Where q_t is narrower than p its terms have an infinite second
  moment (of Gaussians, from sigma_q < sigma_p / sqrt 2 on) and it falls short even with the exact ratio.
- `anchored`: E_p[f(r_t) / r_t] on generated samples that are weighted to stand for p: those of the step at which the
  data was here, or of the key; at arrival on the data itself. For kl the mean of w log r_t.
- `running`: the sum over steps of what each added, none looked at again. Let S be the samples that stand for p, and s
  the step since which they do: D_t = D_s + E_S[f(r_t) / r_t - f(r_s) / r_s]; for kl the increment is E_S[log q_s/q_t].
  S moves at every step in the paper's chain (the samples of step t-1 under r_{t-1}), with the key in `keyframe`, and
  never in `anchored`, where D_s is the average over the data at arrival and the increment has no use for its weights'
  error in what p and q_1 have in common.

`heavy` names those whose terms have a tail index of `tail` or more: they are printed and not held against the value.
Where p and q_t hardly overlap each sees its own side alone, and all but the `anchored` one of kl fall short.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from vestige.chains.strategy import Found, Points
from vestige.ratios import divergences

VIEWS = ("eq4", "running", "anchored")
# Plain averages, whatever their tails: what a view is worth is said by its tail index, not by a refusal.
AS_IT_IS: dict[str, Any] = {"form": "eq4", "max_k": math.inf, "min_ess": 0.0, "on_refusal": "nan"}


@dataclass(frozen=True)
class Views:
    """One divergence of one task; NaN where a view does not apply or overflows."""

    eq4: float
    running: float
    anchored: float
    heavy: tuple[str, ...] = ()
    spread: float = math.nan  # deviation over the members of an ensemble

    def disagreement(self, value: float) -> float:
        """The largest distance from `value` of a view that is not heavy."""
        return largest_distance({name: getattr(self, name) for name in VIEWS if name not in self.heavy}, value)


def largest_distance(views: Mapping[str, float], value: float) -> float:
    """NaN where there is nothing to compare."""
    off = [abs(view - value) for view in views.values() if math.isfinite(view - value)]
    return max(off, default=math.nan)


def of_points(name: str, points: Points, *, before: bool = False) -> tuple[float, float | None]:
    """E_p[f(r)/r] over `points`, of r_t or of the ratio `before`, and the tail index of the terms."""
    log_ratio = points.before if before else points.log_ratio
    found = divergences.estimate(name, None, log_ratio, p_weights=points.weights, samples="p", **AS_IT_IS)
    return found.value, found.details["pareto_k"]


def on_samples(name: str, log_ratio_q: Float[Tensor, " n_q"]) -> tuple[float, float | None]:
    """Eq. 4, and the tail index of its terms."""
    found = divergences.estimate(name, log_ratio_q, samples="q", **AS_IT_IS)
    return found.value, found.details["pareto_k"]


def views_of(
    found: Found, names: Iterable[str], running_from: Mapping[str, float], *, tail: float
) -> tuple[dict[str, Views], dict[str, float]]:
    """Every view of each divergence, and the values from which the next step's `running` starts.

    `running_from` has those of the last step; at arrival there are none.
    """
    views, next_from = {}, {}
    for name in names:
        values = {"eq4": on_samples(name, found.log_ratio_q)}
        if found.anchored is not None:
            values["anchored"] = of_points(name, found.anchored)
        if found.running is not None:
            now, k = of_points(name, found.running)
            if found.running.before is not None:
                then, k_then = of_points(name, found.running, before=True)
                now = running_from.get(name, math.nan) + now - then
                k = max((x for x in (k, k_then) if x is not None), default=None)
            values["running"] = now, k
        each = [] if found.members is None else [on_samples(name, own)[0] for own in found.members]
        views[name] = Views(
            **{view: values.get(view, (math.nan, None))[0] for view in VIEWS},
            heavy=tuple(view for view, (_, k) in values.items() if k is not None and k >= tail),
            spread=statistics.stdev(each) if len(each) > 1 else math.nan,
        )
        next_from[name] = views[name].running if found.moved else running_from.get(name, math.nan)
    return views, next_from
