"""RWalk Fig. 4 and 5: how many samples are kept, and which.

Fig. 4: with few samples the regularised methods lie far above Vanilla; with more Vanilla catches up (on MNIST at about
20 a class); where Vanilla is poor RWalk is best. Uniform sampling. Fig. 5: mean-of-features sampling is best for every
method, uniform nearly as good, and Vanilla varies most from one sampler to the other. Neither prints numbers.

Single-head, MNIST; lambda and epochs are Table 1's, searched with 10 samples a class by mean of features, and not again
for other numbers and samplers. Plane distance and entropy are weighted draws, as the paper has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict, line
from vestige_papers.rwalk.choice import filled
from vestige_papers.rwalk.runs import WITH, Incremental, Setting, accuracy, judged
from vestige_papers.rwalk.table1 import CHOSEN_MNIST, Table1MNIST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (2, 5, 10, 20, 50)
SAMPLERS = ("uniform", "plane_distance", "entropy", "mean_of_features")
CAUGHT_UP, AS_GOOD = 1.0, 2.0  # points of accuracy


class OverMemory(Incremental):
    """The four methods with samples, over one field of the memory."""

    field: ClassVar[str]
    choices: ClassVar[tuple[Any, ...]]
    fixed: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Setting]] = Table1MNIST.presets
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 1, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        **Table1MNIST.cut,
        "laptop": "CIFAR-100; training rows beyond 500 a class, seeds beyond 1",
    }

    def arms(self, config: Setting) -> Sequence[Setting]:
        """Each method with each choice."""
        rows = [replace(filled(config, row, CHOSEN_MNIST[row]), **self.fixed) for row in WITH]
        return [replace(row, **{self.field: choice}) for row in rows for choice in self.choices]

    def scores(self, records: Sequence[Record]) -> dict[str, dict[Any, list[float]]]:
        """row -> choice -> A5 (%) of each seed."""
        found: dict[str, dict[Any, list[float]]] = {}
        for r in records:
            found.setdefault(r.config["row"], {}).setdefault(r.config[self.field], []).append(accuracy(r, "single"))
        return found

    def means(self, records: Sequence[Record]) -> dict[str, dict[Any, float]]:
        """row -> choice -> mean A5 (%)."""
        return {row: {c: fmean(v) for c, v in over.items()} for row, over in self.scores(records).items()}

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A5 of each method and choice."""
        k = len(records[0].R)
        return [
            line(f"{row}, {self.field} {choice}", f"A{k} (%)", values)
            for row, over in self.scores(records).items()
            for choice, values in over.items()
        ]


class Fig4(OverMemory):
    """RWalk Fig. 4 (MNIST): accuracy against samples kept."""

    name, item = "rwalk-fig4", "RWalk Fig. 4 (MNIST)"
    field, choices = "memory_per_class", COUNTS
    fixed: ClassVar[Mapping[str, Any]] = {"sampler": "uniform"}
    rule = (
        f"Three claims: with {COUNTS[0]} samples a class each regularised method is above Vanilla; with {COUNTS[-1]} "
        f"Vanilla is within {CAUGHT_UP:g} point of the best or above; RWalk is the best wherever Vanilla is more than "
        f"{CAUGHT_UP:g} point below the best. All: reproduced; two: partly; fewer: not."
    )

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The three claims of `rule`."""
        mean = self.means(records)
        best = {m: max(WITH, key=lambda row: mean[row][m]) for m in COUNTS}
        gap = {m: mean[best[m]][m] - mean["Vanilla-S"][m] for m in COUNTS}
        few, many = COUNTS[0], COUNTS[-1]
        return judged(
            {
                f"with {few} samples every regularised method is above Vanilla": min(mean[row][few] for row in WITH[1:])
                > mean["Vanilla-S"][few],
                f"with {many} samples Vanilla has caught up": gap[many] <= CAUGHT_UP,
                "RWalk is best where Vanilla is poor": all(best[m] == "RWalk-S" for m in COUNTS if gap[m] > CAUGHT_UP),
            }
        )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A5 over samples a class."""
        from vestige.show import curves

        series = {row: list(over.values()) for row, over in self.means(records).items()}
        words = [str(m) for m in COUNTS]
        return {"samples": curves(series, words, title=self.item, x_label="samples a class", y_label="A5 (%)")}


class Fig5(OverMemory):
    """RWalk Fig. 5 (MNIST): which samples are kept."""

    name, item = "rwalk-fig5", "RWalk Fig. 5 (MNIST)"
    field, choices = "sampler", SAMPLERS
    rule = (
        f"Three claims: averaged over methods mean-of-features is best; uniform is within {AS_GOOD:g} points of it; "
        "Vanilla varies more from sampler to sampler than each regularised method. All: reproduced; two: partly; else "
        "not."
    )

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The three claims of `rule`."""
        mean = self.means(records)
        average = {s: fmean(mean[row][s] for row in WITH) for s in SAMPLERS}
        spread = {row: max(mean[row].values()) - min(mean[row].values()) for row in WITH}
        return judged(
            {
                "mean-of-features is best": max(average, key=lambda s: average[s]) == "mean_of_features",
                "uniform is nearly as good": average["uniform"] >= average["mean_of_features"] - AS_GOOD,
                "Vanilla varies most": spread["Vanilla-S"] > max(spread[row] for row in WITH[1:]),
            }
        )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Bars by sampler."""
        from vestige.show import bars

        mean = self.means(records)
        series = {s: [mean[row][s] for row in WITH] for s in SAMPLERS}
        return {"samplers": bars(series, WITH, title=self.item, y_label="A5 (%)")}
