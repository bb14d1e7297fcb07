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
from vestige.runner import Claim, Finding, Line, Rule, line, need, shown
from vestige_papers.rwalk.runs import WITH, Incremental, RWalkSetting, accuracy, filled
from vestige_papers.rwalk.table1 import CHOSEN_MNIST, RWalkTable1MNIST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS = (2, 5, 10, 20, 50)
SAMPLERS = ("uniform", "plane_distance", "entropy", "mean_of_features")
CAUGHT_UP, AS_GOOD = 1.0, 2.0  # points of accuracy


Means = Mapping[str, Mapping[Any, float]]  # row -> choice -> A5 in percent


def _few(mean: Means) -> Finding:
    few = {row: over[COUNTS[0]] for row, over in mean.items()}
    return Finding(min(few[row] for row in WITH[1:]) > few["Vanilla-S"], shown(few))


def _best(mean: Means, count: int) -> str:
    return max(WITH, key=lambda row: mean[row][count])


def _gap(mean: Means, count: int) -> float:
    """Points that Vanilla lies below the best."""
    return mean[_best(mean, count)][count] - mean["Vanilla-S"][count]


def _best_where_poor(mean: Means) -> Finding:
    best = {count: _best(mean, count) for count in COUNTS if _gap(mean, count) > CAUGHT_UP}
    words = ", ".join(f"{count} samples: {row}" for count, row in best.items())
    return Finding(all(row == "RWalk-S" for row in best.values()), words)


def _average(mean: Means) -> dict[str, float]:
    return {sampler: fmean(mean[row][sampler] for row in WITH) for sampler in SAMPLERS}


def _spread(mean: Means) -> dict[str, float]:
    return {row: max(mean[row].values()) - min(mean[row].values()) for row in WITH}


class OverMemory(Incremental):
    """The four methods with samples, over one field of the memory."""

    field: ClassVar[str]
    choices: ClassVar[tuple[Any, ...]]
    fixed: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, RWalkSetting]] = RWalkTable1MNIST.presets
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        **RWalkTable1MNIST.cut,
        "laptop": "500 of about 6000 training rows a class; MNIST without CIFAR-100",
    }

    def arms(self, config: RWalkSetting) -> Sequence[RWalkSetting]:
        """Each method with each choice."""
        rows = [replace(filled(config, row, CHOSEN_MNIST[row]), **self.fixed) for row in WITH]
        return [replace(row, **{self.field: choice}) for row in rows for choice in self.choices]

    def scores(self, records: Sequence[Record]) -> dict[str, dict[Any, list[float]]]:
        """row -> choice -> A5 (%) of each seed."""
        found: dict[str, dict[Any, list[float]]] = {}
        for r in records:
            found.setdefault(r.config["row"], {}).setdefault(r.config[self.field], []).append(accuracy(r, "single"))
        return found

    def facts(self, records: Sequence[Record]) -> Means:
        """row -> choice -> mean A5 (%)."""
        need({r.config["row"] for r in records}, WITH)
        need({str(r.config[self.field]) for r in records}, map(str, self.choices))
        return {row: {c: fmean(v) for c, v in over.items()} for row, over in self.scores(records).items()}

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A5 of each method and choice."""
        k = len(records[0].R)
        return [
            line(f"{row}, {self.field} {choice}", f"A{k} (%)", values)
            for row, over in self.scores(records).items()
            for choice, values in over.items()
        ]


class RWalkFig4(OverMemory):
    """RWalk Fig. 4 (MNIST): accuracy against samples kept."""

    name, item = "rwalk-fig4", "RWalk Fig. 4 (MNIST)"
    field, choices = "memory_per_class", COUNTS
    fixed: ClassVar[Mapping[str, Any]] = {"sampler": "uniform"}
    grounds = (
        "With 2 to 10 samples a class, where Vanilla is poor, RWalk is the best, as printed; with 20 EWC leads it "
        "by about two joint standard errors, and Vanilla is still two points behind."
    )
    rule = Rule(
        Claim(f"with {COUNTS[0]} samples a class each regularised method is above Vanilla", lambda mean: _few(mean)),
        Claim(
            f"with {COUNTS[-1]} Vanilla is within {CAUGHT_UP:g} point of the best or above",
            lambda mean: Finding(_gap(mean, COUNTS[-1]) <= CAUGHT_UP, f"{_gap(mean, COUNTS[-1]):.1f} below"),
        ),
        Claim(
            f"RWalk is the best wherever Vanilla is more than {CAUGHT_UP:g} point below the best",
            lambda mean: _best_where_poor(mean),
        ),
    )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A5 over samples a class."""
        from vestige.show import curves

        series = {row: list(over.values()) for row, over in self.facts(records).items()}
        words = [str(m) for m in COUNTS]
        return {"samples": curves(series, words, title=self.item, x_label="samples a class", y_label="A5 (%)")}


class RWalkFig5(OverMemory):
    """RWalk Fig. 5 (MNIST): which samples are kept."""

    name, item = "rwalk-fig5", "RWalk Fig. 5 (MNIST)"
    field, choices = "sampler", SAMPLERS
    grounds = (
        "Mean of features is better than uniform by more than was asked. It is not that lambda was searched with "
        "it: Vanilla, which has no lambda, gains as much as the others."
    )
    rule = Rule(
        Claim(
            "averaged over methods mean-of-features is best",
            lambda mean: Finding(
                max(SAMPLERS, key=lambda s: _average(mean)[s]) == "mean_of_features", shown(_average(mean), ".1f")
            ),
        ),
        Claim(
            f"uniform is within {AS_GOOD:g} points of it",
            lambda mean: Finding(_average(mean)["uniform"] >= _average(mean)["mean_of_features"] - AS_GOOD),
        ),
        Claim(
            "Vanilla varies more from sampler to sampler than each regularised method",
            lambda mean: Finding(
                _spread(mean)["Vanilla-S"] > max(list(_spread(mean).values())[1:]), shown(_spread(mean))
            ),
        ),
    )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Bars by sampler."""
        from vestige.show import bars

        mean = self.facts(records)
        series = {s: [mean[row][s] for row in WITH] for s in SAMPLERS}
        return {"samplers": bars(series, WITH, title=self.item, y_label="A5 (%)")}
