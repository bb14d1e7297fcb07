"""A memory of past samples, with a budget that is never exceeded and bytes that are counted.

Everything a learner keeps of past data lives here, so that an audit can say how much that is. It stores inputs, labels
and the index of the task each came from.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.errors import InputError


class Memory:
    """Samples of past tasks. `budget` is the largest number of them; None keeps everything, which an audit will say."""

    def __init__(self, budget: int | None) -> None:
        if budget is not None and budget < 0:
            raise InputError(f"The 'budget' of Memory must be at least 0. Got {budget} instead.")
        self.budget = budget
        self.x: Tensor = torch.empty(0)
        self.y: Tensor = torch.empty(0, dtype=torch.int64)
        self.task: Tensor = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def bytes(self) -> int:
        """Size of all that is kept."""
        return sum(t.numel() * t.element_size() for t in (self.x, self.y, self.task))

    def add(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], task: int) -> None:
        """Copy samples of one task into the memory; more than the budget allows is refused, not dropped."""
        if self.budget is not None and len(self) + len(y) > self.budget:
            raise InputError(
                f"The 'x' of Memory.add must be at most {self.budget - len(self)} samples, what the budget of "
                f"{self.budget} leaves. Got {len(y)} instead."
            )
        self.x = torch.cat([self.x, x]) if len(self) else x.clone()
        self.y = torch.cat([self.y, y])
        self.task = torch.cat([self.task, torch.full((len(y),), task, dtype=torch.int64)])

    def state_dict(self) -> dict[str, Tensor]:
        """The samples, for saving a learner in the middle of its work."""
        return {"x": self.x, "y": self.y, "task": self.task}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state_dict`."""
        self.x, self.y, self.task = state["x"].clone(), state["y"].clone(), state["task"].clone()
