"""Farquhar and Gal Fig. 15 to 18: is the model unsure of what it has not seen, and sure of what it has? (C.8)

After each task of single-headed Split MNIST the mutual information between prediction and posterior is averaged over
each task's test rows: MI[model, task]. Fig. 16 shows each model's row divided by its largest entry: VCL is unsure of
tasks to come, but of tasks long past as well; "the fourth model, for example, is nearly as uncertain about the second
task, which it has seen, as it is about the fifth". Fig. 18 is the ROC of a detector that calls a task unseen where MI
exceeds theta times that of the current task, theta = 1.0, 1.1, .. 10; its area is 0.76.

Which pairs (model, task) count decides the area. "Models trained on 1-5 tasks are each evaluated against all five
tasks", "both seen and unseen": so the area is judged with the current task among the seen ("all"), as one that the
model was trained on. Two other readings stand beside it: the current task left out ("others"), and the last model,
which has no task to come, left out ("before_last"). Earlier rules asked for all three.

Fig. 15 and 17 are the same of VGR: "uncertainty is high for unseen tasks, and low for all previously seen tasks", and
the area is 1. The runs are VCL's of Fig. 6 and VGR's of Fig. 11, with the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.continual.record import Record
from vestige.metrics.uncertainty import THETAS, Roc, unseen_task_roc
from vestige.runner import Claim, Finding, Line, Rule, at_least, line, need, some
from vestige_papers.robust.replay import PRESETS, RobustFig11
from vestige_papers.robust.runs import VCL, VGR, RobustRuns, RobustSetting, by_row
from vestige_papers.robust.split import RobustFig6

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {VCL: 0.76, VGR: 1.0}  # areas under the ROC
READINGS = {
    "all": "current task among the seen",
    "others": "current task left out",
    "before_last": "last model left out",
}
NEARLY = 0.5  # of the uncertainty about the fifth task: "nearly as uncertain"
CLOSE = 0.1  # of area
CLEAN = 0.95  # of area: "cleanly divides"; by the earlier rule also the share of models that must do so
MOST = 0.5  # of the models


def mutual(record: Record) -> Float64[Tensor, "t t"]:
    """MI[model, task] in nats."""
    return record.values["mutual_information"]


def relative(mi: Float64[Tensor, "t t"]) -> Float64[Tensor, "t t"]:
    """Each model's row divided by its largest entry, as in the figure."""
    return mi / mi.amax(1, keepdim=True)


def areas(runs: Sequence[Record], reading: str) -> list[float]:
    """Area under the ROC, seed by seed."""
    return [roc(r, reading).auc for r in runs]


def roc(record: Record, reading: str) -> Roc:
    """The detector's ROC under one reading of the pairs."""
    return unseen_task_roc(mutual(record), pairs=reading)  # type: ignore[arg-type]


def unseen_over_current(mi: Float64[Tensor, "t t"]) -> float:
    """Mean MI on tasks to come, over that on the current task; a mean over the models that have such tasks."""
    return fmean(float(mi[k, k + 1 :].mean() / mi[k, k]) for k in range(len(mi) - 1))


def old_over_new(mi: Float64[Tensor, "t t"]) -> float:
    """Of the model before the last: MI on the old task it is most unsure of, over that on the task to come."""
    return float(mi[-2, :-2].max() / mi[-2, -1])


def divided(mi: Float64[Tensor, "t t"]) -> float:
    """Share of the models, the last apart, that are less unsure of every seen task than of any to come."""
    return fmean(float(mi[k, : k + 1].max() < mi[k, k + 1 :].min()) for k in range(len(mi) - 1))


UNSURE_OF_UNSEEN = Claim(
    "on average over models before the last, MI is higher on unseen tasks than on the current one",
    lambda mi: Finding(fmean(map(unseen_over_current, mi)) > 1, f"{fmean(map(unseen_over_current, mi)):.3g} times"),
)


def areas_that(holds: Callable[[float], bool], words: str) -> Rule:
    """A claim on the area under the ROC by the reading of print; by the earlier rule, one for each reading."""

    def claim(reading: str, pairs: str) -> Claim:
        def check(mi: Sequence[Float64[Tensor, "t t"]]) -> Finding:
            area = fmean(unseen_task_roc(m, pairs=reading).auc for m in mi)  # type: ignore[arg-type]
            return Finding(holds(area), f"{area:.2f}")

        return Claim(f"{words}, {pairs}", check)

    claims = [claim(reading, pairs) for reading, pairs in READINGS.items()]
    return Rule(
        claims[0],
        earlier=Rule(*claims, partly=some("a", "b", "c")),
        because="print evaluates every model on every task, so that two of its three readings are not those of print",
    )


def models_divide(share: float) -> Claim:
    """That so many models know what they have seen."""
    return Claim(
        f"at least {share:.0%} of the models are less unsure of each task they have seen than of any to come",
        lambda mi: at_least(share, {"share": fmean(map(divided, mi))}),
    )


class Unseen(RobustRuns):
    """What is read from the uncertainty of the runs of Fig. 6."""

    rows = (VCL,)
    presets: ClassVar[Mapping[str, RobustSetting]] = RobustFig6.presets
    seeds: ClassVar[Mapping[str, int]] = {**RobustFig6.seeds, "laptop": 10}
    cut: ClassVar[Mapping[str, str]] = RobustFig6.cut

    def facts(self, records: Sequence[Record]) -> list[Float64[Tensor, "t t"]]:
        """MI[model, task] of each seed."""
        found = by_row(records)
        need(found, self.rows)
        return [mutual(r) for r in found[self.rows[0]]]

    def config(self, config: RobustSetting) -> dict[str, Any]:
        """As that of Fig. 6, so that the ids agree."""
        return RobustFig6().config(config)


class RobustFig16(Unseen):
    """Farquhar and Gal Fig. 16: mutual information of each model on each task, VCL."""

    name, item = "robust-fig16", "Farquhar and Gal Fig. 16"
    rule = Rule(
        UNSURE_OF_UNSEEN,
        Claim(
            f"the model before the last is at least {NEARLY:g} times as unsure of some task before its own as of the "
            "task to come",
            lambda mi: at_least(NEARLY, {"times": fmean(map(old_over_new, mi))}),
        ),
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each model's uncertainty about each task, over its largest, then what the rule reads."""
        lines = []
        for row, runs in by_row(records).items():
            each = torch.stack([relative(mutual(r)) for r in runs])
            t = each.shape[1]
            lines += [
                line(f"{row}, model {k + 1}", f"MI on task {j + 1}, relative", each[:, k, j].tolist())
                for k in range(t)
                for j in range(t)
            ]
            lines.append(line(row, "MI unseen over current", [unseen_over_current(mutual(r)) for r in runs]))
            lines.append(line(row, f"model {t - 1}: MI old over task {t}", [old_over_new(mutual(r)) for r in runs]))
        return lines

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The matrix of the figure."""
        from vestige.show import matrix

        drawn = {}
        for row, runs in by_row(records).items():
            mean = torch.stack([relative(mutual(r)) for r in runs]).mean(0)
            tasks = [str(k + 1) for k in range(len(mean))]
            names: dict[str, Any] = {"rows": tasks, "columns": tasks, "row_label": "model", "column_label": "task"}
            drawn[row.lower()] = matrix(mean, title=f"{self.item}: {row}, MI over its largest", better="down", **names)
        return drawn


class RobustFig18(Unseen):
    """Farquhar and Gal Fig. 18: detection of unseen tasks by uncertainty, VCL."""

    name, item = "robust-fig18", "Farquhar and Gal Fig. 18"
    rule = areas_that(
        lambda area: abs(area - PAPER[VCL]) <= CLOSE,
        f"the area under VCL's ROC lies within {CLOSE:g} of the printed {PAPER[VCL]:g}",
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The area under each reading; print does not say which it is."""
        return [
            line(f"{row}, {words}", "area under the ROC", areas(runs, reading), paper=PAPER[row])
            for row, runs in by_row(records).items()
            for reading, words in READINGS.items()
        ]

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Both rates against theta, a mean over seeds, under each reading."""
        from vestige.show import curves

        drawn = {}
        for row, runs in by_row(records).items():
            for reading, words in READINGS.items():
                found = [roc(r, reading) for r in runs]
                rates = {
                    "unseen, called unseen": torch.tensor([f.true_positive for f in found]).mean(0).tolist(),
                    "seen, called unseen": torch.tensor([f.false_positive for f in found]).mean(0).tolist(),
                }
                title = f"{self.item}: {row}, {words}"
                drawn[f"{row.lower()}-{reading}"] = curves(
                    rates, list(THETAS), title=title, x_label="theta", y_label="rate"
                )
        return drawn


class OfReplay(Unseen):
    """The runs of VGR instead."""

    rows = (VGR,)
    presets: ClassVar[Mapping[str, RobustSetting]] = PRESETS
    seeds: ClassVar[Mapping[str, int]] = RobustFig11.seeds
    cut: ClassVar[Mapping[str, str]] = RobustFig11.cut

    def config(self, config: RobustSetting) -> dict[str, Any]:
        """As that of Fig. 11, so that the ids agree."""
        return RobustFig11().config(config)


class RobustFig15(OfReplay, RobustFig16):
    """Farquhar and Gal Fig. 15: mutual information of each model on each task, VGR."""

    name, item = "robust-fig15", "Farquhar and Gal Fig. 15"
    rule = Rule(
        UNSURE_OF_UNSEEN,
        models_divide(MOST),
        earlier=Rule(UNSURE_OF_UNSEEN, models_divide(CLEAN)),
        because=f"print has no share and the {CLEAN:.0%} were ours",
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """And how many models divide the seen from the unseen."""
        lines = super().lines(records)
        for row, runs in by_row(records).items():
            lines.append(line(row, "models that divide seen from unseen", [divided(mutual(r)) for r in runs]))
        return lines


class RobustFig17(OfReplay, RobustFig18):
    """Farquhar and Gal Fig. 17: detection of unseen tasks by uncertainty, VGR."""

    name, item = "robust-fig17", "Farquhar and Gal Fig. 17"
    rule = areas_that(
        lambda area: area >= CLEAN,
        f"the area under VGR's ROC, printed {PAPER[VGR]:g}, is at least {CLEAN:g}",
    )
