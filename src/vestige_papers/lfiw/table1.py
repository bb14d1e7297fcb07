"""LFIW Table 1: Inception Score, FID and KID of a model's samples, with and without weights, beside the reference.

The reference score is what real rows get, held against other real rows. The paper's finding is that weights bring all
three scores of both models nearer to it. Its numbers are of CIFAR-10, PixelCNN++, SNGAN and Inception's features, and
stand beside our VAE (likelihood, as PixelCNN++) and our GAN (as SNGAN): directions can be compared, sizes cannot.

The weighted row that leads is "Tempered", the library's own way with such weights; the paper's, self-normalised and no
more ("LFIW"), stands below it with the printed numbers, and is what the rule judges. Beside them stands the mean raw
weight, cut at one, which is the share of the data that the model reaches: scores by weights speak of that part alone.

Beyond the paper: an under-trained model; class-skewed real images, for which the true weights are known; tempered
weights; the reader's own samples:

    vestige run lfiw-table1 --set real=real.npy --set fake=fake.npy [--set features=map.json]

in any format of `vestige compare`, `map.json` being a feature map stored by `save`; with one of kind "classifier"
there is an Inception Score too. Tables 4, 5 and lfiw-calibration take the same, and the same Records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.continual.record import Record
from vestige.runner import Claim, Finding, Line, Rule, half, line, those
from vestige_papers.lfiw.goodness import (
    DEFAULT,
    EVERY_MODEL,
    LFIW,
    REFERENCE,
    RUNS,
    SCORES,
    TEMPERED,
    TRUE,
    Cases,
    Goodness,
    by_case,
    label,
    mean_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL = (11.09, 5.20, 0.008)
# (IS, FID, KID) as printed: PixelCNN++ beside the VAE, SNGAN beside the GAN
PAPER = {
    "vae": {REFERENCE: REAL, DEFAULT: (5.16, 58.70, 0.196), LFIW: (6.68, 55.83, 0.126)},
    "gan": {REFERENCE: REAL, DEFAULT: (8.33, 20.40, 0.094), LFIW: (8.57, 17.29, 0.073)},
}
ROWS = (REFERENCE, DEFAULT, TEMPERED, LFIW, TRUE)
REACHED = "reachable share (mean raw weight, at most 1)"
WORDS = {"is": "IS", "fid": "FID", "kid": "KID"}


def _nearer(cases: Cases, row: str) -> list[Finding]:
    """Whether weighted scores are nearer to the reference than unweighted ones: a finding for each case and score."""
    found = []
    for case, runs in cases.items():
        for score in SCORES:
            reference = mean_of(runs, f"{REFERENCE}.{score}")
            plain, weighted = (abs(mean_of(runs, f"{name}.{score}") - reference) for name in (DEFAULT, row))
            holds = None if math.isnan(plain) else weighted < plain
            found.append(Finding(holds, case=f"{label(case)}, {WORDS[score]}"))
    return found


class LFIWTable1(Goodness):
    """Goodness of fit, weighted and not."""

    name, item = RUNS, "LFIW Table 1"
    grounds = (
        "Weights fail where few rows carry them. Every score that moves away is that of a model whose weights "
        "have an effective size of 3 % of the rows or less; where the true weights are known (skewed images, 60 % "
        "and more) every score comes nearer. Tempered weights bring most of the others nearer, too."
    )
    rule = Rule(
        Claim(
            "self-normalised weights bring IS, FID and KID nearer to the reference", lambda cases: _nearer(cases, LFIW)
        ),
        beside=(Claim("tempered weights bring them nearer", lambda cases: _nearer(cases, TEMPERED)),),
        partly=half("a") | those("b"),
        note=EVERY_MODEL,
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """The table, and what the weights are worth."""
        out = []
        for case, runs in by_case(records).items():
            for row in ROWS:
                printed = PAPER.get(case[0], {}).get(row, (None, None, None))
                for score, paper in zip(SCORES, printed, strict=True):
                    values = [float(r.values[f"{row}.{score}"].mean()) for r in runs if f"{row}.{score}" in r.values]
                    if values and not all(map(math.isnan, values)):
                        out.append(line(label(case), f"{WORDS[score]}, {row}", values, paper=paper))
            raw = [float(r.values["mean_weight"].mean()) for r in runs if "mean_weight" in r.values]
            if raw:
                out.append(line(label(case), REACHED, [min(1.0, mean) for mean in raw]))
            known = "true_ess" in runs[0].values
            truth = mean_of(runs, "true_ess") if known else None
            out.append(line(label(case), "ESS, share of T", [float(r.values["ess"].mean()) for r in runs], truth=truth))
            if known:
                errors = [float(r.values["log_weight_error"].mean()) for r in runs]
                out.append(line(label(case), "RMS error of log weights", errors))
            out.append(line(label(case), "accuracy, real or generated", [r.details["platt"]["accuracy"] for r in runs]))
        return out

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """FID of each case."""
        from vestige.show import bars

        cases = by_case(records)
        series = {row: [mean_of(runs, f"{row}.fid") for runs in cases.values()] for row in (DEFAULT, TEMPERED, LFIW)}
        return {self.name: bars(series, [label(case) for case in cases], title=f"{self.item}: FID", y_label="FID")}
