"""The data and new rows, ready to be judged: what a ratio sees of both, a test, and metrics.

A `RowPair` has the rows of both. What stands for rows that are gone is in `judged`; both answer the same questions
(`Pair`), so that `compare` and `weigh` need not know which they hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, NotEstimable, checks
from vestige.core.checks import ArrayLike, Kind
from vestige.data.readers import ColumnReport
from vestige.ratios.cross_fit import HeldOut
from vestige.ratios.standardise import Standardiser
from vestige.ratios.support import Reach
from vestige.vestiges.copies import Copies, copies
from vestige.vestiges.differences import ColumnDifference, RowColumn, column_functions, of_rows, row_columns
from vestige.vestiges.drift_test import DriftFound
from vestige.vestiges.given import GivenRows
from vestige.vestiges.image_difference import ImageDifference
from vestige.vestiges.image_difference import of_rows as images_of_rows
from vestige.vestiges.lines import metric_estimates
from vestige.vestiges.no_difference import LEAST, by_weight, p_value
from vestige.vestiges.plan import MANY_FEATURES, Plan, plan, projected

# Columns whose spreads differ by more than this drown the others in FID, KID and MMD.
SCALE_GAP = 100.0
# Standardised features are cut here: kernels of third degree have no variance under heavier tails.
CLIP = 5.0


class Seen(NamedTuple):
    """What a ratio sees: rows of both sides, and weights that sum to one, None where they are equal."""

    p: Float[Tensor, "n_p k"]
    q: Float[Tensor, "n_q k"]
    p_weights: Float[Tensor, " n_p"] | None
    q_weights: Float[Tensor, " n_q"] | None
    told: str  # why that is not all there is to see; empty where it is

    def some(self, of_p: Tensor, of_q: Tensor) -> Seen:
        """Some of the rows of either side."""
        return Seen(
            self.p[of_p], self.q[of_q], _of_rows(self.p_weights, of_p), _of_rows(self.q_weights, of_q), self.told
        )


def _of_rows(weights: Float[Tensor, " n"] | None, rows: Tensor) -> Float[Tensor, " m"] | None:
    return None if weights is None else weights[rows] / weights[rows].sum()


FEW_BY_WEIGHT = "its weights are worth too few rows"
OF_COLUMNS = 0.01  # of the level of "no difference", for the tests of single columns


class Tested(NamedTuple):
    """The p-value of "no difference", NaN with the reason where it was not tested, and what differs, by column."""

    p_value: float
    drift: DriftFound | None = None
    columns: tuple[ColumnDifference, ...] = ()
    untested: str = FEW_BY_WEIGHT


@runtime_checkable
class Pair(Protocol):
    """The data `p`, by its rows or by what stands for them, and new rows `q`."""

    @property
    def by_draws(self) -> bool:
        """Whether reference draws stand for the data."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """How the rows were read, and brought into the frame of the data."""
        ...

    @property
    def columns(self) -> ColumnReport | None:
        """What became of columns."""
        ...

    @property
    def like(self) -> Kind:
        """The kind that the new rows came in."""
        ...

    @property
    def drawn(self) -> Any:  # noqa: ANN401
        """The new rows as they came, where they were drawn or read here."""
        ...

    @property
    def n_p(self) -> int:
        """How many rows the data has or had."""
        ...

    @property
    def n_q(self) -> int:
        """How many new rows there are."""
        ...

    @property
    def d(self) -> int:
        """The number of features that metrics are taken of."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there is to say before anything is judged."""
        ...

    def plan(self, *, rows: int, pair_rows: int, memory: float | None, owner: str) -> Plan:
        """What judging them will cost."""
        ...

    def seen(self, planned: Plan, estimator: object, seed: int) -> Seen:
        """What a ratio sees of both."""
        ...

    def smoothed(self, seen: Seen, seed: int) -> Seen | None:
        """The same with noise on both sides, where a divergence of that is wanted too."""
        ...

    def of_data(self, found: Mapping[str, Estimate]) -> dict[str, Estimate]:
        """Divergences of what was seen, as estimates of those of the data."""
        ...

    @property
    def apart(self) -> float:
        """A limit of the total variation between the data and what stands for it."""
        ...

    def tested(self, seen: Seen, *, rows: int, seed: int) -> Tested:
        """Whether there is a difference."""
        ...

    def groups(self, names: Sequence[str]) -> list[Sequence[int]] | None:
        """What a ratio sees of each of these columns, by place; None where it sees none by itself."""
        ...

    def shares_untold(self, found: HeldOut) -> str:
        """Why shares of the difference cannot be told; empty where they can."""
        ...

    def images(self) -> ImageDifference | None:
        """Where the images differ, where rows are images."""
        ...

    def doubts(self, reached: Reach) -> tuple[str, ...]:
        """Sentences about what was found out of reach."""
        ...

    def copies(self, *, most: int, seed: int) -> Copies | None:
        """Rows of q that repeat rows of p; None where these are gone, so that it cannot be told."""
        ...

    def metrics(
        self, *, level: float, pair_rows: int, seed: int, on_step: Callable[[str], None]
    ) -> tuple[dict[str, Estimate], tuple[str, ...]]:
        """Every metric by name, and warnings about the features it was taken of."""
        ...


@dataclass(frozen=True, eq=False)
class RowPair:
    """Rows of both sides, those of q weighted on request; metrics are taken of standardised features on request."""

    p: Float[Tensor, "n_p d"]
    q: Float[Tensor, "n_q d"]
    q_weights: Float[Tensor, " n_q"] | None = None
    standardise: bool = False
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    by_draws: bool = False
    apart: float = 0.0
    moving: tuple[bool, ...] | None = None  # which of the features are there

    columns: ColumnReport | None = None
    like: Kind = Kind("numpy")  # noqa: RUF009 - frozen
    drawn: Any = None

    @classmethod
    def of(cls, p: GivenRows, q: GivenRows, q_weights: ArrayLike | None, owner: str) -> RowPair:
        """Both sets, coded, with the weights of the second."""
        weights = checks.weights(q_weights, len(q.x), "q_weights", owner)
        beside = {"columns": p.columns, "like": q.like, "drawn": q.drawn}
        return cls(p.x, q.x, weights, warnings=p.warnings + q.warnings, notes=p.notes + q.notes, **beside)

    @functools.cached_property
    def row_columns(self) -> tuple[RowColumn, ...]:
        """Where the features of each column stand."""
        width = self.d if self.moving is None else len(self.moving)
        return row_columns(width, self.columns, self.moving)

    @property
    def n_p(self) -> int:
        """Rows of the data."""
        return len(self.p)

    @property
    def n_q(self) -> int:
        """New rows."""
        return len(self.q)

    @property
    def d(self) -> int:
        """Features."""
        return self.p.shape[1]

    def without_constants(self) -> RowPair:
        """Features that are one number on both sides tell nothing, and are left out."""
        moving = ((self.p != self.p[0]).any(0)) | ((self.q != self.p[0]).any(0))
        if bool(moving.all()):
            return self
        if not bool(moving.any()):
            raise NotEstimable("Every feature is one and the same number in both sets: there is nothing to compare.")
        note = f"{int((~moving).sum())} of {len(moving)} features are constant in both sets and were left out."
        there = tuple(moving.tolist())
        return replace(self, p=self.p[:, moving], q=self.q[:, moving], warnings=(*self.warnings, note), moving=there)

    def plan(self, *, rows: int, pair_rows: int, memory: float | None, owner: str) -> Plan:
        """Rows and features as they are."""
        return plan(self.n_p, self.n_q, self.d, rows=rows, pair_rows=pair_rows, memory=memory, owner=owner)

    def seen(self, planned: Plan, estimator: object, seed: int) -> Seen:
        """Every feature, or principal components where there are too many."""
        p, q, told = projected(self.p, self.q, planned, estimator, seed)
        return Seen(p, q, None, self.q_weights, told)

    def smoothed(self, seen: Seen, seed: int) -> Seen | None:
        """Not of rows."""
        return None

    def of_data(self, found: Mapping[str, Estimate]) -> dict[str, Estimate]:
        """They are."""
        return dict(found)

    def tested(self, seen: Seen, *, rows: int, seed: int) -> Tested:
        """By permutation of the labels and by column, weighted rows being drawn by weight.

        Where the permutations see every row and functions of every column, the p-value is theirs, and uniform where
        there is no difference. It cannot be below LEAST, and there the columns say how far below it is: all p-values
        below LEAST are then those of columns, which are valid by themselves.

        Of more rows or features either may find what the other does not. Of the level the columns get the share
        OF_COLUMNS and the permutations the rest (Bonferroni with weights): what is found in a column is found by far,
        and the p-value is uniform but for a hundredth.
        """
        how: dict[str, Any] = {"rows": rows, "projected": bool(seen.told), "seed": seed, "beside": self._functions}
        whole = p_value(seen.p, seen.q, seen.q_weights, **how)
        q = self.q
        if self.q_weights is not None:
            drawn = by_weight(self.q_weights, seed)
            if drawn is None:
                return Tested(whole)
            q = q[drawn]
        columns = of_rows(self.p, q, self.row_columns)
        least = min((one.p_value for one in columns), default=1.0)
        if self.d <= MANY_FEATURES and max(self.n_p, self.n_q) <= rows:
            return Tested(min(whole, least) if whole <= LEAST else whole, None, columns)
        return Tested(min(whole / (1 - OF_COLUMNS), least / OF_COLUMNS, 1.0), None, columns)

    def _functions(self, of_p: Tensor, of_q: Tensor) -> Float[Tensor, "n f"] | None:
        """Values of functions of single columns at these rows of p and of q; None of too many features."""
        return None if self.d > MANY_FEATURES else column_functions(self.p[of_p], self.q[of_q], self.row_columns)

    def groups(self, names: Sequence[str]) -> list[Sequence[int]] | None:
        """The features of each column, where a ratio sees them and not principal components."""
        if self.d > MANY_FEATURES:
            return None
        by_name = {column.name: column.features for column in self.row_columns}
        return [by_name[name] for name in names]

    def shares_untold(self, found: HeldOut) -> str:
        """They can: the rows are the data."""
        return ""

    def images(self) -> ImageDifference | None:
        """By the pixels; those that never move do not differ."""
        shape = () if self.columns is None else self.columns.shape
        if len(shape) < 2:
            return None
        p, q = self.p, self.q
        if self.moving is not None:
            there = torch.tensor(self.moving)
            p, q = (x.new_zeros(len(x), len(there)).index_copy(1, there.nonzero()[:, 0], x) for x in (p, q))
        return images_of_rows(p, q, self.q_weights, shape)

    def doubts(self, reached: Reach) -> tuple[str, ...]:
        """None: the rows are the data."""
        return ()

    def copies(self, *, most: int, seed: int) -> Copies | None:
        """By distances between rows, and by rows that are equal."""
        return copies(self.p, self.q, most=most, seed=seed)

    def metrics(
        self, *, level: float, pair_rows: int, seed: int, on_step: Callable[[str], None]
    ) -> tuple[dict[str, Estimate], tuple[str, ...]]:
        """All of them."""
        p, q, warnings = standardised(self.p, self.q) if self.standardise else (self.p, self.q, scale_warning(self.p))
        options: dict[str, Any] = {"level": level, "pair_rows": pair_rows, "seed": seed, "on_step": on_step}
        return metric_estimates(p, q, q_weights=self.q_weights, **options), warnings


def standardised(
    p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"]
) -> tuple[Float[Tensor, "n_p d"], Float[Tensor, "n_q d"], tuple[str, ...]]:
    """Both sets in deviations of `p` from its mean, bounded by CLIP; says how many rows the bound touched."""
    p, q = p.to(torch.float64), q.to(torch.float64)
    scale = Standardiser.of(p, clip=CLIP)
    p, q = scale(p), scale(q)
    touched = [float((x.abs() >= CLIP).any(1).double().mean()) for x in (p, q)]
    if not any(touched):
        return p, q, ()
    told = f"{touched[0]:.2%} of the real and {touched[1]:.2%} of the fake rows"
    return p, q, (f"Metrics: features were cut at {CLIP:g} deviations from the real mean, which touched {told}.",)


def scale_warning(p: Float[Tensor, "n d"]) -> tuple[str, ...]:
    """Whether some features drown the others in metrics of distances."""
    spread = p.to(torch.float64).std(0)
    spread = spread[spread > 0]
    if len(spread) < 2 or float(spread.max() / spread.min()) < SCALE_GAP:
        return ()
    times = float(spread.max() / spread.min())
    return (
        f"Features differ in spread by a factor of {times:.3g}: the widest rule FID, KID and MMD unless standardised.",
    )
