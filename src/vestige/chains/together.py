"""Several chains of one kind, each on data of its own, a step at a time: seeds and data sets as one batched network.

The chains end with what each would have found alone (to rounding). With strategy "every-step" their networks train as
one, as long as they know as many tasks and are given as many rows; the others take their steps one after another.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from vestige.chains.chain import Chain
from vestige.chains.report import StepReport, Task
from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.core.errors import VestigeWarning


def step_together(
    chains: Sequence[Chain],
    real: Sequence[Mapping[Task, ArrayLike] | None],
    model: Sequence[Mapping[Task, ArrayLike] | None],
    *,
    seeds: Sequence[int] | None = None,
) -> list[StepReport]:
    """`Chain.step` of each chain with its own `real`, `model` and seed (0, 1, ... by default).

    A refusal or an error leaves all of them as they were.
    """
    owner = "step_together"
    seeds = range(len(chains)) if seeds is None else seeds
    if not chains:
        checks.refuse("chains", owner, "at least one chain", "none")
    if len({id(chain) for chain in chains}) < len(chains):
        checks.refuse("chains", owner, "different ones", "one twice")
    for name, given in (("real", real), ("model", model), ("seeds", seeds)):
        if len(given) != len(chains):
            checks.refuse(name, owner, f"as many as there are chains ({len(chains)})", len(given))
    if any(chain.strategy != chains[0].strategy for chain in chains):
        checks.refuse("chains", owner, "of one strategy with the same settings", "different ones")
    begun = [
        chain._begin(own or {}, samples or {}, seed, owner)
        for chain, own, samples, seed in zip(chains, real, model, seeds, strict=True)
    ]
    done = chains[0].strategy.step_many([job for job, _ in begun])
    reports = [chain._end(job, born, *each) for chain, (job, born), each in zip(chains, begun, done, strict=True)]
    told = [f"Chain {i}: {' '.join(report.warnings)}" for i, report in enumerate(reports) if report.warnings]
    if told:
        warnings.warn(" ".join(told), VestigeWarning, stacklevel=2)
    return reports
