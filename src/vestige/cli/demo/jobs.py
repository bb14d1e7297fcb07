"""The demo: three of the package's jobs on the handwritten digits that ship with scikit-learn, and a page about them.

    found = demo.run(seed=0)
    found.page().save("demo-report/index.html")

`judged` follows a generator whose data is deleted, `learners` compares four learners, `reweighted` mends a biased
sample set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vestige import data
from vestige.cli.demo.judged import Judged, JudgedConfig, judge
from vestige.cli.demo.learners import LEARNERS, REFERENCE, LearnersConfig, learn
from vestige.cli.demo.reweighted import Reweighted, ReweightedConfig, reweight
from vestige.continual.audit import Audit
from vestige.continual.record import Record

if TYPE_CHECKING:
    from vestige.show import Page

__all__ = ["LEARNERS", "REFERENCE", "Config", "Found", "Judged", "Reweighted", "run"]

# What part of the time each part takes, for a bar.
SHARES = {"judged": 0.4, "learners": 0.55, "reweighted": 0.05}


@dataclass(frozen=True)
class Config:
    """The settings of the three parts."""

    judged: JudgedConfig = field(default_factory=JudgedConfig)
    learners: LearnersConfig = field(default_factory=LearnersConfig)
    reweighted: ReweightedConfig = field(default_factory=ReweightedConfig)


DEFAULT = Config()


@dataclass(frozen=True)
class Found:
    """What the three parts found."""

    seed: int
    config: Config
    judged: Judged
    records: dict[str, Record]  # the reference first
    reweighted: Reweighted

    @property
    def audits(self) -> dict[str, Audit]:
        """The audit of each learner."""
        return {name: Audit.from_json(self.records[name].audit or {}) for name in LEARNERS}

    def page(self) -> Page:
        """The report, for reading."""
        from vestige.cli.demo.page import page  # matplotlib is loaded for this alone

        return page(self)

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON."""
        judged, mended = self.judged, self.reweighted
        before, after = mended.misplaced
        learners = {
            name: {"id": record.id, **record.summary().last(), "matrix": record.R.tolist()}
            | ({"fails": list(self.audits[name].failed)} if name in LEARNERS else {})
            for name, record in self.records.items()
        }
        return {
            "seed": self.seed,
            "generator": {
                "monitor": judged.monitor.tolist(),
                "truth": judged.truth.tolist(),
                "mean_gap": float(judged.gone.mean()),
                "verdicts": judged.verdicts,
            },
            "learners": learners,
            "weights": {
                "target": mended.target.tolist(),
                "biased": mended.biased.tolist(),
                "weighted": mended.weighted.tolist(),
                "misplaced": {"before": before, "after": after},
                "ess": mended.weighing.final.ess,
                "rows": len(mended.weighing.weights),
                "verdict": mended.weighing.final.verdict,
            },
        }


def run(
    *, seed: int = 0, config: Config | None = None, on_progress: Callable[[str, float], None] = lambda _w, _s: None
) -> Found:
    """All three parts; `on_progress` hears what is going on and the share of everything that is done."""
    config = config or DEFAULT
    dataset = data.load("digits")
    methods = [REFERENCE, *LEARNERS]

    def digits(done: int) -> None:
        on_progress("a generator learns digit after digit", SHARES["judged"] * done / config.judged.digits)

    def learning(name: str, share: float) -> None:
        on_progress(
            f"{name} learns", SHARES["judged"] + SHARES["learners"] * (methods.index(name) + share) / len(methods)
        )

    digits(0)
    judged = judge(dataset, config.judged, seed=seed, on_step=digits)
    records = learn(dataset, config.learners, seed=seed, on_progress=learning)
    on_progress("weights mend a biased set", SHARES["judged"] + SHARES["learners"])
    mended = reweight(dataset, config.reweighted, seed=seed)
    on_progress("weights mend a biased set", 1.0)
    return Found(seed, config, judged, records, mended)
