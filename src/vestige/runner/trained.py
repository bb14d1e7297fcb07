"""Experiments whose units are runs of one learner on a stream of tasks: how they run, are searched and are audited.

A child says which stream and which learner; the run, and what an audit needs of an arm, follow from that. An experiment
that does not train learners on streams (chains on drifting densities, weights) has nothing to audit, and says so.

A unit is searched on rows held out from training, never on the test set: a configuration with a field `validate` says
there that every n-th training row of a class is tested on in place of the test set. `vestige run --grid` asks for that
unit, and for its score.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from vestige.continual import protocol
from vestige.continual.learners import Learner
from vestige.continual.record import Record
from vestige.continual.search import average_accuracy, rows_held_out
from vestige.core import InputError
from vestige.data import Stream
from vestige.runner.experiment import Experiment, OnProgress


@runtime_checkable
class Schedule(Protocol):
    """What a configuration says of the training itself; None is left open, and not to be run.

    An experiment whose `options` have `iterations` says by them how long a task trains, and has no epochs.
    """

    @property
    def epochs(self) -> int | None: ...  # noqa: D102
    @property
    def batch_size(self) -> int | None: ...  # noqa: D102


S = TypeVar("S", bound=Schedule)


class Trained(Experiment[S]):
    """One learner, one stream."""

    devices: ClassVar[tuple[str, ...]] = ("cuda", "mps", "cpu")

    @abstractmethod
    def parts(self, config: S, seed: int) -> tuple[Stream, Learner]:
        """The stream of a unit, and the learner that will be trained on it."""

    def options(self, config: S) -> dict[str, Any]:
        """What the protocol is told besides."""
        return {}

    def versions(self, config: S) -> dict[str, int]:
        """That of the protocol too."""
        return super().versions(config) | {"protocol": protocol.VERSION}

    def run(self, config: S, seed: int, on_progress: OnProgress) -> Record:
        """Train on every task in turn, test on all of them after each."""
        name = getattr(config, "row", self.name)  # of the unit, for a progress bar
        options = self.options(config)
        assert config.epochs is not None or "iterations" in options, f"{self.name} leaves the epochs of {name} open"
        assert config.batch_size is not None, f"{self.name} leaves the batches of {name} open"
        stream, learner = self.parts(config, seed)
        found = protocol.run(
            stream,
            learner,
            seed=seed,
            epochs=config.epochs,
            batch_size=config.batch_size,
            on_progress=lambda p: on_progress(p.done / p.total, f"{name}, task {p.task + 1}"),
            **options,
        )
        return self.adopt(found, config)


class OnHeldOutRows:
    """What a grid asks of an experiment."""

    def validation(self, config: Any) -> Any:  # noqa: ANN401 - a configuration with `validate` and `per_class`
        """The same unit, tested on rows held out from training."""
        if config.validate:
            raise InputError(
                "The 'grid' of vestige run must be for a preset that is tested on the test set. Got one whose final "
                f"test is on held-out training rows already (validate={config.validate}) instead."
            )
        return dataclasses.replace(config, validate=rows_held_out(config.per_class))

    def score(self, record: Record) -> float:
        """Average accuracy after the last task in percent, under the head that the stream declared."""
        return average_accuracy(record)


def labelled_arms(experiment: Experiment[Any], preset: str) -> tuple[Trained[Any], dict[str, Any]]:
    """`experiment`, and its arms at `preset` by label, for an audit; one without streams of tasks is refused."""
    if not isinstance(experiment, Trained):
        raise InputError(
            f"The 'experiment' of vestige audit must train learners on a stream of tasks. Got {experiment.name} "
            f"({experiment.item}), which has none, instead."
        )
    arms = list(experiment.arms(experiment.presets[preset]))
    return experiment, dict(zip(labels(arms, experiment.name), arms, strict=True))


def labels(arms: Sequence[Any], alone: str) -> list[str]:
    """A name for each arm: the values of the first fields that tell it from the others; `alone` if there is one."""
    words: list[tuple[str, ...]] = [()] * len(arms)
    for field in dataclasses.fields(arms[0]):
        own = [(said, getattr(arm, field.name)) for said, arm in zip(words, arms, strict=True)]
        counts = Counter(said for said, _ in set(own))
        words = [(*said, str(value)) if counts[said] > 1 else said for said, value in own]
    return [", ".join(said) or alone for said in words]
