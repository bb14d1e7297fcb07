"""Matrices R[trained_up_to, tested_on]: coloured tables, what they sum up to, curves over tasks, and the plane.

Everything is a mean over the seeds of an arm; the quantities are those of `metrics.matrix` on the stored matrices. The
matrices of the protocol's heads hold accuracies, and so do some of a generator's (see `generation`). Any other
holds divergences or losses, which are better when smaller, unless the Record's details say `better: up`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige import show as drawing
from vestige.continual.generation import LARGER_IS_BETTER
from vestige.continual.record import Record
from vestige.metrics.matrix import MatrixSummary, summary
from vestige.runner.experiment import Line
from vestige.runner.report.reading import Arm
from vestige.show import Heat, Part, Picture, Table

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


def summary_table(arms: Sequence[Arm]) -> list[Table]:
    """A row for each arm and head."""
    rows = [(arm, head, final(arm, head)) for arm, head in heads(arms)]
    names = [name for name in SYMBOLS if any(name in found for *_, found in rows)]
    if not names:
        return []
    unsure = {name for name in names if any(found[name].se is not None for *_, found in rows if name in found)}
    columns = [(name, part) for name in names for part in ("ours", "se") if part == "ours" or name in unsure]
    told = [
        (arm.label, head, *(getattr(found.get(name), part, None) for name, part in columns), len(arm.records))
        for arm, head, found in rows
    ]
    quantities = [SYMBOLS[name] if part == "ours" else part for name, part in columns]
    note = "; ".join(f"{SYMBOLS[name]} {name.replace('_', ' ')}" for name in names)
    note += "; se: standard error over seeds." if unsure else "."
    return [Table("After the last task", ("method", "head", *quantities, "seeds"), told, note)]


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


# More would make a page that nobody reads; what is left out is said.
MOST_PICTURES = 6
LINES_A_PICTURE = 7
BANDS = "Bands: one standard error over seeds."
WHISKERS = "Lower left is best. Whiskers: one standard error over seeds."
PLANE = {"forgetting", "intransigence"}


def curves(arms: Sequence[Arm]) -> list[Part]:
    """The average over the tasks seen so far, arm beside arm; then every task of each arm as tasks go by."""
    shown = [arm for arm in declared(arms) if len(arm.first.R) > 1]
    alike: dict[tuple[object, ...], list[Arm]] = {}
    for arm in shown:
        record = arm.first
        alike.setdefault((tuple(record.task_names), len(record.R), better(record, record.head)), []).append(arm)
    together = [
        same[i : i + LINES_A_PICTURE]
        for same in alike.values()
        for i in range(0, len(same), LINES_A_PICTURE)
        if len(same) > 1
    ]
    unseen = [arm.label for same in together[MOST_PICTURES:] for arm in same]
    alone = [arm.label for arm in shown[MOST_PICTURES:]]
    return [
        *map(averages, together[:MOST_PICTURES]),
        *_left_out("In none of these pictures, for brevity", unseen),
        *map(every_task, shown[:MOST_PICTURES]),
        *_left_out("Without a picture of their own, for brevity", alone),
    ]


def averages(arms: Sequence[Arm]) -> Picture:
    """A_k over k."""
    record = arms[0].first
    what, names = measured(record), task_names(record, len(record.R))
    found = {arm.label: arm.mean(average_so_far) for arm in arms}
    series = {label: middle.numpy() for label, (middle, _) in found.items()}
    errors = {label: error.numpy() for label, (_, error) in found.items()}
    title = f"Average {what} over the tasks seen so far"
    return _picture(title, what, names, series, errors)


def every_task(arm: Arm) -> Picture:
    """Each task from the moment it is learnt."""
    middle, error = (x.numpy() for x in arm.mean(lambda record: record.R))
    names, steps = task_names(arm.first, len(middle)), np.arange(len(middle))
    series = {name: np.where(steps >= j, middle[:, j], math.nan) for j, name in enumerate(names)}
    errors = {name: error[:, j] for j, name in enumerate(names)}
    what = measured(arm.first)
    return _picture(f"{arm.label}: {what} of each task as tasks go by", what, names, series, errors)


def average_so_far(record: Record) -> Float64[Tensor, " t"]:
    """A_1 .. A_t, NaN after the last row that was measured."""
    found = summed(record, record.head)
    out = torch.full((len(record.R),), math.nan, dtype=torch.float64)
    if found is not None:
        out[: found.trained] = torch.tensor(found.average, dtype=torch.float64)
    return out


def plane(arms: Sequence[Arm]) -> list[Part]:
    """Forgetting against intransigence, where a reference was given."""
    found = {arm.label: final(arm, arm.first.head) for arm in declared(arms)}
    both = {label: (f["forgetting"], f["intransigence"]) for label, f in found.items() if len(f.keys() & PLANE) == 2}
    if not both:
        return []
    points = {label: (lost.ours, lacks.ours) for label, (lost, lacks) in both.items()}
    errors = {label: (lost.se or 0.0, lacks.se or 0.0) for label, (lost, lacks) in both.items()}
    title = "Forgetting and intransigence after the last task"
    rows = [(label, *point, drawing.quadrant(*point)) for label, point in points.items()]
    words = "; ".join(f"{label}: {quadrant}" for label, *_, quadrant in rows)
    picture = Picture(drawing.plane(points, title=title, errors=errors), f"{title}. {words}.", WHISKERS)
    return [
        picture,
        Table("Where each stands", ("method", "forgetting", "intransigence", "quadrant"), rows),
        *dict.fromkeys(_reference(arm) for arm in arms if "reference" in arm.first.details),
    ]


def _reference(arm: Arm) -> str:
    """How the reference of intransigence was trained."""
    told = arm.first.details["reference"]
    ran = ", ".join(f"{name} {value}" for name, value in told["protocol"].items())
    rows = f"{told['rows_per_class']} training rows of a class"
    return f"The reference of intransigence is {told['learner']['method']} ({rows}; {ran})."


def _left_out(words: str, labels: Sequence[str]) -> list[str]:
    return [f"{words}: {'; '.join(labels)}."] if labels else []


def _picture(
    title: str,
    what: str,
    names: Sequence[str],
    series: Mapping[str, Float[np.ndarray, " t"]],
    errors: Mapping[str, Float[np.ndarray, " t"]],
) -> Picture:
    # A band needs two seeds; a point without one gets a band of no width, so that the rest can be shaded.
    wide = {label: np.nan_to_num(error) for label, error in errors.items() if np.isfinite(error).any()}
    bands = {label: (series[label] - half, series[label] + half) for label, half in wide.items()}
    figure = drawing.curves(series, names, title=title, x_label="after task", y_label=what, bands=bands)
    ends = "; ".join(f"{label} {values[-1]:.3g}" for label, values in series.items())
    return Picture(figure, f"{title}. At the end: {ends}.", BANDS if bands else "")
