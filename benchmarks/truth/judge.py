"""Stored results by the rule of today: the same fits, other ends and verdicts.

A row keeps what its intervals are made of: both forms of the value, the sampling error, the movement and what rows
beyond an edge add. Where a change concerns `vestige.ratios.divergences.learnt.interval` alone, rows of one comparison
need not be measured again: `judge` puts today's ends and verdicts in their place, and `rule` says so. What a row does
not keep is measured again by `--run`: rows where an edge was found (unless what lies beyond is stored), steps of
chains, weighted rows, and weights that are called good while the mean of r is off.
"""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.truth import results
from benchmarks.truth.choose import BY_RULE, by_rule, parts
from benchmarks.truth.results import COLUMNS, NAMES, Judged, Row, judged, rounded
from vestige.ratios.divergences.learnt import VERSION, interval

REASON = f"{BY_RULE} the ratio, so it may be larger"
OFF = "fake rows are too rare"


def needs_a_run(row: Row) -> bool:
    """Whether the rule asks for what the row does not keep."""
    edges = any(share[0] for share in (row.get("reach") or {}).values()) and "beyond" not in row
    off = row["weights"] == "good" and OFF in judged(row, "kl").reason
    return bool(edges or row["step"] or row["weighted"] or off)


def judge(row: Row) -> Row:
    """The row by today's rule; as it is where it must be measured again, or is so judged already."""
    if row.get("rule", 1) == VERSION or needs_a_run(row):
        return row
    return row | {name: _ends(row, name) for name in NAMES} | {"rule": VERSION}


def _ends(row: Row, name: str) -> list:
    one: Judged = judged(row, name)
    if one.verdict == "refused" or any(map(math.isnan, (one.two_sided, one.std_error, one.movement))):
        return row[name]
    ends = interval(name, parts(row, one))
    fields = dict(zip(COLUMNS, row[name], strict=True))
    fields |= {"value": rounded(ends.value), "low": rounded(ends.low), "high": rounded(ends.high)}
    if by_rule(one):
        fields |= {"verdict": "ok", "reason": ""} if ends.sure else {"verdict": "at least", "reason": REASON}
    return [fields[column] for column in COLUMNS]


def judge_all(source: str, edition: str, folder: Path | None = None) -> tuple[int, int]:
    """Judge every stored row; how many are by today's rule, and how many there are."""
    rows = [judge(row) for row in results.read(source, edition, folder)]
    if rows:
        results.write(rows, results.path(source, edition, folder=folder))
    return sum(row.get("rule", 1) == VERSION for row in rows), len(rows)
