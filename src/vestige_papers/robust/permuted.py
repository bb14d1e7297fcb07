"""Farquhar and Gal Fig. 9 and 10: Permuted MNIST, ten tasks, the evaluation that flatters what takes a model for prior.

"VCL with or without a coreset performs well [...]. Coresets without the VCL loss performs worse." The figure is a curve
without numbers, and EWC is not in it. Single-headed, 100-100 units, a coreset of 200 a task (B.2). Fig. 10 is the same
with VGR (C.4), which "performs marginally better than VCL"; the other rows are the runs of Fig. 9, with the same ids.
VGR has four times the steps of VCL at `laptop`, as in Fig. 11, and a second verdict with as many steps as VCL.
A permutation of the pixels is nothing to a dense network, so that VGR's generators are trained on permuted digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from vestige.continual.record import Record
from vestige.runner import Claim, Line, Rule, at_least, at_most, need, those
from vestige_papers.robust.replay import replayed
from vestige_papers.robust.runs import (
    CORESET,
    HYBRID,
    VCL,
    VGR,
    Replayed,
    RobustRuns,
    RobustSetting,
    by_row,
    filled,
    mean_of,
    plain,
    run_lines,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WELL, WORSE = 85.0, 5.0  # percent; points
MARGIN = 5.0  # points: no more than that is marginal


AS_VCL = f"{VGR}, as many steps as VCL"


def _lead(ends: Mapping[str, float]) -> float:
    return ends[VGR] - max(ends[VCL], ends[HYBRID])


class RobustFig9(RobustRuns):
    """Farquhar and Gal Fig. 9: Permuted MNIST."""

    name, item = "robust-fig9", "Farquhar and Gal Fig. 9"
    rule = Rule(
        Claim(
            f"VCL with and without a coreset ends at {WELL:g} % or above",
            lambda ends: at_least(WELL, {row: ends[row] for row in (VCL, HYBRID)}),
        ),
        Claim(
            f"the coreset alone ends at least {WORSE:g} points below both",
            lambda ends: at_least(WORSE, {"gap": min(ends[VCL], ends[HYBRID]) - ends[CORESET]}),
        ),
    )
    rows = needed = (VCL, HYBRID, CORESET)
    presets: ClassVar[Mapping[str, RobustSetting]] = {
        "smoke": RobustSetting(
            preset="permuted-mnist", data="digits", tasks=3, epochs=1, batch_size=60, hidden=(16,), train_samples=2,
            test_samples=5, fit_steps=20, coreset=10, coreset_steps=10,
        ),
        "laptop": RobustSetting(
            preset="permuted-mnist", tasks=10, epochs=10, train_samples=2, test_samples=10, test_every=10,
        ),
        "paper": RobustSetting(preset="permuted-mnist", tasks=10),
    }  # fmt: skip
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "digits in place of MNIST; 3 of 10 tasks; a small network; little training",
        "laptop": "10 of 100 epochs; 2 posterior samples in training and 10 in a test; a tenth of the test rows",
    }

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """Each row."""
        return [x for row, runs in self.by_label(records).items() for x in run_lines(row, runs)]

    def facts(self, records: Sequence[Record]) -> dict[str, float]:
        """A after the last task, in percent, by row."""
        ends = {row: mean_of(runs) for row, runs in self.by_label(records).items()}
        need(ends, self.needed)
        return ends

    def by_label(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records of each row."""
        return by_row(records)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """The figure as printed."""
        from vestige.show import curves

        found = self.by_label(records)
        tasks = list(range(1, len(records[0].R) + 1))
        series = {row: [mean_of(runs, k) for k in tasks] for row, runs in found.items()}
        return {
            "average": curves(series, tasks, title=self.item, x_label="tasks", y_label="average accuracy (%)"),
        }


MARGINAL = Rule(
    Claim("VGR ends no lower than VCL, with a coreset or without", lambda ends: at_least(0.0, {"lead": _lead(ends)})),
    Claim(
        f"VGR ends at most {MARGIN:g} points above the better of them",
        lambda ends: at_most(MARGIN, {"lead": _lead(ends)}),
    ),
)


class RobustFig10(RobustFig9):
    """Farquhar and Gal Fig. 10: Permuted MNIST, VGR beside VCL."""

    name, item = "robust-fig10", "Farquhar and Gal Fig. 10"
    rule = Rule(
        *MARGINAL.claims,
        partly=those("a"),
        earlier=MARGINAL,
        because="that VGR is not far above says nothing where it is below",
    )
    grounds = (
        "VGR ends about where VCL does without a coreset, and below VCL with one. It is not for want of steps: with "
        "four times as many it learns each task better and keeps the old ones worse. What its generators, narrower "
        "and trained for a twentieth of print's epochs, have kept of the old tasks is what it falls behind by."
    )
    needed = (VCL, HYBRID, VGR)
    presets: ClassVar[Mapping[str, RobustSetting]] = {
        "smoke": replayed(
            RobustFig9.presets["smoke"], generator_preset="small", generator_epochs=1, samples_per_class=40
        ),
        "laptop": replayed(
            RobustFig9.presets["laptop"],
            generator_preset="small",
            generator_epochs=10,
            samples_per_class=2000,
            solver=(20, 128),
        ),
        "paper": replayed(RobustFig9.presets["paper"]),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 10}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": RobustFig9.cut["smoke"],
        "laptop": RobustFig9.cut["laptop"]
        + "; VGR trained for 20 epochs of batches of 128, four times the steps; 2000 of 6000 generated digits a class; "
        "narrower generators; 10 of their 200 epochs, at a faster rate",
    }

    def arms(self, config: RobustSetting) -> Sequence[RobustSetting]:
        """The units of Fig. 9, then VGR's."""
        units = [*(filled(plain(config), row) for row in self.rows), filled(config, VGR)]
        if isinstance(config, Replayed) and config.solver is not None:
            units.append(filled(replace(config, solver=None), VGR))
        return units

    def by_label(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """VGR with other steps than it is judged by apart."""
        found = super().by_label(records)
        judged = {(unit.epochs, unit.batch_size) for unit in (filled(each, VGR) for each in self.presets.values())}
        parts: dict[str, list[Record]] = {}
        for r in found.pop(VGR, []):
            steps = r.config["epochs"], r.config["batch_size"]
            parts.setdefault(VGR if steps in judged else AS_VCL, []).append(r)
        return found | parts

    def remarks(self, facts: Mapping[str, float]) -> str:
        """The same rule with as many steps as VCL."""
        if AS_VCL not in facts:
            return ""
        found = self.rule.judge({**facts, VGR: facts[AS_VCL]})
        return f"With as many steps as VCL it is {found.word}, {found.claims}. {found.why}"

    def config(self, config: RobustSetting) -> dict[str, Any]:
        """As that of Fig. 9 where nothing is generated, so that the ids agree."""
        return super().config(config) if isinstance(config, Replayed) else RobustFig9().config(config)
