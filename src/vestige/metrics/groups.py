"""Summaries that merge, and the standard error that comes from leaving them out.

A set is dealt into groups. Leaving out one group at a time gives the delete-a-group jackknife standard error; both
sides lose their g-th group together: they are independent, so the variances of the two sides add up in one sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Summary(Protocol):
    """What a group keeps; `merge` is pure."""

    def merge(self, other: Self) -> Self:
        """The summary of both sets together."""
        ...


S = TypeVar("S", bound=Summary)


@dataclass(frozen=True)
class Sums:
    """A summary whose parts simply add up."""

    parts: dict[str, Tensor]

    def merge(self, other: Sums) -> Sums:
        """The sums over both sets."""
        return Sums({name: part + other.parts[name] for name, part in self.parts.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.parts[name]


def merged(summaries: Iterable[S]) -> S:
    """One summary of all."""
    first, *rest = summaries
    for summary in rest:
        first = first.merge(summary)
    return first


def leave_one_out(summaries: list[S]) -> Iterator[S]:
    """For each summary in turn, the merge of all others: about 3 merges each, by running merges from both ends."""
    after = [summaries[-1]]
    for summary in reversed(summaries[1:-1]):
        after.append(summary.merge(after[-1]))
    before = None
    for i, summary in enumerate(summaries):
        rest = after[-1 - i] if i < len(after) else None
        yield rest if before is None else before if rest is None else before.merge(rest)  # type: ignore[misc]
        before = summary if before is None else before.merge(summary)


def jackknife(p: list[S], q: list[S], value: Callable[[S, S], float]) -> float:
    """Delete-a-group standard error of `value` over two independent sets dealt into equally many groups."""
    left_out = [value(a, b) for a, b in zip(leave_one_out(p), leave_one_out(q), strict=True)]
    spread = torch.tensor(left_out, dtype=torch.float64).var(correction=0)
    return float(((len(p) - 1) * spread).sqrt())
