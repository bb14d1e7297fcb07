"""How rows become numbers, frozen when the first rows of a vestige came: new rows must go the same way.

Three spaces:
- **cells**, one a column: numbers and codes of categories, NaN where nothing was recorded. Of arrays every column, of
  images the features of a map. The drift test and the densities of tables live here.
- **features**: what FID, KID and MMD are taken of. Of tables numbers, indicators and one-hot codes on a frozen scale
  (`schema`); of everything else the cells themselves.
- what a ratio **sees**: the features, or at most COMPONENTS principal components of them, where they come from a map of
  images or are more than MANY_FEATURES. A density of these is what stands for images.

Cells of arrays are clipped at CLIP scales from the centre of their column, which is as far as anything is told of a
single row, and a column that fewer than 50 rows leave is told as 0 and 1 (`rare`).

A map that is fitted here is fitted on at least ROWS_A_DIRECTION rows a direction, so that none of its directions is
one row's; where that many are not here, a public map of as many directions takes its place, and `note` says so
(`features.kept`). Principal components of features from a map are those of the features as they are; of columns, which
have units of their own, those of standardised ones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vestige import features as maps
from vestige import store
from vestige.core import InputError, checks
from vestige.core.numerics import two_digits
from vestige.core.rounding import rounded, significant
from vestige.features import FeatureMap
from vestige.features.fixed import principal_directions
from vestige.features.kept import ROWS_A_DIRECTION, fitted_to_keep
from vestige.features.rows import admit, numbers, shape_of
from vestige.ratios.standardise import Standardiser
from vestige.store import newer
from vestige.vestiges.batches import Survey
from vestige.vestiges.rare import CLIP, UsualCells, scale_of, sparse_mode
from vestige.vestiges.schema import Aligned, Schema

COMPONENTS, MAP_DIRECTIONS = 16, 32
MANY_FEATURES = 64  # of columns, beyond which a ratio sees principal components of them
MOST_COLUMNS = 256  # of an array without a map
LEAST_ROWS = 50
Rows: TypeAlias = "pa.Table | Tensor"
MapName: TypeAlias = "str | Mapping[str, Any] | FeatureMap"


@dataclass(frozen=True, eq=False)
class Axes:
    """Principal components of standardised features."""

    scale: Standardiser
    directions: Float[Tensor, "k d"]
    kept: float  # the share of the variance along them

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], k: int, *, standardised: bool) -> Axes:
        """The first `k` of the rows `x`."""
        scale = Standardiser.of(x)
        if not standardised:
            scale = Standardiser(scale.shift, torch.ones_like(scale.scale))
        shift = rounded(scale.shift, Standardiser.of(x).scale / len(x) ** 0.5)
        scale = Standardiser(shift, torch.tensor([two_digits(s) for s in scale.scale.tolist()], dtype=x.dtype))
        z = scale(x)
        _, directions, variances, total = principal_directions(z, torch.ones(len(z), dtype=z.dtype), k)
        error = torch.full_like(directions, len(x) ** -0.5)  # of an entry, where neighbouring variances are well apart
        return cls(scale, rounded(directions, error), significant(float(variances.sum()) / max(total, 1e-300)))

    def __call__(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Coordinates along the components."""
        return self.scale(x) @ self.directions.mT

    def lifted(
        self, seen: Float[Tensor, "n k"], covariance: Float[Tensor, "d d"], generator: torch.Generator
    ) -> Float[Tensor, "n d"]:
        """Features with these components; what the components leave out is normal, with the covariance left over."""
        across = torch.eye(len(covariance), dtype=covariance.dtype) - self.directions.mT @ self.directions
        z_covariance = covariance / torch.outer(self.scale.scale, self.scale.scale)
        values, vectors = torch.linalg.eigh(across @ z_covariance @ across)
        root = vectors * values.clamp_min(0).sqrt()
        noise = torch.randn(len(seen), len(covariance), generator=generator, dtype=seen.dtype) @ root.mT
        return self.scale.shift + (seen @ self.directions + noise) * self.scale.scale


@dataclass(frozen=True, eq=False)
class ColumnBounds:
    """How far cells of arrays are told: within CLIP scales of the centre, and of sparse columns as 0 and 1."""

    low: Float[Tensor, " c"]
    high: Float[Tensor, " c"]
    sparse: Bool[Tensor, " c"]
    mode: Float[Tensor, " c"]  # of sparse columns; 0 of others

    @classmethod
    def of(cls, x: Float[Tensor, "n c"]) -> ColumnBounds:
        """Of a random part of the rows."""
        columns = x.mT.numpy()
        centre, scale = torch.tensor([scale_of(column) for column in columns], dtype=torch.float64).mT
        modes = [sparse_mode(column) for column in columns]
        sparse, mode = (
            torch.tensor([one is not None for one in modes]),
            torch.tensor([one or 0.0 for one in modes], dtype=torch.float64),
        )
        return cls(centre - CLIP * scale, centre + CLIP * scale, sparse, mode)

    def __call__(self, x: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """The cells of these rows."""
        clipped = torch.minimum(torch.maximum(x, self.low), self.high)
        return torch.where(self.sparse, (x != self.mode).to(x.dtype), clipped)

    def values(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """What a person can read: of a sparse column its mode, and NaN where it is something else."""
        return torch.where(self.sparse, torch.where(cells == 0, self.mode, torch.nan), cells)


@dataclass(frozen=True, eq=False)
class Frame:
    """The way from rows to cells, features and what a ratio sees."""

    shape: tuple[int, ...]  # of one sample; of a table the number of its cells
    schema: Schema | None = None  # of a table
    map: FeatureMap | None = None  # of images, and of whatever a map was asked for
    axes: Axes | None = None
    bounds: ColumnBounds | None = newer(None)  # of arrays and of features of a map
    note: str = newer("")  # that another map than the one asked for was taken

    @classmethod
    def of(cls, told: Survey, features: MapName = "auto", *, seed: int = 0) -> Frame:
        """The frame that the surveyed rows ask for."""
        rows = told.sample
        if told.schema is not None:
            if features != "auto":
                checks.refuse("features", "keep", "'auto' where rows are a table", features)
            bare = cls((len(told.schema.kinds),), told.schema)
        else:
            assert isinstance(rows, Tensor)
            chosen, note = _map_of(rows, features, seed)
            bare = cls(tuple(rows.shape[1:]), map=chosen, note=note)
            bare = replace(bare, bounds=ColumnBounds.of(bare.cells(rows, "rows").cells))
        cells = bare.cells(rows, "rows").cells
        found = bare.features(UsualCells.of(cells, bare.kinds)(cells))
        width, many = found.shape[1], COMPONENTS if bare.map is not None else MANY_FEATURES
        if width <= many:
            return bare
        k = min(COMPONENTS, max(len(found) // ROWS_A_DIRECTION, 1), len(found) - 1)
        return replace(bare, axes=Axes.of(found, k, standardised=bare.map is None))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of each cell: "number" or "category"."""
        if self.schema is not None:
            return self.schema.kinds
        return ("number",) * (self.shape[0] if self.map is None else self.map.width)

    @property
    def names(self) -> tuple[str, ...]:
        """Of each cell."""
        return tuple(f"x{i}" for i in range(len(self.kinds))) if self.schema is None else self.schema.cell_names

    @property
    def of_images(self) -> bool:
        """Whether rows are images, or are seen through a map, so that a smoothed divergence is wanted too."""
        return self.map is not None

    @property
    def density_of_cells(self) -> bool:
        """Whether a density has cells to draw, or what a ratio sees."""
        return self.schema is not None or (self.map is None and self.axes is None)

    def cells(self, rows: Rows, origin: str = "new") -> Aligned:
        """`rows` as cells; what cannot be brought into this frame is refused with its name."""
        if self.schema is not None:
            if not isinstance(rows, pa.Table):
                raise InputError(f"The rows of {origin} must be a table, as the data was. Got an array instead.")
            return self.schema.cells(rows, origin)
        if isinstance(rows, pa.Table):
            rows = _array_of(rows, origin)
        if isinstance(rows, Tensor) and rows.ndim == 2 and rows.shape[1] == math.prod(self.shape):
            rows = rows.reshape(-1, *self.shape)  # as they come in batches
        flat = admit(rows, origin, "Vestige", self.shape)
        found = numbers(flat, torch.float64) if self.map is None else self.map.codes(flat).to(torch.float64)
        return Aligned(found if self.bounds is None else self.bounds(found))

    def rows(self, cells: Float[Tensor, "n c"]) -> pa.Table | Float[Tensor, "n c"]:
        """Cells as a person can read them: a table of the first one's columns, or numbers."""
        if self.schema is not None:
            return self.schema.table(cells)
        return cells if self.bounds is None or not self.density_of_cells else self.bounds.values(cells)

    def features(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        """What metrics are taken of."""
        return cells if self.schema is None else self.schema.features(cells)

    def seen(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """What a ratio sees."""
        return features if self.axes is None else self.axes(features)

    def digest(self) -> str:
        """A hash of all that decides what becomes of a row: vestiges of one digest may be merged."""
        data, tensors = store.encode(self)
        hashed = hashlib.sha256(store.canonical(data).encode())
        for key, value in sorted(tensors.items()):
            hashed.update(f"{key}{value.dtype}{tuple(value.shape)}".encode())
            hashed.update(value.contiguous().cpu().numpy().tobytes())
        return hashed.hexdigest()[:32]

    def told(self) -> str:
        """What a ratio sees, in words."""
        if self.schema is not None:
            base = f"{len(self.schema.kinds)} columns as {len(self.schema.feature_names)} features"
        elif self.map is not None:
            base = f"{self.map.width} features of the map '{self.map.name}'"
        else:
            base = f"{self.shape[0]} columns"
        return base if self.axes is None else f"{len(self.axes.directions)} principal components of {base}"


def _map_of(rows: Tensor, features: MapName, seed: int) -> tuple[FeatureMap | None, str]:
    """The map that is asked for, fitted, and a note; for "auto" principal components of images and of wide arrays."""
    shape = shape_of(rows, "rows", "keep")
    n, width = len(rows), math.prod(shape)
    if features == "auto":
        if len(shape) == 1 and width <= MOST_COLUMNS:
            return None, ""
        dims = min(MAP_DIRECTIONS, max(n // ROWS_A_DIRECTION, 1), width)
        return fitted_to_keep(maps.build("pca", dims=dims), rows, seed=seed)
    if isinstance(features, FeatureMap):
        chosen = features.copy()
    else:
        options: dict[str, Any] = {"map": features} if isinstance(features, str) else dict(features)
        chosen = maps.build(options.pop("map", "identity"), **options)
    if chosen.name == "identity" and len(shape) == 1:
        return None, ""
    return (chosen, "") if chosen.shape_ is not None else fitted_to_keep(chosen, rows, seed=seed)


def _array_of(table: pa.Table, origin: str) -> Tensor:
    """A table of numbers as an array, for a vestige of one."""
    from vestige.data.readers.columns import encode

    return encode([table], [origin])[0][0]
