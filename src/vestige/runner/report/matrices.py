"""Matrices R[trained_up_to, tested_on]: coloured tables, and what they sum up to.

Everything is a mean over the seeds of an arm; the quantities are those of `metrics.matrix` on the stored matrices. The
matrices of the protocol's heads hold accuracies, and so do some of a generator's (see `generation.summary`). Any other
holds divergences or losses, which are better when smaller, unless the Record's details say `better: up`.
"""

from __future__ import annotations

from collections.abc import Sequence

from vestige.continual.generation.summary import LARGER_IS_BETTER
from vestige.continual.record import Record
from vestige.metrics.matrix import MatrixSummary, summary
from vestige.runner.experiment import Line
from vestige.runner.report.arms import Arm
from vestige.show import Heat, Part, Table

HEADS = ("single", "multi")
SYMBOLS = {
    "average": "A",
    "forgetting": "F",
    "intransigence": "I",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
}
ROWS = "Rows: after training on a task; columns: tested on a task. Light is better."
# More than these would make a page that nobody reads; what is left out is said.
MOST_MATRICES = 12


def better(record: Record, head: str) -> str:
    """The good direction of a matrix."""
    return "up" if head in (*HEADS, *LARGER_IS_BETTER) or record.details.get("better") == "up" else "down"


def summed(record: Record, head: str) -> MatrixSummary | None:
    """What a matrix sums up to; None where nothing of it was measured."""
    if record.matrices[head].isnan().all():
        return None
    reference = record.reference if head == record.head else None
    return summary(record.matrices[head], reference, record.baseline.get(head), better=better(record, head))


def final(arm: Arm, head: str) -> dict[str, Line]:
    """A, F, I, BWT and FWT after the last task, over the seeds; those that no seed has are left out."""
    found = [s.last() for s in (summed(record, head) for record in arm.records) if s]
    lines = {name: arm.line(symbol, [last[name] for last in found]) for name, symbol in SYMBOLS.items()}
    return {name: line for name, line in lines.items() if line.n}


def having(arm: Arm, head: str) -> Arm | None:
    """`arm` with the Records that have this matrix, in the shape of the first that does."""
    found = [record for record in arm.records if head in record.matrices]
    same = [record for record in found if record.matrices[head].shape == found[0].matrices[head].shape]
    return Arm(arm.label, tuple(same)) if same else None


def declared(arms: Sequence[Arm]) -> list[Arm]:
    """Those of `arms` that have the matrix of the head which their stream declared."""
    return [found for arm in arms if (found := having(arm, arm.first.head)) is not None]


def heads(arms: Sequence[Arm]) -> list[tuple[Arm, str]]:
    """Every matrix: the declared heads first, then the others."""
    others = [(having(arm, head), head) for arm in arms for head in arm.first.matrices if head != arm.first.head]
    return [*((arm, arm.first.head) for arm in declared(arms)), *((arm, head) for arm, head in others if arm)]


def summary_table(arms: Sequence[Arm]) -> Table | None:
    """A row for each arm and head."""
    rows = [(arm, head, final(arm, head)) for arm, head in heads(arms)]
    names = [name for name in SYMBOLS if any(name in found for *_, found in rows)]
    if not names:
        return None
    unsure = {name for name in names if any(found[name].se is not None for *_, found in rows if name in found)}
    told: list[tuple[str | float | int | None, ...]] = []
    for arm, head, found in rows:
        cells: list[float | None] = []
        for name in names:
            line = found.get(name)
            cells += [None if line is None else line.ours]
            cells += [None if line is None else line.se] if name in unsure else []
        told.append((arm.label, head, *cells, len(arm.records)))
    quantities = [word for name in names for word in (SYMBOLS[name], *(["se"] if name in unsure else []))]
    note = "; ".join(f"{SYMBOLS[name]} {name.replace('_', ' ')}" for name in names)
    note += "; se: standard error over seeds." if unsure else "."
    return Table("After the last task", ("method", "head", *quantities, "seeds"), told, note)


def heat(arm: Arm, head: str) -> Heat:
    """The mean matrix of an arm."""
    middle, error = arm.mean(lambda record: record.matrices[head])
    side = better(arm.first, head)
    names = task_names(arm.first, len(middle))
    n = len(arm.records)
    sure = f"Mean of {n} seeds; the largest standard error of a cell is {float(error.nan_to_num(0).max()):.3g}."
    note = sure if n > 1 else "One seed."
    limits = (0.0, 1.0) if side == "up" and float(middle.nan_to_num(0).max()) <= 1 else None
    title = f"{arm.label}, {head}{'-head' if head in HEADS else ''}"
    return Heat(middle, names, names, title, side, "after", limits, note)


def heats(arms: Sequence[Arm]) -> list[Part]:
    """The matrices, as many as can be read."""
    every = heads(arms)
    left = len(every) - MOST_MATRICES
    more = f" {left} more are left out; the summary has a row for each, the Records have them all." if left > 0 else ""
    return [f"{ROWS}{more}", *(heat(arm, head) for arm, head in every[:MOST_MATRICES])] if every else []


def measured(record: Record) -> str:
    """What the declared matrix holds, in a word."""
    return "accuracy" if better(record, record.head) == "up" else "divergence"


def task_names(record: Record, n: int) -> list[str]:
    """The tasks' names, made different where two are alike; numbers where there are none."""
    given = record.task_names if len(record.task_names) == n else [str(i + 1) for i in range(n)]
    return [name if given.count(name) == 1 else f"{name} ({i + 1})" for i, name in enumerate(given)]
