"""A memory of past samples, with budgets that are never exceeded and bytes that are counted.

Everything a learner keeps of past data lives here, so that an audit can say how much that is. It stores inputs, labels
and the index of the task each came from.

The budget is a number of samples in total, or for each class, or both. `make_room` divides it: evenly among the
classes, the remainder to those that came first, so that nothing is wasted and nothing rounds up past the budget; within
a class evenly among the tasks that it came from. The samples of one class and task are kept in the order in which
they were chosen, and what must go goes from the end of that order (iCaRL, Alg. 5), so the best chosen stay.

Where nobody says when a task ends, a memory is filled by `offer` instead, batch by batch: reservoir sampling (Vitter
1985, algorithm R). After any number of samples each of them is in the memory with the same probability, and any set of
them as likely as any other of its size.
"""

from __future__ import annotations

import sys

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import InputError, StoreError
from vestige.core.checks import refuse
from vestige.store import restore_tensors, to_tensors

SAMPLES = ("x", "y", "task")


def shares(n: int, parts: int) -> list[int]:
    """`n` divided among `parts`, the first of them getting one more where it does not divide. They sum to n."""
    return [n // parts + (j < n % parts) for j in range(parts)]


class Memory:
    """Samples of past tasks.

    `budget` is the largest number of them, `per_class` the largest number of one class. With neither the memory keeps
    everything, which an audit will say.
    """

    offered_: int = 0  # samples that `offer` has seen

    def __init__(self, budget: int | None, per_class: int | None = None) -> None:
        for name, value in (("budget", budget), ("per_class", per_class)):
            if value is not None and value < 0:
                raise InputError(f"The '{name}' of Memory must be at least 0. Got {value} instead.")
        self.budget, self.per_class = budget, per_class
        self.x: Tensor = torch.empty(0)
        self.y: Tensor = torch.empty(0, dtype=torch.int64)
        self.task: Tensor = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def bytes(self) -> int:
        """Size of all that is kept."""
        return sum(t.numel() * t.element_size() for t in (self.x, self.y, self.task))

    def make_room(self, classes: Int64[Tensor, " c"], task: int) -> dict[int, int]:
        """Drop what must go so that `classes` of `task` can come in; how many of each may."""
        kept = list(zip(self.y.tolist(), self.task.tolist(), strict=True))
        groups = list(dict.fromkeys([*kept, *((label, task) for label in classes.tolist())]))
        labels = list(dict.fromkeys(label for label, _ in groups))  # in the order in which they first came
        portions = [sys.maxsize] * len(labels) if self.budget is None else shares(self.budget, len(labels))
        room: dict[tuple[int, int], int] = {}
        for label, share in zip(labels, portions, strict=True):
            mine = [group for group in groups if group[0] == label]
            share = share if self.per_class is None else min(share, self.per_class)
            room |= dict(zip(mine, shares(share, len(mine)), strict=True))
        taken = dict.fromkeys(groups, 0)
        stays = []
        for i, group in enumerate(kept):
            if taken[group] < room[group]:
                stays.append(i)
            taken[group] += 1
        rows = torch.tensor(stays, dtype=torch.int64)
        self.x, self.y, self.task = self.x[rows], self.y[rows], self.task[rows]
        return {label: room[label, task] for label in classes.tolist()}

    def add(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], task: int) -> None:
        """Copy samples of one task into the memory; more than the budget allows is refused, not dropped."""
        if self.budget is not None and len(self) + len(y) > self.budget:
            raise InputError(
                f"The 'x' of Memory.add must be at most {self.budget - len(self)} samples, what the budget of "
                f"{self.budget} leaves. Got {len(y)} instead."
            )
        together = torch.cat([self.y, y])
        if self.per_class is not None and len(y) and int(together.bincount().max()) > self.per_class:
            raise InputError(
                f"The 'y' of Memory.add must leave at most {self.per_class} samples in a class. "
                f"Got {int(together.bincount().max())} of class {int(together.bincount().argmax())} instead."
            )
        self.x = torch.cat([self.x, x]) if len(self) else x.clone()
        self.y = together
        self.task = torch.cat([self.task, torch.full((len(y),), task, dtype=torch.int64)])

    def offer(
        self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], task: int, *, generator: torch.Generator
    ) -> None:
        """Let a batch of the stream into the reservoir: sample i of the stream takes a place with chance budget / i."""
        if self.budget is None or self.per_class is not None:
            refuse("budget", "Memory.offer", "given, and 'per_class' not: a reservoir has one size", self.budget)
        free = min(self.budget - len(self), len(y))
        if free:
            self.add(x[:free], y[:free], task)
        # Chance works in float64 on the CPU, as in `samplers`: not every device has it.
        count = torch.arange(self.offered_ + free + 1, self.offered_ + len(y) + 1, dtype=torch.float64, device="cpu")
        place = (torch.rand(count.shape, generator=generator, dtype=count.dtype, device="cpu") * count).long()  # 0..i-1
        mine = (place < self.budget).nonzero()[:, 0]
        # Where two of a batch take one place, the later stays, as if they had come one after the other.
        last = torch.full((self.budget,), -1, device="cpu").scatter_reduce_(0, place[mine], mine, "amax")
        taken = (last >= 0).nonzero()[:, 0]
        if len(taken):
            rows = free + last[taken]
            self.x[taken], self.y[taken], self.task[taken] = x[rows], y[rows], task
        self.offered_ += len(y)

    def state_dict(self) -> dict[str, Tensor]:
        """The samples, and what the memory has learnt besides."""
        return {"x": self.x, "y": self.y, "task": self.task} | to_tensors(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state_dict`. More than the budget allows is refused here too."""
        y = state["y"]
        in_class = int(y.bincount().max()) if len(y) else 0
        for name, budget, held in (("budget", self.budget, len(y)), ("per_class", self.per_class, in_class)):
            if budget is not None and held > budget:
                raise StoreError(f"The stored Memory holds {held} samples; the {name} of this one is {budget}.")
        state = {key: value.clone() for key, value in state.items()}
        self.x, self.y, self.task = state["x"], state["y"], state["task"]
        restore_tensors(self, {key: value for key, value in state.items() if key not in SAMPLES})
