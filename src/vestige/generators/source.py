"""What a generator is trained on: real rows of new conditions, replayed rows of earlier ones, dealt in batches.

Every condition, new or old, has the same share of the rows, whatever its number of real samples. Replay is drawn in
bulk, once an epoch; an epoch is as many rows as all conditions would have if each had as many as the largest new one.
Deviation from CDRE Fig. 1, which does not say how much is replayed: equal shares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

# How far a fit is (0 to 1), and in words.
Tell = Callable[[float, str], None]
# Conditions and noise in, one row for each out.
Draw = Callable[[Tensor, Generator], Tensor]


class Source:
    """Deals batches of rows and their conditions."""

    def __init__(
        self,
        x: Float[Tensor, "n d"],
        conditions: Int64[Tensor, " n"],
        earlier: Sequence[int],
        replay: Draw | Mapping[int, Tensor],
    ) -> None:
        self.real = {c: x[conditions == c] for c in sorted(set(conditions.tolist()))}
        self.earlier, self.replay = list(earlier), replay
        self.conditions = sorted([*self.real, *self.earlier])
        self.size = max(map(len, self.real.values()))  # rows of each condition in one epoch

    def steps(self, epochs: int, batch: int) -> int:
        """Batches in so many epochs."""
        return epochs * max(self.size * len(self.conditions) // batch, 1)

    def batches(
        self, batch: int, steps: int, generator: Generator
    ) -> Iterator[tuple[Float[Tensor, "b d"], Int64[Tensor, " b"]]]:
        """`steps` batches, each condition as often as any other within an epoch."""
        left = steps
        while left > 0:
            now = min(left, max(self.size * len(self.conditions) // batch, 1))
            x, conditions = self.epoch(-(-now * batch // len(self.conditions)), generator)
            order = torch.randperm(len(x), generator=generator)[: now * batch]
            x, conditions = x[order], conditions[order]
            yield from zip(x.split(batch), conditions.split(batch), strict=True)
            left -= now

    def epoch(self, each: int, generator: Generator) -> tuple[Float[Tensor, "m d"], Int64[Tensor, " m"]]:
        """`each` rows of every condition."""
        parts = []
        for c, rows in self.real.items():
            parts.append((rows[_deal(len(rows), each, generator)], torch.full((each,), c)))
        if isinstance(self.replay, Mapping):
            for c in self.earlier:
                rows = self.replay[c]
                parts.append((rows[_deal(len(rows), each, generator)], torch.full((each,), c)))
        elif self.earlier:
            asked = torch.tensor(self.earlier).repeat_interleave(each)
            parts.append((self.replay(asked, generator), asked))
        return torch.cat([x for x, _ in parts]), torch.cat([c for _, c in parts])


def _deal(n: int, count: int, generator: Generator) -> Int64[Tensor, " m"]:
    """`count` cards from decks of n, each deck shuffled."""
    decks = [torch.randperm(n, generator=generator) for _ in range(-(-count // n))]
    return torch.cat(decks)[:count]
