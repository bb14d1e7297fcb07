"""What is asked of every row: one vector of whole numbers whose length is bounded, and the sum of them over all rows.

The vector has four parts, each of length at most 1 before its share:

- "count": the number 1;
- "moments": of z, the features in the unit ball, (z, z z') / sqrt 2. As a symmetric matrix is written by its diagonal
  and sqrt 2 times what is above it, |z z'| = |z|^2, so the squared length is (|z|^2 + |z|^4) / 2 <= 1;
- "random": cos and sin of w.z for each of F public frequencies w, over sqrt F: the squared length is 1;
- "columns": the indicator of the bin of each of C columns, over sqrt C: each column has one, so it is 1.

Part i is multiplied by sqrt share_i, the shares sum to one, so the whole vector is no longer than 1. Times GRID - 1 and
cut towards zero it is a vector of whole numbers of length at most GRID: cutting shortens every coordinate, and what
rounding could add before is less than one part in GRID. One row more or less moves the sum by at most GRID, one person
of at most k rows by at most k GRID, and a row that is replaced by at most twice that.

`tests/vestiges/private/test_statistics.py` holds every part against neighbouring sets that hypothesis draws.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from vestige import store
from vestige.core import InputError, checks, rng
from vestige.vestiges.drift_test.columns import CodedColumn
from vestige.vestiges.private.public import ball, coded_columns, into_ball, limits
from vestige.vestiges.schema import Schema

GRID = 1 << 24
PARTS = ("count", "moments", "random", "columns")
# Chosen on the families of CHOSEN_ON in benchmarks/privacy/epsilon.py.
SHARES = (0.05, 0.45, 0.25, 0.25)
FREQUENCIES = 128
MOST_FEATURES = 64
CHUNK = 4096  # rows at a time
LARGEST = 1e100  # radius


@dataclass(frozen=True, eq=False)
class Query:
    """The functions whose sums over the rows leave with noise; nothing in it depends on the rows."""

    schema: Schema
    low: Float64[Tensor, " c"]
    high: Float64[Tensor, " c"]
    radius: float  # of the ball that features are clipped to
    bandwidth: float  # of the kernel whose random features these are, in this radius
    frequencies: Float64[Tensor, "f d"]
    columns: tuple[CodedColumn, ...]
    shares: tuple[float, ...] = SHARES

    @classmethod
    def of(cls, schema: Schema, public: Float[Tensor, "n c"] | None, *, declared: bool, seed: int) -> Query:
        """Of declared bounds, and of public cells where there are any."""
        low, high = limits(schema, declared=declared)
        d = len(schema.feature_names)
        if d > MOST_FEATURES:
            raise InputError(
                f"The features of keep with an epsilon must be at most {MOST_FEATURES}. Got {d} instead: drop columns, "
                "or declare fewer categories."
            )
        clipped = None if public is None else public.clamp(low, high)
        radius, bandwidth = ball(schema, None if clipped is None else schema.features(clipped))
        drawn = torch.randn(FREQUENCIES, d, generator=rng.fork(seed, "private frequencies"), dtype=torch.float64)
        columns = coded_columns(schema, None if declared else clipped)
        return cls(schema, low, high, radius, bandwidth, drawn / bandwidth, columns)

    @property
    def d(self) -> int:
        """Features."""
        return self.frequencies.shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers each part has."""
        moments = self.d + self.d * (self.d + 1) // 2
        counts = 1, moments, 2 * len(self.frequencies), sum(column.size for column in self.columns)
        return dict(zip(PARTS, counts, strict=True))

    @property
    def spans(self) -> dict[str, slice]:
        """Where each part stands."""
        out, place = {}, 0
        for name, size in self.sizes.items():
            out[name] = slice(place, place + size)
            place += size
        return out

    @property
    def units(self) -> Float64[Tensor, " k"]:
        """What one whole number of each sum stands for, as a value of its function."""
        scales = torch.cat([torch.full((n,), s**0.5) for n, s in zip(self.sizes.values(), self.shares, strict=True)])
        lengths = {"moments": math.sqrt(2), "random": 1.0, "columns": math.sqrt(len(self.columns)), "count": 1.0}
        wide = torch.cat([torch.full((size,), lengths[name]) for name, size in self.sizes.items()])
        return (wide / scales).to(torch.float64) / (GRID - 1)

    def points(self, cells: Float[Tensor, "n c"]) -> Float64[Tensor, "n d"]:
        """Features in the unit ball."""
        return into_ball(self.schema.features(cells.clamp(self.low, self.high)), self.radius)

    def parts(self, cells: Float[Tensor, "n c"]) -> dict[str, Float64[Tensor, "n k"]]:
        """Every part of every row, of length at most 1."""
        z = self.points(cells)
        turned = z @ self.frequencies.mT
        clipped = cells.clamp(self.low, self.high)
        bins = [
            torch.nn.functional.one_hot(column.codes(clipped[:, j].contiguous()), column.size)
            for j, column in enumerate(self.columns)
        ]
        return {
            "count": z.new_ones(len(z), 1),
            "moments": torch.cat([z, products(z)], 1) / math.sqrt(2),
            "random": torch.cat([turned.cos(), turned.sin()], 1) / math.sqrt(len(self.frequencies)),
            "columns": torch.cat(bins, 1).to(torch.float64) / math.sqrt(len(self.columns)),
        }

    def contributions(self, cells: Float[Tensor, "n c"]) -> Int64[Tensor, "n k"]:
        """The vector of each row in whole numbers, of length at most GRID."""
        parts = self.parts(cells)
        whole = torch.cat([parts[name] * share**0.5 for name, share in zip(PARTS, self.shares, strict=True)], 1)
        return (whole * (GRID - 1)).trunc().to(torch.int64)

    def sums(self, cells: Float[Tensor, "n c"]) -> Int64[Tensor, " k"]:
        """Over all rows, some at a time; whole numbers, so in any order."""
        total = torch.zeros(sum(self.sizes.values()), dtype=torch.int64)
        for start in range(0, len(cells), CHUNK):
            total += self.contributions(cells[start : start + CHUNK]).sum(0)
        return total

    def values(self, cells: Float[Tensor, "n c"]) -> Float64[Tensor, "n k"]:
        """The functions at each row, the count left out, in units of their own: what new rows are averaged over."""
        parts = self.parts(cells)
        length = {"moments": math.sqrt(2), "random": 1.0, "columns": math.sqrt(len(self.columns))}
        return torch.cat([parts[name] * length[name] for name in PARTS[1:]], 1)

    def digest(self) -> str:
        """A hash of all that decides what becomes of a row: sums of one digest may be added."""
        data, tensors = store.encode(self)
        hashed = hashlib.sha256(store.canonical(data).encode())
        for key, value in sorted(tensors.items()):
            hashed.update(key.encode() + value.contiguous().numpy().tobytes())
        return hashed.hexdigest()[:32]

    def __post_init__(self) -> None:
        cells, d = len(self.schema.used), len(self.schema.feature_names)
        shapes = tuple(self.low.shape), tuple(self.high.shape), len(self.columns), self.frequencies.shape[1:]
        if shapes != ((cells,), (cells,), cells, (d,)):
            checks.refuse("columns", "Query", f"{cells} of {d} features, as in its schema", "others")
        checks.number(self.radius, "radius", "Query", low=0, open_low=True, high=LARGEST)
        if not bool(self.frequencies.isfinite().all()) or bool(self.low.isnan().any() | self.high.isnan().any()):
            checks.refuse("frequencies", "Query", "numbers, and its limits, too", "others")
        if len(self.shares) != len(PARTS) or min(self.shares) <= 0 or not sum(self.shares) <= 1 + 1e-12:
            checks.refuse("shares", "Query", f"{len(PARTS)} positive numbers that sum to at most 1", self.shares)


def products(z: Float64[Tensor, "n d"]) -> Float64[Tensor, "n p"]:
    """z z' as a vector of the same length: the diagonal, and sqrt 2 times what is above it."""
    i, j = torch.triu_indices(z.shape[1], z.shape[1])
    return z[:, i] * z[:, j] * torch.where(i == j, 1.0, math.sqrt(2))


def symmetric(flat: Float64[Tensor, "b p"], d: int) -> Float64[Tensor, "b d d"]:
    """The matrices that `products` wrote as vectors."""
    i, j = torch.triu_indices(d, d)
    out = flat.new_zeros(len(flat), d, d)
    scaled = flat / torch.where(i == j, 1.0, math.sqrt(2))
    out[:, i, j], out[:, j, i] = scaled, scaled
    return out
