"""Divergences followed along a drift whose truth is known: what the drift experiments set side by side.

Each method is a `Follower`: called with t = 1, 2, ... it answers with what it finds at that step.
    chained    a `Chain`; "every-step" is the paper's, and its values are Eq. 4 whatever they are worth
    oracle     a new chain at every step, which still has the data: the same estimator with nothing lost
    fitted     the closed form between Gaussians with the means and covariances of the data and of the model's samples
Several tasks are averaged (Eq. 13). Where a chain refuses an answer the value is NaN and the verdict says why.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vestige.chains import Chain, Drift
from vestige.continual.record import Record
from vestige.core.checks import ArrayLike
from vestige.core.errors import InputError
from vestige.ratios import divergences
from vestige.ratios.divergences import Gaussian, gaussian_divergence
from vestige.runner.experiment import Line, OnProgress, line

NAMES = ("kl", "reverse_kl", "js", "hellinger2")


@dataclass(frozen=True)
class Reading:
    """What one method finds at one step: value, low and high of each divergence, and the chain's verdict on kl."""

    found: Mapping[str, tuple[float, float, float]]
    verdict: str = ""


Follower = Callable[[int], Reading]


def chained(bed: Drift, strategy: str, n: int, seed: int, **options: Any) -> Follower:  # noqa: ANN401 - the chain's own
    """A chain of its own; to be called with every t in turn. Where the paper's chain diverges, NaN and a word."""
    chain = Chain(strategy, names=NAMES, **options)

    def follow(t: int) -> Reading:
        try:
            return one_step(t)
        except InputError as error:  # samples of a bed are sound: it is the network that is not finite any more
            if strategy != "every-step":
                raise
            return Reading(dict.fromkeys(NAMES, (math.nan,) * 3), f"diverged: {error}")

    def one_step(t: int) -> Reading:
        new = [i for i in bed.tasks(t) if i not in chain.tasks]
        model: dict[str | int, ArrayLike] = {i: bed.model(t, i, n, seed) for i in bed.tasks(t)}
        chain.step(real={i: bed.real(i, n, seed) for i in new}, model=model, seed=seed)
        told = _averages(chain)
        if strategy != "every-step":
            return told
        logs = [chain.log_ratio(x, i) for i, x in model.items()]
        # The paper prints Eq. 4 without asking for its tail or its effective size; so do we, beside the verdict.
        each = [divergences.estimates(NAMES, x, samples="q", form="eq4", max_k=math.inf, min_ess=0.0) for x in logs]
        means = {name: sum(e[name].value for e in each) / len(each) for name in NAMES}
        return Reading({name: (v, math.nan, math.nan) for name, v in means.items()}, told.verdict)

    return follow


def oracle(bed: Drift, n: int, seed: int) -> Follower:
    """Keeps the data: every step is the first of a new chain."""

    def follow(t: int) -> Reading:
        chain = Chain(names=NAMES)
        real: dict[str | int, ArrayLike] = {i: bed.real(i, n, seed) for i in bed.tasks(t)}
        chain.step(real=real, model={i: bed.model(t, i, n, seed) for i in bed.tasks(t)}, seed=seed)
        return _averages(chain)

    return follow


def fitted(bed: Drift, n: int, seed: int) -> Follower:
    """Knows that the data is Gaussian, and keeps its moments."""
    real = {i: _gaussian(bed.real(i, n, seed)) for i in bed.tasks(bed.n_steps)}

    def follow(t: int) -> Reading:
        pairs = [(real[i], _gaussian(bed.model(t, i, n, seed))) for i in bed.tasks(t)]
        means = {name: sum(gaussian_divergence(name, *pair) for pair in pairs) / len(pairs) for name in NAMES}
        return Reading({name: (v, math.nan, math.nan) for name, v in means.items()})

    return follow


def follow_all(
    follower: Follower, bed: Drift, steps: Iterable[int], on_progress: OnProgress, truths: Iterable[int] | None = None
) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """`values` and `details` of a Record: by step, NaN where `follower` was not asked; the truth there, or at `truths`.

    A truth without a closed form takes seconds a step.
    """
    ends = {"": 0, "_low": 1, "_high": 2}
    values = {
        f"{name}{end}": torch.full((bed.n_steps,), math.nan, dtype=torch.float64)
        for name in NAMES
        for end in (*ends, "_true")
    }
    verdicts = [""] * bed.n_steps
    truths = None if truths is None else tuple(truths)
    for t in steps:
        reading = follower(t)
        verdicts[t - 1] = reading.verdict
        for name, found in reading.found.items():
            for end, place in ends.items():
                values[name + end][t - 1] = found[place]
        for name in NAMES if truths is None or t in truths else ():
            values[f"{name}_true"][t - 1] = bed.true(name, t)
        on_progress(t / bed.n_steps, f"step {t}")
    return values, {"verdicts": verdicts}


def judged(record: Record) -> list[int]:
    """The middle and the last step."""
    last = len(record.values["kl"])
    return [max(last // 2, 1), last]


def mean(group: Sequence[Record], name: str, t: int) -> float:
    """Over seeds; NaN where none has a value."""
    known = [v for r in group if not math.isnan(v := float(r.values[name][t - 1]))]
    return statistics.fmean(known) if known else math.nan


def error(group: Sequence[Record], t: int) -> float:
    """The mean's distance from the true kl, as a share of it; NaN where a seed has no value."""
    if any(math.isnan(float(r.values["kl"][t - 1])) for r in group):
        return math.nan
    return mean(group, "kl", t) / mean(group, "kl_true", t) - 1


def share(value: float) -> str:
    """In per cent, in words where there is none."""
    return "an amount that it refused to name" if math.isnan(value) else f"{value:+.1%}"


def as_line(name: str, divergence: str, t: int, group: Sequence[Record]) -> Line:
    """One divergence of one method at one step, beside the truth."""
    values = [float(r.values[divergence][t - 1]) for r in group]
    return line(name, f"{divergence}, t = {t}", values, truth=mean(group, f"{divergence}_true", t))


def _averages(chain: Chain) -> Reading:
    """Eq. 13."""
    table = chain.divergences(NAMES)
    rows = table[table["task"] == "average"].set_index("divergence")
    value, low, high = (rows[column].astype(float).to_dict() for column in ("value", "low", "high"))
    found = {name: (value[name], low[name], high[name]) for name in NAMES}
    return Reading(found, str(rows["verdict"].to_dict()["kl"]))


def _gaussian(x: Tensor) -> Gaussian:
    return Gaussian(x.mean(0), torch.cov(x.mT))
