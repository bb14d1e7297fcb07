"""How far the codes of the same samples move when a feature map is updated: what CDRE Eq. 15 is there to keep small.

    drift = mean |z_t(x) - z_{t-1}(x)|^2 / total variance of z_{t-1}

over samples x: 0 where nothing moved, 2 where the new codes are independent of the old ones with the same mean and
variance. A chain whose earlier steps saw z_{t-1} reads this as noise, or as a drift of the model (see `base`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike
from vestige.features.base import FeatureMap
from vestige.features.rows import admit


def relative_drift(before: Float[Tensor, "n f"], after: Float[Tensor, "n f"]) -> float:
    """The drift from one set of codes to another of the same samples, row by row."""
    before, after = before.to(torch.float64), after.to(torch.float64)
    variance = (before - before.mean(0)).square().sum(1).mean()
    if not bool(variance > 0):
        checks.refuse("before", "relative_drift", "codes that differ between samples", "the same code for all")
    return float((after - before).square().sum(1).mean() / variance)


def code_drift(before: FeatureMap, after: FeatureMap, x: ArrayLike) -> float:
    """The drift of the codes of `x` from the map `before` (a `copy` taken before `update`) to the map `after`."""
    if before.width != after.width:
        checks.refuse("after", "code_drift", f"as wide as 'before' ({before.width} features)", after.width)
    rows = admit(x, "x", "code_drift", before.shape, min_rows=2)
    return relative_drift(before.codes(rows), after.codes(rows))


def drift_by_step(
    feature_map: FeatureMap,
    real: Mapping[str | int, ArrayLike],
    generated: Mapping[str | int, ArrayLike],
    held: Mapping[str | int, ArrayLike],
    *,
    seed: int = 0,
) -> list[float]:
    """Fit on the first task of `real`, update with each next, and measure the drift of the old tasks at each update.

    At every update `generated` stands for the tasks whose data is gone; the drift is that of their rows in `held`,
    which the map never sees.
    """
    tasks = list(real)
    if len(tasks) < 2:
        checks.refuse("real", "drift_by_step", "of at least 2 tasks", len(tasks))
    drifts = []
    feature_map.fit({tasks[0]: real[tasks[0]]}, seed=rng.child_seed(seed, "step", 0))
    for t in range(1, len(tasks)):
        old, before = tasks[:t], feature_map.copy()
        replay = {task: generated[task] for task in old}
        feature_map.update({tasks[t]: real[tasks[t]]}, replay, seed=rng.child_seed(seed, "step", t))
        rows = torch.cat([admit(held[task], f"held[{task!r}]", "drift_by_step", before.shape) for task in old])
        drifts.append(code_drift(before, feature_map, rows))
    return drifts
