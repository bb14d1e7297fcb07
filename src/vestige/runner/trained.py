"""Experiments whose units are runs of one learner on a stream of tasks.

A child says which stream and which learner; the run, and what an audit needs of an arm, follow from that.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from vestige.continual import protocol
from vestige.continual.learners import Learner
from vestige.continual.record import Record
from vestige.data import Stream
from vestige.runner.experiment import Experiment, OnProgress


@runtime_checkable
class Schedule(Protocol):
    """What a configuration says of the training itself; None is left open, and not to be run."""

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

    def unit_name(self, config: S) -> str:
        """A unit by its name, for a progress bar."""
        return str(getattr(config, "row", self.name))

    def options(self, config: S) -> dict[str, Any]:
        """What the protocol is told besides."""
        return {}

    def versions(self, config: S) -> dict[str, int]:
        """That of the protocol too."""
        return super().versions(config) | {"protocol": protocol.VERSION}

    def run(self, config: S, seed: int, on_progress: OnProgress) -> Record:
        """Train on every task in turn, test on all of them after each."""
        assert config.epochs is not None, f"{self.name} leaves the epochs of {self.unit_name(config)} open"
        assert config.batch_size is not None, f"{self.name} leaves the batches of {self.unit_name(config)} open"
        stream, learner = self.parts(config, seed)
        found = protocol.run(
            stream,
            learner,
            seed=seed,
            epochs=config.epochs,
            batch_size=config.batch_size,
            on_progress=lambda p: on_progress(p.done / p.total, f"{self.unit_name(config)}, task {p.task + 1}"),
            **self.options(config),
        )
        return self.adopt(found, config)
