"""What a model says of its own doubt: every value of a Record that is a matrix over tasks, and stored sample images.

A value of shape (t, t), t the number of tasks, is read as R is: row, after training on; column, tested on. It is shown
under the name that it was stored with. Small and large are not judged, except for a calibration error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

from jaxtyping import Float64
from torch import Tensor

from vestige import show as drawing
from vestige.continual.record import Record
from vestige.metrics.uncertainty import Pairs, unseen_task_roc
from vestige.runner.report.arms import Arm
from vestige.runner.report.matrices import MOST_MATRICES, task_names
from vestige.show import Heat, Part, Picture, Table

# Words of a name that say which way is good; any other value is good or bad by its place.
SMALLER_IS_BETTER = {"ece", "error", "loss", "brier"}
DETECTOR = "mutual_information"
PAIRS: tuple[Pairs, ...] = get_args(Pairs)
SAMPLES = "samples"
MOST_SAMPLES = 100
MOST_GRIDS = 12
ROWS = "Rows: after training on a task; columns: tested on a task. Above the diagonal lie tasks still to come."


def uncertainty(arms: Sequence[Arm]) -> list[Part]:
    """Matrices over tasks, one an arm and name."""
    found = [(arm, name) for arm in arms for name in arm.first.values if is_matrix(arm.first, name)]
    left = len(found) - MOST_MATRICES
    more = f" {left} more are left out; the Records have them all." if left > 0 else ""
    shown = [heat(arm, name) for arm, name in found[:MOST_MATRICES]]
    return [f"{ROWS}{more}", *shown, *detectors(arms)] if found else []


def detectors(arms: Sequence[Arm]) -> list[Part]:
    """How well the mutual information tells tasks that are still to come, by each reading of which pairs count."""
    rows: list[tuple[str | float, ...]] = []
    for arm in arms:
        known = [r.values[DETECTOR] for r in arm.records if DETECTOR in r.values and is_matrix(r, DETECTOR)]
        whole = [mi for mi in known if bool(mi.isfinite().all())]
        areas = [arm.line(pairs, [unseen_task_roc(mi, pairs=pairs).auc for mi in whole]).ours for pairs in PAIRS]
        rows += [(arm.label, *areas)] if whole else []
    note = "Area under the ROC of Farquhar and Gal's detector; the columns say which pairs of model and task count."
    return [Table("Telling unseen tasks", ("method", *PAIRS), rows, note)] if rows else []


def is_matrix(record: Record, name: str) -> bool:
    """Whether a value has a row and a column a task."""
    tasks = len(record.task_names) or max((len(R) for R in record.matrices.values()), default=0)
    return tasks > 1 and record.values[name].shape == (tasks, tasks)


def heat(arm: Arm, name: str) -> Heat:
    """The mean over seeds."""
    same = Arm(arm.label, tuple(r for r in arm.records if name in r.values and is_matrix(r, name)))
    middle, _ = same.mean(lambda record: record.values[name])
    names = task_names(arm.first, len(middle))
    small = SMALLER_IS_BETTER & set(re.split(r"[._]", name.lower()))
    note = f"Mean of {len(same.records)} seeds." if len(same.records) > 1 else "One seed."
    title = f"{arm.label}: {name.replace('_', ' ')}"
    return Heat(middle, names, names, title, "down" if small else "neither", "after", note=note)


def samples(arms: Sequence[Arm]) -> list[Part]:
    """Values whose name begins with 'samples' and that have the shape of images, of the first seed."""
    found = [(arm, name) for arm in arms for name, value in arm.first.values.items() if is_images(name, value)]
    left = len(found) - MOST_GRIDS
    more = [f"{left} more grids are left out; the Records have them all."] if left > 0 else []
    return [*(grid(arm, name) for arm, name in found[:MOST_GRIDS]), *more]


def is_images(name: str, value: Float64[Tensor, "..."]) -> bool:
    """(n, h, w), or (n, h, w, c) with one or three colours."""
    shaped = value.ndim == 3 or (value.ndim == 4 and value.shape[-1] in (1, 3))
    return name.startswith(SAMPLES) and shaped and value.numel() > 0 and bool(value.isfinite().all())


def grid(arm: Arm, name: str) -> Picture:
    """The first samples; black and white are 0 and 1, or the extremes where the values lie beyond."""
    value = arm.first.values[name][:MOST_SAMPLES]
    low, high = float(value.min()), float(value.max())
    limits = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    title = f"{arm.label}: {name.replace('_', ' ').replace('.', ' ')}"
    figure = drawing.images(value, title=title, limits=limits)
    return Picture(figure, f"{len(value)} images, {title}, seed {arm.first.seed}.", f"Seed {arm.first.seed}.")


def scalars(arms: Sequence[Arm]) -> Table | None:
    """Values that are one number a run."""
    names = list(dict.fromkeys(n for arm in arms for n, v in arm.first.values.items() if v.ndim == 0))
    lines = [
        arm.line(name, [float(r.values[name]) for r in arm.records if name in r.values])
        for arm in arms
        for name in names
    ]
    rows = [(x.label, x.quantity, x.ours, x.se, x.n) for x in lines if x.n]
    return Table("Numbers", ("", "quantity", "mean", "se", "seeds"), rows, alike="row") if rows else None
