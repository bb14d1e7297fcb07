"""Does a cost grow with the number of tasks? A straight line through it, and what its slope is worth.

Seconds are noisy: what counts is a share of their mean. Bytes are exact: what counts is any growth beyond the names of
the outputs that a learner has seen, of which it may well keep a list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.stats import t as student

NAMES = 256  # bytes a task that memory may grow by: eight for each output that is new, in a list or two


def growth(costs: Sequence[float]) -> dict[str, float]:
    """Slope of the least-squares line through the costs of tasks 1, 2, ..., as a share of their mean, and its error.

    `margin` is half of the slope's 95 % interval (Student's t: tasks are few). NaN where there are fewer than three
    tasks, or nothing was spent. `each` is the slope in units of the cost.
    """
    y = torch.tensor(list(costs), dtype=torch.float64)
    n = len(y)
    if n < 3 or not bool(torch.isfinite(y).all()) or float(y.mean()) <= 0:
        return dict.fromkeys(("slope", "se", "margin", "each", "first", "last"), math.nan)
    x = torch.arange(n, dtype=torch.float64)
    x = x - x.mean()
    slope = float((x * y).sum() / x.square().sum())
    left = y - y.mean() - slope * x
    se = math.sqrt(float(left.square().sum()) / (n - 2) / float(x.square().sum()))
    mean, times = float(y.mean()), float(student.ppf(0.975, n - 2))
    share = {"slope": slope / mean, "se": se / mean, "margin": times * se / mean}
    return share | {"each": slope, "first": float(y[0]), "last": float(y[-1])}


def grows(line: dict[str, float], *, least: float = 0.02) -> bool:
    """Whether the slope is at least `least` of the mean cost a task, and its 95 % interval lies above zero."""
    return line["slope"] >= least and line["slope"] > line["margin"]


def grows_exactly(line: dict[str, float], *, beyond: float = NAMES) -> bool:
    """Whether a cost without noise grows by more than `beyond` a task, however small a share of it that is."""
    return line["each"] > beyond and line["slope"] > line["margin"]
