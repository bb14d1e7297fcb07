"""Farquhar and Gal Fig. 20 and 21: how VGR depends on its training and on how much it generates (C.8.2).

Between 20 and 120 epochs (20) it gives "very similar performance"; so it does with 2000 to 6000 generated digits a
class (21), and "below 1000, performance fell". The figures are curves without numbers. Here the least, two or three in
between and the usual, as shares of what the preset has: 20, 40, 80, 120 epochs; 500, 1000, 2000, 6000 samples. The
usual runs are those of Fig. 11, with the same ids.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict, line
from vestige_papers.robust.replay import Compared, samples
from vestige_papers.robust.runs import VGR, Replayed, Setting, accuracy, by_row, filled, mean_of
from vestige_papers.robust.split import length, shortened
from vestige_papers.rwalk.runs import judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 12_000  # of a task of Split MNIST
SHARES = (1 / 6, 1 / 3, 2 / 3)  # of the training
SIZES = (1 / 12, 1 / 6, 1 / 3)  # of the samples a class
SIMILAR, FALLS = 3.0, 1.0  # points: between what is alike; that too few samples must cost


class Swept(Compared):
    """VGR with one setting changed, from the least to the usual."""

    others = ()
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 10}
    words: ClassVar[str]  # of the amount that was changed

    @abstractmethod
    def amount(self, record: Record) -> float:
        """What was changed, in units of `words`."""

    @abstractmethod
    def claims(self, means: Sequence[float]) -> dict[str, bool]:
        """What print says, of accuracies in percent, the least amount first."""

    def by_amount(self, records: Sequence[Record]) -> dict[float, list[Record]]:
        """Records of VGR, the least amount first."""
        runs = by_row(records).get(VGR, [])
        return {a: [r for r in runs if self.amount(r) == a] for a in sorted({self.amount(r) for r in runs})}

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Accuracy at each amount."""
        of, k = self.by_amount(records), len(records[0].R)
        return [line(f"{VGR}, {a:g} {self.words}", f"A{k} (%)", map(accuracy, runs)) for a, runs in of.items()]

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        means = [mean_of(runs) for runs in self.by_amount(records).values()]
        if len(means) < len(self.generated(self.presets["paper"])):
            return Verdict("not judged", f"{len(means)} of the amounts have been run.")
        return judged(self.claims(means))

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The figure as printed."""
        from vestige.show import curves

        of, tasks = self.by_amount(records), list(range(1, len(records[0].R) + 1))
        series = {f"{a:g} {self.words}": [mean_of(runs, k) for k in tasks] for a, runs in of.items()}
        words: dict[str, Any] = {"x_label": "tasks", "y_label": "average accuracy (%)"}
        return {"average": curves(series, tasks, title=self.item, **words)}


class RobustFig20(Swept):
    """Farquhar and Gal Fig. 20: VGR trained for fewer epochs."""

    name, item = "robust-fig20", "Farquhar and Gal Fig. 20"
    rule = (
        f"With a sixth, a third and two thirds of the training VGR ends within {SIMILAR:g} points of where it ends "
        "with all of it: three claims. All: reproduced; two: partly; else not."
    )
    words = "batches a task"

    def generated(self, config: Setting) -> Sequence[Setting]:
        """Shares of the training; where there is one epoch alone, of its steps."""
        whole = filled(config, VGR)
        return [*(replace(shortened(whole, share), uncertainty=False) for share in SHARES), whole]

    def amount(self, record: Record) -> float:
        """Batches of real rows that a task is trained on; one an epoch in print, where a batch is the task."""
        return round(length(record) * ROWS)

    def claims(self, means: Sequence[float]) -> dict[str, bool]:
        """Every share does about as well."""
        names = ("a sixth", "a third", "two thirds")
        return {f"{n} of the training does": abs(m - means[-1]) <= SIMILAR for n, m in zip(names, means, strict=False)}


class RobustFig21(Swept):
    """Farquhar and Gal Fig. 21: VGR with fewer generated samples."""

    name, item = "robust-fig21", "Farquhar and Gal Fig. 21"
    rule = (
        f"Two claims: with a third of the samples (2000 of 6000 a class) VGR ends within {SIMILAR:g} points of where "
        f"it ends with all; with a twelfth (500) at least {FALLS:g} points below what it reaches with a third. Both: "
        "reproduced; one: partly; none: not."
    )
    words = "samples a class"

    def generated(self, config: Setting) -> Sequence[Setting]:
        """Shares of the samples."""
        whole = filled(config, VGR)
        assert isinstance(whole, Replayed), "it replays"
        assert whole.samples_per_class is not None, "and says how much"
        few = [max(round(share * whole.samples_per_class), 1) for share in SIZES]
        return [*(replace(whole, samples_per_class=n, uncertainty=False) for n in few), whole]

    def amount(self, record: Record) -> float:
        """Samples of each class."""
        return float(samples(record))

    def claims(self, means: Sequence[float]) -> dict[str, bool]:
        """A third is enough, a twelfth is not."""
        return {
            "a third of the samples does": abs(means[2] - means[3]) <= SIMILAR,
            "with a twelfth accuracy falls": means[2] - means[0] >= FALLS,
        }
