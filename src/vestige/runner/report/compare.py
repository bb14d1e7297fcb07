"""Two sets of runs side by side: every quantity with its paired difference, curves together, matrices subtracted."""

from __future__ import annotations

from collections.abc import Sequence

from vestige.continual.record import Record
from vestige.runner.experiment import LEVEL
from vestige.runner.report.arms import Arm, arms
from vestige.runner.report.curves import averages
from vestige.runner.report.matrices import MOST_MATRICES, better, declared, task_names
from vestige.runner.report.origin import origin
from vestige.runner.report.pairs import Difference, differences, matched
from vestige.show import Heading, Heat, Page, Part, Table

# So many differences are named in the conclusion.
NAMED = 5


def compare(first: Sequence[Record], second: Sequence[Record], names: tuple[str, str] = ("A", "B")) -> Page:
    """`first` beside `second`, called by `names`; differences are the second less the first."""
    if names[0] == names[1]:
        names = (f"{names[0]} (first)", f"{names[1]} (second)")
    found = differences(first, second)
    page = Page(f"{names[0]} beside {names[1]}", conclusion(found, names))
    page.section("Differences", table(found, names))
    both = side_by_side(first, second)
    for heading, parts in (
        ("As tasks go by", curves(both, names)),
        ("Every task after every task", heats(both, names)),
    ):
        if parts:
            page.section(heading, *parts)
    ran = [(Heading(name), *origin(arms(side))) for name, side in zip(names, (first, second), strict=True)]
    return page.section("How to get the same numbers", *ran[0], *ran[1])


def conclusion(found: Sequence[Difference], names: tuple[str, str]) -> str:
    """What clearly differs, in plain words."""
    judged = [d for d in found if d.se is not None]
    if not judged:
        return f"{names[1]} less {names[0]}, without two seeds to compare: what differs may be chance."
    clear = sorted((d for d in judged if d.clear), key=lambda d: -abs(d.value) / (d.se or 1.0))
    said = f"Of {len(judged)} quantities, {len(clear) or 'none'} clearly differ{'s' if len(clear) == 1 else ''}"
    if not clear:
        return f"{said}: every {LEVEL:.0%} interval has room for no difference."
    told = "; ".join(f"{_called(d)} {d.value:+.3g} \N{PLUS-MINUS SIGN} {d.se:.2g}" for d in clear[:NAMED])
    more = f"; and {len(clear) - NAMED} more" if len(clear) > NAMED else ""
    return f"{said} ({names[1]} less {names[0]}, at {LEVEL:.0%}): {told}{more}."


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
    for label, one, two in matched(first, second):
        has = declared([one]), declared([two])
        if has[0] and has[1] and _same(has[0][0].first, has[1][0].first):
            pairs.append((label, has[0][0], has[1][0]))
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
