"""How a run went: averages over tasks, every task as tasks go by, and the plane of forgetting and intransigence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige import show as drawing
from vestige.continual.record import Record
from vestige.runner.report.arms import Arm
from vestige.runner.report.matrices import better, declared, final, measured, summed, task_names
from vestige.show import Part, Picture, Table

# More would make a page that nobody reads; what is left out is said.
MOST_PICTURES = 6
LINES_A_PICTURE = 7
BANDS = "Bands: one standard error over seeds."
WHISKERS = "Lower left is the place to be. Whiskers: one standard error over seeds."
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
    return [picture, Table("Where each stands", ("method", "forgetting", "intransigence", "quadrant"), rows)]


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
