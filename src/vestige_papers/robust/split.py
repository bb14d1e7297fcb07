"""Farquhar and Gal Fig. 5 and 7: multi-headed Split MNIST and Split Fashion-MNIST; and what 6 and 8 share with them.

With a head a task the paper finds VCL, VCL with a coreset, the coreset without VCL, and EWC about as good as each
other. The figures are curves without numbers.

Deviations beside those of `robust_runs`: on Fashion-MNIST the initial log-variance of the Bayesian networks is the one
that `robust-search` found on validation rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict
from vestige_papers.robust.published import WHOLE_TASK
from vestige_papers.robust.runs import (
    CORESET_PRIOR,
    HYBRID,
    ROWS,
    VCL,
    RobustRuns,
    Setting,
    by_row,
    filled,
    mean_of,
    run_lines,
)
from vestige_papers.rwalk.runs import judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HIGH, NEAR = 95.0, 5.0  # percent; points between the best and the worst of four that are "roughly as good"
TRAINING_ROWS = {"mnist": 60_000, "fashion_mnist": 60_000}  # as published
FROM = {"posterior": "the posterior", "first": "the first prior"}
S = TypeVar("S", bound=Setting)
FASHION_LOG_VAR = -10.0  # by `vestige run robust-search`, whose Records are kept


def length(record: Record) -> float:
    """Steps of training over the rows of a task; a batch is no larger than the task."""
    c = record.config
    rows = TRAINING_ROWS.get(c["data"], WHOLE_TASK)
    rows = rows if c["preset"].startswith("permuted") else rows // c["tasks"]
    return c["epochs"] / min(c["batch_size"], rows)


def shortened(setting: S, share: float) -> S:
    """A share of the training: fewer epochs, or larger batches where there is one epoch alone."""
    assert setting.epochs is not None, "a unit has its epochs"
    assert setting.batch_size is not None, "a unit has its batches"
    if setting.epochs > 1:
        return replace(setting, epochs=max(round(share * setting.epochs), 1))
    return replace(setting, batch_size=round(setting.batch_size / share))


class SplitFigure(RobustRuns):
    """Average accuracy over the tasks so far, as tasks go by."""

    def usual(self, records: Sequence[Record], *, swept: bool = False) -> dict[str, list[Record]]:
        """The Records of the figure itself, by row: trained longest, and with a preset's steps on the coreset.

        `swept`: those with other steps on the coreset, or with a fit from the other prior, instead, under names that
        say so. Shorter runs belong to other figures.
        """
        steps = {filled(preset, HYBRID).coreset_steps for preset in self.presets.values()}
        found: dict[str, list[Record]] = {}
        for row, runs in by_row(records).items():
            longest = max(map(length, runs))
            for r in runs:
                own, prior = r.config["coreset_steps"], r.config["coreset_prior"]
                other = "" if prior == CORESET_PRIOR.get(row) else f", fitted from {FROM[prior]}"
                other += f", {own} steps on the coreset" * (own is not None and own not in steps)
                if length(r) == longest and bool(other) == swept:
                    found.setdefault(row + other, []).append(r)
        return found

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The figure as printed, and the whole matrix of each row."""
        from vestige.show import curves, matrix

        found = self.usual(records)
        tasks = [str(k + 1) for k in range(len(records[0].R))]
        series = {row: [mean_of(runs, k + 1) for k in range(len(tasks))] for row, runs in found.items()}
        words: dict[str, Any] = {"x_label": "tasks", "y_label": "average accuracy (%)"}
        drawn = {"average": curves(series, tasks, title=self.item, **words)}
        for row, runs in found.items():
            mean = 100 * torch.stack([r.R for r in runs]).mean(0)
            name = row.lower().replace(" + ", "-").replace(" ", "-")
            names: dict[str, Any] = {"rows": tasks, "columns": tasks, "row_label": "trained up to"}
            drawn[f"matrix-{name}"] = matrix(mean, title=f"{self.item}: {row}", column_label="tested on", **names)
        return drawn


class MultiHead(SplitFigure):
    """All four do about as well."""

    floor: ClassVar[float] = 0.0

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each row."""
        return [x for row, runs in self.usual(records).items() for x in run_lines(row, runs)]

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        found = self.usual(records)
        if set(found) != set(ROWS):
            return Verdict("not judged", f"Only {', '.join(found) or 'nothing'} has been run.")
        ends = {row: mean_of(runs) for row, runs in found.items()}
        claims = {
            f"best and worst lie within {NEAR:g} points": max(ends.values()) - min(ends.values()) <= NEAR,
            "VCL without a coreset ends no higher than with one": ends[VCL] <= ends[HYBRID],
        }
        if self.floor:
            claims = {f"every method ends at {self.floor:g} % or above": min(ends.values()) >= self.floor} | claims
        return judged(claims)


LAPTOP = Setting(epochs=1, batch_size=100, ewc_epochs=5, test_samples=10, test_every=5)
SMOKE = Setting(
    data="digits", epochs=1, ewc_epochs=2, batch_size=60, hidden=(16,), train_samples=2, test_samples=5, fit_steps=20,
    coreset=6, coreset_steps=6,
)  # fmt: skip
LEFT_OUT = {
    "smoke": "the data (digits instead), most of the network, of the training and of the posterior samples",
    "laptop": "full batches (120 steps of 100 rows instead of 120 of all rows), EWC's epochs beyond 5 of 20, "
    "posterior samples beyond 10 of 100 in a test, four fifths of the test rows",
}


class RobustFig5(MultiHead):
    """Farquhar and Gal Fig. 5: multi-headed Split MNIST."""

    name, item = "robust-fig5", "Farquhar and Gal Fig. 5"
    floor = HIGH
    rule = (
        f"Three claims: every method ends at {HIGH:g} % or above; best and worst lie within {NEAR:g} points; VCL ends "
        "no higher without a coreset than with one. All: reproduced; two: partly; else not."
    )
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": replace(SMOKE, preset="split-mnist-multi"),
        "laptop": replace(LAPTOP, preset="split-mnist-multi"),
        "paper": Setting(preset="split-mnist-multi"),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 10, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = LEFT_OUT


class RobustFig7(MultiHead):
    """Farquhar and Gal Fig. 7: multi-headed Split Fashion-MNIST."""

    name, item = "robust-fig7", "Farquhar and Gal Fig. 7"
    rule = (
        f"Two claims: best and worst lie within {NEAR:g} points; VCL ends no higher without a coreset than with one. "
        "Both: reproduced; one: partly; none: not."
    )
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": replace(SMOKE, preset="split-fashion-mnist-multi"),
        "laptop": replace(LAPTOP, data="fashion_mnist", preset="split-fashion-mnist-multi", log_var=FASHION_LOG_VAR),
        "paper": Setting(data="fashion_mnist", preset="split-fashion-mnist-multi", log_var=FASHION_LOG_VAR),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = LEFT_OUT
