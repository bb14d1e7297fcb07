"""Callbacks for the Trainer of transformers: steps of a monitor, and the Record of a classifier's tasks.

Trainer(..., callbacks=[TrainerMonitor("monitor", "faces", lambda model: model.sample(1000))])

collected = TrainerRecord(["news", "sport"], name="mine", seed=3)  # a callback of the Trainer of each task, in turn
trainer.train(), then trainer.evaluate({"news": ..., "sport": ...}); at last collected.save("runs")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from vestige.core.checks import ArrayLike
from vestige.monitor import Monitor
from vestige.plugins.accuracies import Accuracies, Draw, Watch


class TrainerMonitor(TrainerCallback):  # type: ignore[misc] # whatever is installed
    """A step of `monitor` (or its folder) every so many epochs: `draw(model)` are rows, or what draws them."""

    def __init__(
        self, monitor: Monitor | str | Path, task: str, draw: Draw, *, every: int = 1, real: ArrayLike | None = None
    ) -> None:
        self.watch = Watch(monitor, task, draw, every=every, real=real)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ANN401
        """A step, if one is due; by the first process alone."""
        if state.is_world_process_zero:
            self.watch.epoch_ended(given["model"])


class TrainerRecord(TrainerCallback):  # type: ignore[misc] # whatever is installed
    """Collects `metric` of the tasks, by the names of their sets, from evaluations after each is learnt in order."""

    def __init__(
        self, tasks: Sequence[str], metric: str = "accuracy", *, name: str = "transformers", seed: int = 0
    ) -> None:
        self.keys = {f"eval_{task}_{metric}": j for j, task in enumerate(tasks)}
        self.found, self.training = Accuracies(name, seed), False
        self.trained: int | None = None
        self.record, self.save = self.found.record, self.found.save

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ANN401
        """Evaluations until it is over are of a model in the making."""
        self.training = True

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ANN401
        """A task is learnt."""
        self.training, self.trained = False, 0 if self.trained is None else self.trained + 1

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], **given: Any) -> None:  # noqa: ANN401
        """Note the accuracies."""
        if not self.training:
            self.found.note(self.trained, {self.keys[k]: float(v) for k, v in metrics.items() if k in self.keys})
