"""Constants of the intervals, chosen without the family on which they are reported.

`vestige.ratios.divergences.learnt.HighEnd` has three: the high end holds max(root sqrt(m v), times m) for what a ratio
has not learnt yet, v the two-sided value and m the movement, and an "ok" has a movement of at most `most` of its
value. For each family in turn the others choose them from GRID: the most "ok" among those with which at least ENOUGH
of these hold the truth and the median width of KLs above WIDE is at most WIDEST of the truth. The family that was left
out then says how many of its own hold it. Cells that something else has kept from being "ok" (support, tails, the mean
of r) are so with any constants, and are left out.

ENOUGH is above the 90 % that a left-out family is to have, as it is not one of those that chose. `BY_HAND` counts what
was looked at beside the grid before the form of the rule was fixed: sums instead of roots of squares, centres, limits,
raised low ends, other floors, and ENOUGH at .95, .96 and .965.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from benchmarks.truth import results
from benchmarks.truth.figures import WIDE, Share, every
from benchmarks.truth.results import NAMES, Judged, Row
from vestige.ratios.divergences.learnt import HighEnd, Interval, IntervalParts, interval

GRID = tuple(
    HighEnd(root, times, most)
    for root in (0.3, 0.5, 0.7, 1.0)
    for times in (4.0, 5.0, 6.0, 7.0, 8.0)
    for most in (0.04, 0.05, 0.06, 0.07, 0.08, 0.09)
)
BY_HAND = 180
ENOUGH, WIDEST = 0.96, 0.35
# How the reason begins that the rule itself gives for "at least".
BY_RULE = "more rows would still change"


class Case(NamedTuple):
    """What the rule needs of one divergence of one cell."""

    family: str
    name: str
    truth: float
    parts: IntervalParts


class LeftOut(NamedTuple):
    """A family, the constants that the others chose, and what they come to on either."""

    family: str
    rule: HighEnd
    others: Share
    own: Share
    ok: Share  # how many of the family's cells are ok
    widths: list[float]  # of its "ok" KLs above WIDE


@cache
def judged(case: Case, rule: HighEnd) -> Interval:
    """The interval by these constants."""
    return interval(case.name, case.parts, rule=rule)


def cases(edition: str = "after") -> list[Case]:
    """Of the stored results of the zoo, those that the constants decide on."""
    return of_rows(results.read("zoo", edition))


def of_rows(rows: Iterable[Row]) -> list[Case]:
    return [
        Case(row["family"], name, one.truth, parts(row, one))
        for row in rows
        for name in NAMES
        for one in every([row], [name])
        if by_rule(one)
    ]


def parts(row: Row, one: Judged) -> IntervalParts:
    """What the interval of a stored divergence was made of; weighted rows count as if they were not."""
    return IntervalParts(one.two_sided, one.one_step, one.std_error, one.movement, row["n_p"], row["n_q"], one.beyond)


def by_rule(one: Judged) -> bool:
    """Whether nothing but the constants kept it from being "ok", if anything did."""
    decided = one.verdict == "ok" or (one.verdict == "at least" and one.reason.startswith(BY_RULE))
    return decided and not any(map(math.isnan, (one.two_sided, one.std_error, one.movement)))


def coverage(found: Sequence[Case], rule: HighEnd) -> Share:
    """How many of the "ok" hold the truth."""
    held = [one.low <= case.truth <= one.high for case in found if (one := judged(case, rule)).sure]
    return Share(sum(held), len(held))


def widths(found: Sequence[Case], rule: HighEnd) -> list[float]:
    """Of "ok" KLs whose truth is finite and above WIDE, relative to it."""
    kl = [case for case in found if case.name == "kl" and WIDE < case.truth < math.inf]
    ends = [(case, judged(case, rule)) for case in kl]
    return [(one.high - one.low) / case.truth for case, one in ends if one.sure]


def chosen(found: Sequence[Case]) -> HighEnd:
    """The constants by these cases; those of the best coverage where none is enough."""
    covered = {rule: coverage(found, rule) for rule in GRID}
    narrow = [rule for rule in GRID if statistics.median(widths(found, rule) or [0.0]) <= WIDEST] or list(GRID)
    enough = [rule for rule in narrow if covered[rule].of and covered[rule].value >= ENOUGH]
    if enough:
        return max(enough, key=lambda rule: (covered[rule].of, covered[rule].value, rule))
    return max(narrow, key=lambda rule: (covered[rule].value if covered[rule].of else 0.0, rule))


def left_out(found: Sequence[Case]) -> list[LeftOut]:
    """Each family with the constants of all others."""
    told = []
    for family in dict.fromkeys(case.family for case in found):
        others = [case for case in found if case.family != family]
        own = [case for case in found if case.family == family]
        if not others:
            continue
        rule = chosen(others)
        covered = coverage(own, rule)
        ok = Share(covered.of, len(own))
        told.append(LeftOut(family, rule, coverage(others, rule), covered, ok, widths(own, rule)))
    return told


def total(told: Iterable[LeftOut]) -> Share:
    """Coverage of "ok" over the families, each with the constants of the others."""
    shares = [one.own for one in told]
    return Share(sum(share.hits for share in shares), sum(share.of for share in shares))


def width(told: Iterable[LeftOut]) -> float:
    """Median width of "ok" KLs over the families, each with the constants of the others."""
    every_width = [x for one in told for x in one.widths]
    return statistics.median(every_width) if every_width else math.nan
