"""RWalk Table 3: lambda over five decades. The paper finds RWalk less sensitive to it than EWC and PI.

With samples, single-head. The three printed lambdas of each method, and those between, in steps of ten. The printed
changes are against the method's first row; here the measure is the spread of F and of I over all lambdas. What makes
RWalk insensitive is said to be how its importance is scaled, so it is run at the printed lambdas by four other readings
of that as well (`READINGS` of `runs`), and A at the largest lambda is told by each. On MNIST; the CIFAR columns run
with `--set data=cifar100` and the other fields of `rwalk-table1-cifar`, over CIFAR's own decades.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, Rule, line, need, shown
from vestige_papers.rwalk.runs import (
    JOINT,
    READINGS,
    Incremental,
    RWalkSetting,
    accuracy,
    filled,
    forgetting,
    intransigence,
)
from vestige_papers.rwalk.table1 import CHOSEN_MNIST, RWalkTable1MNIST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Printed = Mapping[tuple[str, float], tuple[float, float, float]]
# (row, lambda) -> A (%), F, I as printed.
PAPER_MNIST: Printed = {
    ("EWC-S", 75.0): (80.3, 0.19, 0.1),
    ("EWC-S", 75e3): (79.2, 0.15, 0.21),
    ("EWC-S", 75e5): (79.1, 0.13, 0.24),
    ("PI-S", 0.1): (79.3, 0.23, 0.05),
    ("PI-S", 100.0): (80.3, 0.15, 0.22),
    ("PI-S", 1e4): (78.5, 0.16, 0.18),
    ("RWalk-S", 0.1): (82.6, 0.16, 0.12),
    ("RWalk-S", 100.0): (81.6, 0.16, 0.14),
    ("RWalk-S", 1e4): (81.6, 0.16, 0.12),
}
PAPER_CIFAR: Printed = {
    ("EWC-S", 3.0): (28.9, 0.38, -0.17),
    ("EWC-S", 300.0): (34.1, 0.28, -0.07),
    ("EWC-S", 3e5): (33.7, 0.27, -0.03),
    ("PI-S", 0.1): (34.7, 0.27, -0.07),
    ("PI-S", 10.0): (34.3, 0.26, -0.04),
    ("PI-S", 1e4): (33.7, 0.27, -0.06),
    ("RWalk-S", 0.1): (34.5, 0.28, -0.06),
    ("RWalk-S", 10.0): (33.2, 0.28, -0.06),
    ("RWalk-S", 1e4): (34.2, 0.28, -0.05),
}
PAPER = {"mnist": PAPER_MNIST, "cifar100": PAPER_CIFAR}
LAMBDAS: Mapping[str, tuple[float, ...]] = {
    "EWC-S": (75.0, 75e1, 75e2, 75e3, 75e4, 75e5),
    "PI-S": (0.1, 1.0, 10.0, 100.0, 1e3, 1e4),
    "RWalk-S": (0.1, 1.0, 10.0, 100.0, 1e3, 1e4),
}
READ = "RWalk-S"  # the row that is read in several ways
AT_LARGEST = f"A of {READ} at the largest lambda"
LAMBDAS_CIFAR: Mapping[str, tuple[float, ...]] = {**LAMBDAS, "EWC-S": (3.0, 30.0, 300.0, 3e3, 3e4, 3e5)}


def _steadiest(quantity: str) -> Claim:
    """That RWalk has the smallest spread."""

    def check(spreads: Mapping[str, Mapping[str, float]]) -> Finding:
        of = spreads[quantity]
        return Finding(of["RWalk-S"] < min(of["EWC-S"], of["PI-S"]), shown(of))

    return Claim(f"RWalk's {quantity} varies least of the three methods' over all lambdas", check)


class RWalkTable3(Incremental):
    """RWalk Table 3: sensitivity to lambda."""

    name, item = "rwalk-table3", "RWalk Table 3"
    grounds = (
        "The claim does not hold by any of five readings of how RWalk's importance is scaled and gathered, the "
        "authors' code among them: at the largest lambda its accuracy falls by each."
    )
    rule = Rule(*(_steadiest(quantity) for quantity in ("A", "F", "I")))
    presets: ClassVar[Mapping[str, RWalkSetting]] = {
        **RWalkTable1MNIST.presets,
        "laptop": replace(RWalkTable1MNIST.presets["laptop"], epochs=8),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        **RWalkTable1MNIST.cut,
        "laptop": "500 of about 6000 training rows a class; 8 epochs; MNIST without CIFAR-100",
    }

    def arms(self, config: RWalkSetting) -> Sequence[RWalkSetting]:
        """Each method with each lambda, the reference, and RWalk read otherwise at the printed lambdas."""
        lambdas = LAMBDAS_CIFAR if config.data == "cifar100" else LAMBDAS
        rows = {row: filled(config, row, CHOSEN_MNIST[row]) for row in (*lambdas, JOINT)}
        units = [replace(rows[row], lam=lam) for row, over in lambdas.items() for lam in over] + [rows[JOINT]]
        printed = [lam for row, lam in PAPER.get(config.data, PAPER_MNIST) if row == READ]
        return units + [replace(rows[READ], lam=lam, reading=how) for how in READINGS if how for lam in printed]

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """A, F, I for each lambda."""
        joint = {r.seed: r for r in records if r.config["row"] == JOINT}
        k, paper = len(records[0].R), PAPER.get(records[0].config["data"], {})
        lines = []
        found = {how: _by_lambda(records, how) for how in READINGS}
        for how, row, lam, runs in [(how, *key, runs) for how, of in found.items() for key, runs in of.items()]:
            label, (a, f, i) = f"{row}, lambda {lam:g}", paper.get((row, lam), (None, None, None))
            label += f", {how}" if how else ""
            lines.append(line(label, f"A{k} (%)", [accuracy(r, "single") for r in runs], paper=a))
            lines.append(line(label, f"F{k}", [forgetting(r, "single") for r in runs], paper=f))
            lines.append(line(label, f"I{k}", [intransigence(r, "single", joint) for r in runs], paper=i))
        return lines

    def facts(self, records: Sequence[Record]) -> dict[str, dict[str, float]]:
        """quantity -> row -> largest less smallest mean over lambdas."""
        need({r.config["row"] for r in records}, (*LAMBDAS, JOINT))
        joint = {r.seed: r for r in records if r.config["row"] == JOINT}
        measures = {
            "A": lambda r: accuracy(r, "single"),
            "F": lambda r: forgetting(r, "single"),
            "I": lambda r: intransigence(r, "single", joint),
        }
        found: dict[str, dict[str, float]] = {}
        for quantity, measure in measures.items():
            for row in LAMBDAS:
                means = [fmean(map(measure, runs)) for (r, _), runs in _by_lambda(records).items() if r == row]
                found.setdefault(quantity, {})[row] = max(means) - min(means)
        for how in READINGS:
            over = {lam: runs for (row, lam), runs in _by_lambda(records, how).items() if row == READ}
            if over:
                largest = fmean(accuracy(r, "single") for r in over[max(over)])
                found.setdefault(AT_LARGEST, {})[how or "as printed"] = largest
        return found

    def remarks(self, facts: Mapping[str, Mapping[str, float]]) -> str:
        """RWalk by every reading."""
        return f"{AT_LARGEST}, by reading: {shown(facts[AT_LARGEST], '.1f')}."

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """A over the decades of lambda, from each method's smallest."""
        from vestige.show import curves

        found = _by_lambda(records)
        series = {
            row: [fmean(accuracy(r, "single") for r in runs) for (name, _), runs in found.items() if name == row]
            for row in LAMBDAS
        }
        x = list(range(len(LAMBDAS["EWC-S"])))
        label = "decades above the smallest lambda of each method"
        return {"lambda": curves(series, x, title=self.item, x_label=label, y_label="A (%)")}


def _by_lambda(records: Sequence[Record], reading: str = "") -> dict[tuple[str, float], list[Record]]:
    """(row, lambda) -> Records of one reading; the reference has none."""
    found: dict[tuple[str, float], list[Record]] = {}
    for record in records:
        if record.config["row"] != JOINT and record.config.get("reading", "") == reading:
            found.setdefault((record.config["row"], record.config["lam"]), []).append(record)
    return found
