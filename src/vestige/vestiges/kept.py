"""What a comparison asks of data that is gone: the contract between a vestige and those who judge by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate
from vestige.metrics.fid import FID
from vestige.metrics.mmd import KID
from vestige.ratios import Ratio
from vestige.vestiges.drift_test import DriftTest
from vestige.vestiges.frame import Frame
from vestige.vestiges.pairs import Tested
from vestige.vestiges.reference import OwnErrors
from vestige.vestiges.schema import Aligned


class KeptData(ABC):
    """Stands for rows that are gone."""

    frame: Frame
    errors: OwnErrors  # of the draws below

    @property
    @abstractmethod
    def n(self) -> int:
        """How many rows there were."""

    @property
    @abstractmethod
    def moments(self) -> FID:
        """Mean and covariance of the features, in two groups."""

    def moments_beside(self, new: FID) -> FID:
        """`moments` as they are held against those of new rows."""
        return self.moments

    def left_out(self) -> str:
        """What FID tells nothing of, in a sentence; empty where that is nothing."""
        return ""

    @property
    @abstractmethod
    def third(self) -> KID | None:
        """Third moments of the features, where they were asked for."""

    @property
    @abstractmethod
    def test(self) -> DriftTest:
        """The test of "no difference"."""

    @abstractmethod
    def cells(self, rows: Any, origin: str = "new") -> Aligned:  # noqa: ANN401 - whatever `keep` takes
        """Rows in the same frame; those that do not fit are refused with their names."""

    @property
    @abstractmethod
    def draws(self) -> tuple[Float[Tensor, "m c"], Float[Tensor, " m"]]:
        """The reference draws, as the densities give them, and weights that sum to one."""

    @abstractmethod
    def comparable(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """New rows as metrics and divergences see them: without cells that may be as rare as those that were hidden."""

    @abstractmethod
    def points(self) -> tuple[Float[Tensor, "m k"], Float[Tensor, " m"]]:
        """What a ratio sees of the reference draws, and weights that sum to one."""

    @abstractmethod
    def feature_points(self) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"]]:
        """Features of the reference draws, for metrics that need more than moments, and their weights."""


class Answers(NamedTuple):
    """What can be told of new rows from noisy means: every divergence and metric by name, refused where it cannot."""

    n_q: int
    d: int
    divergences: dict[str, Estimate]
    metrics: dict[str, Estimate]
    tested: Tested
    ratio: dict[str, Any]  # the report of the ratio behind JS; empty without one
    conclusion: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


class KeptPrivately(ABC):
    """Stands for rows that are gone by noisy means alone, without draws: it answers by itself."""

    @property
    @abstractmethod
    def n(self) -> int:
        """About how many rows there were."""

    @abstractmethod
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
        """What can be told of new rows."""
