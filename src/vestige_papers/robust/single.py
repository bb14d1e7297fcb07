"""Farquhar and Gal Fig. 6 and 8: Split MNIST and Split Fashion-MNIST with one head for all tasks.

VCL and EWC "forget old tasks completely"; the coreset alone "performs exactly the same as VCL with coresets". The
figures are curves without numbers; `PAPER` has those words as numbers: nothing left of the old tasks, no gap between
the coreset variants.

How near these two are depends on how long the coreset is trained on before a test, which B.3 fixes at 120 epochs, and
on which prior holds that fit, which is not said. Fig. 6 is run with fewer and more steps as well, and each variant with
the prior of the other (`coreset_prior` of `vestige.continual.learners.vcl_coreset`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import ClassVar

from vestige.continual.record import Record
from vestige.runner.experiment import Line, Verdict, line
from vestige_papers.robust.runs import (
    CORESET,
    HYBRID,
    ROWS,
    WITH_CORESET,
    WITHOUT_CORESET,
    Setting,
    accuracy,
    filled,
    mean_of,
    new_task,
    old_tasks,
    run_lines,
)
from vestige_papers.robust.split import FASHION_LOG_VAR, FROM, LAPTOP, LEFT_OUT, SMOKE, SplitFigure
from vestige_papers.rwalk.runs import judged

# In words: "forget old tasks completely" (%), "exactly the same" (points).
PAPER = {"old tasks": 0.0, "gap": 0.0}
FORGOTTEN, FAR, SAME = 5.0, 20.0, 3.0  # percent left of old tasks; points above; points apart
LEARNT = 80.0  # percent on a task when it is new: a method that never learns has nothing to forget
OTHER_STEPS = (1 / 3, 2.5)  # of the printed 120 on the coreset: 40 and 300


def with_other_steps(unit: Setting, shares: Sequence[float]) -> list[Setting]:
    """The same unit with shares of its steps on the coreset; none where it has no coreset."""
    steps = unit.coreset_steps
    return [] if steps is None else [replace(unit, coreset_steps=round(share * steps)) for share in shares]


def gaps(hybrid: Sequence[Record], alone: Sequence[Record]) -> list[float]:
    """A of VCL with a coreset less that of the coreset alone, seed by seed, in points."""
    of = {r.seed: accuracy(r) for r in alone}
    return [accuracy(r) - of[r.seed] for r in hybrid if r.seed in of]


def compared(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Words -> labels of a hybrid and a coreset alone: as they are, at other steps, and both from the first prior."""
    words, first = f"{HYBRID} less {CORESET.lower()}", f", fitted from {FROM['first']}"
    endings = [label.removeprefix(HYBRID) for label in labels if label.startswith(HYBRID)]
    found = {words + ending: (HYBRID + ending, CORESET + ending.removeprefix(first)) for ending in endings}
    return {words: pair for words, pair in found.items() if pair[1] in labels}


class SingleHead(SplitFigure):
    """Without a coreset everything old is lost; the coreset needs no VCL."""

    rule = (
        f"Four claims: VCL and EWC end with at most {FORGOTTEN:g} % on the old tasks; they learnt each task to "
        f"{LEARNT:g} % when it was new; both coreset variants end at least {FAR:g} points above them; and within "
        f"{SAME:g} points of each other. All: reproduced; at least two: partly; else not. Judged is the reading in "
        "which the fit to a coreset is held by the posterior before it with VCL, and by the first prior without; fits "
        "from the other prior stand beside it."
    )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each row, the coreset variants with other steps and another prior, and the gaps between the two."""
        found, swept = self.usual(records), self.usual(records, swept=True)
        lines = []
        for row, runs in found.items():
            lines += run_lines(row, runs, old=PAPER["old tasks"] if row in WITHOUT_CORESET else None)
        for label, runs in swept.items():
            lines += run_lines(label, runs)
        every = found | swept
        for words, (hybrid, alone) in compared(list(every)).items():
            paper = PAPER["gap"] if hybrid == HYBRID else None
            lines.append(line(words, "points", gaps(every[hybrid], every[alone]), paper=paper))
        return lines

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The claims of `rule`."""
        found = self.usual(records)
        if set(found) != set(ROWS):
            return Verdict("not judged", f"Only {', '.join(found) or 'nothing'} has been run.")
        ends = {row: mean_of(runs) for row, runs in found.items()}
        plain = max(ends[row] for row in WITHOUT_CORESET)
        left = max(fmean(map(old_tasks, found[row])) for row in WITHOUT_CORESET)
        learnt = min(fmean(map(new_task, found[row])) for row in WITHOUT_CORESET)

        return judged(
            {
                "VCL and EWC lose the old tasks": left <= FORGOTTEN,
                "they learn the new ones": learnt >= LEARNT,
                "both coreset variants end far above them": min(ends[row] for row in WITH_CORESET) - plain >= FAR,
                f"and within {SAME:g} points of each other": abs(ends[HYBRID] - ends[CORESET]) <= SAME,
            }
        )


class RobustFig6(SingleHead):
    """Farquhar and Gal Fig. 6: single-headed Split MNIST."""

    name, item = "robust-fig6", "Farquhar and Gal Fig. 6"
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": replace(SMOKE, uncertainty=True),
        "laptop": replace(LAPTOP, uncertainty=True),
        "paper": Setting(uncertainty=True),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 10, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = LEFT_OUT

    def arms(self, config: Setting) -> Sequence[Setting]:
        """A unit for each row, then the coreset variants with fewer and more steps, and with the other's prior."""
        units = super().arms(config)
        steps = [other for unit in units for other in with_other_steps(unit, OTHER_STEPS)]
        fits = [filled(config, HYBRID, coreset_prior="first"), filled(config, CORESET, coreset_prior="posterior")]
        return [*units, *steps, *fits]


class RobustFig8(SingleHead):
    """Farquhar and Gal Fig. 8: single-headed Split Fashion-MNIST."""

    name, item = "robust-fig8", "Farquhar and Gal Fig. 8"
    presets: ClassVar[Mapping[str, Setting]] = {
        "smoke": replace(SMOKE, preset="split-fashion-mnist"),
        "laptop": replace(LAPTOP, data="fashion_mnist", preset="split-fashion-mnist", log_var=FASHION_LOG_VAR),
        "paper": Setting(data="fashion_mnist", preset="split-fashion-mnist", log_var=FASHION_LOG_VAR),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 5, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = LEFT_OUT
