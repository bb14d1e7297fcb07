"""Which columns differ, and in what: of two sets of rows, and of a vestige and new rows.

With rows every column is tested by itself (`by_column`: exact under permutations, Holm over columns). With a vestige
the drift test says it (`vestige_differences`).

The order is that of guilt: if one column was changed, which? It is that of `evidence`, the logarithm of the mean of 1/p
over the kinds of evidence that a column has, of what it is by itself and of how it goes with the others (`by_column`).
There is an order where nothing differs beyond chance, too; only p-values say that something does. `python -m
benchmarks drift` counts how often the column that was changed comes first.

A column differs only where there is a difference at all: the hypothesis that nothing has changed is part of that for
each column, so p-values of columns are at least that of "no difference" (closed testing, Marcus, Peritz and Gabriel
1976), and no column is named beside an answer that there is none.

The share of the difference is permutation importance (`ratios.importance`). Of a vestige it is that of a classifier
between reference draws and new rows, so what the draws lack is in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import weighted_mean
from vestige.data.readers.columns import ColumnReport
from vestige.vestiges.by_column import (
    RANKS,
    CodedCells,
    coded,
    evidence_of,
    examined,
    given_others,
    holm,
    log_p_of,
    margins,
    relations,
)
from vestige.vestiges.drift_test import ColumnShift
from vestige.vestiges.schema import BOOLEANS
from vestige.vestiges.spelling import Write, dated, spelt

ALPHA = 0.05
QUANTILES = (0.1, 0.5, 0.9)
MOST_CELLS = 4e6  # of columns x rows of a side that are looked at


@dataclass(frozen=True)
class Profile:
    """Shares of bins, values or categories, in the data and in the new rows."""

    names: tuple[str, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class ColumnDifference:
    """How one column differs.

    `shift` is the change of the mean of a number in deviations of the data, and of a category the change of the share
    that changed most; `spread` the deviation over that of the data, `quantiles` the shift at 10, 50 and 90 %. `p_value`
    is corrected for the number of columns. `share` is what the classifier loses without the column, NaN where that was
    not looked at: shares need not add up to one. `relation` says how far it goes together with others in another way
    than before, most of all with `partner`.
    """

    name: str
    kind: str  # "number" or "category"
    told: str  # what differs most, in words and numbers
    z: float
    p_value: float
    shift: float
    spread: float
    quantiles: Mapping[str, float]
    missing: tuple[float, float]
    profile: Profile
    relation: float
    partner: str
    share: float = math.nan
    evidence: float = math.nan  # for the order, see the module; NaN where it is that of `z`

    @property
    def differs(self) -> bool:
        """Whether it does by itself."""
        return self.p_value <= ALPHA


def in_order(found: Sequence[ColumnDifference], p_value: float) -> tuple[ColumnDifference, ...]:
    """The guilty first, with p-values that are at least that of "no difference", which is `p_value`."""
    closed = [replace(one, p_value=one.p_value if math.isnan(p_value) else max(one.p_value, p_value)) for one in found]
    return tuple(sorted(closed, key=lambda one: (-_evidence(one), -abs(one.z))))


def _evidence(one: ColumnDifference) -> float:
    return -log_p_of(one.z) if math.isnan(one.evidence) else one.evidence


COLUMNS_TOLD = 3  # columns that differ are named, at most so many


def told_of(p_value: float, columns: Sequence[ColumnDifference], region: str | None = None) -> tuple[str, ...]:
    """The columns that differ most, in a sentence; where none does by itself, what has changed between them.

    Where no difference was found it is the column that differs most, which is no claim. Of images it is the `region`.
    """
    if not columns or math.isnan(p_value):
        return ()
    if region is not None:
        return (f"The images differ most in the {region}.",) if p_value <= ALPHA else ()
    first = columns[0]
    if p_value > ALPHA:
        told = f"the largest difference is in {first.name}, {first.told} (p = {first.p_value:.2g})"
        return (f"No column differs beyond chance; {told}.",) if len(columns) > 1 else ()
    found = [one for one in columns if one.differs]
    if not found and len(columns) > 1 and first.partner:
        told = f"most of all of {first.name} with {first.partner}"
        return (f"No column differs by itself: what has changed is how columns go together, {told}.",)
    if not found:
        return ()
    named = "; ".join(f"{one.name}, {one.told} (p = {one.p_value:.2g})" for one in found[:COLUMNS_TOLD])
    more = f"; and {len(found) - COLUMNS_TOLD} more" if len(found) > COLUMNS_TOLD else ""
    together = ""
    if not first.differs and first.partner:
        together = f" More than any of these it is how {first.name} goes with {first.partner} that has changed."
    return (f"Columns that differ by themselves: {named}{more}.{together}",)


def of_shift(name: str, kind: str, one: ColumnShift) -> ColumnDifference:
    """What a drift test alone can say of a column."""
    nan, nothing = math.nan, Profile((), (), ())
    told = f"{one.what} (z = {one.z:+.1f})"
    return ColumnDifference(name, kind, told, one.z, one.p_value, nan, nan, {}, (nan, nan), nothing, 0.0, "")


# ---- rows of both sides


@dataclass(frozen=True)
class RowColumn:
    """Where the features of one column stand among those of the rows."""

    name: str
    kind: str
    value: int | None = None  # of a number; None where it is one and the same everywhere
    codes: tuple[tuple[str, int], ...] = ()  # of a category: its texts and their 0/1 features
    missing: int | None = None  # the 0/1 feature that says so
    write: Write = spelt  # of a number

    @property
    def features(self) -> tuple[int, ...]:
        """All of them."""
        places = (self.value, *(place for _, place in self.codes), self.missing)
        return tuple(place for place in places if place is not None)

    def cells(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Numbers, or codes of categories; NaN where nothing was recorded."""
        if self.kind == "category" and self.value is None:
            cells = x[:, [place for _, place in self.codes]].argmax(1).double() if self.codes else x.new_zeros(len(x))
        else:
            cells = x.new_zeros(len(x)) if self.value is None else x[:, self.value]
        return cells.double() if self.missing is None else cells.double().where(x[:, self.missing] < 0.5, math.nan)

    @property
    def categories(self) -> tuple[str, ...] | None:
        """Texts of the codes, None of a number."""
        if self.kind == "number":
            return None
        return BOOLEANS if self.value is not None else tuple(text for text, _ in self.codes)


def row_columns(width: int, report: ColumnReport | None, kept: Sequence[bool] | None = None) -> tuple[RowColumn, ...]:
    """The columns of rows of `width` features, of which `report` tells; of an array each feature is one.

    `kept` says which of the features are still there, and the places are those among them.
    """
    places = np.cumsum(kept) - 1 if kept is not None else np.arange(width)
    at = {i: int(places[i]) for i in range(width) if kept is None or kept[i]}
    if report is None:
        return tuple(RowColumn(f"x{i}", "number", at[i]) for i in at)
    out, start = [], 0
    for column in report.columns:
        here = {name: start + i for i, name in enumerate(column.features)}
        start += len(here)
        there = {name: at[i] for name, i in here.items() if i in at}
        missing = there.pop(f"{column.name} is missing", None)
        if column.kind == "text":
            texts = {name.removeprefix(f"{column.name} = "): place for name, place in there.items()}
            texts = {"rare" if text == f"{column.name} is rare" else text: place for text, place in texts.items()}
            found = [RowColumn(column.name, "category", None, tuple(texts.items()), missing)]
        elif column.name in here:
            kind = "category" if column.kind == "boolean" else "number"
            write = dated if column.kind == "date" else spelt
            found = [RowColumn(column.name, kind, there.get(column.name), (), missing, write)]
        else:  # the columns of an array, under one line of the report
            found = [RowColumn(name, "number", place) for name, place in there.items()]
        out += [one for one in found if one.features]
    return tuple(out)


def of_rows(
    p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"], columns: Sequence[RowColumn]
) -> tuple[ColumnDifference, ...]:
    """How each column of `q` differs from that of `p`; of a side every k-th row, of MOST_CELLS cells at most."""
    most = max(int(MOST_CELLS / max(len(columns), 1)), 1)
    p, q = (x[:: -(-len(x) // most)] for x in (p, q))
    sides = [(column.cells(p), column.cells(q)) for column in columns]
    both = zip(sides, columns, strict=True)
    codes = [coded(torch.cat(pair), column.categories, column.write) for pair, column in both]
    found = [examined(one, len(p)) for one in codes]
    given = given_others(codes).log_p(len(codes), len(p))
    corrected = holm([one.p_value for one in found])
    related = relations(codes, len(p))
    out = []
    for i, column in enumerate(columns):
        profile = _profile(codes[i], len(p))
        place, numbers = found[i].place, numbers_of(*sides[i]) if column.kind == "number" else None
        told = (
            of_number(numbers, "mean" if place == RANKS else "spread", column.write)
            if numbers is not None and place < 0
            else of_share(profile, place, column.kind)
        )
        relation, partner = related[i]
        out.append(
            difference(
                *(column.name, column.kind, told, found[i].z, corrected[i], numbers, profile, place),
                missing=(float(sides[i][0].isnan().double().mean()), float(sides[i][1].isnan().double().mean())),
                relation=relation,
                partner=columns[partner].name,
                evidence=evidence_of([*found[i].log_p, *given[i]]),
            )
        )
    return tuple(out)


def column_functions(
    p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"], columns: Sequence[RowColumn]
) -> Float[Tensor, "n f"]:
    """Scores of single columns, their squares, and what is left of them given the others, of all rows together."""
    codes = [coded(torch.cat([one.cells(p), one.cells(q)]), one.categories) for one in columns]
    return torch.cat([margins(codes), given_others(codes).values], 1)


@dataclass(frozen=True)
class Numbers:
    """Mean and deviation of a number before and after, and shifts of quantiles in deviations."""

    means: tuple[float, float]
    deviations: tuple[float, float]
    quantiles: Mapping[str, float] = field(default_factory=dict)

    @property
    def shift(self) -> float:
        """In deviations of the data."""
        return (self.means[1] - self.means[0]) / (self.deviations[0] or self.deviations[1] or 1.0)

    @property
    def spread(self) -> float:
        """The deviation over that of the data."""
        return self.deviations[1] / self.deviations[0] if self.deviations[0] > 0 else math.nan


def numbers_of(p: Float[Tensor, " n"], q: Float[Tensor, " m"], weights: Float[Tensor, " n"] | None = None) -> Numbers:
    """Of cells before and after that are there, those before weighted on request."""
    w = None if weights is None else weights[~p.isnan()]
    p, q = p[~p.isnan()], q[~q.isnan()]
    if not (len(p) and len(q)):
        return Numbers((math.nan,) * 2, (math.nan,) * 2)
    mean = weighted_mean(p, w)
    deviation = float(weighted_mean((p - mean).square(), w).sqrt())
    scale = deviation or 1.0
    shifts = {f"{at:.0%}": (_quantile(q, at, None) - _quantile(p, at, w)) / scale for at in QUANTILES}
    return Numbers((float(mean), float(q.mean())), (deviation, float(q.std(correction=0))), shifts)


def _quantile(x: Float[Tensor, " n"], at: float, weights: Float[Tensor, " n"] | None) -> float:
    if weights is None:
        return float(np.quantile(x.numpy(), at))
    order = x.argsort()
    place = int(torch.searchsorted(weights[order].cumsum(0) / weights.sum(), at))
    return float(x[order[min(place, len(x) - 1)]])


def _profile(column: CodedCells, n_p: int) -> Profile:
    shares = [np.bincount(side, minlength=len(column.names)) / len(side) for side in np.split(column.codes, [n_p])]
    return Profile(column.names, tuple(shares[0].tolist()), tuple(shares[1].tolist()))


def difference(
    name: str,
    kind: str,
    told: str,
    z: float,
    p_value: float,
    numbers: Numbers | None,
    profile: Profile,
    place: int,
    *,
    missing: tuple[float, float],
    relation: float,
    partner: str,
    evidence: float,
) -> ColumnDifference:
    """A column, its shift being that of its mean, or of the share at `place`."""
    if numbers is not None:
        sizes = numbers.shift, numbers.spread, numbers.quantiles
    else:
        sizes = profile.after[place] - profile.before[place] if profile.names else 0.0, math.nan, {}
    found = ColumnDifference(name, kind, told, z, p_value, *sizes, missing, profile, relation, partner)
    return replace(found, evidence=evidence)


def of_number(numbers: Numbers, what: str, write: Write = spelt) -> str:
    """The mean, or the spread, before and after."""
    if what == "mean":
        means = " -> ".join(write(mean, numbers.deviations[0] / 10) for mean in numbers.means)
        return f"mean {means} ({numbers.shift:+.2f} deviations)"
    before, after = numbers.deviations
    return f"spread {before:.4g} -> {after:.4g} ({numbers.spread:.2f} times)"


def of_share(profile: Profile, place: int, kind: str) -> str:
    """A share before and after."""
    if not profile.names:
        return "nothing"
    name = profile.names[place]
    what = name if name == "missing" else f"'{name}'" if kind == "category" else f"values {name}:"
    return f"{what} {percent(profile.before[place])} -> {percent(profile.after[place])}"


def percent(share: float) -> str:
    """As in "3.2 %" and "31 %"."""
    return f"{100 * share:.{1 if 0 < share < 0.1 else 0}f} %"
