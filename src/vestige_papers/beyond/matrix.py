"""Beyond the papers: forgetting and intransigence of a generator, from a divergence matrix that no data was kept for.

D[t, task] = KL(p(.|task) || q_t(.|task)) by a chain gives RWalk's forgetting (Eq. 3) and intransigence (Eq. 4) for
generators, with divergences in place of accuracies (smaller is better). An oracle that keeps the data fills the same
matrix. Do they agree on how much was lost, task by task, and on which generator loses more?

Two small streams on which a generator really forgets:
gaussians   the drifting Gaussians of CDRE section 4.1, many tasks; the truth is known
mixtures    images as principal components, a few classes a task, and a continual generator: Gaussian mixtures with
            a budget of components that the tasks seen so far share. At each step old tasks are refitted to samples
            of their former selves, with fewer components: that is forgetting. New ones get fewer than they would
            get alone: that is intransigence.
 The reference of Eq. 4 is a generator that has the task and its data to itself; for Gaussians it is exact, so
0. At arrival the data is still here: diagonal and reference need no chain, and both sides share them. Only what lies
below the diagonal, forgetting, has to be carried.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vestige import metrics
from vestige.chains import STRATEGIES, Chain, gaussians
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.checks import ArrayLike
from vestige.features import PCA
from vestige.runner import Claim, Experiment, Finding, Line, NotJudged, OnProgress, Rule, grouped, line, those
from vestige_papers.cdre.static import load, shuffled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = ("chain", "oracle")
CLOSE = 0.15  # of the oracle's forgetting, or as many nats where it is below one


@dataclass(frozen=True)
class BeyondMatrixConfig:
    """`generator` is set by the arms: a drift a step for "gaussians", a budget of components for "mixtures"."""

    stream: str = ""
    drifts: tuple[float, ...] = (0.02, 0.05, 0.08)
    budgets: tuple[float, ...] = (8.0, 16.0, 40.0)
    generator: float = 0.0
    tasks: int = 5
    n: int = 3000
    data: str = "mnist"
    dims: int = 8


class ForgettingStage:
    """A stream and its generator: samples of real tasks, and of the generator after step t."""

    def __init__(self, config: BeyondMatrixConfig, seed: int) -> None:
        self.config, self.seed = config, seed
        if config.stream == "gaussians":
            self.bed = gaussians(2, n_steps=config.tasks, multi_task=True, mean_step=config.generator)
            self.data = {k: self.bed.real(k, config.n, seed) for k in range(1, config.tasks + 1)}
        else:
            self.data = tasks_of(config, seed)
            self.models: dict[int, Any] = {}  # scikit-learn's GaussianMixture, a task

    def train(self, t: int) -> None:
        """Step t: task t from its data, older ones from what the generator remembers of them."""
        if self.config.stream == "mixtures":
            share = max(int(self.config.generator) // t, 1)
            n = len(self.data[t])
            taught = {k: self._sampled(model, n, "replay", t, k) for k, model in self.models.items()}
            taught[t] = self.data[t]
            self.models = {k: self._mixture(x, share, t, k) for k, x in taught.items()}

    def sample(self, t: int, task: int) -> Tensor:
        """What the generator gives for `task` after step `t`, which must be the newest."""
        if self.config.stream == "gaussians":
            return self.bed.model(t, task, self.config.n, self.seed)
        return self._sampled(self.models[task], len(self.data[task]), "sample", t, task)

    def reference(self, task: int) -> Tensor | None:
        """Samples of a generator that has the task to itself; None where that would be exact."""
        if self.config.stream == "gaussians":
            return None
        alone = self._mixture(self.data[task], int(self.config.generator), 0, task)
        return self._sampled(alone, len(self.data[task]), "alone", 0, task)

    def _mixture(self, x: Tensor, components: int, t: int, task: int) -> Any:  # noqa: ANN401 - a GaussianMixture
        from sklearn.mixture import GaussianMixture  # here: a list of experiments needs none

        state = rng.child_seed(self.seed, "mixture", t, task) % 2**32
        few = min(components, len(x) // 20)
        return GaussianMixture(few, covariance_type="diag", reg_covar=1e-3, random_state=state).fit(x.numpy())

    def _sampled(self, model: Any, n: int, *names: str | int) -> Tensor:  # noqa: ANN401 - see above
        """`n` draws; the model's own method would move its random state along."""
        numbers = rng.fork_numpy(self.seed, *names)
        which = numbers.choice(len(model.weights_), n, p=model.weights_)
        noise = numbers.standard_normal((n, model.means_.shape[1]))
        return torch.from_numpy(model.means_[which] + np.sqrt(model.covariances_[which]) * noise)


def tasks_of(config: BeyondMatrixConfig, seed: int) -> dict[int, Tensor]:
    """Images of the first, second, ... group of classes as `dims` principal components, at most `n` a task."""
    source = load(config.data)
    x, y = (rows[: 2 * config.n * config.tasks] for rows in shuffled(source, seed))
    codes = PCA(dims=config.dims, whiten=True).fit(x.flatten(1)).transform(x.flatten(1)).double()
    task = torch.div(y, len(source.names) // config.tasks, rounding_mode="floor") + 1
    return {k: codes[task == k][: config.n] for k in range(1, config.tasks + 1)}


class GeneratorForgetting(NamedTuple):
    """Mean forgetting of one generator by both sides, and whether the chain calls a cell ok that it carried."""

    stream: str
    chain: float
    oracle: float
    says_ok: bool


def _close(label: str, its: GeneratorForgetting) -> Finding:
    if math.isnan(its.chain):
        return Finding(False, "refused", label)
    words = f"{its.chain:.2f} for {its.oracle:.2f}"
    return Finding(abs(its.chain - its.oracle) / max(abs(its.oracle), 1.0) <= CLOSE, words, label)


def _same_order(found: Mapping[str, GeneratorForgetting]) -> Finding:
    followed = {label: its for label, its in found.items() if not math.isnan(its.chain)}
    orders = [
        [sorted(own, key=lambda label: getattr(followed[label], side)) for side in SIDES]
        for stream in dict.fromkeys(its.stream for its in followed.values())
        if (own := [label for label, its in followed.items() if its.stream == stream])
    ]
    return Finding(all(chain == oracle for chain, oracle in orders) if found else None)


class BeyondMatrix(Experiment[BeyondMatrixConfig]):
    """Forgetting and intransigence of generators from a chain, against the same from kept data."""

    name = "beyond-matrix"
    item = "F and I of generators"
    rule = Rule(
        Claim(
            f"for every generator the chain's forgetting lies within {CLOSE:.0%} (or {CLOSE:g} nats, whichever is "
            "more) of the oracle's in the mean over seeds",
            lambda found: [_close(label, its) for label, its in found.items()],
        ),
        Claim(
            "both put the generators of each stream, those apart that the chain refused, in the same order by "
            "forgetting",
            lambda found: _same_order(found),
        ),
        Claim(
            "where it refuses or is further off no cell that it carried is called ok",
            lambda found: [Finding(not its.says_ok, case=n) for n, its in found.items() if not _close(n, its).holds],
        ),
        partly=those("b", "c"),
    )
    presets: ClassVar[Mapping[str, BeyondMatrixConfig]] = {
        "smoke": BeyondMatrixConfig(drifts=(0.1,), budgets=(6.0,), tasks=2, n=200, data="digits", dims=3),
        "laptop": BeyondMatrixConfig(),
        "paper": BeyondMatrixConfig(n=10000, dims=16),
    }
    uses: ClassVar[tuple[type, ...]] = (STRATEGIES["anchored"],)
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 2, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "digits in place of MNIST; few steps and samples",
        "laptop": "3000 samples a task, not 10000 (MNIST has about 12000); 8 components, not 16",
    }

    def arms(self, config: BeyondMatrixConfig) -> Sequence[BeyondMatrixConfig]:
        """A generator each."""
        if config.stream:
            return [config]
        bare = dataclasses.replace(config, drifts=(), budgets=())
        given = {"gaussians": config.drifts, "mixtures": config.budgets}
        return [dataclasses.replace(bare, stream=s, generator=g) for s, all_ in given.items() for g in all_]

    def run(self, config: BeyondMatrixConfig, seed: int, on_progress: OnProgress) -> Record:
        """One generator through its stream, with a chain and an oracle beside it."""
        stage, chain = ForgettingStage(config, seed), Chain(names=("kl",), preset="lean")
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

    def facts(self, records: Sequence[Record]) -> dict[str, GeneratorForgetting]:
        """Forgetting of every generator, by chain and by oracle."""
        found = {}
        for label, group in by_generator(records).items():
            chain, oracle = (fmean(_forgetting(r, side) for r in group) for side in SIDES)
            if math.isnan(oracle):
                raise NotJudged("the oracle refused a divergence.")
            stream = str(group[0].config["stream"])
            found[label] = GeneratorForgetting(stream, chain, oracle, any(map(_says_ok, group)))
        return found

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
    return grouped(records, lambda r: labelled(r.config["stream"], r.config["generator"]))


def labelled(stream: str, generator: float) -> str:
    """A generator in words."""
    return f"drift {generator:g}" if stream == "gaussians" else f"{generator:g} components"


def _fresh(real: Tensor, model: ArrayLike, seed: int) -> float:
    """The first step of a new chain: the estimator with the data at hand."""
    chain = Chain(names=("kl",), preset="lean")
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
    from scipy.stats import kendalltau

    below = torch.ones_like(record.matrices["chain"], dtype=torch.bool).tril(-1)
    below &= record.matrices["chain"].isfinite()  # those that were refused have no rank
    chain, oracle = (record.matrices[side][below].numpy() for side in SIDES)
    return float(kendalltau(chain, oracle).statistic) if len(chain) > 2 else math.nan
