"""The tables of stored results: what was promised, what held, and what it cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import mi
from benchmarks.truth import adversary, choose, figures, results
from benchmarks.truth.figures import LEAST, REACHED, WIDE, Share
from benchmarks.truth.results import EDITIONS, NAMES, SOURCES, Row

TITLES = {"drift": "chains", "mi": "benchmark-mi", "second": "second unseen"}
SHOWN_BROKEN = 12


class Column(NamedTuple):
    """Rows of one source and edition."""

    source: str
    title: str
    rows: list[Row]


def columns() -> list[Column]:
    """The columns of the main table: each source before and after; of the zoo also after on the cells of before."""
    found = []
    for source in SOURCES:
        title = TITLES.get(source, source)
        rows = {edition: results.read(source, edition) for edition in EDITIONS}
        both = figures.of_cells(rows["after"], {row["cell"] for row in rows["before"]})
        if rows["before"]:
            found.append(Column(source, f"{title}, before", rows["before"]))
        if rows["before"] and 0 < len(both) < len(rows["after"]):
            found.append(Column(source, f"{title}, after, same cells", both))
        found.append(Column(source, f"{title}, after", rows["after"]))
    return found


# Cells of a table ---------------------------------------------------------------------------------------------


def percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def share(found: Share) -> str:
    return "-" if not found.of else f"{found.value:.0%} ({found.of})"


def share_wilson(found: Share) -> str:
    if not found.of:
        return "-"
    low, high = found.wilson()
    value = (
        f"{found.value:.0%}" if found.value == 1 or found.value < 0.995 else f"{found.value:.1%}"
    )  # not all is not 100 %
    return f"{value} [{low:.0%}, {high:.0%}] ({found.of})"


def counted(found: Share) -> str:
    return "-" if not found.of else f"{found.hits} of {found.of}"


def three(rows: Sequence[Row], name: str) -> str:
    known = figures.every(rows, [name])
    return " / ".join(f"{one.value:.0%}" for one in figures.verdicts(known).values()) if known else "-"


# The main table -----------------------------------------------------------------------------------------------


def _lines() -> list[tuple[str, Callable[[list[Row]], str]]]:
    def of(names: Sequence[str], count: Callable, form: Callable) -> Callable[[list[Row]], str]:
        return lambda rows: form(count(figures.every(rows, names)))

    def cost(rows: list[Row]) -> str:
        return ", ".join(f"{size}: {spent:.2g}" for size, spent in figures.seconds(rows).items())

    lines: list[tuple[str, Callable[[list[Row]], str]]] = [("cells", lambda rows: str(len(rows)))]
    lines += [(f"median error of {name}", of([name], figures.error, percent)) for name in ("kl", "js")]
    lines += [(f"{name}: ok / at least / refused", lambda rows, name=name: three(rows, name)) for name in ("kl", "js")]
    lines += [('coverage of "ok"', of(NAMES, figures.coverage, share_wilson))]
    lines += [(f'coverage of "ok", {name}', of([name], figures.coverage, share_wilson)) for name in NAMES]
    lines += [('"at least" is below the truth', of(NAMES, figures.validity, share_wilson))]
    lines += [(f'width of "ok" over the truth, kl above {WIDE:g}', of(["kl"], figures.width, percent))]
    lines += [('infinite kl not called "ok"', lambda rows: counted(figures.infinite_told(rows)))]
    lines += [(f'"good" though under {REACHED:.0%} reached', lambda rows: counted(figures.good_out_of_reach(rows)))]
    lines += [("CPU seconds by rows a side", cost)]
    return lines


def main_table(found: Sequence[Column], cases: Sequence[choose.Case]) -> list[list[str]]:
    """The header and the lines, as text."""
    lines = [[""] + [column.title for column in found]]
    lines += [[label, *("no results yet" if not c.rows else form(c.rows) for c in found)] for label, form in _lines()]
    told = choose.left_out(cases)
    beside = {
        'coverage of "ok"': share_wilson(choose.total(told)),
        f'width of "ok" over the truth, kl above {WIDE:g}': percent(choose.width(told)),
    }
    for label, value in beside.items():
        at = next(i for i, line in enumerate(lines) if line[0] == label)
        apart = [value if column.title == "zoo, after" else "-" for column in found]
        lines.insert(at + 1, [f"{label}, constants chosen on other families", *apart])
    return lines


def _table(title: str, lines: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title)
    for i, name in enumerate(lines[0]):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    for line in lines[1:]:
        table.add_row(*line)
    return table


def by_family() -> list[list[str]]:
    """Zoo and chains, family by family."""
    rows = {edition: [row for s in ("zoo", "drift") for row in results.read(s, edition)] for edition in EDITIONS}
    header = ["family"] + [f"{what}, {edition}" for what in ("cells", "kl", "js", "ok", "held") for edition in EDITIONS]
    lines = [header]
    for family in sorted({row["family"] for each in rows.values() for row in each}):
        own = {edition: [row for row in rows[edition] if row["family"] == family] for edition in EDITIONS}
        known = {edition: figures.every(own[edition]) for edition in EDITIONS}
        line = [family, *(str(len(own[edition])) for edition in EDITIONS)]
        for name in ("kl", "js"):
            line += [percent(figures.error(figures.every(own[edition], [name]))) for edition in EDITIONS]
        line += [percent(figures.verdicts(known[edition])["ok"].value) for edition in EDITIONS]
        line += [share(figures.coverage(known[edition])) for edition in EDITIONS]
        lines.append(line)
    return lines


def beside_peers() -> list[list[str]]:
    """Median error over the tasks of benchmark-mi, ours and the package's own."""
    lines = [["estimator", "tasks", "median |relative error| of KL", "median CPU seconds"]]
    for edition in EDITIONS:
        rows = results.read("mi", edition)
        spent = f"{statistics.median(row['cpu'] for row in rows):.3g}" if rows else "-"
        lines.append(
            [f"Vestige, {edition}", str(len(rows)), percent(figures.error(figures.every(rows, ["kl"]))), spent]
        )
    stored = mi.read()
    for name, (error, count) in mi.median_errors(stored).items():
        each = [cell["cpu_seconds"] for cell in stored["cells"][name].values()]
        lines.append([name, str(count), percent(error), f"{statistics.median(each):.3g}" if each else "-"])
    return lines


def chains() -> list[list[str]]:
    """Drift by drift, all steps and divergences together."""
    header = ["drift"] + [f"{what}, {edition}" for what in ("kl", "js", "ok", "held", "valid") for edition in EDITIONS]
    lines = [header]
    rows = {edition: results.read("drift", edition) for edition in EDITIONS}
    for name in dict.fromkeys(row["name"] for each in rows.values() for row in each):
        own = {edition: [row for row in rows[edition] if row["name"] == name] for edition in EDITIONS}
        known = {edition: figures.every(own[edition]) for edition in EDITIONS}
        line = [name]
        for one in ("kl", "js"):
            line += [percent(figures.error(figures.every(own[edition], [one]))) for edition in EDITIONS]
        line += [percent(figures.verdicts(known[edition])["ok"].value) for edition in EDITIONS]
        line += [share(figures.coverage(known[edition])) for edition in EDITIONS]
        line += [share(figures.validity(known[edition])) for edition in EDITIONS]
        lines.append(line)
    return lines


def choice(told: Sequence[choose.LeftOut]) -> list[list[str]]:
    """Families, the constants that the others chose, and what they come to."""
    lines = [["left out", "root", "times", "most", 'coverage of "ok", others', 'coverage of "ok", left out', "ok"]]
    for one in told:
        constants = [f"{value:g}" for value in one.rule]
        lines.append([one.family, *constants, share(one.others), share_wilson(one.own), percent(one.ok.value)])
    lines.append(["all", "", "", "", "", share_wilson(choose.total(told)), ""])
    lines.append([f"median width of kl above {WIDE:g}", "", "", "", "", percent(choose.width(told)), ""])
    return lines


def against_adversary() -> list[str]:
    """A sentence for each edition, and the recipes that broke something."""
    told = []
    for edition in EDITIONS:
        rows = results.read(adversary.SOURCE, edition)
        breaking = [(row, names) for row in rows if (names := adversary.broken(row))]
        held = share_wilson(figures.coverage(figures.every(rows)))
        told.append(
            f"Adversary, {edition}: {len(rows)} tried, {len(breaking)} broken; "
            f'"ok" holds {held}; "good" out of reach {counted(figures.good_out_of_reach(rows))}.'
        )
        told += [f"  {row['recipe']} n = {row['n_p']}: {', '.join(names)}" for row, names in breaking[:SHOWN_BROKEN]]
    return told


# Printing -----------------------------------------------------------------------------------------------------


def _console(width: int = 220) -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=width)


def print_choice(told: Sequence[choose.LeftOut]) -> None:
    """What `choose` found."""
    title = f"Constants chosen on other families among {len(choose.GRID)}; about {choose.BY_HAND} more were looked at"
    _console().print(_table(title, choice(told)))


def print_all() -> None:
    """Every table."""
    console, cases = _console(), choose.cases()
    above = f"errors are relative, of values before any refusal, where the truth is above {LEAST:g}"
    console.print(_table(f"Truth: {above}; counts in brackets", main_table(columns(), cases)))
    console.print(_table('By family: errors, share and coverage of "ok"', by_family()))
    console.print(_table(f"benchmark-mi, {mi.ROWS} rows", beside_peers()))
    console.print(_table('Chains: errors, share and coverage of "ok", validity of "at least"', chains()))
    print_choice(choose.left_out(cases))
    for line in against_adversary():
        console.print(line, markup=False, highlight=False)


def print_markdown() -> None:
    """The main table for a page."""
    header, *lines = main_table(columns(), choose.cases())
    for line in (header, ["---"] * len(header), *lines):
        print(f"| {' | '.join(line)} |")
