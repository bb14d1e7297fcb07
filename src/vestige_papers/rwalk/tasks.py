"""RWalk Fig. 2 (MNIST), Fig. 6 (CIFAR-100) and Fig. 3: Table 1's runs, task by task and as forgetting against learning.

Fig. 2 and 6 show the accuracy of each task, and their average A_k, as tasks go by: multi-head, single-head without and
with samples. Fig. 3 is the plane of intransigence and forgetting, single-head. The curves carry no printed numbers but
their ends, which Table 1 has. A unit here is a unit of the table, with the same id: its Record serves both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, Rule, line, need, shown
from vestige_papers.rwalk.runs import (
    JOINT,
    WITH,
    WITHOUT,
    Incremental,
    RWalkSetting,
    accuracy,
    by_row,
    filled,
    forgetting,
    intransigence,
)
from vestige_papers.rwalk.table1 import HEADS, RWalkTable1, RWalkTable1CIFAR, RWalkTable1MNIST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# panel of Fig. 2 and 6 -> head, rows
PANELS = {
    "multi-head": ("multi", WITHOUT),
    "single-head": ("single", WITHOUT),
    "single-head with samples": ("single", WITH),
}
FLAT = 0.05  # a task whose accuracy falls by no more than this stays


def _fall(found: Mapping[str, Sequence[Record]], head: str, row: str) -> float:
    """How far the first task falls from where it began to the end."""
    return fmean(float(r.matrices[head][0, 0] - r.matrices[head][-1, 0]) for r in found[row])


def _kept_multi_head(found: Mapping[str, Sequence[Record]]) -> Finding:
    falls = {row: _fall(found, "multi", row) for row in WITHOUT}
    return Finding(
        max(falls[row] for row in WITHOUT[1:]) <= min(FLAT, falls["Vanilla"]), f"falls: {shown(falls, '.2g')}"
    )


def _less_with_samples(found: Mapping[str, Sequence[Record]], row: str) -> bool:
    return _fall(found, "single", row) > _fall(found, "single", f"{row}-S")


def _above_vanilla(found: Mapping[str, Sequence[Record]]) -> Finding:
    ends = {row: fmean(accuracy(r, "single") for r in found[row]) for row in WITH}
    return Finding(min(ends[row] for row in WITH[1:]) > ends["Vanilla-S"], shown(ends))


class SharedRuns(Incremental):
    """A figure that reads the runs of a table."""

    table: ClassVar[RWalkTable1]
    rows: ClassVar[tuple[str, ...]]

    def arms(self, config: RWalkSetting) -> Sequence[RWalkSetting]:
        """The table's units of these rows."""
        return [filled(config, row, self.table.chosen[row]) for row in self.rows]

    def config(self, config: RWalkSetting) -> dict[str, Any]:
        """As the table's, so that the ids agree."""
        return self.table.config(config)


class PerTask(SharedRuns):
    """Accuracy of each task as tasks go by."""

    rows = (*WITHOUT, *WITH)
    rule = Rule(
        Claim(
            f"multi-head, the first task of EWC, PI and RWalk ends within {FLAT:g} of where it began and Vanilla's "
            "falls farther than theirs",
            lambda found: _kept_multi_head(found),
        ),
        Claim(
            "single-head, every method's first task falls farther without samples than with",
            lambda found: Finding(all(_less_with_samples(found, row) for row in WITHOUT)),
        ),
        Claim("with samples A_k of EWC, PI and RWalk ends above Vanilla's", lambda found: _above_vanilla(found)),
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A_k for every k; print has the last."""
        found = by_row(records)
        return [
            line(
                f"{panel} {row}",
                f"A{k} (%)",
                [accuracy(r, head, k) for r in found[row]],
                paper=self.table.paper.get((head, row), (None,))[0] if k == len(found[row][0].matrices[head]) else None,
            )
            for panel, (head, rows) in PANELS.items()
            for row in rows
            for k in range(1, len(found[row][0].matrices[head]) + 1)
        ]

    def facts(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records by row."""
        found = by_row(records)
        need(found, self.rows)
        return found

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A picture for each panel and task, and one for A_k."""
        from vestige.show import curves

        found = by_row(records)
        mean = {
            (h, row): torch.stack([r.matrices[h] for r in runs]).mean(0) for row, runs in found.items() for h in HEADS
        }
        tasks = len(next(iter(mean.values())))
        x = list(range(1, tasks + 1))
        labels: dict[str, Any] = {"x_label": "trained up to task", "y_label": "accuracy"}
        drawn = {}
        for panel, (head, rows) in PANELS.items():
            name = panel.replace(" ", "-")
            for j in range(tasks):
                # Before its turn a task has not been learnt; print begins each curve there too.
                lines = {row: [math.nan] * j + mean[head, row][j:, j].tolist() for row in rows}
                drawn[f"{name}-task{j + 1}"] = curves(lines, x, title=f"{panel}: task {j + 1}", **labels)
            averages = {row: [float(mean[head, row][k, : k + 1].mean()) for k in range(tasks)] for row in rows}
            drawn[f"{name}-average"] = curves(averages, x, title=f"{panel}: average over tasks so far", **labels)
        return drawn


class RWalkFig2(PerTask):
    """RWalk Fig. 2: accuracy of each task as tasks go by, MNIST."""

    name, item = "rwalk-fig2", "RWalk Fig. 2"
    grounds = (
        "Single-headed and without samples PI and RWalk lose less of the first task than with them: they are held "
        "so tightly that they learn the later ones to about a half, where with samples nearly all is learnt."
    )
    table = RWalkTable1MNIST()
    presets: ClassVar[Mapping[str, RWalkSetting]] = RWalkTable1MNIST.presets
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 10, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        **RWalkTable1MNIST.cut,
        "laptop": RWalkTable1MNIST.cut["laptop"],
    }


class RWalkFig6(PerTask):
    """RWalk Fig. 6: accuracy of each task as tasks go by, CIFAR-100."""

    name, item = "rwalk-fig6", "RWalk Fig. 6"
    table = RWalkTable1CIFAR()
    grounds = (
        "Without samples EWC, PI and RWalk are held so tightly, single-headed, that they lose less "
        "of the first task than with samples, and learn little of the later ones."
    )
    presets: ClassVar[Mapping[str, RWalkSetting]] = RWalkTable1CIFAR.presets
    seeds: ClassVar[Mapping[str, int]] = RWalkTable1CIFAR.seeds
    cut: ClassVar[Mapping[str, str]] = RWalkTable1CIFAR.cut


def _nearest(points: Mapping[str, tuple[float, float]]) -> Finding:
    nearest = min(points, key=lambda row: math.hypot(*points[row]))
    return Finding(nearest == "RWalk-S", f"it is {nearest}")


class RWalkFig3(SharedRuns):
    """RWalk Fig. 3 (MNIST): forgetting against intransigence, single-head."""

    name, item = "rwalk-fig3", "RWalk Fig. 3 (MNIST)"
    grounds = (
        "Intransigence hangs on the joint reference, which is not printed: Vanilla with samples learns the last "
        "task a little better than ours does. PI with samples is nearest to the origin; iCaRL and RWalk with "
        "samples follow, about as far from it as each other."
    )
    rule = Rule(
        Claim(
            "every method but iCaRL-hb1 both forgets and refuses to learn (F > 0, I > 0)",
            lambda points: Finding(all(min(at) > 0 for row, at in points.items() if row != "iCaRL-hb1")),
        ),
        Claim("RWalk with samples is nearest to (0, 0)", lambda points: _nearest(points)),
    )
    table = RWalkTable1MNIST()
    rows = ("Vanilla", "EWC", "PI", "iCaRL-hb1", "iCaRL", *WITH, JOINT)
    presets: ClassVar[Mapping[str, RWalkSetting]] = RWalkTable1MNIST.presets
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 10, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        **RWalkTable1MNIST.cut,
        "laptop": RWalkTable1MNIST.cut["laptop"] + "; MNIST without CIFAR-100",
    }

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """F and I of each row."""
        found = by_row(records)
        joint = {r.seed: r for r in found.pop(JOINT)}
        lines = []
        for row, runs in found.items():
            k = len(runs[0].R)
            _, f, i = self.table.paper["single", row]
            lines.append(line(row, f"F{k}", [forgetting(r, "single") for r in runs], paper=f))
            lines.append(line(row, f"I{k}", [intransigence(r, "single", joint) for r in runs], paper=i))
        return lines

    def facts(self, records: Sequence[Record]) -> dict[str, tuple[float, float]]:
        """row -> (F, I)."""
        need(by_row(records), self.rows)
        lines = self.lines(records)
        return {f.label: (f.ours, i.ours) for f, i in zip(lines[::2], lines[1::2], strict=True)}

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The plane of what was measured, and that of what was printed."""
        from vestige.show import plane

        lines = self.lines(records)
        errors = {f.label: (f.se or 0.0, i.se or 0.0) for f, i in zip(lines[::2], lines[1::2], strict=True)}
        printed = {row: at[1:] for (head, row), at in self.table.paper.items() if head == "single"}
        return {
            "plane": plane(self.facts(records), title=f"{self.item}: ours", errors=errors),
            "plane-paper": plane(printed, title=f"{self.item}: as printed in Table 1"),
        }
