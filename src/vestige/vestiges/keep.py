"""`keep`: the last thing that is done with rows that must go.

The rows are read once where they fit, twice where they come in batches: once for a random sample of at most SAMPLE
rows, from which frame, dictionary and density are learnt, and once for the sums over all of them. Rows of a Ray Data
set stay where they are, the sample excepted: their sums are gathered there (`on_ray`).

Cells that fewer than 50 rows have are replaced before anything is summed (`rare`), and what is kept is rounded when all
rows were seen: moments and sums to a hundredth of their standard errors (`core.rounding`). Products of two features
that leave their usual values together in fewer than 50 rows count as those of features that have nothing to do with
each other, or never meet. The two halves of the moments,
by which FID's bias is removed, are told apart only in features that 100 rows leave.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.core import VestigeWarning, checks
from vestige.core.numerics import Moments
from vestige.core.rounding import rounded, rounded_covariance
from vestige.metrics.fid import FID
from vestige.metrics.mmd import KID, MAX_MOMENT_WIDTH
from vestige.vestiges.batches import batches, held, is_ray_data, survey
from vestige.vestiges.copies import copies_of_rows
from vestige.vestiges.drift_test import DriftTest
from vestige.vestiges.drift_test.test import FunctionSums, moments
from vestige.vestiges.frame import LEAST_ROWS, Frame, MapName
from vestige.vestiges.on_ray import gathered_on_ray, survey_on_ray
from vestige.vestiges.private.keep import keep_privately
from vestige.vestiges.private.public import Bounds
from vestige.vestiges.private.units import ROW
from vestige.vestiges.private.vestige import PrivateVestige
from vestige.vestiges.rare import UsualCells, hidden_products, masks_of
from vestige.vestiges.reference import fit_reference, own_errors
from vestige.vestiges.vestige import Sketch, Vestige

OWNER = "keep"
SAMPLE = 20_000
STEPS = ("sample", "moments", "density")  # with an epsilon the last is "noise"


@overload
def keep(
    rows: Any,  # noqa: ANN401
    *,
    features: MapName = ...,
    density: str = ...,
    third: bool = ...,
    block: int = ...,
    drop: Sequence[str] = ...,
    like: Vestige | None = ...,
    model: Any = ...,  # noqa: ANN401
    allow_copies: bool = ...,
    seed: int = ...,
    epsilon: None = ...,
    on_step: Callable[[str], None] = ...,
    on_note: Callable[[str], None] = ...,
) -> Vestige: ...


@overload
def keep(
    rows: Any,  # noqa: ANN401
    *,
    drop: Sequence[str] = ...,
    like: PrivateVestige | None = ...,
    seed: int = ...,
    epsilon: float,
    delta: float = ...,
    bounds: Bounds | None = ...,
    public: Any = ...,  # noqa: ANN401
    unit: str = ...,
    max_rows: int | None = ...,
    on_step: Callable[[str], None] = ...,
) -> PrivateVestige: ...


def keep(
    rows: Any,
    *,
    features: MapName = "auto",
    density: str = "auto",
    third: bool = False,
    block: int = 1,
    drop: Sequence[str] = (),
    like: Vestige | PrivateVestige | None = None,
    model: Any = None,
    allow_copies: bool = False,
    n: int | None = None,
    seed: int = 0,
    epsilon: float | None = None,
    delta: float = 1e-6,
    bounds: Bounds | None = None,
    public: Any = None,
    unit: str = ROW,
    max_rows: int | None = None,
    on_step: Callable[[str], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Vestige | PrivateVestige:
    """What remains of `rows` when they are deleted: at least 50 of them, an array, a table, images, or a file of these.

    Parameters
    ----------
    rows
        numpy, torch, pandas, polars, Arrow, the name of a file, a DataLoader, an iterator of batches, or a function
        that draws rows (see `vestige.vestiges.batches`); files and loaders may be larger than memory.
    features
        The map of images, or its name: "auto" takes principal components of images and of arrays wider than 256.
    density
        A name of `vestige.densities.DENSITIES`; "auto" chooses.
    third
        Keep third moments, for an exact KID. They give away most.
    block
        Of how many neighbouring rows one may depend on another, as in a series; the drift test resamples such blocks.
    drop
        Columns of a table to leave out.
    like
        A vestige whose frame these rows are to be kept in, so that both can be merged.
    model
        Samples of a generator of these rows, to be looked at while the rows are here: nothing of them is kept, and
        those that repeat rows, exactly or nearly, are refused with their places (`vestiges.copies`).
    allow_copies
        Keep the rows even so.
    n
        Rows to draw of a function (10 000 unless told), and the most to read of an iterator.
    epsilon, delta
        Keep nothing but sums with the noise that makes them (epsilon, delta) differentially private: a `PrivateVestige`
        (docs/privacy.md). Rows that are kept again are a second expense: the epsilons add up. `seed` has no part in the
        noise.
    bounds
        With an epsilon, by column: (low, high) of numbers and dates, or the categories that have a code; or a .toml
        file of them. Values outside are clipped, other categories are "other".
    public
        With an epsilon, rows that need no protection and look like these: without `bounds` scales, bins and categories
        are theirs, and they are stored to stand for the data where JS is asked for.
    unit, max_rows
        With an epsilon, whose rows one more or less is: "row", or a column that names a person, of whom at most
        `max_rows` rows count, chosen at random.
    on_step
        Is told each part of STEPS as it begins.
    on_note
        Is told what was done to rows so that they fit `like`: columns left out or matched by name, unknown texts. What
        divergences cannot see is a warning besides.

    Returns
    -------
    Vestige
        A `PrivateVestige` with an epsilon.

    Raises
    ------
    InputError
        Fewer than 50 rows, rows that do not fit `like`, or samples of the model that repeat rows.
    """
    seed = checks.whole(seed, "seed", OWNER)
    if epsilon is not None:
        plain = {"features": features == "auto", "density": density == "auto", "third": not third, "block": block == 1}
        plain |= {"model": model is None}
        for name, as_it_is in plain.items():
            if not as_it_is:
                checks.refuse(name, OWNER, "left as it is with an epsilon", "another")
        if isinstance(like, Vestige):
            checks.refuse("like", OWNER, "a vestige with an epsilon, as this one", "one without")
        promised: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "unit": unit, "max_rows": max_rows}
        shared: dict[str, Any] = {"drop": drop, "like": like, "seed": seed, "on_step": on_step}
        given = rows if n is None else batches(rows, n=n, seed=seed, owner=OWNER)
        return keep_privately(given, bounds=bounds, public=public, **promised, **shared)
    for name, given in (("bounds", bounds), ("public", public), ("max_rows", max_rows)):
        if given is not None:
            checks.refuse(name, OWNER, "given with an 'epsilon'", "none")
    if unit != ROW:
        checks.refuse("unit", OWNER, "'row' without an 'epsilon'", unit)
    if isinstance(like, PrivateVestige):
        checks.refuse("like", OWNER, "a vestige without an epsilon, as this one", "one with it")
    on_step("sample")
    data, on_ray = batches(rows, n=n, seed=seed, owner=OWNER), is_ray_data(rows)
    for text in data.warnings:
        warnings.warn(text, VestigeWarning, stacklevel=2)
    if on_ray and block != 1:
        checks.refuse("block", OWNER, "1 for a Ray Data set, whose rows have no order", block)
    told = (survey_on_ray if on_ray else survey)(rows if on_ray else data, drop=drop, most=SAMPLE, seed=seed)
    if told.n < LEAST_ROWS:
        checks.refuse("rows", OWNER, f"at least {LEAST_ROWS} rows", told.n)
    if model is not None and not allow_copies:
        copies_of_rows(
            told.sample, held(model, n=n, seed=seed, name="model", owner=OWNER).rows, drop=drop, seed=seed
        ).refuse("model", OWNER)
    frame = Frame.of(told, features, seed=seed) if like is None else like.frame
    aligned = frame.cells(told.sample, data.origin)
    sample = aligned.cells
    if like is not None:
        for text in aligned.notes:
            on_note(text)
        for text in aligned.warnings:
            warnings.warn(text, VestigeWarning, stacklevel=2)
    usual = UsualCells.of(sample, frame.kinds)
    dictionary = None if like is None else like.test.dictionary
    on_step("moments")
    ordered = block == 1 or len(sample) == told.n  # blocks are of neighbours, and the sample has none
    head = usual(sample) if ordered else sample[:0]
    for batch in () if ordered else data:
        head = torch.cat([head, usual(frame.cells(batch, data.origin).cells)])[:SAMPLE]
        if len(head) == SAMPLE:
            break
    places = told.places if ordered else torch.arange(len(head))
    test = DriftTest.of(head, frame.kinds, block=block, seed=seed, dictionary=dictionary)
    sketch = Sketch(0, FID(groups=2), KID(groups=1) if third else None, test)
    if on_ray:
        sketch = gathered(rows, sketch, frame, usual, usual(sample))
    for batch in () if on_ray else data:
        sketch = added(sketch, frame, usual(frame.cells(batch, data.origin).cells), places)
    sketch = rounded_sketch(sketch, frame, usual(sample))
    on_step("density")
    reference, drawn, out = fit_reference(frame, sample, usual=usual, rows=told.n, density=density, seed=seed)
    bandwidth = None if like is None else like.errors.bandwidth
    errors = own_errors(frame, out, drawn, reference.parts[0].weights, bandwidth=bandwidth, seed=seed)
    return Vestige(frame, sketch, reference, errors, seed, usual=usual)


@dataclass(frozen=True, eq=False)
class RowSums:
    """Sums over some of the rows."""

    n: int
    moments: FID
    third: KID | None
    functions: FunctionSums  # of the drift test's dictionary

    def merge(self, other: RowSums) -> RowSums:
        """Over the rows of both; these are used up."""
        third = None if self.third is None or other.third is None else self.third.merge(other.third)
        functions = self.functions + other.functions
        return RowSums(self.n + other.n, self.moments.merge(other.moments), third, functions)


def gathered(
    rows: Any,  # noqa: ANN401 - a Ray Data set
    empty: Sketch,
    frame: Frame,
    usual: UsualCells,
    counted: Float[Tensor, "k c"],
) -> Sketch:
    """The sketch of a Ray Data set; the test has counted the cells `counted` already, which are subtracted."""
    third, dictionary, block = empty.third is not None, empty.test.dictionary, empty.test.block

    def sums(batch: pa.Table) -> RowSums:
        cells = usual(frame.cells(batch, "the Ray Data set").cells)
        features = frame.features(cells)
        cubic = KID(groups=1).update(features) if third else None
        return RowSums(len(cells), FID(groups=2).update(features), cubic, moments(dictionary, cells, block))

    found = gathered_on_ray(rows, sums, RowSums.merge, RowSums)
    before = moments(dictionary, counted, block)
    less = FunctionSums(-before.units, -before.units_learnt, -before.total, -before.squares)
    both = empty.test.moments + (found.functions + less)
    test = replace(empty.test, moments=replace(both, squares=both.squares.clamp_min(0)))
    return Sketch(found.n, found.moments, found.third, test)


def rounded_sketch(sketch: Sketch, frame: Frame, cells: Float[Tensor, "k c"]) -> Sketch:
    """What may be kept of the sums over all rows, of which `cells` are a random part."""
    features = frame.features(cells)
    third = None if sketch.third is None else sketch.third.rounded(features)
    moments, hidden = rounded_halves(sketch.moments, features)
    return Sketch(sketch.n, moments, third, sketch.test.kept(), hidden & ~of_one_column(frame, len(hidden)))


def of_one_column(frame: Frame, width: int) -> Bool[Tensor, "d d"]:
    """Pairs of features of the same column of a table: its categories never meet, which is no secret of the rows."""
    columns = [] if frame.schema is None else [j for j, one in enumerate(frame.schema.used) for _ in one.features]
    owner = torch.tensor(columns or range(width))
    return owner == owner[:, None]


def rounded_halves(moments: FID, features: Float[Tensor, "k d"]) -> tuple[FID, Bool[Tensor, "d d"]]:
    """The moments of each half, rounded, and as the whole where few rows tell; and pairs without their products."""
    whole, n = moments.whole(), moments.n
    masks, owner, _ = masks_of(features)
    few = torch.zeros(features.shape[1], dtype=torch.bool)
    few[[i for i, rows in zip(owner, masks.sum(0).tolist(), strict=True) if rows < 2 * LEAST_ROWS]] = True
    told, hidden = hidden_products(whole.mean, whole.scatter / n, features)
    changed = told - whole.scatter / n
    halves: list[Moments | None] = []
    for half in moments.summaries_:
        if half is not None:
            small = few | torch.full_like(few, half.n < LEAST_ROWS)
            mean = torch.where(small, whole.mean, half.mean)
            covariance = torch.where(small | small[:, None], told, half.scatter / half.n + changed)
            mean = rounded(mean, (covariance.diagonal().clamp_min(0) / half.n).sqrt())
            half = Moments(half.n, half.weight, half.weight_sq, mean, rounded_covariance(covariance, half.n) * half.n)
        halves.append(half)
    made = copy.copy(moments)
    made.summaries_ = halves
    return made, hidden


def append(
    kept: Vestige,
    rows: Any,  # noqa: ANN401 - whatever `keep` takes
    *,
    seed: int = 0,
    on_note: Callable[[str], None] = lambda _: None,
) -> Vestige:
    """What remains when these rows, at least 50, have come and gone too; `on_note` as in `keep`."""
    third = kept.third is not None
    return kept.merge(keep(rows, like=kept, third=third, block=kept.test.block, seed=seed, on_note=on_note))


def added(sketch: Sketch, frame: Frame, cells: Float[Tensor, "n c"], counted: Int[Tensor, " k"]) -> Sketch:
    """The sketch with the rows that follow those it has; the test has counted those at the places `counted` already."""
    features = frame.features(cells)
    if sketch.third is not None and features.shape[1] > MAX_MOMENT_WIDTH:
        checks.refuse("third", OWNER, f"False where features are more than {MAX_MOMENT_WIDTH}", features.shape[1])
    third = None if sketch.third is None else sketch.third.update(features)
    fresh = torch.ones(len(cells), dtype=torch.bool)
    within = counted[(counted >= sketch.n) & (counted < sketch.n + len(cells))] - sketch.n
    fresh[within] = False
    test = sketch.test.updated(cells[fresh]) if bool(fresh.any()) else sketch.test
    return Sketch(sketch.n + len(cells), sketch.moments.update(features), third, test)
