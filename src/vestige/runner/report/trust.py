"""How far the numbers can be trusted: the audit of the evaluation, and what the ratios said of themselves.

An audit is stored in a Record as `audit`. A chain or an estimator leaves its verdicts in the details: `verdicts`, one a
step or by name, and `refused`, name -> why. A verdict's first words, up to a colon, say how firm a value is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from vestige.continual.audit import QUESTIONS, Audit
from vestige.continual.record import Record
from vestige.runner.report.arms import Arm
from vestige.show import Part, Table

# With more arms than this the verdicts stand in one table and the evidence of the rest stays in the Records.
MOST_EVIDENCE = 6
OK, REFUSED = "ok", "refused"
# A number that stands by itself, not the 4 of "Eq. 4" or of a name.
NUMBER = re.compile(r"(?<![\w.])(?<!Eq\. )-?\d+(\.\d+)?(?![\w])")


def audits(arms: Sequence[Arm]) -> list[Part]:
    """The verdicts arm beside arm, and the evidence of each."""
    found = {arm.label: Audit.from_json(a) for arm in arms if (a := _first_audit(arm)) is not None}
    if not found:
        return []
    parts: list[Part] = []
    if len(found) > 1:
        rows = [(words, *(audit[q].verdict for audit in found.values())) for q, words in QUESTIONS.items()]
        parts.append(Table("Verdicts", ("what would hold", *found), rows))
    shown = list(found.items())[:MOST_EVIDENCE]
    parts += [
        Table(f"Evidence: {label}", ("kind", "what would hold", "verdict", "evidence"), a.rows()) for label, a in shown
    ]
    left = list(found)[MOST_EVIDENCE:]
    return [*parts, *([f"The evidence of these stays in their Records: {'; '.join(left)}."] if left else [])]


def ratios(arms: Sequence[Arm]) -> list[Part]:
    """How many values stand on firm ground, why the others do not, and what was refused."""
    told = {arm.label: [word for record in arm.records for word in verdicts(record)] for arm in arms}
    counts = {label: Counter(map(kind, found)) for label, found in told.items() if found}
    parts: list[Part] = []
    if counts:
        kinds = list(dict.fromkeys([OK, *(k for count in counts.values() for k in count)]))
        firm, every = sum(c[OK] for c in counts.values()), sum(c.total() for c in counts.values())
        rows: list[list[str | int]] = [[label, *(c[k] for k in kinds), c.total()] for label, c in counts.items()]
        parts.append(f"Of {every} values that were judged, {firm} stand on firm ground.")
        parts.append(Table("Verdicts on values", ("", *kinds, "all"), rows, "All seeds and steps together."))
    reasons = [(label, kind(word), word.partition(":")[2].strip()) for label, f in told.items() for word in f]
    reasons += [(arm.label, REFUSED, why) for arm in arms for record in arm.records for why in refusals(record)]
    return [*parts, *_why([reason for reason in reasons if reason[1] != OK])]


def verdicts(record: Record) -> list[str]:
    """Every verdict that a run left, those that were not given left out."""
    given = record.details.get("verdicts", [])
    return [str(word) for word in (given.values() if isinstance(given, Mapping) else given) if word]


def refusals(record: Record) -> list[str]:
    """What a run would not estimate, and why."""
    refused = record.details.get("refused", {})
    return [f"{name}: {why}" for name, why in refused.items()] if isinstance(refused, Mapping) else []


def _why(reasons: Sequence[tuple[str, str, str]]) -> list[Table]:
    """Reasons with how often each was given; those that differ in a number alone are one, with dots for the number."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for label, word, why in reasons:
        found.setdefault((label, word, NUMBER.sub("\N{HORIZONTAL ELLIPSIS}", why)), []).append(why)
    rows = [
        (label, word, given[0] if len(set(given)) == 1 else alike, len(given))
        for (label, word, alike), given in found.items()
    ]
    return [Table("Reasons", ("", "verdict", "why", "times"), rows)] if rows else []


def kind(word: str) -> str:
    """How firm a value is, in its verdict's first words."""
    return word.partition(":")[0].strip()


def _first_audit(arm: Arm) -> dict[str, object] | None:
    return next((record.audit for record in arm.records if record.audit is not None), None)
