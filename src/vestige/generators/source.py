"""What a generator is trained on: real rows of new conditions, replayed rows of earlier ones, in batches.

Every condition, new or old, has the same share of the rows, whatever its number of real samples. Replay is drawn in
bulk, once an epoch; an epoch is as many rows as all conditions would have if each had as many as the largest new one.
Deviation from CDRE Fig. 1, which does not say how much is replayed: equal shares, unless a generator asks for a share
of its own for what is new.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from vestige.core import checks

# How far a fit is (0 to 1), and in words.
Progress = Callable[[float, str], None]
# Conditions and noise in, one row for each out.
Draw = Callable[[Tensor, Generator], Tensor]


class ReplaySource:
    """Gives batches of rows and their conditions."""

    def __init__(
        self,
        x: Float[Tensor, "n d"],
        conditions: Int64[Tensor, " n"],
        earlier: Sequence[int],
        replay: Draw | Mapping[int, Tensor],
        fresh: float | None = None,
    ) -> None:
        """`fresh` is the share of rows that are real where others are replayed; None: as many of each condition."""
        self.real = {c: x[conditions == c] for c in sorted(set(conditions.tolist()))}
        self.earlier, self.replay = list(earlier), replay
        self.fresh = fresh if self.earlier else None
        self.conditions = sorted([*self.real, *self.earlier])
        self.size = max(map(len, self.real.values()))  # rows of each condition in one epoch

    def held(self) -> list[Tensor]:
        """The rows at hand, condition by condition: real ones, and replay that was given as samples."""
        return [*self.real.values(), *(self.replay.values() if isinstance(self.replay, Mapping) else ())]

    def must_be_pixels(self, owner: str) -> None:
        """Refuse rows beyond [0, 1], where a generator can draw nothing beyond."""
        for rows in self.held():
            low, high = float(rows.min()), float(rows.max())
            if low < 0 or high > 1:
                checks.refuse("x", owner, "in [0, 1], as its samples are", f"values from {low:.4g} to {high:.4g}")

    def steps(self, epochs: int, batch: int) -> int:
        """Batches in so many epochs."""
        return epochs * max(self.size * len(self.conditions) // batch, 1)

    def batches(
        self, batch: int, steps: int, generator: Generator
    ) -> Iterator[tuple[Float[Tensor, "b d"], Int64[Tensor, " b"]]]:
        """`steps` batches, each condition as often as any other within an epoch, or as `fresh` says."""
        left = steps
        while left > 0:
            now = min(left, max(self.size * len(self.conditions) // batch, 1))
            x, conditions = self.epoch(now * batch, generator)
            order = torch.randperm(len(x), generator=generator)[: now * batch]
            x, conditions = x[order], conditions[order]
            yield from zip(x.split(batch), conditions.split(batch), strict=True)
            left -= now

    def epoch(self, rows: int, generator: Generator) -> tuple[Float[Tensor, "m d"], Int64[Tensor, " m"]]:
        """At least `rows` rows, as many of each condition as of any other among the new, and among the earlier."""
        each = old = -(-rows // len(self.conditions))
        if self.fresh is not None:
            each = math.ceil(rows * self.fresh / len(self.real))
            old = math.ceil(rows * (1 - self.fresh) / len(self.earlier))
        parts = [(held[_shuffled(len(held), each, generator)], torch.full((each,), c)) for c, held in self.real.items()]
        if isinstance(self.replay, Mapping):
            held_old = [(c, self.replay[c]) for c in self.earlier]
            parts += [(held[_shuffled(len(held), old, generator)], torch.full((old,), c)) for c, held in held_old]
        elif self.earlier:
            asked = torch.tensor(self.earlier).repeat_interleave(old)
            parts.append((self.replay(asked, generator), asked))
        return torch.cat([x for x, _ in parts]), torch.cat([c for _, c in parts])


def _shuffled(n: int, count: int, generator: Generator) -> Int64[Tensor, " m"]:
    """`count` row numbers below n: every number once, shuffled, and again until there are enough."""
    rounds = [torch.randperm(n, generator=generator) for _ in range(-(-count // n))]
    return torch.cat(rounds)[:count]
