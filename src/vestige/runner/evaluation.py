"""What an audit needs of an experiment: for each of its arms the stream, the learner and how long it trains.

An experiment that does not train learners on streams (chains on drifting densities, weights) has nothing to audit, and
says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.continual.learners import Learner
from vestige.core.errors import InputError
from vestige.data import Stream
from vestige.runner.experiment import Experiment
from vestige.runner.trained import Trained


@dataclass(frozen=True)
class Evaluation:
    """One arm of an experiment, ready to be audited; nothing is loaded or built before `parts` is called."""

    label: str
    parts: Callable[[], tuple[Stream, Learner]]
    epochs: int
    batch_size: int


def evaluations(experiment: Experiment[Any], preset: str, seed: int) -> list[Evaluation]:
    """Every arm of `experiment` at `preset`; an experiment without streams of tasks is refused."""
    if not isinstance(experiment, Trained):
        raise InputError(
            f"The 'experiment' of vestige audit must train learners on a stream of tasks. Got {experiment.name} "
            f"({experiment.item}), which has none, instead."
        )

    def made(arm: Any) -> Callable[[], tuple[Stream, Learner]]:  # noqa: ANN401
        return lambda: experiment.parts(arm, seed)

    arms = list(experiment.arms(experiment.presets[preset]))
    names = labels(arms, experiment.name)
    return [Evaluation(name, made(arm), arm.epochs, arm.batch_size) for name, arm in zip(names, arms, strict=True)]


def labels(arms: Sequence[Any], alone: str) -> list[str]:
    """A name for each arm: the values of the first fields that tell it from the others; `alone` if there is one."""
    words: list[list[str]] = [[] for _ in arms]
    for field in dataclasses.fields(arms[0]):
        groups: dict[tuple[str, ...], list[int]] = {}
        for i, said in enumerate(words):
            groups.setdefault(tuple(said), []).append(i)
        for members in groups.values():
            values = [getattr(arms[i], field.name) for i in members]
            if len(set(values)) > 1:
                for i, value in zip(members, values, strict=True):
                    words[i].append(str(value))
    return [", ".join(said) or alone for said in words]
