"""What rows of results come to: error, coverage, validity, shares and cost. Pure functions of rows.

A truth that is not known (NaN: benchmark-mi knows its KL alone) is counted nowhere. An infinite one is in no interval,
so an "ok" there is a miss, while any "at least" is valid.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scipy.special import ndtri

from benchmarks.truth.results import NAMES, Judged, Row, judged, number

# Below this truth an error is not taken relative to it; above this one a width is.
LEAST, WIDE = 0.02, 0.2
# A model that reaches less of the data than this must not have its weights called good.
REACHED = 0.97


class Share(NamedTuple):
    """So many of so many."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else math.nan

    def wilson(self, level: float = 0.95) -> tuple[float, float]:
        """The interval of Wilson (1927)."""
        if not self.of:
            return math.nan, math.nan
        z, n, share = float(ndtri((1 + level) / 2)), self.of, self.value
        middle = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return middle - half, middle + half


def every(rows: Iterable[Row], names: Sequence[str] = NAMES) -> list[Judged]:
    """The divergences of all rows whose truth is known."""
    found = (judged(row, name) for row in rows for name in names)
    return [one for one in found if not math.isnan(one.truth)]


def error(found: Iterable[Judged]) -> float:
    """Median |value - truth| / truth of point values, before any refusal, where the truth is finite and above LEAST.

    A value that there is not counts as an error of 1.
    """
    errors = [
        1.0 if math.isnan(one.point) else abs(one.point / one.truth - 1)
        for one in found
        if LEAST < one.truth < math.inf
    ]
    return statistics.median(errors) if errors else math.nan


def coverage(found: Iterable[Judged]) -> Share:
    """How many of the "ok" intervals hold the truth."""
    ok = [one for one in found if one.verdict == "ok"]
    return Share(sum(one.low <= one.truth <= one.high for one in ok), len(ok))


def validity(found: Iterable[Judged]) -> Share:
    """How many of the "at least" have their low end below the truth."""
    least = [one for one in found if one.verdict == "at least"]
    return Share(sum(one.low <= one.truth for one in least), len(least))


def verdicts(found: Sequence[Judged]) -> dict[str, Share]:
    """The share of each verdict."""
    return {
        word: Share(sum(one.verdict == word for one in found), len(found)) for word in ("ok", "at least", "refused")
    }


def width(found: Iterable[Judged]) -> float:
    """Median width of "ok" intervals relative to the truth, where that is finite and above WIDE."""
    widths = [(one.high - one.low) / one.truth for one in found if one.verdict == "ok" and WIDE < one.truth < math.inf]
    return statistics.median(widths) if widths else math.nan


def infinite_told(rows: Iterable[Row]) -> Share:
    """How many of the infinite KLs are not called "ok"."""
    infinite = [one for one in every(rows, ["kl"]) if math.isinf(one.truth)]
    return Share(sum(one.verdict != "ok" for one in infinite), len(infinite))


def good_out_of_reach(rows: Iterable[Row]) -> Share:
    """How many weights are called good among those of models that reach less than REACHED of the data."""
    short = [row for row in rows if row["weights"] is not None and number(row["reach_p"]) < REACHED]
    return Share(sum(row["weights"] == "good" for row in short), len(short))


def seconds(rows: Iterable[Row]) -> dict[str, float]:
    """Median CPU seconds by size; a step of a chain is a row."""
    spent: dict[str, list[float]] = {}
    for row in sorted(rows, key=lambda row: (row["n_p"] + row["n_q"], row["weighted"])):
        size = f"{row['n_p']}" if row["n_p"] == row["n_q"] else f"{row['n_p']} x {row['n_q']}"
        spent.setdefault(size + (" weighted" if row["weighted"] else ""), []).append(row["cpu"])
    return {size: statistics.median(each) for size, each in spent.items()}


def of_cells(rows: Iterable[Row], cells: Iterable[str]) -> list[Row]:
    """Those of the named cells."""
    wanted = set(cells)
    return [row for row in rows if row["cell"] in wanted]
