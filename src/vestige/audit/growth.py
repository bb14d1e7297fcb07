"""Does a cost grow with the number of tasks? A straight line through it, and what its slope is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.stats import t as student


def growth(costs: Sequence[float]) -> dict[str, float]:
    """Slope of the least-squares line through the costs of tasks 1, 2, ..., as a share of their mean, and its error.

    `margin` is half of the slope's 95 % interval (Student's t: tasks are few). NaN where there are fewer than three
    tasks, or nothing was spent.
    """
    y = torch.tensor(list(costs), dtype=torch.float64)
    n = len(y)
    if n < 3 or not bool(torch.isfinite(y).all()) or float(y.mean()) <= 0:
        first = float(y[0]) if n else math.nan
        return {"slope": math.nan, "se": math.nan, "margin": math.nan, "first": first, "last": math.nan}
    x = torch.arange(n, dtype=torch.float64)
    x = x - x.mean()
    slope = float((x * y).sum() / x.square().sum())
    left = y - y.mean() - slope * x
    se = math.sqrt(float(left.square().sum()) / (n - 2) / float(x.square().sum()))
    mean, times = float(y.mean()), float(student.ppf(0.975, n - 2))
    costs_at = {"first": float(y[0]), "last": float(y[-1])}
    return {"slope": slope / mean, "se": se / mean, "margin": times * se / mean, **costs_at}


def grows(found: dict[str, float], *, least: float = 0.02) -> bool:
    """Whether the slope is at least `least` of the mean cost a task, and its 95 % interval lies above zero."""
    return found["slope"] >= least and found["slope"] > found["margin"]
