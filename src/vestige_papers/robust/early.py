"""Farquhar and Gal Fig. 2, 3 and 4: how sure the model is of task B, and how hard B pulls, in the first batches.

The paper finds predictions on task B of Split MNIST far surer than on Permuted MNIST (Fig. 2, a table: entropy 0.003
and 0.453), the final layer's likelihood gradient much larger (Fig. 3) and much larger against that of the prior
(Fig. 4). Fig. 3 and 4 print curves without numbers, and "much larger" without a factor: here it is 2.

"Early in training" is read as the mean over the 15 batches of B.1, each before it trains; the first batch alone, other
kinds of entropy and the entropy after training stand beside it. A unit trains task A once and makes 100 runs from
there, as in B.1; another seed is another network for task A. Errors of means over batches are over networks, or over
the runs where there is only one network, as in print. How they are run: `robust_early_runs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict, line
from vestige_papers.robust.early_runs import TASKS, EarlyRuns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fig. 2, as printed, in nats.
PAPER = {"split": 0.003, "permuted": 0.453}
MUCH = 2.0  # times larger is "much larger"
ORDERS = 100.0  # times larger is "2 orders of magnitude"
BEYOND = 2.0  # standard errors
ERRORS = " Errors are over networks for task A; where there is one, over its runs, and say nothing of other networks."


def by_tasks(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of each setting, by seed."""
    ordered = sorted(records, key=lambda r: r.seed)
    return {tasks: [r for r in ordered if r.config["tasks"] == tasks] for tasks in TASKS}


def early_values(records: Sequence[Record], name: str) -> list[float]:
    """A quantity early in training: one value a network for task A, or one a run where there is only one network."""
    runs = [r.values[f"{name}_runs"].tolist() for r in records]
    return [fmean(of) for of in runs] if len(runs) > 1 else runs[0]


def averaged(records: Sequence[Record]) -> str:
    """What `early_values` averages over, in words."""
    return "mean over batches" if len(records) > 1 else "mean over batches, by run"


def mean_and_se(values: Sequence[float]) -> tuple[float, float]:
    """Of two values at least."""
    return fmean(values), stdev(values) / math.sqrt(len(values))


class EarlyFigure(EarlyRuns):
    """One quantity, larger in one setting than in the other."""

    quantity: ClassVar[str]
    words: ClassVar[str]
    larger: ClassVar[str]
    factor: ClassVar[float]
    log: ClassVar[bool] = False

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """By the factor, then by the direction."""
        of = by_tasks(records)
        smaller = next(tasks for tasks in TASKS if tasks != self.larger)
        (high, high_se), (low, low_se) = (
            mean_and_se(early_values(of[tasks], self.quantity)) for tasks in (self.larger, smaller)
        )
        error = math.hypot(high_se, low_se)
        why = (
            f"{self.words}: {self.larger} {high:.4g}, {smaller} {low:.4g}: {high / low:.3g} times, "
            f"{(high - low) / error:.3g} standard errors apart; expected {self.factor:g} times or more."
        )
        if not high - low > BEYOND * error:
            return Verdict("not", why)
        return Verdict("reproduced" if high >= self.factor * low else "partly", why)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Mean over runs and networks for each batch; the shade is one deviation over runs, as in print."""
        from vestige.show import curves

        series, bands = {}, {}
        for tasks, runs in by_tasks(records).items():
            mean, deviation = torch.stack([r.values[self.quantity] for r in runs]).mean(0)
            series[tasks] = mean.tolist()
            bands[tasks] = ((mean - deviation).tolist(), (mean + deviation).tolist())
        x = list(range(1, len(series["split"]) + 1))
        labels: dict[str, Any] = {"title": self.item, "x_label": "batch of task B", "y_label": self.words}
        return {self.quantity: curves(series, x, bands=bands, log=self.log, **labels)}


class RobustFig2(EarlyFigure):
    """Farquhar and Gal Fig. 2: entropy of predictions on task B, early in training."""

    name, item = "robust-fig2", "Farquhar and Gal Fig. 2"
    rule = (
        f"Entropy early in task B, permuted over split. At least {ORDERS:g} times (two orders of magnitude, as "
        f"printed): reproduced; larger by more than {BEYOND:g} standard errors of the difference: partly; else not."
        + ERRORS
    )
    quantity, words, larger, factor = "entropy_predictive", "entropy (nats)", "permuted", ORDERS

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Early in training, beside print; then the other readings."""
        lines: list[Line] = []
        for tasks, runs in by_tasks(records).items():

            def add(words: str, values: Sequence[float], paper: float | None = None, label: str = tasks) -> None:
                lines.append(line(label, words, values, paper=paper))

            add(f"entropy, {averaged(runs)}", early_values(runs, self.quantity), PAPER[tasks])
            add("entropy, first batch", [float(r.values[self.quantity][0, 0]) for r in runs])
            add("entropy, last batch", [float(r.values[self.quantity][0, -1]) for r in runs])
            add("entropy, last batch, after it", [float(r.values[f"{self.quantity}_after"][0, -1]) for r in runs])
            add("expected entropy, first batch", [float(r.values["entropy_expected"][0, 0]) for r in runs])
            add("entropy at the mean, first batch", [float(r.values["entropy_mean"][0, 0]) for r in runs])
            add("entropy on test rows of B", [float(r.values["entropy_on_b"][0]) for r in runs])
            add("entropy on test rows of B, median", [float(r.values["entropy_on_b"][1]) for r in runs])
            add("entropy on test rows of A", [float(r.values["entropy_on_a"][0]) for r in runs])
            add("accuracy on task A", [float(r.values["accuracy_a"]) for r in runs])
        return lines


class GradientFigure(EarlyFigure):
    """A figure of gradients: curves without printed numbers, larger for split."""

    larger, factor, log = "split", MUCH, True
    shown: ClassVar[Mapping[str, str]]  # name of values -> words

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Over the batches; then the first that has one, and the last."""
        lines: list[Line] = []
        for tasks, runs in by_tasks(records).items():
            lines.append(line(tasks, f"{self.words}, {averaged(runs)}", early_values(runs, self.quantity)))
            for name, words in self.shown.items():
                curves = [r.values[name][0] for r in runs]
                lines.append(line(tasks, f"{words}, first", [float(c[~c.isnan()][0]) for c in curves]))
                lines.append(line(tasks, f"{words}, last", [float(c[-1]) for c in curves]))
        return lines


class RobustFig3(GradientFigure):
    """Farquhar and Gal Fig. 3: final-layer gradient of the likelihood term."""

    name, item = "robust-fig3", "Farquhar and Gal Fig. 3"
    rule = (
        f"Mean absolute final-layer gradient of the likelihood term, mean over the batches, split over permuted. "
        f"At least {MUCH:g} times: reproduced; larger by more than {BEYOND:g} standard errors: partly; else not."
        + ERRORS
    )
    quantity, words = "likelihood", "mean absolute gradient"
    shown: ClassVar[Mapping[str, str]] = {"likelihood": "gradient"}


class RobustFig4(GradientFigure):
    """Farquhar and Gal Fig. 4: likelihood term over prior term of the final-layer gradient."""

    name, item = "robust-fig4", "Farquhar and Gal Fig. 4"
    rule = (
        "Ratio of the mean absolute final-layer gradients, likelihood term over prior term, mean over the batches "
        f"from the second, split over permuted. At least {MUCH:g} times: reproduced; larger by more than {BEYOND:g} "
        "standard errors: partly; else not." + ERRORS
    )
    quantity, words = "ratio", "likelihood over prior"
    shown: ClassVar[Mapping[str, str]] = {"ratio": "ratio", "ratio_batch": "ratio, sum over the batch"}
