"""LFIW App. C.1: are the classifiers between real and generated calibrated? Held-out rows, 10 bins.

The paper prints no numbers: "in all our cases the binary classifiers were highly calibrated by default and did not
require any further recalibration". Here: the expected calibration error before and after Platt's two numbers. A
classifier that is nearly always right says 0 or 1 and is calibrated for free, which helps no weight; so the share of
rows to which it gives a chance between 0.1 and 0.9 stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, Rule, line, those
from vestige_papers.lfiw.goodness import BINS, EVERY_MODEL, Cases, Goodness, by_case, label, mean_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALIBRATED = 0.05  # an ECE up to this counts as "highly calibrated"


def _calibrated(cases: Cases, name: str) -> list[Finding]:
    errors = {label(case): mean_of(runs, f"{name}.ece") for case, runs in cases.items()}
    return [Finding(error <= CALIBRATED, f"{error:.3f}", case) for case, error in errors.items()]


class LFIWCalibration(Goodness):
    """Reliability of the classifiers behind the weights."""

    name, item = "lfiw-calibration", "LFIW App. C.1"
    grounds = (
        "Seven of eight classifiers are calibrated as trained, and the eighth is just above the bound; Platt's "
        "two numbers bring all of them below it."
    )
    rule = Rule(
        Claim(
            f"the calibration error (10 bins, held-out rows, mean over seeds) is at most {CALIBRATED:g} as trained",
            lambda cases: _calibrated(cases, "raw"),
        ),
        beside=(Claim(f"it is at most {CALIBRATED:g} after Platt", lambda cases: _calibrated(cases, "platt")),),
        partly=those("b"),
        note=EVERY_MODEL,
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Calibration errors, and what else there is to know of the classifier."""
        out = []
        for case, runs in by_case(records).items():
            for name, words in (("raw", "as trained"), ("platt", "after Platt")):
                out.append(line(label(case), f"ECE, {words}", [float(r.values[f"{name}.ece"]) for r in runs]))
                losses = [r.details[name]["log_loss"] for r in runs]
                out.append(line(label(case), f"held-out log-loss, {words}", losses))
            out.append(line(label(case), "accuracy", [r.details["platt"]["accuracy"] for r in runs]))
            middle = [float(r.values["raw.mass"][1:-1].sum()) for r in runs]
            out.append(line(label(case), "share of rows between 0.1 and 0.9", middle))
        return out

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """How often a row is real, by the chance that the classifier stated."""
        from vestige.show import curves

        at = (torch.arange(BINS, dtype=torch.float64) + 0.5) / BINS
        series = {}
        for case, runs in by_case(records).items():
            mass = torch.stack([r.values["raw.mass"] for r in runs])
            found = torch.stack([r.values["raw.found"] for r in runs])
            series[label(case)] = (mass * found).sum(0) / mass.sum(0)  # NaN where a bin is empty
        title = f"{self.item}: reliability as trained"
        picture = curves(
            series, at, title=title, x_label="stated", y_label="share of real rows", reference={"calibrated": at}
        )
        return {self.name: picture}
