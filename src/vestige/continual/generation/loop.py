"""The only loop over tasks for generators: `run(stream, generator, classifier) -> Record`.

At each step the generator learns the data of a new task, which the stream then withdraws, and its samples of every task
so far are evaluated twice: by an evaluator that holds test data (`evaluator`), and by a chain of ratios on features
that holds none (`feature_chain`).

`matrices[name][t, j]`: task j after t; NaN before j was learnt, and for a divergence that the chain refused. What a
perfect generator would get stands in values["fid.real"] and so on: real training rows, as many, in place of samples.
Conditions of the generator, and classes of the classifier, are the outputs of the stream; a task has equal shares of
its own. A stream of fewer classes than the classifier knows must have them in its order.

A generator that diverges ends the run there, and a chain whose features or ratio diverge says no more; the Record
says so, and what was not reached is NaN.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from vestige.chains import Chain, TaskReport
from vestige.continual import versions
from vestige.continual.generation.evaluator import HELD_OUT, Evaluator
from vestige.continual.generation.feature_chain import FeatureChain
from vestige.continual.record import Record, identity
from vestige.core import NotEstimable, VestigeError, VestigeWarning, checks, rng
from vestige.data.stream import Stream
from vestige.features import CVAE, ClassifierFeatures, FeatureMap
from vestige.generators import Generator
from vestige.generators.base import Progress
from vestige.generators.pictures import pack

DIVERGENCES = ("kl", "reverse_kl", "js", "hellinger2")
VERSION = 1  # raised when the results of the loop change: a part of the ids of its Records
TRAINING = 0.6  # of a step, for the progress that is reported


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


def spread_over(outputs: Sequence[int], n: int) -> Int64[Tensor, " n"]:
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
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Record:
    """Train a copy of `generator` on `stream`, and evaluate it on every task so far after each.

    `classifier` is fitted already; `features` (default: a small `CVAE`) and a chain with the options `chain` begin
    here. At each step `samples` of each task are evaluated, and at most as many real rows of the new one; `pictures` of
    each task are kept in the details.
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
        measured.seconds["eval"].append(time.perf_counter() - wall)
        measured.bytes["generator"].append(generator.bytes())
        measured.bytes["anchor samples"].append(without_data.bytes())
        measured.details["collapsed"].append(generator.report_["collapsed"])
        measured.details["curves"] = generator.report_["curves"]
        if pictures:
            measured.details["pictures"].append(pack(torch.cat([x[:pictures] for x in drawn.values()])))
    names = [stream.info(k).name for k in range(tasks)]
    measures: dict[str, Any] = {"seconds": measured.seconds, "bytes": measured.bytes, "task_names": names}
    ran["version"] = ran["version"] | {"generation": VERSION} | versions.named(config)
    return Record(
        config, seed, matrices=measured.matrices, values=measured.values, details=measured.details, **measures, **ran
    )
