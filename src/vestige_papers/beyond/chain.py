"""Beyond the papers: 64 dimensions, 30 to 50 small steps. Which chain holds out, against an oracle that keeps the data?

Eight modes move their own way and narrow a little: `cdre.drifts.mixture`. Each step is far below what a ratio sees;
after all of them the KL is 5.6 nats. CDRE's own chain, keyframes, the anchored default, the same with a bridge over
far jumps (asked at the judged steps alone), and the oracle: the anchored estimator on data that was kept.

What stands here is a measure of an open problem, and of honesty about it: a chain that falls short must say "lower
estimate" or refuse. Whatever it said at each step stands in the Record.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vestige.continual.record import Record
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, grouped, line, those
from vestige_papers.cdre.drifts import mixture
from vestige_papers.cdre.fig2 import chained, follow_all, mean, oracle, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("every-step", "keyframe", "anchored", "bridged", "oracle")
OURS = ("keyframe", "anchored", "bridged")  # the chains whose verdicts are judged
CLOSE = 0.10


@dataclass(frozen=True)
class BeyondChainConfig:
    """`method` is set by the arms; "" stands for all of them."""

    d: int = 64
    n_steps: int = 30
    modes: int = 8
    n: int = 6000
    method: str = ""
    every: int = 10  # the steps that are judged: those that the oracle sees, and whose truth is computed
    bridge_above: float = 1.0  # nats of held-out KL at which the bridged chain lays waymarks
    waymarks: int = 4


def _near_oracle(groups: Mapping[str, Sequence[Record]]) -> Finding:
    last = judged_steps(groups["oracle"][0])[-1]
    off = mean(groups["anchored"], "kl", last) / mean(groups["oracle"], "kl", last) - 1
    return Finding(abs(off) <= CLOSE, f"off by {share(off)} at t = {last}")


def _honest(groups: Mapping[str, Sequence[Record]]) -> Finding:
    bold = [
        f"{method} at t = {t}"
        for method in OURS
        for record in groups.get(method, [])
        for t in judged_steps(record)
        if record.details["verdicts"][t - 1] == "ok" and _off(record, groups, t) > CLOSE
    ]
    return Finding(not bold, f"called ok: {', '.join(dict.fromkeys(bold)) or 'none'}")


class BeyondChain(Experiment[BeyondChainConfig]):
    """Every strategy over many small steps in 64 dimensions, against the oracle with data."""

    name = "beyond-chain"
    item = "64-d, 30 to 50 steps"
    rule = Rule(
        Claim(
            f"in the mean over seeds at the last step, the anchored chain is within {CLOSE:.0%} of the oracle that "
            "keeps the data",
            lambda groups: _near_oracle(groups),
        ),
        Claim(
            f"no chain of ours that is off the true KL by more than {CLOSE:.0%} at a judged step calls its value ok",
            lambda groups: _honest(groups),
        ),
        partly=those("b"),
        note="Accuracy itself is an open problem here: the oracle falls short as well, and by how much is said.",
    )
    presets: ClassVar[Mapping[str, BeyondChainConfig]] = {
        "smoke": BeyondChainConfig(d=3, n_steps=2, modes=2, n=200, every=2, bridge_above=0.2, waymarks=1),
        "laptop": BeyondChainConfig(),
        "paper": BeyondChainConfig(n_steps=50, n=10000),
    }
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "few steps and samples",
        "laptop": "30 steps, not 50; 6000 samples, not 10000",
    }

    def arms(self, config: BeyondChainConfig) -> Sequence[BeyondChainConfig]:
        """A method each."""
        return [config] if config.method else [dataclasses.replace(config, method=m) for m in METHODS]

    def run(self, config: BeyondChainConfig, seed: int, on_progress: OnProgress) -> Record:
        """One method along the drift."""
        bed = mixture(d=config.d, n_steps=config.n_steps, modes=config.modes)
        judged = range(config.every, config.n_steps + 1, config.every)
        if config.method == "oracle":
            values, details = follow_all(oracle(bed, config.n, seed), bed, judged, on_progress)
            return self.record(config, seed, values=values, details=details)
        options: dict[str, Any] = {}
        if config.method == "bridged":
            options = {"bridge_above": config.bridge_above, "waymarks": config.waymarks}
        strategy = "anchored" if config.method == "bridged" else config.method
        follower = chained(bed, strategy, config.n, seed, **options)
        # A bridge is dear, and its chain, anchored at the first step, needs none of the steps between.
        steps = sorted({1, *judged}) if config.method == "bridged" else range(1, config.n_steps + 1)
        values, details = follow_all(follower, bed, steps, on_progress, truths=())
        return self.record(config, seed, values=values, details=details)

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """kl of every method at the judged steps; the truth is the oracle's to know."""
        groups = by_method(records)
        out = []
        for method, group in groups.items():
            for t in judged_steps(records[0]):
                values = [float(r.values["kl"][t - 1]) for r in group]
                out += [line(method, f"kl, t = {t}", values, truth=_truth(groups, t))]
        return out

    def facts(self, records: Sequence[Record]) -> dict[str, list[Record]]:
        """Records by method."""
        groups = by_method(records)
        if not {"anchored", "oracle"} <= set(groups):
            raise NotJudged("needs the anchored chain and the oracle.")
        return groups

    def remarks(self, facts: Mapping[str, Sequence[Record]]) -> str:
        """How far the oracle falls short."""
        runs, last = facts["oracle"], judged_steps(facts["oracle"][0])[-1]
        return f"The oracle is off the truth by {share(mean(runs, 'kl', last) / mean(runs, 'kl_true', last) - 1)}."

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """kl over steps."""
        from vestige.show import curves

        groups = by_method(records)
        steps = list(range(1, len(records[0].values["kl"]) + 1))
        series = {method: [mean(group, "kl", t) for t in steps] for method, group in groups.items()}
        truth = {"truth": [_truth(groups, t) or math.nan for t in steps]}
        title = f"{records[0].config['d']} dimensions, {len(steps)} steps: KL by step"
        return {self.name: curves(series, steps, title=title, x_label="step", y_label="kl (nats)", reference=truth)}


def by_method(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by method, in order."""
    return grouped(records, lambda r: str(r.config["method"]))


def judged_steps(record: Record) -> list[int]:
    """The steps that the oracle sees."""
    every = record.config["every"]
    return list(range(every, record.config["n_steps"] + 1, every))


def _truth(groups: Mapping[str, Sequence[Record]], t: int) -> float | None:
    known = mean(groups.get("oracle", []), "kl_true", t)
    return None if math.isnan(known) else known


def _off(record: Record, groups: Mapping[str, Sequence[Record]], t: int) -> float:
    """How far one chain's kl is from the truth, as a share of it; 0 where it gave none."""
    value, truth = float(record.values["kl"][t - 1]), _truth(groups, t)
    return 0.0 if math.isnan(value) or truth is None else abs(value / truth - 1)
