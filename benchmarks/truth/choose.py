"""Constants of the intervals, chosen without the family on which they are reported.

The high end of an interval holds max(ROOT sqrt(m v), TIMES m) for what a ratio has not learnt yet, v the two-sided
value and m the movement (`vestige.ratios.divergences.learnt`). For each family in turn the others choose ROOT and TIMES
from GRID: the smallest median width, over cells of every verdict, among those with which at least ENOUGH of their "ok"
hold the truth. The family that was left out then says how many of its own hold it. Cells that something else has kept
from being "ok" (support, tails, the mean of r) are so with any constants, and are left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.truth import results
from benchmarks.truth.figures import LEAST, Share, every
from benchmarks.truth.results import NAMES, Judged
from vestige.ratios.divergences.learnt import FLOOR, WIDEST

GRID = tuple(
    (root, times)
    for root in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5)
    for times in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
)
ENOUGH = 0.95
Z = 1.96
UPPER = {"js": math.log(2), "hellinger2": 1.0}
# How the reason begins that the rule itself gives for "at least".
BY_RULE = "more rows would still change"


class Case(NamedTuple):
    """What the rule needs of one divergence of one cell."""

    family: str
    truth: float
    value: float  # two-sided
    one_step: float
    std_error: float
    movement: float
    n: int
    upper: float


class Interval(NamedTuple):
    low: float
    high: float
    verdict: str

    def holds(self, truth: float) -> bool:
        return self.low <= truth <= self.high


class LeftOut(NamedTuple):
    """A family, the constants that the others chose, and what they come to on either."""

    family: str
    root: float
    times: float
    others: Share
    own: Share
    ok: Share  # how many of the family's cells are ok


def interval(case: Case, root: float, times: float) -> Interval:
    """The rule with these constants."""
    reach = Z * case.std_error
    missing = max(root * math.sqrt(max(case.movement * case.value, 0.0)), times * case.movement)
    below = case.value if math.isnan(case.one_step) else min(case.value, case.one_step)
    high = min(case.value + reach + missing, case.upper)
    wide = missing > WIDEST * max(case.value, 0.0) + FLOOR / case.n
    return Interval(below - reach, high, "at least" if wide else "ok")


def cases(edition: str = "after") -> list[Case]:
    """Of the stored results of the zoo, those that the constants decide on."""
    return of_rows(results.read("zoo", edition))


def of_rows(rows: Iterable[results.Row]) -> list[Case]:
    found = []
    for row in rows:
        for name in NAMES:
            for one in every([row], [name]):
                if _decided(one):
                    upper, n = UPPER.get(name, math.inf), min(row["n_p"], row["n_q"])
                    known = one.truth, one.two_sided, one.one_step, one.std_error, one.movement
                    found.append(Case(row["family"], *known, n, upper))
    return found


def _decided(one: Judged) -> bool:
    by_rule = one.verdict == "ok" or (one.verdict == "at least" and one.reason.startswith(BY_RULE))
    return by_rule and not any(map(math.isnan, (one.two_sided, one.std_error, one.movement)))


def coverage(found: Sequence[Case], root: float, times: float) -> Share:
    """How many of the "ok" hold the truth."""
    held = [one.holds(case.truth) for case in found if (one := interval(case, root, times)).verdict == "ok"]
    return Share(sum(held), len(held))


def width(found: Sequence[Case], root: float, times: float) -> float:
    """Median width relative to the truth, of whatever verdict."""
    widths = []
    for case in found:
        if LEAST < case.truth < math.inf:
            one = interval(case, root, times)
            widths.append((one.high - one.low) / case.truth)
    return statistics.median(widths) if widths else math.inf


def chosen(found: Sequence[Case]) -> tuple[float, float]:
    """ROOT and TIMES by these cases; those of the best coverage where none is enough."""
    covered = {constants: coverage(found, *constants).value for constants in GRID}
    enough = [constants for constants, share in covered.items() if share >= ENOUGH]
    if enough:
        return min(enough, key=lambda constants: (width(found, *constants), constants))
    return max(GRID, key=lambda constants: (covered[constants], constants))


def left_out(found: Sequence[Case]) -> list[LeftOut]:
    """Each family with the constants of all others."""
    told = []
    for family in dict.fromkeys(case.family for case in found):
        others = [case for case in found if case.family != family]
        own = [case for case in found if case.family == family]
        if not others:
            continue
        root, times = chosen(others)
        covered = coverage(own, root, times)
        told.append(LeftOut(family, root, times, coverage(others, root, times), covered, Share(covered.of, len(own))))
    return told


def total(told: Iterable[LeftOut]) -> Share:
    """Coverage of "ok" over the families, each with the constants of the others."""
    shares = [one.own for one in told]
    return Share(sum(share.hits for share in shares), sum(share.of for share in shares))
