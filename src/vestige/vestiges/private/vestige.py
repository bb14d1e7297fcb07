"""What remains of rows under differential privacy: noisy sums, the declaration they are of, and public rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from vestige import store
from vestige.core import Estimate, InputError, __version__
from vestige.ratios import Ratio
from vestige.ratios.divergences import FAMILY
from vestige.vestiges.batches import held
from vestige.vestiges.differences import ALPHA, in_order, told_of
from vestige.vestiges.kept import Answers, KeptPrivately
from vestige.vestiges.pairs import Tested
from vestige.vestiges.private import answers
from vestige.vestiges.private.public import as_columns
from vestige.vestiges.private.released import Guarantee, Released
from vestige.vestiges.schema import Aligned, Schema
from vestige.vestiges.two_sets import Comparison, compare

KIND = "private-vestige"


@dataclass(frozen=True, eq=False)
class PrivateVestige(KeptPrivately):
    """What remains of about `n` rows under (epsilon, delta) differential privacy.

    Example
    -------
    >>> rows = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> from vestige.vestiges import keep
    >>> kept = keep(rows, epsilon=1.0, bounds={"x0": (0, 1), "x1": (0, 1)})
    >>> abs(kept.n - 20_000) < 500, kept.guarantee.epsilon
    (True, 1.0)
    """

    version: ClassVar[int] = 1  # raised when the same rows leave something else

    released: Released
    base: Float[Tensor, "b c"] | None  # cells of public rows
    seed: int  # of what is public: the frequencies
    made_by: str = __version__

    def __post_init__(self) -> None:
        cells = len(self.schema.used)
        if self.base is not None and self.base.shape[1:] != (cells,):
            raise InputError(
                f"The public rows of a vestige must have {cells} cells. Got {self.base.shape[1:]} instead."
            )

    @property
    def n(self) -> int:
        """About how many rows there were; the count has noise."""
        return self.released.n

    @property
    def schema(self) -> Schema:
        """The columns, as they were declared."""
        return self.released.query.schema

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to whom."""
        return self.released.guarantee

    def cells(self, rows: Any, origin: str = "new") -> Aligned:  # noqa: ANN401 - whatever `keep` takes
        """Rows by the same declaration; those that do not fit are refused with their names."""
        found = held(rows, name=origin, owner="PrivateVestige").rows
        if isinstance(found, Tensor):
            if found.ndim != 2:
                raise InputError(f"The rows of {origin} must be columns, as the data was. Got images instead.")
            found = as_columns(found)
        return self.released.query.schema.cells(found, origin)

    @functools.cached_property
    def _base(self) -> answers.Base | None:
        if self.base is None:
            return None
        query = self.released.query
        return answers.Base(query.values(self.base), query.points(self.base))

    def answers(
        self,
        new: Any,  # noqa: ANN401 - whatever `keep` takes
        *,
        estimator: str | Ratio,
        rows: int,
        level: float,
        seed: int,
        names: tuple[str, str],
        on_step: Callable[[str], None],
    ) -> Answers:
        """What noisy means tell of new rows; the rest is refused, each in one sentence."""
        aligned, released = self.cells(new, names[1]), self.released
        cells, d = aligned.cells, released.query.d
        if released.worth < answers.USEFUL:
            told = answers.not_useful(released.worth)
            divergences, metrics = answers.all_refused(told, level)
            tested = Tested(float("nan"), untested=told[0].lower() + told[1:-1])
            return Answers(len(cells), d, divergences, metrics, tested, {}, told, (), tuple(aligned.notes))
        on_step("ratio")
        against = answers.Against(released, released.query.values(cells), seed)
        options: dict[str, Any] = {"estimator": estimator, "rows": rows, "level": level}
        js, report = answers.js_of(against, self._base, released.query.points(cells), **options)
        refused = Estimate.refused(answers.NO_ROWS, level=level)
        divergences = {name: js if name == "js" else refused.but(name=name) for name in FAMILY}
        on_step("test")
        tested = answers.drift_of(against)
        metrics = answers.metrics_of(against, level, on_step)
        warnings = tuple(aligned.warnings) + answers.cautions(released)
        told = " ".join(
            [
                _concluded(tested, metrics["mmd2"], *names),
                *told_of(tested.p_value, in_order(tested.columns, tested.p_value)),
            ]
        )
        return Answers(len(cells), d, divergences, metrics, tested, report, told, warnings, tuple(aligned.notes))

    def compare(self, new: Any, **options: Any) -> Comparison:  # noqa: ANN401 - whatever `keep` takes
        """How far `new` rows are from those that were kept: `vestige.compare(self, new)`, with its options."""
        return compare(self, new, **options)

    def merge(self, other: PrivateVestige) -> PrivateVestige:
        """What remains of both sets of rows, in which nobody is twice: epsilon stays, the noise of both adds up."""
        return PrivateVestige(self.released.merge(other.released), self.base, self.seed)

    def save(self, path: str | Path) -> Path:
        """Write the one file, whole or not at all."""
        return store.save_file(path, KIND, self)

    @classmethod
    def load(cls, path: str | Path) -> PrivateVestige:
        """The vestige stored at `path`; nothing in the file is run."""
        return store.load_file(cls, path, KIND)

    def kept(self) -> pd.DataFrame:
        """A row for each array that is stored: its name, shape, bytes, what it is, and what it gives away."""
        tensors = store.encode(self)[1]
        away = f"no more than epsilon {self.guarantee.epsilon:g} allows, whatever somebody else knows"
        rows = [
            (
                key,
                tuple(x.shape),
                x.numel() * x.element_size(),
                _what(key),
                PUBLIC if "query" in key or key.startswith("base") else away,
            )
            for key, x in tensors.items()
        ]
        return pd.DataFrame(rows, columns=["name", "shape", "bytes", "what", "gives away"])

    def __repr__(self) -> str:
        query = self.released.query
        told = f"{len(query.columns)} columns as {query.d} features"
        return f"Vestige of about {self.n} rows: {told}; {self.guarantee}"


PUBLIC = "nothing of the rows: it was public before"
WHAT = {
    "released.sums": "sums over the rows, with noise: count, moments, random features, bins",
    "released.query": "public: bounds, bins and frequencies",
    "base": "public rows, as they were given: they are not protected",
}


def _what(key: str) -> str:
    return next(told for start, told in WHAT.items() if key.startswith(start))


def _concluded(tested: Tested, mmd2: Estimate, real: str, fake: str) -> str:
    """Whether there is a difference, and how large it is."""
    p = tested.p_value
    size = f"MMD^2 {mmd2.value:.2g} [{mmd2.low:.2g}, {mmd2.high:.2g}]" if mmd2.known else "its size is not told"
    if p != p:
        return f"Whether {fake} differs from {real} was not tested: {tested.untested}."
    if p > ALPHA:
        return f"No difference between {real} and {fake} was found (p = {p:.2g}); {size}."
    return f"The rows of {fake} differ from those of {real} (p = {p:.2g}): {size}."
