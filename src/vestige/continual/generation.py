"""Generators on a stream of tasks: the only loop over them, `run(stream, generator, classifier) -> Record`.

At each step the generator learns the data of a new task, which the stream then withdraws, and its samples of every task
so far are evaluated twice, with test data and without.

**With test data** (`Evaluator`): samples against test rows, in the features of a classifier that was trained on real
data. FID and KID of each task and pooled over tasks (CDRE section 4.2). Two more beside them, since pooled distances
can fall while a generator mixes its classes up, or draws one image of each again and again:
- labels: the share of samples that the classifier takes for the class that was asked for;
- variety: how much samples of one class differ among each other, as a share of how much test rows do: the trace of
  their covariance over that of the test rows, mean over the classes of a task. Only rows that the classifier takes for
  what they are to be count on either side, lest strays pass for variety. 1 is as varied as the data.

**Without data** (`FeatureChain`): f-divergences from data that is gone, by a chain on features that learn along. The
features are CDRE's `cvae` (Eq. 15), or any other map. At each step they see the new task's data, for the only time,
and generated samples of the others. Where the map changes under an anchored chain, the generated samples of each task's
first step are kept as they are and encoded anew (`Chain.encode_anew`); other chains rely on codes that hardly move,
which is what the tie of `cvae` is for. No row of data is kept.

**By whatever else** is handed over as `watch`: it is called at each step with the task's place, its rows and the
samples of every task so far, and what it returns, estimates by name and task, becomes matrices and verdicts of the
Record. CDRE's figures ask vestiges of the classes so (`vestige_papers.cdre.generators`).

`matrices[name][t, j]`: task j after t; NaN before j was learnt, and for a divergence that the chain refused. What a
perfect generator would get stands in values["fid.real"] and so on: real training rows, as many, in place of samples.
Conditions of the generator, and classes of the classifier, are the outputs of the stream; a task has equal shares of
its own. A stream of fewer classes than the classifier knows must have them in its order. A generator that diverges ends
the run there, and a chain whose features or ratio diverge says no more; the Record says so, and what was not reached is
NaN.

**From any of the matrices** follow forgetting and intransigence: RWalk's Eq. 3 and 4 with a distance in place of an
accuracy. Smaller is better, except for the accuracy of labels and for variety, which generators lose. The reference of
intransigence is what a perfect generator would get: real rows in place of samples, and 0 for a divergence.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige import metrics
from vestige.chains import Chain, TaskReport
from vestige.continual import versions
from vestige.continual.record import Record, identity
from vestige.core import Estimate, NotEstimable, VestigeError, VestigeWarning, checks, rng
from vestige.data.stream import Inputs, Labels, Stream, TestSet
from vestige.features import CVAE, ClassifierFeatures, FeatureMap
from vestige.generators import Generator
from vestige.generators.base import Progress

__all__ = ["DIVERGENCES", "HELD_OUT", "agreement", "forgetting", "intransigence", "rank_correlation", "run"]

HELD_OUT = ("fid", "kid", "labels", "variety")
LARGER_IS_BETTER = ("labels", "variety")
DIVERGENCES = ("kl", "reverse_kl", "js", "hellinger2")
VERSION = 1  # raised when the results of the loop change: a part of the ids of its Records
TRAINING = 0.6  # of a step, for the progress that is reported

# The place of a task, its rows, and samples of every task so far -> estimates by name and task.
Watch = Callable[[int, Inputs, Mapping[int, Inputs]], Mapping[str, Mapping[int, Estimate]]]


def traces(codes: Float[Tensor, "n f"], classes: Labels) -> dict[int, float]:
    """The trace of the covariance of each class that has two rows at least."""
    rows = {c: codes[classes == c].double() for c in classes.unique().tolist()}
    return {c: float(own.var(0).sum()) for c, own in rows.items() if len(own) > 1}


def variety(drawn: Mapping[int, float], real: Mapping[int, float]) -> float:
    """The mean ratio of `traces` over the classes that both have; NaN where there is none."""
    ratios = [drawn[c] / real[c] for c in drawn if real.get(c, 0.0) > 0]
    return fmean(ratios) if ratios else math.nan


def distances(p: Float[Tensor, "_ f"], q: Float[Tensor, "_ f"]) -> dict[str, float]:
    """FID and KID."""
    return {"fid": metrics.fid(p, q).value, "kid": metrics.kid(p, q).value}


@dataclass(frozen=True)
class Evaluator:
    """Test data of every task in the classifier's features, and the `traces` of its classes."""

    classifier: ClassifierFeatures
    tests: Sequence[Float[Tensor, "_ f"]]
    traces: Sequence[Mapping[int, float]]

    @classmethod
    def of(cls, classifier: ClassifierFeatures, tests: Sequence[TestSet]) -> Evaluator:
        """An evaluator for these test sets."""
        codes = [classifier.codes(test.x.flatten(1)) for test in tests]
        right = [classifier.called(own) == test.y for own, test in zip(codes, tests, strict=True)]
        varied = [traces(own[i], test.y[i]) for own, i, test in zip(codes, right, tests, strict=True)]
        return cls(classifier, [own.double() for own in codes], varied)

    def compare(self, task: int, x: Inputs, y: Labels) -> tuple[dict[str, float], Float[Tensor, "n f"]]:
        """What `HELD_OUT` names of samples of one task, asked for as `y`; and their features."""
        codes = self.classifier.codes(x.flatten(1))
        right = self.classifier.called(codes) == y
        varied = variety(traces(codes[right], y[right]), self.traces[task])
        said = {"labels": float(right.double().mean()), "variety": varied}
        return distances(self.tests[task], codes.double()) | said, codes.double()

    def pooled(self, codes: Sequence[Float[Tensor, "_ f"]]) -> dict[str, float]:
        """FID and KID over tasks 0, 1, ... together."""
        return distances(torch.cat(list(self.tests[: len(codes)])), torch.cat(list(codes)))


@dataclass
class FeatureChain:
    """Features that learn along, a chain on them, and generated samples to encode anew."""

    seen: FeatureMap
    chain: Chain
    first: dict[int, Tensor] = field(default_factory=dict)  # samples of each task's first step

    def step(
        self, task: int, real: Float[Tensor, "n d"], drawn: Mapping[int, Tensor], seed: int
    ) -> dict[int, TaskReport]:
        """Compare `drawn`, samples of every task so far, `task` being the new one; a report for each."""
        recodes = not self.seen.consistent and self.chain.strategy.name == "anchored"
        if self.chain.steps:
            self.seen.update({task: real}, {j: x for j, x in drawn.items() if j != task}, seed=seed)
            if recodes:
                self.chain.encode_anew(self._codes(self.first))
        else:
            self.seen.fit({task: real}, seed=seed)
        if recodes:
            self.first[task] = drawn[task].clone()
        report = self.chain.step(self._codes({task: real}), self._codes(drawn), seed=seed)
        return {int(own.task): own for own in report.tasks}

    def _codes(self, rows: Mapping[int, Tensor]) -> dict[str | int, Any]:
        return {j: self.seen.codes(x).double() for j, x in rows.items()}

    def bytes(self) -> int:
        """What the samples that are kept for encoding anew occupy; the chain keeps codes of its own."""
        return sum(x.numel() * x.element_size() for x in self.first.values())


@dataclass(frozen=True)
class RunMeasures:
    """What a run has measured so far."""

    matrices: dict[str, Float64[Tensor, "t t"]]
    values: dict[str, Float64[Tensor, " t"]]
    seconds: dict[str, list[float]]
    bytes: dict[str, list[int]]
    details: dict[str, Any]

    @classmethod
    def nothing(cls, tasks: int, names: Sequence[str]) -> RunMeasures:
        """NaN everywhere."""
        empty = torch.full((tasks,), torch.nan, dtype=torch.float64)
        matrices = {name: empty.repeat(tasks, 1) for name in (*HELD_OUT, *names)}
        kinds = [f"{name}.real" for name in HELD_OUT] + ["fid.pooled", "kid.pooled"]
        seconds: dict[str, list[float]] = {"train": [], "train_cpu": [], "eval": []}
        details: dict[str, Any] = {"verdicts": {}, "collapsed": [], "diverged": "", "chain": "", "pictures": []}
        values = {kind: empty.clone() for kind in kinds}
        return cls(matrices, values, seconds, {"generator": [], "anchor samples": []}, details)

    def held_out(
        self,
        t: int,
        evaluator: Evaluator,
        drawn: Mapping[int, Tensor],
        asked: Mapping[int, Tensor],
        real: tuple[Tensor, Tensor],
    ) -> None:
        """Row t of what the evaluator says, of samples and of `real` rows of task t."""
        codes = []
        for j, x in drawn.items():
            said, features = evaluator.compare(j, x, asked[j])
            codes.append(features)
            for name, value in said.items():
                self.matrices[name][t, j] = value
        for kind, said in (("real", evaluator.compare(t, *real)[0]), ("pooled", evaluator.pooled(codes))):
            for name, value in said.items():
                self.values[f"{name}.{kind}"][t] = value

    def data_free(self, t: int, reports: Mapping[int, TaskReport]) -> None:
        """Row t of what the chain says, and its worst verdict on each task in a word."""
        for j, own in reports.items():
            for name, estimate in own.estimates.items():
                self.matrices[name][t, j] = estimate.value
            worst = min(own.estimates.values(), key=lambda e: e.known)
            self.details["verdicts"][f"{t},{j}"] = worst.verdict

    def watched(self, t: int, found: Mapping[str, Mapping[int, Estimate]]) -> None:
        """Row t of what a `watch` says, and its verdicts."""
        for name, estimates in found.items():
            if name not in self.matrices:
                tasks = len(self.matrices["fid"])
                self.matrices[name] = torch.full((tasks, tasks), torch.nan, dtype=torch.float64)
            for j, estimate in estimates.items():
                self.matrices[name][t, j] = estimate.value
                self.details.setdefault(f"verdicts.{name}", {})[f"{t},{j}"] = estimate.verdict


def spread_over(outputs: Sequence[int], n: int) -> Labels:
    """n conditions, those of a task in equal shares."""
    return torch.tensor(outputs).repeat(-(-n // len(outputs)))[:n]


def run(
    stream: Stream,
    generator: Generator,
    classifier: ClassifierFeatures,
    *,
    features: FeatureMap | None = None,
    chain: Mapping[str, Any] | None = None,
    samples: int = 500,
    pictures: int = 0,
    watch: Watch | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Record:
    """Train a copy of `generator` on `stream`, and evaluate it on every task so far after each.

    `classifier` is fitted already; `features` (default: a small `CVAE`) and a chain with the options `chain` begin
    here. At each step `samples` of each task are evaluated, and at most as many real rows of the new one; `pictures` of
    each task are kept in the details, and what `watch` says stands beside the rest.
    """
    owner = "generation.run"
    samples = checks.whole(samples, "samples", owner, low=100)
    pictures = checks.whole(pictures, "pictures", owner, low=0, high=samples)
    if classifier.shape != stream.input_shape:
        checks.refuse("classifier", owner, f"fitted to samples of shape {stream.input_shape}", classifier.shape)
    if generator.conditions < stream.n_outputs:
        checks.refuse("generator", owner, f"of at least {stream.n_outputs} conditions", generator.conditions)
    generator, on_progress = generator.copy(), on_progress or (lambda share, words: None)
    small = CVAE(dims=16, encoder=(128,), decoder=(128,), noise=0.02, epochs=5)
    options = {"preset": "fast", "names": DIVERGENCES} | dict(chain or {})
    without_data = FeatureChain((small if features is None else features).copy(), Chain(**options))
    config = {
        "stream": stream.config,
        "generator": generator.config(),
        "judge": classifier.config(),  # a name in the ids of Records
        "features": without_data.seen.config(),
        "chain": options | {"names": list(options["names"])},
        "samples": samples,
    }
    ran = identity(type(generator), generator.state_dict().items())
    evaluator, tasks = Evaluator.of(classifier, stream.test_sets()), len(stream)
    measured = RunMeasures.nothing(tasks, options["names"])
    for t, task in enumerate(stream):
        said = f"task {t + 1} of {tasks}"

        def training(share: float, words: str, t: int = t, said: str = said) -> None:
            on_progress((t + TRAINING * share) / tasks, f"{said}: {words}")

        wall, cpu = time.perf_counter(), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VestigeWarning)  # collapse and verdicts are kept in the details
            try:
                generator.fit(task.x, task.y, seed=rng.child_seed(seed, "fit", t), on_progress=training)
            except NotEstimable as error:
                measured.details["diverged"] = f"{said}: {error}"
                break
            measured.seconds["train"].append(time.perf_counter() - wall)
            measured.seconds["train_cpu"].append(time.process_time() - cpu)
            on_progress((t + TRAINING) / tasks, f"{said}: evaluated")
            wall = time.perf_counter()
            asked = {j: spread_over(stream.info(j).outputs, samples) for j in range(t + 1)}
            drawn = {j: generator.sample_each(y, seed=rng.child_seed(seed, "sample", t, j)) for j, y in asked.items()}
            few = torch.randperm(len(task.x), generator=rng.fork(seed, "real", t))[:samples]
            measured.held_out(t, evaluator, drawn, asked, (task.x[few], task.y[few]))
            if not measured.details["chain"]:
                flat, own_seed = {j: x.flatten(1) for j, x in drawn.items()}, rng.child_seed(seed, "witness", t)
                try:
                    measured.data_free(t, without_data.step(t, task.x[few].flatten(1), flat, own_seed))
                except VestigeError as error:  # a ratio that runs off; the evaluator goes on
                    measured.details["chain"] = f"{said}: {error}"
            if watch is not None:
                measured.watched(t, watch(t, task.x, drawn))
        measured.seconds["eval"].append(time.perf_counter() - wall)
        measured.bytes["generator"].append(generator.bytes())
        measured.bytes["anchor samples"].append(without_data.bytes())
        measured.details["collapsed"].append(generator.report_["collapsed"])
        measured.details["curves"] = generator.report_["curves"]
        if pictures:
            from vestige.generators.pictures import pack  # here: it brings matplotlib

            measured.details["pictures"].append(pack(torch.cat([x[:pictures] for x in drawn.values()])))
    names = [stream.info(k).name for k in range(tasks)]
    measures: dict[str, Any] = {"seconds": measured.seconds, "bytes": measured.bytes, "task_names": names}
    ran["version"] = ran["version"] | {"generation": VERSION} | versions.named(config)
    return Record(
        config, seed, matrices=measured.matrices, values=measured.values, details=measured.details, **measures, **ran
    )


def better(name: str) -> str:
    """Whether the matrix `name` improves "up" or "down"."""
    return "up" if name in LARGER_IS_BETTER else "down"


def forgetting(record: Record, name: str) -> float:
    """F after the last step that was measured, in the unit of the matrix; NaN where a cell of it is."""
    return metrics.forgetting(record.matrices[name], better=better(name))


def intransigence(record: Record, name: str) -> float:
    """The mean over tasks of how far each was from a perfect generator when it was learnt."""
    R = record.matrices[name]
    perfect = record.values.get(f"{name}.real", torch.zeros(len(R), dtype=torch.float64))
    return metrics.average_intransigence(R, perfect, better=better(name))


def measured(matrix: Float64[Tensor, "t t"]) -> Float64[Tensor, " n"]:
    """The cells on and below the diagonal, row by row."""
    rows, columns = torch.tril_indices(*matrix.shape)
    return matrix[rows, columns]


def rank_correlation(a: Float64[Tensor, " n"], b: Float64[Tensor, " n"]) -> float:
    """Kendall's tau-b over pairs that both have; NaN with fewer than three, or where one is constant."""
    from scipy.stats import kendalltau  # here: it takes half a second

    both = a.isfinite() & b.isfinite()
    return float(kendalltau(a[both].numpy(), b[both].numpy()).statistic) if int(both.sum()) > 2 else math.nan


def agreement(record: Record, one: str, other: str) -> float:
    """How alike two views rank all cells (steps and tasks) of a run: 1 the same order, -1 the reverse."""
    sign = 1.0 if better(one) == better(other) else -1.0
    return sign * rank_correlation(measured(record.matrices[one]), measured(record.matrices[other]))
