"""Callbacks of Lightning: steps of a monitor while a generator trains, and the Record of a classifier's tasks.

Trainer(callbacks=[LightningMonitor("monitor", "faces", lambda module: module.sample(1000))])

collected = LightningRecord("accuracy", name="mine", seed=3)
trainer.fit(module, train), then trainer.validate(module, tests_of_all_tasks), task after task; collected.save("runs")
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback

from vestige.core.checks import ArrayLike
from vestige.monitor import Monitor
from vestige.plugins.accuracies import Accuracies, Draw, Watch


class LightningMonitor(Callback):  # type: ignore[misc] # whatever is installed
    """A step of `monitor` (or its folder) every so many epochs: `draw(module)` are rows, or what draws them."""

    def __init__(
        self, monitor: Monitor | str | Path, task: str, draw: Draw, *, every: int = 1, real: ArrayLike | None = None
    ) -> None:
        self.watch = Watch(monitor, task, draw, every=every, real=real)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """A step, if one is due; by the first process alone."""
        if trainer.is_global_zero:
            self.watch.epoch_ended(pl_module)


class LightningRecord(Callback):  # type: ignore[misc] # whatever is installed
    """Collects what the module logs as `metric` when it is validated on the test sets of all tasks after each."""

    def __init__(self, metric: str = "accuracy", *, name: str = "lightning", seed: int = 0) -> None:
        self.metric, self.found = metric, Accuracies(name, seed)
        self.trained: int | None = None
        self.record, self.save = self.found.record, self.found.save

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """A task is learnt."""
        self.trained = 0 if self.trained is None else self.trained + 1

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Note the accuracy on each test set, unless a task is being learnt."""
        if str(trainer.state.fn.value) == "validate":
            named = rf"{re.escape(self.metric)}(?:/dataloader_idx_(\d+))?"
            found = {re.fullmatch(named, name): value for name, value in trainer.callback_metrics.items()}
            self.found.note(self.trained, {int(match[1] or 0): float(value) for match, value in found.items() if match})
