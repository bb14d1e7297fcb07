"""Two sets of runs side by side: every quantity with its paired difference, curves together, matrices subtracted.

Differences are taken quantity by quantity, seed by seed where seeds match. Runs of one seed share their data and their
order, so that the difference of the two varies less than either; its standard error is that of the differences. Where
no seed is in both sets the difference is that of the means, its standard error the root of the sum of squares, and it
says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vestige.continual.record import Record
from vestige.core import InputError
from vestige.runner.experiment import LEVEL, Gap, Line, line
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.report.matrices import MOST_MATRICES, SYMBOLS, averages, better, having, summed, task_names
from vestige.runner.report.reading import Arm, arms
from vestige.runner.report.sections import origin
from vestige.show import Heading, Heat, Page, Part, Status, Table

# (arm, quantity) -> seed -> value
Measured: TypeAlias = "dict[tuple[str, str], dict[int, float]]"


@dataclass(frozen=True)
class Difference:
    """`second` less `first`, over `n` seeds if paired; else over the seeds of each, and `n` is 0."""

    label: str
    quantity: str
    first: Line
    second: Line
    value: float
    se: float | None
    n: int

    @property
    def paired(self) -> bool:
        """Whether it is a mean of differences seed by seed."""
        return self.n > 0

    @property
    def clear(self) -> bool:
        """Whether its interval at `LEVEL` leaves out zero: Student's t, unpaired with the fewer degrees of freedom."""
        if self.se is None:
            return False
        found = Gap(self.value, self.se, self.n or min(self.first.n, self.second.n))
        return found.above or found.below


def differences(first: Sequence[Record], second: Sequence[Record]) -> list[Difference]:
    """Every quantity that both have; sets of unlike quantities are refused."""
    one, two = _measured(first, second)
    for label, quantity in [*one, *two]:
        if (label, quantity) not in one or (label, quantity) not in two:
            side = "first" if (label, quantity) in one else "second"
            what = f"'{quantity}'" + (f" of '{label}'" if label else "")
            raise InputError(f"The two runs of compare must have the same quantities. Got {what} in the {side} alone.")
    return [difference(*key, one[key], two[key]) for key in one]


def difference(label: str, quantity: str, one: Mapping[int, float], two: Mapping[int, float]) -> Difference:
    """One quantity, from its values by seed."""
    sides = [{seed: v for seed, v in side.items() if not math.isnan(v)} for side in (one, two)]
    first, second = (line(label, quantity, side.values()) for side in sides)
    both = sorted(sides[0].keys() & sides[1].keys())
    if both:
        paired = line(label, quantity, [sides[1][seed] - sides[0][seed] for seed in both])
        return Difference(label, quantity, first, second, paired.ours, paired.se, paired.n)
    se = None if first.se is None or second.se is None else math.hypot(first.se, second.se)
    return Difference(label, quantity, first, second, second.ours - first.ours, se, 0)


def matched(first: Sequence[Record], second: Sequence[Record]) -> list[tuple[str, Arm, Arm]]:
    """Arms of the two sets side by side: by name, or the one with the other where each set has one alone."""
    one, two = arms(first), arms(second)
    if len(one) == len(two) == 1:
        return [("", one[0], two[0])]
    named = {arm.label: arm for arm in two}
    missing = {arm.label for arm in one} ^ set(named)
    if missing:
        raise InputError(f"The two runs of compare must have the same arms. Got '{min(missing)}' in one alone.")
    return [(arm.label, arm, named[arm.label]) for arm in one]


def quantities(record: Record) -> dict[str, float]:
    """The numbers of one run: what its matrices sum up to, its values, seconds and megabytes."""
    found: dict[str, float] = {}
    for head in record.matrices:
        total = summed(record, head)
        last = total.last() if total else {}
        found |= {f"{SYMBOLS[name]}, {head}": number for name, number in last.items() if number is not None}
    for name, value in record.values.items():
        if value.ndim == 0:
            found[name] = float(value)
        elif value.ndim == 1 and len(value):
            found[f"{name}, last of {len(value)}"] = float(value[-1])
    found |= record.anytime() if "while_training" in record.values else {}
    found |= {f"{kind} (s)": sum(spent) for kind, spent in record.seconds.items() if spent}
    return found | {f"{kind} (MB)": held[-1] / 1e6 for kind, held in record.bytes.items() if held}


def _measured(first: Sequence[Record], second: Sequence[Record]) -> tuple[Measured, Measured]:
    names = {record.config.get("experiment") for record in [*first, *second]}
    several = len(arms(first)) > 1 or len(arms(second)) > 1
    if several and len(names) == 1 and (name := str(next(iter(names)))) in EXPERIMENTS:
        return _by_lines(name, first), _by_lines(name, second)
    found: tuple[Measured, Measured] = ({}, {})
    for label, *both in matched(first, second):
        for out, arm in zip(found, both, strict=True):
            for record in arm.records:
                for quantity, value in quantities(record).items():
                    out.setdefault((label, quantity), {})[record.seed] = value
    return found


def _by_lines(name: str, records: Sequence[Record]) -> Measured:
    """The experiment's own lines, seed by seed."""
    out: Measured = {}
    for seed in sorted({record.seed for record in records}):
        for found in EXPERIMENTS[name].lines([record for record in records if record.seed == seed]):
            out.setdefault((found.label, found.quantity), {})[seed] = found.ours
    return out


# So many differences are named in the conclusion.
NAMED = 5


def compare(first: Sequence[Record], second: Sequence[Record], names: tuple[str, str] = ("A", "B")) -> Page:
    """`first` beside `second`, called by `names`; differences are the second less the first."""
    if names[0] == names[1]:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    found = differences(first, second)
    answer, more = conclusion(found, names)
    page = Page(f"{names[0]} beside {names[1]}", more, status=Status("plain", standing(found)), answer=answer)
    page.section("Differences", table(found, names))
    both = side_by_side(first, second)
    if drawn := curves(both, names):
        page.section("As tasks go by", *drawn)
    if coloured := heats(both, names):
        page.section("Every task after every task", *coloured)
    ran = [(Heading(name), *origin(arms(side))) for name, side in zip(names, (first, second), strict=True)]
    return page.section("How to get the same numbers", *ran[0], *ran[1])


def standing(found: Sequence[Difference]) -> str:
    """How it stands in a word or two."""
    if all(d.se is None for d in found):
        return "cannot be told"
    return "differs" if any(d.clear for d in found) else "no clear difference"


def conclusion(found: Sequence[Difference], names: tuple[str, str]) -> tuple[str, str]:
    """What clearly differs: the finding in a sentence, and the numbers."""
    judged = [d for d in found if d.se is not None]
    if not judged:
        return (
            f"{names[0]} and {names[1]} cannot be told apart: one of them has one seed.",
            "What differs may be chance.",
        )
    clear = sorted((d for d in judged if d.clear), key=lambda d: -abs(d.value) / (d.se or 1.0))
    said = f"Of {len(judged)} quantities, {len(clear) or 'none'} clearly differ{'s' if len(clear) == 1 else ''}"
    if not clear:
        return f"{said}.", f"Every {LEVEL:.0%} interval has room for no difference."
    told = "; ".join(f"{_called(d)} {d.value:+.3g} \N{PLUS-MINUS SIGN} {d.se:.2g}" for d in clear[:NAMED])
    more = f"; and {len(clear) - NAMED} more" if len(clear) > NAMED else ""
    return f"{said} ({names[1]} less {names[0]}, at {LEVEL:.0%}).", f"Most clearly: {told}{more}."


def table(found: Sequence[Difference], names: tuple[str, str]) -> Table:
    """A row a quantity."""
    rows = []
    for d in found:
        seeds = f"{d.n} paired" if d.paired else f"{d.first.n} and {d.second.n}, unpaired"
        own = (d.first.ours, d.first.se, d.second.ours, d.second.se)
        rows.append((_called(d), *own, d.value, d.se, "yes" if d.clear else "-" if d.se is None else "no", seeds))
    columns = ("quantity", names[0], "se", names[1], "se", "difference", "se of it", "clear", "seeds")
    note = f"The difference is {names[1]} less {names[0]}, with the standard error of the differences seed by seed"
    unpaired = any(not d.paired for d in found)
    alone = any(d.paired and d.n < max(d.first.n, d.second.n) for d in found)
    note += "; seeds that only one of the two has do not count in it" if alone else ""
    note += "; where no seed is in both, of the means, as if the runs had nothing in common" if unpaired else ""
    note += f". Clear: by Student's t at {LEVEL:.0%}, quantity by quantity."
    return Table("Side by side", columns, rows, note, alike="row")


def side_by_side(first: Sequence[Record], second: Sequence[Record]) -> list[tuple[str, Arm, Arm]]:
    """Arms whose declared matrices can be set side by side."""
    pairs = []
    for label, *both in matched(first, second):
        one, two = (having(arm, arm.first.head) for arm in both)
        if one and two and _same(one.first, two.first):
            pairs.append((label, one, two))
    return pairs


def curves(pairs: Sequence[tuple[str, Arm, Arm]], names: tuple[str, str]) -> list[Part]:
    """The average over the tasks seen so far, the two in one picture."""
    shown = [
        [Arm(f"{name}{f': {label}' if label else ''}", arm.records) for name, arm in zip(names, both, strict=True)]
        for label, *both in pairs
        if len(both[0].first.R) > 1
    ]
    return [averages(both) for both in shown[:MOST_MATRICES]]


def heats(pairs: Sequence[tuple[str, Arm, Arm]], names: tuple[str, str]) -> list[Part]:
    """The second mean matrix less the first."""
    parts: list[Part] = []
    for label, one, two in pairs[:MOST_MATRICES]:
        less = two.mean(lambda record: record.R)[0] - one.mean(lambda record: record.R)[0]
        tasks = task_names(one.first, len(less))
        title = f"{names[1]} less {names[0]}{f': {label}' if label else ''}"
        note = "Rows: after training on; columns: tested on. The difference of the means over seeds."
        parts.append(Heat(less, tasks, tasks, title, better(one.first, one.first.head), "after", note=note))
    return parts


def _same(one: Record, two: Record) -> bool:
    return one.R.shape == two.R.shape and one.task_names == two.task_names and one.head == two.head


def _called(d: Difference) -> str:
    return f"{d.label}: {d.quantity}" if d.label else d.quantity
