"""Farquhar and Gal Fig. 11, 12 and 19: variational generative replay on Split MNIST (C.5, C.6, C.8.1).

Single-headed (11), "VGR outperforms VCL with coresets", 96 % fully trained (footnote 7); multi-headed (12), "VGR
performs similarly to VCL"; with Monte Carlo dropout (19), "the same performance". The figures are curves, of which the
text prints the one number.

The rows of VCL are the runs of Fig. 6 and 5, with the same ids; Fig. 12, 15 and 17 read the runs of VGR that Fig. 11
makes, and 13, 14 and 19 to 21 set others beside them. VGR multi-headed is the same run, its predictions chosen among
the outputs of the task (C.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict
from vestige_papers.robust.runs import (
    CORESET,
    DROPOUT,
    HYBRID,
    VCL,
    VGR,
    Replayed,
    RobustRuns,
    Setting,
    filled,
    mean_of,
    old_tasks,
    plain,
    run_lines,
)
from vestige_papers.robust.single import RobustFig6
from vestige_papers.robust.split import LAPTOP, LEFT_OUT, SMOKE, RobustFig5, SplitFigure
from vestige_papers.rwalk.runs import judged

PAPER = {VGR: 96.0, "quick": 90.0}  # A5 in percent, single-headed; footnote 7 of C.7.1
NEAR_PRINT, FAR, FORGOTTEN = 5.0, 10.0, 5.0  # points; points; percent of old tasks
VERY_WELL, SIMILAR = 95.0, 3.0  # percent; points


def replayed(setting: Setting, **fields: Any) -> Replayed:  # noqa: ANN401 - fields of Replayed
    """The same, with what is generated."""
    return Replayed(**(asdict(setting) | fields))


def samples(record: Record) -> int:
    """Generated for each class; 0 where nothing is."""
    return record.config.get("samples_per_class") or 0


def under(head: str, records: Sequence[Record]) -> list[Record]:
    """The same runs, read under one head."""
    return [replace(r, head=head) for r in records]


# Small generators, a few hundred steps for each class.
GENERATED: dict[str, Any] = {"generator_preset": "small", "generator_epochs": 2}
PRESETS: Mapping[str, Setting] = {
    "smoke": replayed(SMOKE, uncertainty=True, generator_preset="small", generator_epochs=1, samples_per_class=60),
    "laptop": replayed(LAPTOP, uncertainty=True, **GENERATED),
    "paper": Replayed(uncertainty=True),
}
CUT = {
    "smoke": LEFT_OUT["smoke"] + "; of the generators nearly everything",
    "laptop": LEFT_OUT["laptop"] + "; generators with an eighth of the channels, 2 epochs of 50 at a faster rate; "
    "seeds beyond 3",
}


class Compared(SplitFigure):
    """VGR beside others; `config` files each unit with the figure that it was made for."""

    presets: ClassVar[Mapping[str, Setting]] = PRESETS
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = CUT
    beside: ClassVar[RobustRuns] = RobustFig6()  # whose runs the rows of VCL are
    others: ClassVar[tuple[str, ...]] = (VCL, HYBRID, CORESET)
    head: ClassVar[str] = "single"

    def arms(self, config: Setting) -> Sequence[Setting]:
        """VCL's units, then VGR's."""
        return [*(filled(self.plain(config), row) for row in self.others), *self.generated(config)]

    def plain(self, config: Setting) -> Setting:
        """What VCL's units are made from."""
        return plain(config)

    def generated(self, config: Setting) -> Sequence[Setting]:
        """The units that replay."""
        return [filled(config, VGR)]

    def config(self, config: Setting) -> dict[str, Any]:
        """As that of Fig. 11 where something is generated, else as that of the figure with VCL's runs."""
        if isinstance(config, Replayed):
            return super().config(config) | {"experiment": RobustFig11.name}
        return self.beside.config(config)

    def usual(self, records: Sequence[Record], *, swept: bool = False) -> dict[str, list[Record]]:
        """As ever, under the figure's head; of VGR the runs with the most samples, since others are of a sweep."""
        found = super().usual(under(self.head, records), swept=swept)
        for row, runs in found.items():
            most = max(samples(r) for r in runs)
            found[row] = [r for r in runs if samples(r) == most]
        return found

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each row."""
        lines = [x for row, runs in self.usual(records).items() for x in run_lines(row, runs)]
        single = self.head == "single"
        return [
            replace(x, paper=PAPER[VGR]) if x.label == VGR and x.quantity[0] == "A" and single else x for x in lines
        ]

    def ends(self, records: Sequence[Record]) -> dict[str, float]:
        """A after the last task, in percent, by row."""
        return {row: mean_of(runs) for row, runs in self.usual(records).items()}


class RobustFig11(Compared):
    """Farquhar and Gal Fig. 11: single-headed Split MNIST, VGR beside VCL."""

    name, item = "robust-fig11", "Farquhar and Gal Fig. 11"
    rule = (
        f"Three claims: VGR ends within {NEAR_PRINT:g} points of the printed {PAPER[VGR]:g} %, or above; at least "
        f"{FAR:g} points above VCL, with a coreset or without; VCL without a coreset ends with at most {FORGOTTEN:g} % "
        "on the old tasks. All: reproduced; two: partly; else not."
    )

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        ends, found = self.ends(records), self.usual(records)
        if not {VCL, HYBRID, VGR} <= set(ends):
            return Verdict("not judged", f"Only {', '.join(ends) or 'nothing'} has been run.")
        left = sum(map(old_tasks, found[VCL])) / len(found[VCL])
        return judged(
            {
                "VGR comes near print": ends[VGR] >= PAPER[VGR] - NEAR_PRINT,
                "it ends far above VCL with and without a coreset": ends[VGR] - max(ends[VCL], ends[HYBRID]) >= FAR,
                "VCL alone loses the old tasks": left <= FORGOTTEN,
            }
        )


class RobustFig12(Compared):
    """Farquhar and Gal Fig. 12: multi-headed Split MNIST, VGR beside VCL."""

    name, item = "robust-fig12", "Farquhar and Gal Fig. 12"
    rule = (
        f"Two claims: VGR and VCL both end at {VERY_WELL:g} % or above; within {SIMILAR:g} points of each other. Both: "
        "reproduced; one: partly; none: not."
    )
    beside = RobustFig5()
    head = "multi"

    def plain(self, config: Setting) -> Setting:
        """VCL trains with a head a task."""
        return replace(plain(config), preset="split-mnist-multi", uncertainty=False)

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        ends = self.ends(records)
        if not {VCL, VGR} <= set(ends):
            return Verdict("not judged", f"Only {', '.join(ends) or 'nothing'} has been run.")
        return judged(
            {
                "VGR and VCL do very well": min(ends[VCL], ends[VGR]) >= VERY_WELL,
                "and alike": abs(ends[VCL] - ends[VGR]) <= SIMILAR,
            }
        )


class RobustFig19(Compared):
    """Farquhar and Gal Fig. 19: VGR with Monte Carlo dropout, a convolutional network."""

    name, item = "robust-fig19", "Farquhar and Gal Fig. 19"
    rule = (
        f"Two claims: with Monte Carlo dropout VGR ends at most {SIMILAR:g} points below the mean-field network; and "
        f"within {NEAR_PRINT:g} points of the printed {PAPER[VGR]:g} %, or above. Both: reproduced; one: partly; none: "
        "not."
    )
    others = ()
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 10}

    def generated(self, config: Setting) -> Sequence[Setting]:
        """Both posteriors; the network of C.8.1 has its own widths, the length of training is C.5's where it is cut."""
        other = filled(replace(config, hidden=None, uncertainty=False), DROPOUT)
        return [filled(config, VGR), other]

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        ends = self.ends(records)
        if set(ends) != {VGR, DROPOUT}:
            return Verdict("not judged", f"Only {', '.join(ends) or 'nothing'} has been run.")
        return judged(
            {
                "dropout does as well": ends[DROPOUT] >= ends[VGR] - SIMILAR,
                "and comes near print": ends[DROPOUT] >= PAPER[VGR] - NEAR_PRINT,
            }
        )
