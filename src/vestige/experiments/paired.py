"""Differences of two rows of one seed: they share data and first weights, so that most of the noise cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Gap:
    """A mean difference and its standard error."""

    mean: float
    se: float

    @property
    def sure(self) -> float:
        """How many standard errors it is from zero; without any error infinitely many, or none if it is zero."""
        if self.se > 0:
            return self.mean / self.se
        return math.copysign(math.inf, self.mean) if self.mean else 0.0

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ({self.se:.1f})"


def gap(differences: Sequence[float]) -> Gap:
    """Of the differences of at least two seeds."""
    return Gap(fmean(differences), stdev(differences) / math.sqrt(len(differences)))
