"""A vestige: a small file that stands for data whose rows are gone.

    kept = vs.keep("january.parquet")          # the last thing that is done with the rows
    kept.save("january.vestige")
    vs.compare(Vestige.load("january.vestige"), "february.parquet")

It holds the way from rows to numbers (`frame`), moments of the features (`moments` for FID, `third` for KID where that
was asked for), a dictionary of moments for a test of "no difference" (`test`), and reference draws: a density, a seed
and weights, with the error of these draws as it was measured when the rows were here (`reference`, `errors`). No row,
and no number of a single row.

One file: safetensors, with everything that is not an array as JSON in its header.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vestige import store
from vestige.core import InputError, __version__, checks, rng
from vestige.core.rounding import ROWS_TOGETHER
from vestige.densities import DENSITIES
from vestige.features import FEATURES
from vestige.metrics.fid import FID
from vestige.metrics.mmd import KID
from vestige.show.tables import card
from vestige.store import newer
from vestige.vestiges.batches import held
from vestige.vestiges.drift_test import DriftTest
from vestige.vestiges.fid_statistics import FidStatistics
from vestige.vestiges.frame import Frame
from vestige.vestiges.gives_away import NOTICE, gives_away, measured
from vestige.vestiges.kept import KeptData
from vestige.vestiges.rare import UsualCells, with_correlations_of
from vestige.vestiges.reference import OwnErrors, Reference, features_of_draws, refit_errors, seen_of_cells
from vestige.vestiges.schema import Aligned, Schema
from vestige.vestiges.two_sets import Comparison, compare
from vestige.vestiges.weighing import Weighing, weigh

KIND = "vestige"


@dataclass(frozen=True, eq=False)
class Sketch:
    """What merges exactly: how many rows there were, and sums over them."""

    n: int
    moments: FID
    third: KID | None
    test: DriftTest
    hidden: Bool[Tensor, "d d"] | None = newer(None)  # pairs of features whose covariance too few rows tell

    def merge(self, other: Sketch) -> Sketch:
        """The sketch of both sets of rows."""
        moments = _copied(self.moments).merge(other.moments)
        third = None if self.third is None or other.third is None else _copied(self.third).merge(other.third)
        hidden = self.hidden if other.hidden is None or self.hidden is None else self.hidden | other.hidden
        hidden = other.hidden if hidden is None else hidden
        return Sketch(self.n + other.n, moments, third, self.test.merge(other.test), hidden)


@dataclass(frozen=True, eq=False)
class Vestige(KeptData):
    """What remains of `n` rows.

    Example
    -------
    >>> rows = torch.randn(400, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> from vestige.vestiges import keep
    >>> kept = keep(rows)
    >>> kept.n, kept.draw(3).shape
    (400, torch.Size([3, 2]))
    """

    version: ClassVar[int] = 3  # 2: rounded, nothing of fewer than 50 rows; 3: FID leaves out what is hidden so

    frame: Frame
    sketch: Sketch
    reference: Reference
    errors: OwnErrors
    seed: int
    made_by: str = __version__
    usual: UsualCells | None = newer(None)  # what stands for cells that few rows had
    notice: str = newer(NOTICE)  # what whoever opens the file should know

    @property
    def n(self) -> int:
        """How many rows there were."""
        return self.sketch.n

    @property
    def schema(self) -> Schema | None:
        """The columns of a table."""
        return self.frame.schema

    @property
    def moments(self) -> FID:
        """Mean and covariance of the features, in two groups."""
        return self.sketch.moments

    def moments_beside(self, new: FID) -> FID:
        """`moments`, where what is hidden of the covariance is as in the new rows."""
        if self.sketch.hidden is None or not bool(self.sketch.hidden.any()):
            return self.moments
        made, other = _copied(self.moments), new.whole()
        made.summaries_ = [
            None if one is None else with_correlations_of(other, one, self.sketch.hidden) for one in made.summaries_
        ]
        return made

    def left_out(self) -> str:
        """How many pairs of features FID tells nothing of, where they are more than MANY_PAIRS of them."""
        pairs = 0 if self.sketch.hidden is None else int(self.sketch.hidden.sum()) // 2
        width = self.moments.width_ or 0
        every = width * (width - 1) // 2
        told = f"{pairs} of {every} pairs of features that fewer than {ROWS_TOGETHER} rows had together"
        return f"FID says nothing of {told}." if pairs > MANY_PAIRS * every else ""

    @property
    def third(self) -> KID | None:
        """Third moments of the features, where they were asked for."""
        return self.sketch.third

    @property
    def test(self) -> DriftTest:
        """The test of "no difference"."""
        return self.sketch.test

    def cells(self, rows: Any, origin: str = "new") -> Aligned:  # noqa: ANN401 - whatever `keep` takes
        """Rows in the frame of this vestige; those that do not fit are refused with their names."""
        return self.frame.cells(held(rows, name=origin, owner="Vestige").rows, origin)

    def comparable(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """New rows as metrics and divergences see them: without cells that may be as rare as those that were hidden."""
        return cells if self.usual is None else self.usual.told(cells, self.n)

    @functools.cached_property
    def draws(self) -> tuple[Float[Tensor, "m c"], Float[Tensor, " m"]]:
        """The reference draws, as the densities give them, and weights that sum to one."""
        return self.reference.draws()

    def points(self) -> tuple[Float[Tensor, "m k"], Float[Tensor, " m"]]:
        """What a ratio sees of the reference draws, and their weights."""
        drawn, weights = self.draws
        return (seen_of_cells(self.frame, drawn) if self.frame.density_of_cells else drawn), weights

    def feature_points(self) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"]]:
        """Features of the reference draws, for metrics that need more than moments, and their weights."""
        drawn, weights = self.draws
        covariance = self.moments.whole().covariance()
        return features_of_draws(self.frame, drawn, covariance, self.seed), weights

    def compare(self, new: Any, **options: Any) -> Comparison:  # noqa: ANN401 - whatever `keep` takes
        """How far `new` rows are from those that were kept: `vestige.compare(self, new)`, with its options."""
        return compare(self, new, **options)

    def weigh(self, new: Any, **options: Any) -> Weighing:  # noqa: ANN401 - whatever `keep` takes
        """Weights with which `new` rows stand for those that were kept: `vestige.weigh(self, new)`."""
        return weigh(self, new, **options)

    def draw(self, n: int, *, seed: int = 0) -> pa.Table | Float[Tensor, "n d"]:
        """`n` rows by the weights of the reference draws, with repetition: a table, cells, or features of images.

        They are for looking at. To compute with them take `points` and its weights, which say more.
        """
        n = checks.whole(n, "n", "Vestige.draw", low=1)
        drawn, weights = self.draws
        picked = drawn[torch.multinomial(weights, n, replacement=True, generator=rng.fork(seed, "vestige draw"))]
        return self.frame.rows(picked)

    def merge(self, other: Vestige) -> Vestige:
        """What remains of both sets of rows, which must have been kept in one frame (`keep(..., like=)`)."""
        if self.frame.digest() != other.frame.digest():
            raise InputError(
                "The two vestiges must have one feature map and schema to be merged. Got two instead: keep the second "
                "with 'like' (--like) the first."
            )
        sketch = self.sketch.merge(other.sketch)
        shares = self.n / sketch.n, other.n / sketch.n
        reference = self.reference.merge(other.reference, self.frame, self.seed)
        errors = self.errors.merge(other.errors, shares)
        union = self.reference.parts + other.reference.parts
        if len(reference.parts) < len(union):
            errors = errors.through(refit_errors(self.frame, Reference(union), reference, self.seed))
        usual = self.usual if self.usual is None or other.usual is None else self.usual.merge(other.usual)
        return replace(self, sketch=sketch, reference=reference, errors=errors, usual=usual)

    def save(self, path: str | Path) -> Path:
        """Write the one file, whole or not at all."""
        return store.save_file(path, KIND, self)

    @classmethod
    def load(cls, path: str | Path) -> Vestige:
        """The vestige stored at `path`; nothing in the file is run."""
        kinds: dict[str, type] = {kind.__name__: kind for kind in (*DENSITIES.values(), *FEATURES.values())}
        return store.load_file(cls, path, KIND, kinds)

    def to_fid_stats(self, path: str | Path) -> Path:
        """Write mean and covariance of the features, and `n`, as an .npz, as pytorch-fid and clean-fid read it."""
        whole = self.moments.whole()
        return FidStatistics(whole.mean, whole.covariance(), self.n).save(path)

    def kept(self) -> pd.DataFrame:
        """A row for each array that is stored: its name, shape, bytes, what it is, and what it gives away of a person.

        How well attacks do on public data of this kind is told by `attacks`.
        """
        tensors = store.encode(self)[1]
        rows = [
            (key, tuple(x.shape), x.numel() * x.element_size(), _what(key), gives_away(key))
            for key, x in tensors.items()
        ]
        return pd.DataFrame(rows, columns=["name", "shape", "bytes", "what", "gives away"])

    def attacks(self) -> pd.DataFrame:
        """The AUC of attacks on membership, as measured on public data of this kind at the nearest number of rows.

        A row for each attack of `vestiges.attack`: "n", "attack", "auc", "low", "high" and the data set. 0.5 is
        guessing; "last row" is how often somebody who knows all other rows tells the last.
        """
        return measured(self.frame, self.n)

    @property
    def bytes(self) -> int:
        """What the arrays occupy."""
        return int(self.kept()["bytes"].sum())

    def _repr_html_(self) -> str:
        head, _, told = repr(self).partition(": ")
        seen, *others = told.split("; ")
        named = [part.partition(": ")[::2] for part in others]
        return card(head, [("what a ratio sees", seen), *named, ("bytes", f"{self.bytes}")])

    def __repr__(self) -> str:
        js = self.errors.limit("js")
        own = "not known" if math.isinf(js) else f"JS to the rows at most {js:.2g}"
        names = " + ".join(dict.fromkeys(part.density.name for part in self.reference.parts))
        return f"Vestige of {self.n} rows: {self.frame.told()}; density: {names}; own error: {own}"


MANY_PAIRS = 0.1


def _copied(accumulator: Any) -> Any:  # noqa: ANN401 - an accumulator
    """One that may be merged into: its summaries are replaced, never changed."""
    made = copy.copy(accumulator)
    made.summaries_ = list(accumulator.summaries_)
    return made


WHAT = {
    "sketch.moments": "mean and scatter of the features, in two halves of the rows",
    "sketch.third": "third moments of the features",
    "sketch.hidden": "pairs of features that fewer than 50 rows have together, whose covariance is not told",
    "sketch.test": "the dictionary of the drift test, its moments over the rows, and its null tables",
    "reference": "the density that reference draws come from, and a weight for each draw",
    "frame.map": "the feature map",
    "frame.axes": "principal components of the features",
    "frame.schema": "how columns become numbers",
}


def _what(key: str) -> str:
    return next((told for start, told in WHAT.items() if key.startswith(start)), "a figure of the vestige")
