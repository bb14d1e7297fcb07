"""Farquhar and Gal Fig. 11, 12 and 19 to 21: variational generative replay on Split MNIST (C.5, C.6, C.8).

Single-headed (11), "VGR outperforms VCL with coresets", 96 % fully trained (footnote 7); multi-headed (12), "VGR
performs similarly to VCL"; with Monte Carlo dropout (19), "the same performance". The figures are curves, of which the
text prints the one number.

The rows of VCL are the runs of Fig. 6 and 5, with the same ids; Fig. 12, 15 and 17 read the runs of VGR that Fig. 11
makes, and 13, 14 and 19 to 21 set others beside them. VGR multi-headed is the same run, its predictions chosen among
the outputs of the task (C.6).

How VGR depends on its training and on how much it generates (C.8.2). Between 20 and 120 epochs (20) it gives "very
similar performance"; so it does with 2000 to 6000 generated digits a class (21), and "below 1000, performance fell".
The figures are curves without numbers. Here the least, two or three in between and the usual, as shares of what the
preset has: 20, 40, 80, 120 epochs; 500, 1000, 2000, 6000 samples. Below print there is a 24th of the epochs: a curve
that does not fall there either says nothing about training. On paper the usual runs are those of Fig. 11, with the same
ids; the laptop's have generators that are trained for less."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from vestige.continual.record import Record
from vestige.runner import Claim, Line, NotJudged, Rule, at_least, at_most, line, need
from vestige_papers.robust.runs import (
    CORESET,
    DROPOUT,
    HYBRID,
    VCL,
    VGR,
    Replayed,
    RobustRuns,
    RobustSetting,
    accuracy,
    by_row,
    filled,
    mean_of,
    old_tasks,
    plain,
    run_lines,
)
from vestige_papers.robust.split import (
    AUTHORS,
    LAPTOP,
    LEFT_OUT,
    LONGER,
    LONGER_LEFT_OUT,
    SMOKE,
    RobustFig5,
    RobustFig6,
    SplitFigure,
    length,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {VGR: 96.0, "quick": 90.0}  # A5 in percent, single-headed; footnote 7 of C.7.1
NEAR_PRINT, FAR, FORGOTTEN = 5.0, 10.0, 5.0  # points; points; percent of old tasks
OLD = "VCL, old tasks"
VERY_WELL, SIMILAR = 95.0, 3.0  # percent; points


def replayed(setting: RobustSetting, **fields: Any) -> Replayed:  # noqa: ANN401 - fields of Replayed
    """The same, with what is generated."""
    return Replayed(**(asdict(setting) | fields))


def samples(record: Record) -> int:
    """Generated for each class; 0 where nothing is."""
    return record.config.get("samples_per_class") or 0


def generated(record: Record) -> tuple[int, int]:
    """Samples of each class, and the epochs of the generator behind them; 0 where it is the generator's preset's."""
    return samples(record), record.config.get("generator_epochs") or 0


def under(head: str, records: Sequence[Record]) -> list[Record]:
    """The same runs, read under one head."""
    return [replace(r, head=head) for r in records]


def as_long_as_vcl(setting: RobustSetting) -> RobustSetting:
    """The same without steps of VGR's own."""
    return replace(setting, solver=None) if isinstance(setting, Replayed) else setting


def near_print(row: str) -> Claim:
    """That a row comes near what is printed of VGR."""
    return Claim(
        f"{row} ends within {NEAR_PRINT:g} points of the printed {PAPER[VGR]:g} %, or above",
        lambda ends: at_least(PAPER[VGR] - NEAR_PRINT, {row: ends[row]}),
    )


# Small generators. VGR's own steps see real rows and all that is replayed, so there are four times as many as of VCL's;
# a step in print has all rows.
GENERATED: dict[str, Any] = {"generator_preset": "small", "generator_epochs": 10, "solver": (4, 100)}
PRESETS: Mapping[str, RobustSetting] = {
    "smoke": replayed(SMOKE, uncertainty=True, generator_preset="small", generator_epochs=1, samples_per_class=60),
    "laptop": replayed(LAPTOP, uncertainty=True, **GENERATED),
    "paper": Replayed(uncertainty=True),
}
# A sweep has generators of 2 epochs, a few hundred steps for each class: what it compares shares them.
SWEPT_PRESETS: Mapping[str, RobustSetting] = {
    **PRESETS,
    "laptop": replayed(LAPTOP, uncertainty=True, **(GENERATED | {"generator_epochs": 2})),
}
LONGER_VGR = "VGR trained for 480 steps of 100 rows, not for 120 of up to 30 000, VCL for "


def smaller(epochs: int) -> str:
    """What the laptop's generators lack."""
    return f"generators with an eighth of the channels and {epochs} of 50 epochs, at a faster rate; "


CUT = {"smoke": LEFT_OUT["smoke"] + "; tiny generators", "laptop": smaller(10) + LONGER_VGR + LEFT_OUT["laptop"]}


class Compared(SplitFigure):
    """VGR beside others; `config` files each unit with the figure that it was made for."""

    presets: ClassVar[Mapping[str, RobustSetting]] = PRESETS
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = CUT
    beside: ClassVar[RobustRuns] = RobustFig6()  # whose runs the rows of VCL are
    others: ClassVar[tuple[str, ...]] = (VCL, HYBRID, CORESET)
    head: ClassVar[str] = "single"
    needed: ClassVar[tuple[str, ...]] = (VCL, HYBRID, VGR)

    def arms(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """VCL's units, then VGR's."""
        return [*(filled(self.plain(config), row) for row in self.others), *self.generated(config)]

    def plain(self, config: RobustSetting) -> RobustSetting:
        """What VCL's units are made from."""
        return plain(config)

    def generated(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """The units that replay."""
        return [filled(config, VGR)]

    def config(self, config: RobustSetting) -> dict[str, Any]:
        """As that of Fig. 11 where something is generated, else as that of the figure with VCL's runs."""
        if isinstance(config, Replayed):
            return super().config(config) | {"experiment": RobustFig11.name}
        return self.beside.config(config)

    def usual(self, records: Sequence[Record], *, swept: bool = False) -> dict[str, list[Record]]:
        """As ever, under the figure's head; of VGR the runs that generate most and best: others are of a sweep."""
        found = super().usual(under(self.head, records), swept=swept)
        for row, runs in found.items():
            most = max(map(generated, runs))
            found[row] = [r for r in runs if generated(r) == most]
        return found

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each row."""
        lines = [x for row, runs in self.usual(records).items() for x in run_lines(row, runs)]
        single = self.head == "single"
        return [
            replace(x, paper=PAPER[VGR]) if x.label == VGR and x.quantity[0] == "A" and single else x for x in lines
        ]

    def facts(self, records: Sequence[Record]) -> dict[str, float]:
        """A after the last task, in percent, by row."""
        ends = self.ends(records)
        need(ends, self.needed)
        return ends


class RobustFig11(Compared):
    """Farquhar and Gal Fig. 11: single-headed Split MNIST, VGR beside VCL."""

    name, item = "robust-fig11", "Farquhar and Gal Fig. 11"
    rule = Rule(
        near_print(VGR),
        Claim(
            f"it ends at least {FAR:g} points above VCL, with a coreset or without",
            lambda ends: at_least(FAR, {"lead": ends[VGR] - max(ends[VCL], ends[HYBRID])}),
        ),
        Claim(
            f"VCL without a coreset ends with at most {FORGOTTEN:g} % on the old tasks",
            lambda ends: at_most(FORGOTTEN, {"old tasks": ends[OLD]}),
        ),
    )

    def facts(self, records: Sequence[Record]) -> dict[str, float]:
        """And what VCL has left of the old tasks."""
        ends = super().facts(records)
        return ends | {OLD: fmean(map(old_tasks, self.usual(records)[VCL]))}


class RobustFig12(Compared):
    """Farquhar and Gal Fig. 12: multi-headed Split MNIST, VGR beside VCL."""

    name, item = "robust-fig12", "Farquhar and Gal Fig. 12"
    rule = Rule(
        Claim(
            f"VGR and VCL both end at {VERY_WELL:g} % or above",
            lambda ends: at_least(VERY_WELL, {row: ends[row] for row in (VCL, VGR)}),
        ),
        Claim(
            f"they end within {SIMILAR:g} points of each other",
            lambda ends: at_most(SIMILAR, {"gap": abs(ends[VCL] - ends[VGR])}),
        ),
    )
    presets: ClassVar[Mapping[str, RobustSetting]] = {
        **PRESETS,
        "laptop": replace(PRESETS["laptop"], **LONGER),
    }
    cut: ClassVar[Mapping[str, str]] = CUT | {"laptop": smaller(10) + LONGER_VGR + LONGER_LEFT_OUT["laptop"]}
    needed = (VCL, VGR)
    beside = RobustFig5()
    head = "multi"
    begins: ClassVar[str | None] = AUTHORS  # VCL's weights

    def plain(self, config: RobustSetting) -> RobustSetting:
        """VCL trains with a head a task."""
        return replace(plain(config), preset="split-mnist-multi", uncertainty=False, init=self.begins)


class RobustFig19(Compared):
    """Farquhar and Gal Fig. 19: VGR with Monte Carlo dropout, a convolutional network."""

    name, item = "robust-fig19", "Farquhar and Gal Fig. 19"
    rule = Rule(
        Claim(
            f"with Monte Carlo dropout VGR ends at most {SIMILAR:g} points below the mean-field network",
            lambda ends: at_most(SIMILAR, {"gap": ends[VGR] - ends[DROPOUT]}),
        ),
        near_print(DROPOUT),
    )
    needed = (VGR, DROPOUT)
    others = ()
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 10}

    def generated(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """The runs of Fig. 11, and dropout trained as long; the network of C.8.1 has its own widths."""
        return [filled(config, VGR), filled(replace(config, hidden=None, uncertainty=False), DROPOUT)]


ROWS = 12_000  # of a task of Split MNIST
SHARES = (1 / 6, 1 / 3, 2 / 3)  # of the training
LESS = 1 / 24  # of the training, which is not judged
SIZES = (1 / 12, 1 / 6, 1 / 3)  # of the samples a class
JUDGED = 4  # amounts, from the last: three shares and the whole
FALLS = 1.0  # points that too few samples must cost


class Swept(Compared):
    """VGR with one setting changed, from the least to the usual."""

    others = ()
    presets: ClassVar[Mapping[str, RobustSetting]] = SWEPT_PRESETS
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = CUT | {"laptop": smaller(2) + LONGER_VGR + LEFT_OUT["laptop"]}
    words: ClassVar[str]  # of the amount that was changed

    @abstractmethod
    def amount(self, record: Record) -> float:
        """What was changed, in units of `words`."""

    def by_amount(self, records: Sequence[Record]) -> dict[float, list[Record]]:
        """Records of VGR, the least amount first."""
        runs = by_row(records).get(VGR, [])
        return {a: [r for r in runs if self.amount(r) == a] for a in sorted({self.amount(r) for r in runs})}

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Accuracy at each amount."""
        of, k = self.by_amount(records), len(records[0].R)
        return [line(f"{VGR}, {a:g} {self.words}", f"A{k} (%)", map(accuracy, runs)) for a, runs in of.items()]

    def facts(self, records: Sequence[Record]) -> list[float]:  # type: ignore[override]
        """A in percent, the least amount first."""
        means = [mean_of(runs) for runs in self.by_amount(records).values()]
        if len(means) < JUDGED:
            raise NotJudged(f"{len(means)} of the amounts have been run.")
        return means

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The figure as printed."""
        from vestige.show import curves

        of, tasks = self.by_amount(records), list(range(1, len(records[0].R) + 1))
        series = {f"{a:g} {self.words}": [mean_of(runs, k) for k in tasks] for a, runs in of.items()}
        words: dict[str, Any] = {"x_label": "tasks", "y_label": "average accuracy (%)"}
        return {"average": curves(series, tasks, title=self.item, **words)}


def _alike(place: int, share: str) -> Claim:
    """That a share of the training does about as well as all of it."""
    return Claim(
        f"with {share} of the training VGR ends within {SIMILAR:g} points of where it ends with all of it",
        lambda means: at_most(SIMILAR, {"points": abs(means[place - JUDGED] - means[-1])}),
    )


class RobustFig20(Swept):
    """Farquhar and Gal Fig. 20: VGR trained for fewer epochs."""

    name, item = "robust-fig20", "Farquhar and Gal Fig. 20"
    grounds = (
        "The curve is flat from a third of the training on, as printed. A sixth of the laptop's training is 80 "
        "steps of 100 rows, far fewer rows than print's least has."
    )
    rule = Rule(*(_alike(i, share) for i, share in enumerate(("a sixth", "a third", "two thirds"))))
    words = "batches a task"

    def generated(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """Shares of the training, less than print's least first."""
        whole = filled(config, VGR)
        return [*(replace(shortened(whole, share), uncertainty=False) for share in (LESS, *SHARES)), whole]

    def remarks(self, facts: Sequence[float]) -> str:
        """Where the curve falls, where that was run."""
        if len(facts) == JUDGED:
            return ""
        return f"With a {round(1 / LESS)}th of the training it ends {facts[-1] - facts[0]:.1f} points below."

    def amount(self, record: Record) -> float:
        """Batches of real rows that a task is trained on; one an epoch in print, where a batch is the task."""
        return round(length(record.config) * ROWS)


class RobustFig21(Swept):
    """Farquhar and Gal Fig. 21: VGR with fewer generated samples."""

    name, item = "robust-fig21", "Farquhar and Gal Fig. 21"
    rule = Rule(
        Claim(
            f"with a third of the samples (2000 of 6000 a class) VGR ends within {SIMILAR:g} points of where it ends "
            "with all",
            lambda means: at_most(SIMILAR, {"points": abs(means[2] - means[3])}),
        ),
        Claim(
            f"with a twelfth (500) it ends at least {FALLS:g} point below what it reaches with a third",
            lambda means: at_least(FALLS, {"points": means[2] - means[0]}),
        ),
    )
    words = "samples a class"
    cut: ClassVar[Mapping[str, str]] = CUT | {"laptop": smaller(2) + LEFT_OUT["laptop"]}

    def generated(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """Shares of the samples; VGR is trained as long as VCL."""
        whole = filled(as_long_as_vcl(config), VGR)
        assert isinstance(whole, Replayed), "it replays"
        assert whole.samples_per_class is not None, "and says how much"
        few = [max(round(share * whole.samples_per_class), 1) for share in SIZES]
        return [*(replace(whole, samples_per_class=n, uncertainty=False) for n in few), whole]

    def amount(self, record: Record) -> float:
        """Samples of each class."""
        return float(samples(record))
