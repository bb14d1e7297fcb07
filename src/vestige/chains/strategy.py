"""What every chain strategy offers, and what it finds of one task at one step.

A strategy is a frozen configuration with pure methods: `step` takes a state and returns a new one, so a step that fails
changes nothing. Tasks are known to it by their position in the chain, 0, 1, 2, ... in order of arrival. A
state is stored by the one codec, without loss: a chain that was stored goes on with the same bits.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate
from vestige.ratios.support import Reach
from vestige.vestiges import Vestige
from vestige.vestiges.widening import ErrorLimits

State = TypeVar("State")


@dataclass(frozen=True, eq=False)
class Points:
    """log p/q_t on samples in the place of p: generated ones under weights, or, without weights, the data itself."""

    log_ratio: Float[Tensor, " n"]
    weights: Float[Tensor, " n"] | None
    before: Float[Tensor, " n"] | None  # log p/q of the step since which these samples take the place of p


@dataclass(frozen=True, eq=False)
class TaskLogRatios:
    """Log-ratios log p/q_t of one task where they were not trained on, and how they came about.

    `log_ratio_p` is on the weighted anchor samples (on p itself at arrival); None means that only Eq. 4 applies.
    `inherited` times the variance of a term under the anchors is the error that their weights carry from earlier steps.
    `anchored` and `running` are what the `anchored` and `running` of `estimates` average over, where they apply.
    """

    log_ratio_q: Float[Tensor, " n_q"]
    log_ratio_p: Float[Tensor, " n_p"] | None
    p_weights: Float[Tensor, " n_p"] | None
    inherited: float = 0.0
    depth: int = 1  # how many estimated ratios stand between p and q_t
    gap: float = 0.0  # KL of rows seen in training minus held-out KL
    anchors: int = 0  # anchor samples, and what they are worth
    anchors_ess: float = 0.0
    anchored: Points | None = None
    running: Points | None = None
    moved: bool = False  # whether the next step's `running` starts from this one
    bridged: bool = False  # whether the step was far, and its ratio the sum over waymarks
    members: Float[Tensor, "m n_q"] | None = None  # log_ratio_q of each member of an ensemble
    fewer: tuple[Float[Tensor, " n_p"], Float[Tensor, " n_q"]] | None = None  # both by a fit that saw fewer rows
    unlearnt: float = 0.0  # movement of the KL that the anchors' weights rest on
    reach: Reach | None = None  # what of p and of q is out of the other's reach
    errors: ErrorLimits | None = None  # how far the draws of a vestige are from the data that they stand for
    all_q: Float[Tensor, " all_q"] | None = None  # of every sample, where only some were averaged over
    p_value: float = math.nan  # of "nothing has changed"
    fid: Estimate | None = None
    notes: tuple[str, ...] = ()  # on how rows were read


class Strategy(ABC, Generic[State]):
    """How log p/q_t is carried from one step to the next."""

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when its results change: a part of the ids of Records
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    # Whether the data itself leaves a vestige: a step then needs no samples of every task, and none of a new one, rows
    # may be tables, and as they may be data, too, no number of a single one is stored.
    keeps_vestige: ClassVar[bool] = False

    @abstractmethod
    def step(
        self, state: State | None, real: Mapping[int, Any], model: Mapping[int, Any], seed: int
    ) -> tuple[State, dict[int, TaskLogRatios]]:
        """The state after a step, and what it found; `real` has the tasks that are new, `model` those with samples."""

    @abstractmethod
    def log_ratio(self, state: State, task: int, x: Any) -> Float[Tensor, " n"]:  # noqa: ANN401 - rows, or a table
        """log p(x|task) / q_t(x|task)."""

    @abstractmethod
    def anchor_samples(self, state: State, task: int) -> tuple[Tensor, Tensor]:
        """Generated samples and the weights, which sum to one, under which they take the place of p."""

    def vestige(self, state: State, task: int) -> Vestige | None:
        """What is kept of the data itself, where that is a vestige."""
        return None

    def encoded_anew(self, state: State, samples: Mapping[int, Tensor]) -> State | None:
        """The state with other codes of the same anchor samples; None where ratios of older codes are needed, too."""
        return None
