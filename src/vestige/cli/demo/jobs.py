"""The demo: four of the package's jobs on the handwritten digits that ship with scikit-learn.

`keep_and_compare` deletes half of the digits and asks what remains of them (see `kept`). `follow` follows a generator
whose data is deleted (see `drift`). `learn` compares four learners on permuted digits: the same digits come five times,
each time with their pixels in another order, and nobody says which order a test image has. Every method has the
settings that it has anywhere; none was chosen on these digits. Each run is watched by an audit; `joint`, which keeps
all data, is the reference of intransigence (RWalk Eq. 4) and no contender: nobody may keep all. `reweight` corrects a
biased sample set (LFIW section 2): half of the digits stand for the data; of the other half digit c stays with
probability skew^c, which is the biased set that somebody was given. The weights are a ratio of the two sets in a few
principal components: they see no label. The labels, which the demo kept, then tell how far the shares came back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import data
from vestige.cli.demo.drift import DigitDrift, DriftConfig, follow
from vestige.cli.demo.kept import KeptConfig, KeptDigits, keep_and_compare
from vestige.continual.audit import Audit, audited_run, from_record
from vestige.continual.learners import build
from vestige.continual.protocol import Progress
from vestige.continual.record import Record
from vestige.core import rng
from vestige.core.plain import plain
from vestige.data import DataSet
from vestige.features import PCA
from vestige.ratios import Stack
from vestige.vestiges import Weighing, weigh

REFERENCE = "joint"
LEARNERS = ("vanilla", "ewc", "rwalk_s", "vcl")


@dataclass(frozen=True)
class LearnersConfig:
    """How the network trains; `fields` are further ones of a method's own configuration."""

    tasks: int = 5
    epochs: int = 10
    batch_size: int = 32
    hidden: tuple[int, ...] = (100,)
    fields: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {"vcl": {"train_samples": 3, "test_samples": 30}}  # a third of its authors': faster
    )


def learn(
    dataset: DataSet, config: LearnersConfig, *, seed: int, on_progress: Callable[[str, float], None]
) -> dict[str, Record]:
    """The audited Record of each method, the reference first; `on_progress` hears a method and the share done of it."""
    stream = data.permuted(dataset, config.tasks, seed=seed)
    records: dict[str, Record] = {}
    for method in (REFERENCE, *LEARNERS):

        def passed(progress: Progress, method: str = method) -> None:
            on_progress(method, progress.done / progress.total)

        learner = build(method, stream, seed=seed, hidden=config.hidden, **config.fields.get(method, {}))
        options: dict[str, Any] = {"seed": seed, "epochs": config.epochs, "batch_size": config.batch_size}
        records[method] = audited_run(stream, learner, reference=records.get(REFERENCE), on_progress=passed, **options)
    return records


RATIO = Stack()
SKEW = 0.8  # of the biased set
DIMS = 16  # principal components that the ratio looks at


@dataclass(frozen=True)
class Reweighted:
    """Shares of the digits: in the data, in the biased set, and there by weight; and what the weights are worth."""

    target: Float[Tensor, " k"]
    biased: Float[Tensor, " k"]
    weighted: Float[Tensor, " k"]
    error: Float[Tensor, " k"]  # standard error of `weighted`, the weights taken as given
    weighing: Weighing

    @property
    def mean_digit(self) -> tuple[float, float, float]:
        """The average digit of the data, of the biased set, and of that by weight."""
        digits = torch.arange(len(self.target), dtype=torch.float64)
        return float(self.target @ digits), float(self.biased @ digits), float(self.weighted @ digits)

    @property
    def misplaced(self) -> tuple[float, float]:
        """The share of samples that stand at the wrong digit (total variation), before and after weighting."""
        before, after = (0.5 * float((s - self.target).abs().sum()) for s in (self.biased, self.weighted))
        return before, after


def sets(
    data: DataSet, skew: float, seed: int
) -> tuple[tuple[Float[Tensor, "n d"], Tensor], tuple[Float[Tensor, "m d"], Tensor]]:
    """Images and labels of the data and of the biased set, which share no image."""
    x = data.floats(torch.cat([data.train_x, data.test_x])).flatten(1)
    y = torch.cat([data.train_y, data.test_y])
    generator = rng.fork(seed, "biased set")
    order = torch.randperm(len(y), generator=generator)
    half, rest = order[: len(y) // 2], order[len(y) // 2 :]
    stays = torch.rand(len(rest), generator=generator) < skew ** y[rest].float()
    return (x[half], y[half]), (x[rest[stays]], y[rest[stays]])


def reweight(data: DataSet, *, seed: int) -> Reweighted:
    """Weigh the biased set, and look where its digits stand."""
    (p, p_digits), (q, q_digits) = sets(data, SKEW, seed)
    seen = PCA(dims=DIMS).fit(p)
    found = weigh(seen.codes(p).double(), seen.codes(q).double(), estimator=RATIO, seed=seed)
    k = len(data.names)
    is_digit = torch.nn.functional.one_hot(q_digits, k).double()
    shares = found.expectation(is_digit, bounds=(0, 1))
    target = torch.bincount(p_digits, minlength=k).double() / len(p_digits)
    return Reweighted(target, is_digit.mean(0), shares.value, shares.std_error, found)


# What part of the time the first three parts take, for a bar.
KEPT_SHARE, DRIFT_SHARE, LEARNERS_SHARE = 0.15, 0.35, 0.45


@dataclass(frozen=True)
class DemoConfig:
    """The settings of the first three parts."""

    kept: KeptConfig = field(default_factory=KeptConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    learners: LearnersConfig = field(default_factory=LearnersConfig)


DEFAULT = DemoConfig()


@dataclass(frozen=True)
class DemoResult:
    """What the four parts found."""

    seed: int
    config: DemoConfig
    kept: KeptDigits
    drift: DigitDrift
    records: dict[str, Record]  # the reference first
    reweighted: Reweighted

    @property
    def audits(self) -> dict[str, Audit]:
        """The audit of each learner."""
        return {name: from_record(self.records[name]) for name in LEARNERS}

    @property
    def last(self) -> dict[str, dict[str, Any]]:
        """A, F and I of each method after the last task."""
        return {name: record.summary().last() for name, record in self.records.items()}

    def to_json(self) -> dict[str, Any]:
        """The figures as plain JSON."""
        drift, corrected = self.drift, self.reweighted
        before, after = corrected.misplaced
        learners = {
            name: {"id": record.id, **self.last[name], "matrix": record.R}
            | ({"fails": self.audits[name].failed} if name in LEARNERS else {})
            for name, record in self.records.items()
        }
        gap = float(drift.gone.mean())
        generator = {"monitor": drift.monitor, "truth": drift.truth, "mean_gap": gap, "verdicts": drift.verdicts}
        weights = {
            **{name: getattr(corrected, name) for name in ("target", "biased", "weighted")},
            "misplaced": {"before": before, "after": after},
            "ess": corrected.weighing.final.ess,
            "rows": len(corrected.weighing.weights),
            "verdict": corrected.weighing.final.verdict,
        }
        kept = {
            name: {"p_value": one.p_value, "js": one.divergences["js"], "missed": one.reach and one.reach.missed}
            for name, one in self.kept.found.items()
        }
        told = {"seed": self.seed, "kept": kept, "generator": generator, "learners": learners, "weights": weights}
        return plain(told)


def run(
    *, seed: int = 0, config: DemoConfig | None = None, on_progress: Callable[[str, float], None] = lambda _w, _s: None
) -> DemoResult:
    """All parts; `on_progress` hears what is going on and the share of everything that is done."""
    config = config or DEFAULT
    dataset = data.load("digits")
    methods = [REFERENCE, *LEARNERS]

    def keeping(done: int) -> None:
        on_progress("half of the digits are kept and deleted", KEPT_SHARE * done / 4)

    def digits(done: int) -> None:
        share = KEPT_SHARE + DRIFT_SHARE * done / config.drift.digits
        on_progress("a generator learns digit after digit", share)

    def learning(name: str, share: float) -> None:
        done = (methods.index(name) + share) / len(methods)
        on_progress(f"{name} learns", KEPT_SHARE + DRIFT_SHARE + LEARNERS_SHARE * done)

    keeping(0)
    kept = keep_and_compare(dataset, config.kept, seed=seed, on_step=keeping)
    digits(0)
    drift = follow(dataset, config.drift, seed=seed, on_step=digits)
    records = learn(dataset, config.learners, seed=seed, on_progress=learning)
    on_progress("weights correct a biased set", KEPT_SHARE + DRIFT_SHARE + LEARNERS_SHARE)
    corrected = reweight(dataset, seed=seed)
    on_progress("weights correct a biased set", 1.0)
    return DemoResult(seed, config, kept, drift, records, corrected)
