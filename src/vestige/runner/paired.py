"""Differences of two rows of one seed: they share data and first weights, so that most of the noise cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student

LEVEL = 0.95
BEYOND = f"by more than the {LEVEL:.0%} Student interval of the paired difference over seeds"  # what `above` says


@dataclass(frozen=True)
class Gap:
    """A mean difference over `n` seeds and its standard error."""

    mean: float
    se: float
    n: int

    @property
    def reach(self) -> float:
        """Half of the interval: with few seeds far more than two standard errors (4.3 for three of them)."""
        return float(student.ppf((1 + LEVEL) / 2, self.n - 1)) * self.se

    @property
    def above(self) -> bool:
        """The whole interval lies above zero."""
        return self.mean > self.reach

    @property
    def below(self) -> bool:
        """The whole interval lies below zero."""
        return -self.mean > self.reach

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ({self.se:.1f})"


def gap(differences: Sequence[float]) -> Gap:
    """Of the differences of at least two seeds."""
    n = len(differences)
    return Gap(fmean(differences), stdev(differences) / math.sqrt(n), n)
