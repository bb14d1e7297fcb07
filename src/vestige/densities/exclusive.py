"""Columns of 0 and 1 of which hardly ever two are 1: a category that somebody has spread over columns (one-hot).

Drawn column by column, rows would come out with two of the categories, or with none, which no row of the data has, and
which any classifier sees. So such columns are joined into one category before a density learns, and spread again when
it draws.

Columns are candidates where every cell is 0 or 1. From the most frequent to the rarest, each joins the group in which
the fewest rows have two then, if these are fewer than ROWS; of such a row the more frequent one counts. So no single
row decides. Groups of fewer than LEAST columns with ROWS ones each are left as they are: two columns that exclude each
other may do so by chance, or be one column and its opposite, which a tree finds by itself. A column of a group with
fewer than ROWS ones has no code: its rows count as those of the most frequent one, so that nothing is said of few rows,
and it is 0 in every draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige.core.rounding import ROWS_TOGETHER

LEAST = 3  # columns of a group
ROWS = ROWS_TOGETHER  # with a 1, and without; and with two of a group


@dataclass(frozen=True)
class ExclusiveColumns:
    """Groups of columns that are one category each, and the number of columns there are in all."""

    groups: tuple[tuple[int, ...], ...]  # the most frequent column first
    rare: tuple[int, ...]  # columns of groups that have no code
    width: int

    @classmethod
    def of(cls, cells: Float64[Tensor, "n c"], kinds: tuple[str, ...]) -> ExclusiveColumns:
        """Of the rows `cells`."""
        binary = ((cells == 0) | (cells == 1)).all(0)
        ones = (cells == 1).sum(0)
        columns = [j for j in torch.argsort(ones, descending=True).tolist() if bool(binary[j]) and kinds[j] == "number"]
        groups: list[list[int]] = []
        taken: list[Tensor] = []  # how many of a group's columns are 1, in each row
        for j in columns:
            is_one = (cells[:, j] == 1).int()
            shared = [int((many + is_one > 1).sum()) for many in taken]
            home = min(range(len(taken)), key=shared.__getitem__) if min(shared, default=ROWS) < ROWS else None
            if home is None:
                groups.append([j])
                taken.append(is_one)
            else:
                groups[home].append(j)
                taken[home] = taken[home] + is_one
        found = [tuple(group) for group in groups if sum(int(ones[j]) >= ROWS for j in group) >= LEAST]
        return cls(tuple(found), tuple(j for group in found for j in group if int(ones[j]) < ROWS), cells.shape[1])

    @property
    def alone(self) -> list[int]:
        """The columns that are in no group."""
        grouped = {j for group in self.groups for j in group}
        return [j for j in range(self.width) if j not in grouped]

    def kinds(self, kinds: tuple[str, ...]) -> tuple[str, ...]:
        """Of the columns of `joined`."""
        return (*(kinds[j] for j in self.alone), *("category" for _ in self.groups))

    def joined(self, cells: Float64[Tensor, "n c"]) -> Float64[Tensor, "n k"]:
        """Columns in no group, then a code for each group: which of its columns is 1, counted from 1, or 0 for none."""
        return torch.cat([cells[:, self.alone], *(self._codes(cells, group)[:, None] for group in self.groups)], 1)

    def _codes(self, cells: Float64[Tensor, "n c"], group: tuple[int, ...]) -> Float64[Tensor, " n"]:
        is_one = cells[:, list(group)] == 1
        place = is_one.double().argmax(1)
        place[torch.tensor([j in self.rare for j in group])[place]] = 0  # the most frequent
        return torch.where(is_one.any(1), 1 + place, 0).to(cells.dtype)

    def spread(self, joined: Float64[Tensor, "n k"]) -> Float64[Tensor, "n c"]:
        """The inverse of `joined`."""
        cells = joined.new_zeros(len(joined), self.width)
        cells[:, self.alone] = joined[:, : len(self.alone)]
        for i, group in enumerate(self.groups):
            code = joined[:, len(self.alone) + i]
            cells[:, list(group)] = (code[:, None] == torch.arange(1, len(group) + 1)).double()
        return cells
