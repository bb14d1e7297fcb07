"""Time and memory: what each arm took, and what its seconds bought."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vestige import show as drawing
from vestige.runner.experiment import Line
from vestige.runner.report.arms import Arm
from vestige.runner.report.matrices import better, declared, final, measured
from vestige.show import Part, Picture, Table

MEGABYTE = 1e6


def costs(arms: Sequence[Arm]) -> list[Part]:
    """Seconds, bytes, and accuracy against seconds."""
    return [part for part in (seconds_table(arms), bytes_table(arms), *front(arms)) if part is not None]


def seconds(arm: Arm, what: str) -> Line:
    """Total seconds of a kind, over the seeds."""
    totals = [sum(record.seconds[what]) if record.seconds.get(what) else None for record in arm.records]
    return arm.line(f"{what} (s)", totals)


def seconds_table(arms: Sequence[Arm]) -> Table | None:
    """Total seconds, and how those of the last task compare with those of the first."""
    kinds = list(dict.fromkeys(kind for arm in arms for kind in arm.first.seconds))
    if not kinds:
        return None
    rows: list[tuple[str | float | int | None, ...]] = []
    for arm in arms:
        totals = [seconds(arm, kind) for kind in kinds]
        train = [record.seconds["train"] for record in arm.records if record.seconds.get("train")]
        growth = arm.line("growth", [spent[-1] / spent[0] if spent[0] > 0 else math.nan for spent in train])
        rows.append((arm.label, *(x for total in totals for x in (total.ours, total.se)), growth.ours))
    words = {kind: kind.replace("_", " ") for kind in kinds}
    columns = ("method", *(word for kind in kinds for word in (f"{words[kind]} (s)", "se")), "last task / first")
    note = "Seconds of the whole run, in the mean over seeds. The last column is training time alone: above 1 it grew."
    return Table("Time", columns, rows, note, alike="column")


def bytes_table(arms: Sequence[Arm]) -> Table | None:
    """What is held after the last task, and the peak."""
    kinds = list(dict.fromkeys(kind for arm in arms for kind in arm.first.bytes))
    if not kinds:
        return None
    rows: list[tuple[str | float, ...]] = []
    for arm in arms:
        held = [[record.bytes[kind] for record in arm.records if record.bytes.get(kind)] for kind in kinds]
        # The peak is the largest of all tasks, the rest is what is there at the end.
        ends = [[max(b) if kind == "peak" else b[-1] for b in own] for kind, own in zip(kinds, held, strict=True)]
        rows.append((arm.label, *(arm.line("MB", own).ours / MEGABYTE for own in ends)))
    note = "Held after the last task, in the mean over seeds; peak is the largest of the process during training."
    return Table("Memory", ("method", *(f"{kind} (MB)" for kind in kinds)), rows, note, alike="column")


def front(arms: Sequence[Arm]) -> list[Part]:
    """What each second buys, for arms whose declared matrices are accuracies."""
    points = {}
    for arm in declared(arms):
        found, spent = final(arm, arm.first.head).get("average"), seconds(arm, "train").ours
        if found is not None and better(arm.first, arm.first.head) == "up" and not math.isnan(spent):
            points[arm.label] = (spent, found.ours)
    if len(points) < 2:
        return []
    title = f"Average {measured(arms[0].first)} against training time"
    words = "; ".join(f"{label} {accuracy:.3g} in {spent:.3g} s" for label, (spent, accuracy) in points.items())
    return [Picture(drawing.scatter_front(points, title=title), f"{title}: {words}.", "Upper left is the place to be.")]
