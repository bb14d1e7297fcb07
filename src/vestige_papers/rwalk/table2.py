"""RWalk Table 2: CIFAR-100 in 20 tasks of 5 classes, ResNet18, multi-head: iCaRL 50.8, GEM 65.4, RWalk 70.1.

The paper takes the first two numbers from GEM's authors. Memories hold 5120 samples in all (RWalk 5000), and train over
all seen outputs; the test is multi-head. A-GEM, by the same authors a year later, stands beside GEM without a printed
number: one gradient of the memory for each step in place of one for each past task.

Deviations: lambda is the 1000 of Table 1's multi-head half, since none is printed here, and smaller ones stand beside
it, with a second verdict for the best of them; GEM steps by Adam and chooses
its samples uniformly (see `learners.gem`). At `laptop` the network is GEM's own, ResNet18 with a third of the
filters, on images of 16 x 16 pixels, and the memory shrinks with the data: a step of GEM costs as many passes over it
as there are past tasks, which is half an hour of one core for all twenty tasks and seven minutes for ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import ClassVar

from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, Rule, grouped, line, need, shown
from vestige_papers.rwalk.runs import Incremental, RWalkSetting, accuracy

RWALK = "RWalk-S"
PAPER = {"iCaRL": 50.8, "GEM": 65.4, RWALK: 70.1}
LAMBDA, OTHER_LAMBDAS = 1000.0, (0.1, 1.0, 10.0, 100.0)
SAMPLES = {"iCaRL": 5120, "GEM": 5120, "A-GEM": 5120, RWALK: 5000}  # of 50000


class RWalkTable2(Incremental):
    """RWalk Table 2: ResNet18 on CIFAR-100, multi-head."""

    name, item = "rwalk-table2", "RWalk Table 2"
    rule = Rule(
        Claim(
            "RWalk is above GEM",
            lambda mean: Finding(
                mean[RWALK] > mean["GEM"], shown({row: a for row, a in mean.items() if row in SAMPLES})
            ),
        ),
        Claim("GEM is above iCaRL", lambda mean: Finding(mean["GEM"] > mean["iCaRL"])),
    )
    grounds = (
        "By none of five lambdas does RWalk, whose own is not printed here, end above GEM; by the best of them it ends "
        "about where GEM does. iCaRL, which answers by the nearest mean of features, is clearly above both. Whether "
        "all rows, all tasks and ten epochs would turn that is open: here there are 60 rows a class and three epochs."
    )
    presets: ClassVar[Mapping[str, RWalkSetting]] = {
        "smoke": RWalkSetting(
            data="digits", classes_per_task=5, per_class=8, net="resnet18_reduced", memory_per_class=None, epochs=1,
            memory_total=10, init="torch", lam=LAMBDA,
        ),
        "laptop": RWalkSetting(
            data="cifar100", classes=50, classes_per_task=5, per_class=60, net="resnet18_reduced", epochs=3,
            memory_per_class=None, memory_total=150, init="torch", lam=LAMBDA, interval=50, batch_size=10,
            validate=50, size=16,
        ),
        "paper": RWalkSetting(
            data="cifar100", classes_per_task=5, per_class=None, net="resnet18", memory_per_class=None, epochs=10,
            init="torch", lam=LAMBDA, interval=50,
        ),
    }  # fmt: skip
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "digits in place of CIFAR-100; few rows; a third of the filters",
        "laptop": "10 of 20 tasks; 60 of 500 training rows a class; images of 16 x 16 pixels in place of 32 x 32; a "
        "memory of 3 a class; a third of the filters; 10 held-out training rows a class in place of the test set; 3 "
        "epochs; batches of 10, GEM's own",
    }

    def arms(self, config: RWalkSetting) -> Sequence[RWalkSetting]:
        """The printed rows and A-GEM, each with its budget; RWalk with other lambdas."""
        units = [
            replace(config, row=row, memory_total=SAMPLES[row] if config.memory_total is None else config.memory_total)
            for row in SAMPLES
        ]
        rwalk = next(unit for unit in units if unit.row == RWALK)
        return [*units, *(replace(rwalk, lam=lam) for lam in OTHER_LAMBDAS if lam != config.lam)]

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A of the last task, multi-head."""
        return [
            line(row, f"A{len(runs[0].R)} (%)", [accuracy(r, "multi") for r in runs], paper=PAPER.get(row))
            for row, runs in grouped(records, label).items()
        ]

    def facts(self, records: Sequence[Record]) -> dict[str, float]:
        """A of each row."""
        mean = {row: fmean(accuracy(r, "multi") for r in runs) for row, runs in grouped(records, label).items()}
        need(mean, PAPER)
        return mean

    def remarks(self, facts: Mapping[str, float]) -> str:
        """The same rule with the best of all lambdas, where others were run."""
        tried = {row: a for row, a in facts.items() if row.startswith(RWALK)}
        if len(tried) == 1:
            return ""
        best = max(tried, key=lambda row: tried[row])
        found = self.rule.judge({**facts, RWALK: tried[best]})
        at = "the lambda" if best == RWALK else best.removeprefix(f"{RWALK}, ")
        return (
            f"With the best of {len(tried)} lambdas ({at}), chosen by these rows, it is {found.word}, {found.claims}."
        )


def label(record: Record) -> str:
    """The row, and which lambda where that is another."""
    row, lam = str(record.config["row"]), record.config["lam"]
    return f"{row}, lambda {lam:g}" if row == RWALK and lam != LAMBDA else row
