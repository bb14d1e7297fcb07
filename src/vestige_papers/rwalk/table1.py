"""RWalk Table 1: average accuracy, forgetting and intransigence on MNIST (5 x 2) and CIFAR-100 (10 x 10).

The paper finds that multi-head every regularised method is near 99 % on MNIST, that single-head without samples all of
them fall, that a few samples a class bring them back, and that RWalk with samples is best. It gives no spread.

Beyond the printed rows there are RWalk without samples single-head, iCaRL and the rows with samples multi-head, and,
for Vanilla-S, the other ways in which a memory may enter the loss (see `learners.replay`): the paper does not
say which it used, and it matters more than the method. The printed rows are set beside "balanced",
class-balanced example weights, which an early script of the authors computes.

Deviations, beside those of `rwalk_runs`: lambda and epochs are those that a search on validation data found (MNIST) or
those printed (CIFAR's lambda, which was not searched); both are in `CHOSEN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict
from vestige_papers.rwalk.choice import Choice, filled
from vestige_papers.rwalk.runs import (
    JOINT,
    WITH,
    WITHOUT,
    Incremental,
    Setting,
    accuracy,
    by_row,
    forgetting,
    intransigence,
    judged,
    table_lines,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# (head, row) -> A (%), F, I as printed.
Printed = Mapping[tuple[str, str], tuple[float, float, float]]
PAPER_MNIST: Printed = {
    ("multi", "Vanilla"): (90.3, 0.12, 6.6e-4),
    ("multi", "EWC"): (99.3, 0.001, 0.01),
    ("multi", "PI"): (99.3, 0.002, 0.01),
    ("multi", "RWalk"): (99.3, 0.003, 0.01),
    ("single", "Vanilla"): (38.0, 0.62, 0.29),
    ("single", "EWC"): (55.8, 0.08, 0.77),
    ("single", "PI"): (57.6, 0.11, 0.8),
    ("single", "iCaRL-hb1"): (36.6, 0.68, -0.01),
    ("single", "iCaRL"): (55.8, 0.19, 0.46),
    ("single", "Vanilla-S"): (73.7, 0.30, 0.03),
    ("single", "EWC-S"): (79.7, 0.14, 0.22),
    ("single", "PI-S"): (78.7, 0.24, 0.05),
    ("single", "RWalk-S"): (82.5, 0.15, 0.14),
}
PAPER_CIFAR: Printed = {
    ("multi", "Vanilla"): (44.4, 0.36, 0.02),
    ("multi", "EWC"): (72.8, 0.001, 0.07),
    ("multi", "PI"): (73.2, 0.0, 0.06),
    ("multi", "RWalk"): (74.2, 0.004, 0.04),
    ("single", "Vanilla"): (10.2, 0.36, -0.06),
    ("single", "EWC"): (23.1, 0.03, 0.17),
    ("single", "PI"): (22.8, 0.04, 0.2),
    ("single", "iCaRL-hb1"): (7.4, 0.40, 0.06),
    ("single", "iCaRL"): (9.5, 0.11, 0.35),
    ("single", "Vanilla-S"): (12.9, 0.64, -0.3),
    ("single", "EWC-S"): (33.6, 0.27, -0.05),
    ("single", "PI-S"): (33.6, 0.27, -0.03),
    ("single", "RWalk-S"): (34.0, 0.28, -0.06),
}
# Found by `vestige run rwalk-search-mnist`, whose Records are kept. iCaRL-hb1 trains as iCaRL does; the reference was
# not searched.
CHOSEN_MNIST: Mapping[str, Choice] = {
    "Vanilla": Choice(None, 8),
    "EWC": Choice(750000.0, 1, whole=True),
    "PI": Choice(10.0, 20),
    "RWalk": Choice(1.0, 20),
    "iCaRL-hb1": Choice(None, 8),
    "iCaRL": Choice(None, 8),
    "Vanilla-S": Choice(None, 8),
    "EWC-S": Choice(75000.0, 8),
    "PI-S": Choice(10.0, 8),
    "RWalk-S": Choice(100.0, 20),
    JOINT: Choice(None, 8),
}
# The printed lambdas; the epochs are ours.
CHOSEN_CIFAR: Mapping[str, Choice] = {
    "Vanilla": Choice(None, 10),
    "EWC": Choice(3e6, 10),
    "PI": Choice(10.0, 10),
    "RWalk": Choice(1000.0, 10),
    "iCaRL-hb1": Choice(None, 10),
    "iCaRL": Choice(None, 10),
    "Vanilla-S": Choice(None, 10),
    "EWC-S": Choice(1.5e6, 10),
    "PI-S": Choice(10.0, 10),
    "RWalk-S": Choice(500.0, 10),
    JOINT: Choice(None, 10),
}
OTHER_REPLAYS = ("mixed", "beside", "finetune")
REPLAYED = ("Vanilla-S",)  # the rows that are run with each of them: here where nothing else holds the weights
NEAR, SIGN = 4.0, 0.02  # points of accuracy; what is printed nearer to zero than this has no sign


class Table1(Incremental):
    """Both halves of the table."""

    paper: ClassVar[Printed]
    chosen: ClassVar[Mapping[str, Choice]]
    other_replays: ClassVar[tuple[str, ...]] = ()

    def arms(self, config: Setting) -> Sequence[Setting]:
        """A unit for each row, one for each other use of the memory, and the reference."""
        rows = [filled(config, row, choice) for row, choice in self.chosen.items()]
        others = [replace(s, replay=way) for s in rows if s.row in REPLAYED for way in self.other_replays]
        return [*rows, *others]

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A, F, I under both heads, then the other uses of the memory."""
        found = by_row(r for r in records if r.config["replay"] not in OTHER_REPLAYS)
        joint = {r.seed: r for r in found.get(JOINT, [])}
        lines = []
        for head in ("multi", "single"):
            for row, runs in found.items():
                lines += table_lines(runs, f"{head}-head {row}", head, joint, self.paper.get((head, row)))
        for way in OTHER_REPLAYS:
            for row, runs in by_row(r for r in records if r.config["replay"] == way).items():
                lines += table_lines(runs, f"single-head {row}, memory {way}", "single", joint, None)
        return lines

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The four claims of `rule`."""
        found = by_row(r for r in records if r.config["replay"] not in OTHER_REPLAYS)
        joint = {r.seed: r for r in found[JOINT]}
        mean = {(h, row): fmean(accuracy(r, h) for r in found[row]) for h in ("multi", "single") for row in found}
        regularised = WITHOUT[1:]
        signs = []  # (printed, ours)
        for (head, row), (_, f, i) in self.paper.items():
            if head == "single":
                signs.append((f, fmean(forgetting(r, head) for r in found[row])))
                signs.append((i, fmean(intransigence(r, head, joint) for r in found[row])))
        return judged(
            {
                "multi-head EWC, PI and RWalk reach print less 1 and beat Vanilla": all(
                    mean["multi", row] > max(self.paper["multi", row][0] - 1, mean["multi", "Vanilla"])
                    for row in regularised
                ),
                f"single-head rows with samples lie within {NEAR:g} points of print": all(
                    abs(mean["single", row] - self.paper["single", row][0]) <= NEAR for row in WITH
                ),
                "RWalk is the best of the rows with samples": max(WITH, key=lambda row: mean["single", row])
                == "RWalk-S",
                "single-head F and I have the printed signs": all(
                    (ours > 0) == (printed > 0) for printed, ours in signs if abs(printed) >= SIGN
                ),
            }
        )

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Accuracy of every single-head row beside the printed one."""
        from vestige.show import bars

        measured = [x for x in self.lines(records) if x.quantity.startswith("A") and x.label.startswith("single")]
        nan = float("nan")
        series = {
            "ours": [x.ours for x in measured],
            "paper": [nan if x.paper is None else x.paper for x in measured],
        }
        errors = {"ours": [nan if x.se is None else x.se for x in measured]}
        labels = [x.label.removeprefix("single-head ") for x in measured]
        return {"single-head": bars(series, labels, title=self.item, y_label=measured[0].quantity, errors=errors)}


RULE = (
    "Four claims: multi-head EWC, PI and RWalk reach print less 1 point and beat Vanilla; single-head rows with "
    f"samples lie within {NEAR:g} points of print; RWalk is the best of them; single-head F and I have the printed "
    f"signs where print is at least {SIGN:g} from zero. All hold: reproduced; at least two: partly; fewer: not."
)


class Table1MNIST(Table1):
    """RWalk Table 1 on MNIST: 5 tasks of 2 digits, an MLP of 256-256, 10 samples a class."""

    name = "rwalk-table1-mnist"
    item = "RWalk Table 1 (MNIST)"
    rule = RULE
    paper, chosen, other_replays = PAPER_MNIST, CHOSEN_MNIST, OTHER_REPLAYS
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": Setting(data="digits", per_class=30, hidden=(16,), memory_per_class=2, epochs=2),
        "laptop": Setting(),
        "paper": Setting(per_class=None, epochs=1),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 2, "laptop": 10, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "MNIST (digits instead), most of the rows and of the network",
        "laptop": "training rows beyond 500 a class, except for EWC without samples",
    }


class Table1CIFAR(Table1):
    """RWalk Table 1 on CIFAR-100: 10 tasks of 10 classes, the network of Table 4, 25 samples a class."""

    name = "rwalk-table1-cifar"
    item = "RWalk Table 1 (CIFAR-100)"
    rule = RULE
    paper, chosen = PAPER_CIFAR, CHOSEN_CIFAR
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": Setting(data="digits", classes_per_task=5, per_class=20, net="table4", memory_per_class=2, epochs=1),
        "laptop": Setting(
            data="cifar100",
            classes=50,
            classes_per_task=10,
            per_class=100,
            net="table4",
            init="torch",
            batch_size=16,
            memory_per_class=25,
            interval=50,
            epochs=4,
            validate=50,
        ),
        "paper": Setting(
            data="cifar100", classes_per_task=10, per_class=None, net="table4", memory_per_class=25, interval=50
        ),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 1, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "CIFAR-100 (digits instead), most of the rows",
        "laptop": "5 of the 10 tasks, training rows beyond 100 a class (of 500), the test set (10 held-out training "
        "rows a class are tested on instead), epochs beyond 4, seeds beyond 1; so that few rows train at all, batches "
        "of 16 and the initial weights of torch",
    }
