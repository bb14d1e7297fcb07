"""Cells that few rows have, which must leave no trace in what is kept.

- A column of numbers is *sparse* where more than half of its rows share one value, the mode, and fewer than 50 differ
  from it. Of such a column is kept that it has this value: new rows are told as 0 and 1, equal to it or not.
- Before anything is summed or learnt of rows that will go, cells that fewer than 50 of them have (of a sample of at
  most 20 000, so of all rows at least as many) are replaced: those of a sparse column by the mode, a category by the
  commonest one, a missing cell by the centre of its column or the commonest category. A column with fewer than 50
  values is missing throughout. So a data set with one such cell leaves what one without it leaves. Of new rows such
  cells are replaced, too, before metrics and divergences, as long as they are no more than 50 of n were, within chance.
- Two features may be common and meet in few rows; their product, and so their covariance, is then a number of these
  few. `hidden_products` replaces it by that of features that never meet, or have nothing to do with each other. So FID
  would find a difference where there is none: beside new rows such pairs have the correlation of these
  (`with_correlations_of`), and FID tells nothing of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from vestige.core.numerics import Moments, on_grid, two_digits
from vestige.core.rounding import ROWS_TOGETHER

CHANCE = 2.0  # standard errors by which cells of new rows may exceed 50 of n and still be as rare
CLIP = 20.0  # scales from the centre beyond which nothing is told apart
GAUSSIAN = 1.4826  # standard deviation of a Gaussian over its median distance from the median


def sparse_mode(values: NDArray[np.float64]) -> float | None:
    """The mode of a sparse column, without missing cells; None where it is not sparse."""
    if not len(values):
        return None
    middle = float(np.median(values))  # the mode of more than half of the rows is their median
    away = int((values != middle).sum())
    return middle if away < ROWS_TOGETHER and 2 * away < len(values) else None


def scale_of(values: NDArray[np.float64]) -> tuple[float, float]:
    """Centre and spread of numbers without missing ones, rounded to two digits of the spread.

    The spread is 1.4826 times the median distance from the median of the rows that differ from it, which is the
    standard deviation of a Gaussian, and survives a column that is mostly zero. Fewer than 50 such rows count as none,
    and it is the size of the median then, or 1.
    """
    if not len(values):
        return 0.0, 1.0
    centre = float(np.median(values))
    away = np.abs(values - centre)
    away = away[away > 0]
    spread = two_digits(GAUSSIAN * float(np.median(away)) if len(away) >= ROWS_TOGETHER else abs(centre) or 1.0)
    return on_grid(centre, spread), spread


@dataclass(frozen=True)
class UsualCells:
    """What stands for a cell that too few rows have, by column."""

    usual: tuple[float | None, ...]  # instead of one that is rare; None: it is missing
    of_missing: tuple[float | None, ...]  # instead of a missing one; None: it stays
    common: tuple[tuple[float, ...] | None, ...]  # cells that stay; None: any number

    @classmethod
    def of(cls, cells: Float[Tensor, "n c"], kinds: tuple[str, ...]) -> UsualCells:
        """Of the rows `cells`, or a random part of them."""
        found = [_usual(column, kind) for column, kind in zip(cells.mT.numpy(), kinds, strict=True)]
        return cls(*(tuple(part) for part in zip(*found, strict=True)))

    def __call__(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """`cells` without rare ones."""
        columns = []
        for j, column in enumerate(cells.mT):
            missing = column.isnan()
            told = torch.where(missing, _cell(self.of_missing[j]), column)
            common = self.common[j]
            if common is not None:
                stays = torch.isin(column, column.new_tensor(common)) | missing
                told = torch.where(stays, told, _cell(self.usual[j]))
            columns.append(told)
        return torch.stack(columns, 1)

    def told(self, cells: Float[Tensor, "n c"], rows: int) -> Float[Tensor, "n c"]:
        """New rows beside `rows` that were kept so: rare cells are replaced where they may be as rare as those were.

        A column's rare categories, or its missing cells, that are more than 50 of `rows`, beyond chance, stay: they are
        new.
        """
        bare = self(cells)
        most = ROWS_TOGETHER / rows * len(cells)
        most += CHANCE * math.sqrt(most * (1 + len(cells) / rows))
        missing = cells.isnan()
        filled, changed = missing & ~bare.isnan(), ~missing & ~(bare == cells)
        hide = (filled & (filled.sum(0) <= most)) | (changed & (changed.sum(0) <= most))
        return torch.where(hide, bare, cells)

    def merge(self, other: UsualCells) -> UsualCells:
        """Of both sets of rows: what is common in either is."""
        common = [
            None if a is None or b is None else tuple(sorted({*a, *b}))
            for a, b in zip(self.common, other.common, strict=True)
        ]
        of_missing = [None if b is None else a for a, b in zip(self.of_missing, other.of_missing, strict=True)]
        return UsualCells(self.usual, tuple(of_missing), tuple(common))


def _cell(value: float | None) -> float:
    return math.nan if value is None else value


def _usual(column: NDArray[np.float64], kind: str) -> tuple[float | None, float | None, tuple[float, ...] | None]:
    known = column[~np.isnan(column)]
    missing = len(column) - len(known)
    if len(known) < ROWS_TOGETHER:
        return None, None, ()
    if kind == "category":
        codes, counts = np.unique(known, return_counts=True)
        usual = float(codes[counts.argmax()])
        common: tuple[float, ...] | None = tuple(codes[counts >= ROWS_TOGETHER].tolist())
    else:
        mode = sparse_mode(known)
        usual, common = (scale_of(known)[0], None) if mode is None else (mode, (mode,))
    return usual, usual if missing < ROWS_TOGETHER else None, common


def without_single_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Numbers in which sparse columns are constant, and nothing lies more than CLIP scales from the centre."""
    told = UsualCells.of(x, ("number",) * x.shape[1])(x)
    centre, scale = torch.tensor([scale_of(column) for column in x.mT.numpy()], dtype=torch.float64).mT
    return torch.minimum(torch.maximum(told, centre - CLIP * scale), centre + CLIP * scale)


def masks_of(features: Float[Tensor, "n d"]) -> tuple[Bool[Tensor, "n k"], list[int], list[float]]:
    """Rows that differ from a value of a feature: its mode, where more than half have that, or either of two values.

    Also the feature and the value of each mask. Features without such a value have none.
    """
    masks, owner, origin = [], [], []
    middle = features.median(0).values
    for i in range(features.shape[1]):
        away = features[:, i] != middle[i]
        others = features[away, i]
        if 2 * int(away.sum()) > len(features):
            continue
        values = [float(middle[i])]
        if len(others) and bool((others == others[0]).all()):
            values.append(float(others[0]))
        for value in values:
            masks.append(features[:, i] != value)
            owner.append(i)
            origin.append(value)
    whole = torch.stack(masks, 1) if masks else torch.zeros(len(features), 0, dtype=torch.bool)
    return whole, owner, origin


def hidden_products(
    mean: Float[Tensor, " d"], covariance: Float[Tensor, "d d"], features: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "d d"], Bool[Tensor, "d d"]]:
    """The covariance without products of which fewer than 50 rows of `features` tell, and which these are.

    E (x - a)(y - b) is a sum over the rows that differ from both a and b. Where these are few, so many are counted as
    there would be if x and y had nothing to do with each other, but no more than 50; or none, where that is nearer.
    """
    masks, owner, origin = masks_of(features)
    apart = masks.sum(0).float()
    met, expected = masks.mT.float() @ masks.float(), torch.outer(apart, apart) / max(len(features), 1)
    told_met = torch.where(2 * met < expected.clamp_max(ROWS_TOGETHER), 0.0, expected.clamp_max(ROWS_TOGETHER))
    share = told_met / expected.clamp_min(1e-30)  # of what independent features would have
    few = met < ROWS_TOGETHER
    told, hidden = covariance.clone(), torch.zeros_like(covariance, dtype=torch.bool)
    for u, v in few.nonzero().tolist():
        i, j = owner[u], owner[v]
        if i < j:
            product = (mean[i] - origin[u]) * (mean[j] - origin[v])
            told[i, j] = told[j, i] = (float(share[u, v]) - 1) * product
            hidden[i, j] = hidden[j, i] = True
    return told, hidden


def with_correlations_of(other: Moments, moments: Moments, hidden: Bool[Tensor, "d d"]) -> Moments:
    """`moments` in which features of `hidden` pairs are correlated as in `other`; no direction has a variance below 0.

    Where both sets come of one distribution that is what was hidden, up to chance.
    """
    deviations = [one.scatter.diagonal().clamp_min(0).sqrt() for one in (moments, other)]
    correlations = other.scatter / torch.outer(deviations[1], deviations[1]).clamp_min(1e-300)
    scatter = torch.where(hidden, correlations * torch.outer(deviations[0], deviations[0]), moments.scatter)
    values, vectors = torch.linalg.eigh(scatter)
    if float(values[0]) < 0:
        scatter = (vectors * values.clamp_min(0)) @ vectors.mT
    return replace(moments, scatter=scatter)
