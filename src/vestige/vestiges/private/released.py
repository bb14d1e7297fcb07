"""Noisy sums, and the promise under which they left: epsilon, delta, and whose rows one more or less is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vestige.core import InputError, checks
from vestige.vestiges.private.noise import MOST_EPSILON
from vestige.vestiges.private.statistics import LARGEST, PARTS, Query
from vestige.vestiges.private.units import ROW

SECOND = (
    "Keeping the same rows again is a second expense: what both files together give away is the sum of their epsilons."
)
DISJOINT = (
    "Merging keeps epsilon only if no {unit} is in two of the parts, which a file cannot tell: it is for you to know."
)


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) differential privacy of one unit more or less."""

    epsilon: float
    delta: float
    unit: str  # "row", or the column that names whose rows they are
    max_rows: int  # of a unit that count
    parts: int = 1  # files that were merged

    def __post_init__(self) -> None:
        checks.number(self.epsilon, "epsilon", "Guarantee", low=0, open_low=True, high=MOST_EPSILON)
        checks.number(self.delta, "delta", "Guarantee", low=0, high=1, open_low=True, open_high=True)
        checks.whole(self.max_rows, "max_rows", "Guarantee", low=1)
        checks.whole(self.parts, "parts", "Guarantee", low=1)

    def merge(self, other: Guarantee) -> Guarantee:
        """Of parts that have no unit in common: whoever is in one of them is protected as that one promises."""
        if self.unit != other.unit:
            raise InputError(f"The units of both vestiges must be one. Got '{self.unit}' and '{other.unit}' instead.")
        worst = max(self.epsilon, other.epsilon), max(self.delta, other.delta)
        return Guarantee(*worst, self.unit, max(self.max_rows, other.max_rows), self.parts + other.parts)

    @property
    def auc_bound(self) -> float:
        """The largest AUC with which anybody, whatever they know, tells a file with one unit from one without it.

        Who is wrong about a share a of the files without it is right about at most min(1, delta + e^epsilon a,
        1 - e^-epsilon (1 - delta - a)) of those with it (Wasserman and Zhou 2010; Dong, Roth and Su 2022, Prop. 3):
        this is the area below that line.
        """
        e, rest = math.exp(self.epsilon), 1 - self.delta
        corner = rest / (1 + e)
        return self.delta * corner + e * corner**2 / 2 + rest - corner - (rest - corner) ** 2 / e / 2 + self.delta

    def __str__(self) -> str:
        whose = (
            "one row" if self.unit == ROW else f"all rows of one '{self.unit}', of which at most {self.max_rows} count"
        )
        merged = "" if self.parts == 1 else f" Merged from {self.parts} parts. {DISJOINT.format(unit=self.unit)}"
        return (
            f"epsilon {self.epsilon:g}, delta {self.delta:g}, for {whose}, more or less; this covers every number in "
            f"the file that the rows had a part in. Whoever knows all other rows tells with an AUC of at most "
            f"{self.auc_bound:.2f} whether it was there. {SECOND}{merged}"
        )


@dataclass(frozen=True, eq=False)
class Released:
    """Sums over the rows of every function of the query, with noise."""

    query: Query
    guarantee: Guarantee
    sums: Int64[Tensor, " k"]
    variance: float  # of the noise in each of them, as whole numbers

    def __post_init__(self) -> None:
        size = sum(self.query.sizes.values())
        if self.sums.shape != (size,):
            checks.refuse("sums", "Released", f"{size}, as the query has", tuple(self.sums.shape))
        checks.number(self.variance, "variance", "Released", low=0, high=LARGEST)

    @property
    def n(self) -> int:
        """About how many rows there were: the count has noise, too."""
        return max(round(self._count), 1)

    @property
    def _count(self) -> float:
        return float(self.sums[0]) * float(self.query.units[0])

    @property
    def means(self) -> Float64[Tensor, " f"]:
        """Of every function over the rows; noise in numerator and denominator."""
        return (self.sums.to(torch.float64) * self.query.units)[1:] / self.n

    def noise(self, draws: int, generator: torch.Generator) -> Float64[Tensor, "b f"]:
        """Draws of the error that the noise makes of the means, to first order in the noise of the count."""
        every = torch.randn(draws, len(self.sums), generator=generator, dtype=torch.float64)
        every = every * (math.sqrt(self.variance) * self.query.units)
        return (every[:, 1:] - every[:, :1] * self.means) / self.n

    @property
    def noise_variance(self) -> Float64[Tensor, " f"]:
        """The variance of that error, function by function."""
        each = self.variance * self.query.units.square()
        return (each[1:] + each[0] * self.means.square()) / self.n**2

    @property
    def worth(self) -> float:
        """n epsilon, over the factor by which several rows a unit and merged parts raise the noise."""
        g = self.guarantee
        return self.n * g.epsilon / (g.max_rows * math.sqrt(g.parts))

    def spans(self) -> dict[str, slice]:
        """Where each part stands among the means."""
        return {
            name: slice(span.start - 1, span.stop - 1) for name, span in self.query.spans.items() if name in PARTS[1:]
        }

    def merge(self, other: Released) -> Released:
        """Of the rows of both, which have no unit in common."""
        if self.query.digest() != other.query.digest():
            raise InputError(
                "The two vestiges must have one declaration to be merged. Got two instead: keep the second with 'like' "
                "(--like) the first."
            )
        guarantee = self.guarantee.merge(other.guarantee)
        both = self.sums + other.sums, self.variance + other.variance
        return replace(self, guarantee=guarantee, sums=both[0], variance=both[1])
