"""A task: what a learner may know of it for ever (`TaskInfo`), and data that goes when the next task begins (`Task`).

Withdrawal is physical. The stream hands out a copy of the rows and, when the task is over, overwrites that copy with
NaN (labels with -1) before it lets go of it: a learner that kept a reference holds nothing, and touching the task
raises `DataGone`. A learner that wants to remember copies through `vestige.continual.memory`, where it is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import DataGone


@dataclass(frozen=True)
class TaskInfo:
    """What is no secret after the data is gone.

    `outputs` are the places in the network's output that this task's labels use; `train_outputs` are those over which
    the loss is taken while it trains ("current", "seen" or "all" of the stream). Both are in ascending order.
    """

    index: int
    name: str
    outputs: tuple[int, ...]
    train_outputs: tuple[int, ...]
    train_logits: Literal["current", "seen", "all"]
    n: int


class Task:
    """One task's training (and validation) data, until it is withdrawn."""

    def __init__(
        self,
        info: TaskInfo,
        x: Float[Tensor, "n *shape"],
        y: Int64[Tensor, " n"],
        val_x: Float[Tensor, "m *shape"],
        val_y: Int64[Tensor, " m"],
    ) -> None:
        self.info = info
        self._data: dict[str, Tensor] | None = {"x": x, "y": y, "val_x": val_x, "val_y": val_y}

    def _get(self, key: str) -> Tensor:
        if self._data is None:
            raise DataGone(
                f"The data of task {self.info.index} ({self.info.name}) is gone: the stream withdrew it when the next "
                "task began. Keep what you may keep in a memory, whose budget is counted."
            )
        return self._data[key]

    @property
    def x(self) -> Tensor:
        """Training inputs, float32."""
        return self._get("x")

    @property
    def y(self) -> Tensor:
        """Training labels: places in the network's output."""
        return self._get("y")

    @property
    def val_x(self) -> Tensor:
        """Validation inputs; empty unless the stream was asked for a validation fraction."""
        return self._get("val_x")

    @property
    def val_y(self) -> Tensor:
        """Validation labels."""
        return self._get("val_y")

    @property
    def gone(self) -> bool:
        """Whether the data was withdrawn."""
        return self._data is None

    def __len__(self) -> int:
        return self.info.n

    def withdraw(self) -> None:
        """Destroy the data. Called by the stream; calling it again changes nothing."""
        if self._data is not None:
            for tensor in self._data.values():
                erase(tensor)
            self._data = None

    def __repr__(self) -> str:
        state = "gone" if self.gone else f"{self.info.n} samples"
        return f"Task({self.info.index}, {self.info.name!r}, outputs {list(self.info.outputs)}, {state})"


def erase(tensor: Tensor) -> None:
    """Overwrite in place: NaN for floats, -1 for labels, so that a kept reference fails loudly."""
    with torch.no_grad():
        tensor.fill_(float("nan") if tensor.is_floating_point() else -1)
