"""Farquhar and Gal Fig. 9: Permuted MNIST, ten tasks, the evaluation that flatters what treats a model as a prior.

"VCL with or without a coreset performs well [...]. Coresets without the VCL loss performs worse." The figure is a curve
without numbers, and EWC is not in it. Single-headed, 100-100 units, a coreset of 200 a task (B.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from vestige.experiments.experiment import Line, Verdict
from vestige.experiments.robust_runs import CORESET, HYBRID, VCL, RobustRuns, Setting, by_row, mean_of, run_lines
from vestige.experiments.rwalk_runs import judged
from vestige.record import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WELL, WORSE = 85.0, 5.0  # percent; points


class RobustFig9(RobustRuns):
    """Farquhar and Gal Fig. 9: Permuted MNIST."""

    name, item = "robust-fig9", "Farquhar and Gal Fig. 9"
    rule = (
        f"Two claims: VCL with and without a coreset ends at {WELL:g} % or above; the coreset alone ends at least "
        f"{WORSE:g} points below both. Both: reproduced; one: partly; none: not."
    )
    rows = (VCL, HYBRID, CORESET)
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": Setting(
            preset="permuted-mnist", data="digits", tasks=3, epochs=1, batch_size=60, hidden=(16,), train_samples=2,
            test_samples=5, fit_steps=20, coreset=10, coreset_steps=10,
        ),
        "laptop": Setting(
            preset="permuted-mnist", tasks=10, epochs=2, train_samples=2, test_samples=10, test_every=10,
        ),
        "paper": Setting(preset="permuted-mnist", tasks=10),
    }  # fmt: skip
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "MNIST (digits instead), seven of ten tasks, most of the network and of the training",
        "laptop": "epochs beyond 2 of 100, posterior samples beyond 2 in training and 10 in a test, nine tenths of the "
        "test rows, seeds beyond 3",
    }

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each row."""
        return [x for row, runs in by_row(records).items() for x in run_lines(row, runs)]

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        ends = {row: mean_of(runs) for row, runs in by_row(records).items()}
        if set(ends) != set(self.rows):
            return Verdict("not judged", f"Only {', '.join(ends) or 'nothing'} has been run.")
        worst = min(ends[VCL], ends[HYBRID])
        return judged(
            {
                "VCL does well with and without a coreset": worst >= WELL,
                "the coreset alone does worse": worst - ends[CORESET] >= WORSE,
            }
        )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The figure as printed."""
        from vestige.drawing import curves

        found = by_row(records)
        tasks = list(range(1, len(records[0].R) + 1))
        series = {row: [mean_of(runs, k) for k in tasks] for row, runs in found.items()}
        return {
            "average": curves(series, tasks, title=self.item, x_label="tasks", y_label="average accuracy (%)"),
        }
