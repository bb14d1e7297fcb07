"""Beyond the papers: forgetting and intransigence of a generator, from a divergence matrix that no data was kept for.

D[t, task] = KL(p(.|task) || q_t(.|task)) by a chain gives RWalk's forgetting (Eq. 3) and intransigence (Eq. 4) for
generators, with divergences in place of accuracies (smaller is better). An oracle that keeps the data fills the same
matrix. Do they agree on how much was lost, task by task, and on which generator loses more?

The streams, drifting Gaussians and mixtures that share a budget, are in `beyond_streams`; on both the generator really
forgets. The reference of Eq. 4 is a generator that has the task and its data to itself; for Gaussians it is exact, so
0. At arrival the data is still here: diagonal and reference need no chain, and both sides share them. Only what lies
below the diagonal, forgetting, has to be carried.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from scipy.stats import kendalltau
from torch import Tensor

from vestige import metrics
from vestige.chains import STRATEGIES, Chain
from vestige.continual.record import Record
from vestige.core.checks import ArrayLike
from vestige.runner.experiment import Experiment, Line, OnProgress, Verdict, line
from vestige_papers.beyond.streams import Config, Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = ("chain", "oracle")
CLOSE = 0.15  # of the oracle's forgetting, or as many nats where it is below one


class BeyondMatrix(Experiment[Config]):
    """Forgetting and intransigence of generators from a chain, against the same from kept data."""

    name = "beyond-matrix"
    item = "F and I of generators"
    rule = (
        "Reproduced if for every generator the chain's forgetting lies within 15 % (or 0.15 nats, whichever is more) "
        "of the oracle's in the mean over seeds, and both put the generators of each stream in the same order by "
        "forgetting; partly if the order agrees for those that the chain did not refuse, and where it refuses or is "
        "further off no cell that it carried is called ok; not otherwise."
    )
    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": Config(drifts=(0.1,), budgets=(6.0,), tasks=2, n=200, data="digits", dims=3),
        "laptop": Config(),
        "paper": Config(n=10000, dims=16),
    }
    uses: ClassVar[tuple[type, ...]] = (STRATEGIES["anchored"],)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "nearly everything; digits for MNIST.",
        "laptop": "3000 samples a task for 10000 (MNIST has about 12000), 8 components for 16, two seeds.",
    }

    def arms(self, config: Config) -> Sequence[Config]:
        """A generator each."""
        if config.stream:
            return [config]
        bare = dataclasses.replace(config, drifts=(), budgets=())
        given = {"gaussians": config.drifts, "mixtures": config.budgets}
        return [dataclasses.replace(bare, stream=s, generator=g) for s, all_ in given.items() for g in all_]

    def run(self, config: Config, seed: int, on_progress: OnProgress) -> Record:
        """One generator through its stream, with a chain and an oracle beside it."""
        stage, chain = Stage(config, seed), Chain(names=("kl",))
        matrices = {side: torch.full((config.tasks,) * 2, math.nan, dtype=torch.float64) for side in SIDES}
        alone = torch.zeros(config.tasks, dtype=torch.float64)
        verdicts: dict[str, str] = {}
        for t in range(1, config.tasks + 1):
            stage.train(t)
            model: dict[str | int, ArrayLike] = {k: stage.sample(t, k) for k in range(1, t + 1)}
            chain.step(real={t: stage.data[t]}, model=model, seed=seed)
            for k in range(1, t + 1):
                value, verdict = kl_of(chain, k)
                matrices["chain"][t - 1, k - 1] = value
                verdicts[f"{t},{k}"] = verdict
                matrices["oracle"][t - 1, k - 1] = value if k == t else _fresh(stage.data[k], model[k], seed)
            lone = stage.reference(t)
            alone[t - 1] = 0.0 if lone is None else _fresh(stage.data[t], lone, seed)
            on_progress(t / config.tasks, f"step {t}")
        if config.stream == "gaussians":
            bed = stage.bed
            truth = [
                [bed.true("kl", t, k) if k <= t else math.nan for k in bed.tasks(bed.n_steps)]
                for t in bed.tasks(bed.n_steps)
            ]
            matrices["truth"] = torch.tensor(truth, dtype=torch.float64)
        return self.record(
            config, seed, head="chain", matrices=matrices, values={"alone": alone}, details={"verdicts": verdicts}
        )

    def lines(self, records: Sequence[Record]) -> list[Line]:
        """F and I of every generator by chain and by oracle, and how well they agree by task."""
        out = []
        for label, group in by_generator(records).items():
            true_f = [_forgetting(r, "truth") for r in group if "truth" in r.matrices]
            truth = sum(true_f) / len(true_f) if true_f else None
            for side in SIDES:
                out += [line(label, f"F, {side} (nats)", [_forgetting(r, side) for r in group], truth=truth)]
            out += [line(label, "I, both (nats)", [_intransigence(r) for r in group])]
            out += [line(label, "Kendall's tau of D below the diagonal", [_agreement(r) for r in group])]
        return out

    def verdict(self, records: Sequence[Record]) -> Verdict:
        """The rule."""
        groups = by_generator(records)
        found = {
            label: [sum(_forgetting(r, side) for r in group) / len(group) for side in SIDES]
            for label, group in groups.items()
        }
        if any(math.isnan(oracle) for _, oracle in found.values()):
            return Verdict("not judged", "the oracle refused a divergence.")
        refused = [label for label, (chain, _) in found.items() if math.isnan(chain)]
        off = {label: abs(c - o) / max(abs(o), 1.0) for label, (c, o) in found.items() if label not in refused}
        far = [label for label, share in off.items() if share > CLOSE]
        bold = [label for label in (*refused, *far) if any(_says_ok(record) for record in groups[label])]
        streams = {label: groups[label][0].config["stream"] for label in off}
        ordered = all(_order(found, streams, s, 0) == _order(found, streams, s, 1) for s in set(streams.values()))
        told = [f"{label} {found[label][0]:.2f} for {found[label][1]:.2f}" for label in far]
        why = (
            f"The order of the generators by forgetting is {'the same' if ordered else 'not the same'}. Further off "
            f"than 15 %: {', '.join(told) or 'none'}. Refused: {', '.join(refused) or 'none'}. Of these called ok: "
            f"{', '.join(bold) or 'none'}."
        )
        if not ordered or bold:
            return Verdict("not", why)
        return Verdict("partly" if refused or far else "reproduced", why)

    def figures(self, records: Sequence[Record]) -> dict[str, Figure]:
        """Forgetting against intransigence, by chain and by oracle."""
        from vestige.show import plane

        points = {}
        for label, group in by_generator(records).items():
            for side in SIDES:
                pairs = [(_forgetting(r, side), _intransigence(r)) for r in group]
                mean = tuple(sum(v) / len(v) for v in zip(*pairs, strict=True))
                if not any(map(math.isnan, mean)):
                    points[f"{label}, {side}"] = (mean[0], mean[1])
        return {self.name: plane(points, title="Forgetting and intransigence of generators (nats)")} if points else {}


def kl_of(chain: Chain, task: int) -> tuple[float, str]:
    """kl of one task, and the verdict on it."""
    table = chain.divergences(["kl"])
    row = table[table["task"] == task].iloc[0]
    return float(row["value"]), str(row["verdict"])


def by_generator(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by stream and generator, in order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        stream, generator = record.config["stream"], record.config["generator"]
        label = f"drift {generator:g}" if stream == "gaussians" else f"{generator:g} components"
        groups.setdefault(label, []).append(record)
    return groups


def _fresh(real: Tensor, model: ArrayLike, seed: int) -> float:
    """The first step of a new chain: the estimator with the data at hand."""
    chain = Chain(names=("kl",))
    chain.step(real={1: real}, model={1: model}, seed=seed)
    return kl_of(chain, 1)[0]


def _forgetting(record: Record, side: str) -> float:
    return float(metrics.forgetting(record.matrices[side], better="down"))


def _intransigence(record: Record) -> float:
    """The mean over tasks of what a generator lacks at arrival against one that has the task to itself."""
    return float((record.matrices["chain"].diagonal() - record.values["alone"]).mean())


def _says_ok(record: Record) -> bool:
    """Whether the chain calls a cell ok that it has carried: below the diagonal."""
    carried = (said for cell, said in record.details["verdicts"].items() if len(set(cell.split(","))) > 1)
    return "ok" in carried


def _agreement(record: Record) -> float:
    """Kendall's tau between the two matrices below the diagonal; NaN with fewer than three cells."""
    below = torch.ones_like(record.matrices["chain"], dtype=torch.bool).tril(-1)
    below &= record.matrices["chain"].isfinite()  # those that were refused have no rank
    chain, oracle = (record.matrices[side][below].numpy() for side in SIDES)
    return float(kendalltau(chain, oracle).statistic) if len(chain) > 2 else math.nan


def _order(found: Mapping[str, Sequence[float]], streams: Mapping[str, str], stream: str, side: int) -> list[str]:
    own = [label for label, its in streams.items() if its == stream]
    return sorted(own, key=lambda label: found[label][side])
