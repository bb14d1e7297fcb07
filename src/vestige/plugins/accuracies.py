"""What the callbacks share: accuracies as they come, and the Record that they make up; steps of a monitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from vestige.continual.record import Record
from vestige.core import InputError
from vestige.core.checks import ArrayLike, whole
from vestige.monitor import Monitor

# What a model draws: rows, or whatever else a step of a monitor takes.
Draw: TypeAlias = Callable[[Any], Any]


class Accuracies:
    """Cells of a matrix: of each task that is tested after each that was trained, the last that was measured."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self.cells: dict[tuple[int | None, int], float] = {}

    def note(self, trained: int | None, measured: Mapping[int, float]) -> None:
        """The accuracies of some tasks after `trained` (None: before any training)."""
        self.cells |= {(trained, tested): float(value) for tested, value in measured.items()}

    def record(self) -> Record:
        """The Record of the run so far."""
        if not any(trained is not None for trained, _ in self.cells):
            raise InputError("The evaluations of a Record must be after a task was trained. Got none instead.")
        rows = [(trained, tested, value) for (trained, tested), value in self.cells.items()]
        frame = pd.DataFrame(rows, columns=["trained", "tested", "accuracy"], dtype=object)
        return Record.from_matrix(frame, name=self.name, seed=self.seed)[0]

    def save(self, folder: str | Path) -> Path:
        """Write the Record to `folder`."""
        return self.record().save(folder)


class Watch:
    """A step of a monitor every so often: what `draw(model)` gives, judged under `task`."""

    def __init__(
        self,
        monitor: Monitor | str | Path,
        task: str,
        draw: Draw,
        *,
        every: int,
        real: ArrayLike | None,
    ) -> None:
        self.monitor = monitor if isinstance(monitor, Monitor) else Monitor.open(monitor)
        self.task, self.draw, self.every, self.real = task, draw, whole(every, "every", "the callback", low=1), real
        self.epochs = 0

    def epoch_ended(self, model: object) -> None:
        """Take a step if one is due; with the data of the task, where it was given, in the first."""
        self.epochs += 1
        if self.epochs % self.every == 0:
            given, self.real = self.real, None
            real: dict[str | int, Any] = {} if given is None else {self.task: given}
            self.monitor.step(real, {self.task: self.draw(model)}, seed=self.epochs)
