"""`Anchored` with a choice of estimator, a bridge over far jumps, and every view of a divergence (see `views`).

With `moments=False` the stack alone may learn a step, and nothing is bridged: the others keep averages over their rows.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from vestige.chains.anchored import Anchored, TaskState
from vestige.chains.step_ratio import ESTIMATORS, StepRatio
from vestige.chains.strategy import Found, Points
from vestige.core import checks


@dataclass(frozen=True)
class Estimated(Anchored):
    """The estimator of each step is a `StepRatio`."""

    name: ClassVar[str] = "anchored"
    estimator: str = "stack"
    bridge_above: float = 10.0  # nats of held-out KL; see `step_ratio`
    waymarks: int = 8

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        checks.one_of(self.estimator, ESTIMATORS, "estimator", f"Chain('{self.name}')")
        if not self.moments and self.estimator != "stack":
            checks.refuse("estimator", f"Chain('{self.name}')", "'stack' where moments=False", repr(self.estimator))
        checks.number(self.bridge_above, "bridge_above", "Chain", low=0, open_low=True, open_high=True)
        checks.whole(self.waymarks, "waymarks", "Chain", low=1)

    def stack(self) -> StepRatio:
        """An unfitted ratio."""
        above = self.bridge_above if self.moments else math.inf
        return StepRatio.like(super().stack(), ESTIMATORS[self.estimator], self.waymarks, above)

    def arrive(self, p: Tensor, q: Tensor, seed: int) -> tuple[TaskState, Found]:
        """The data itself is averaged over, and `running` starts here."""
        state, found = super().arrive(p, q, seed)
        assert found.log_ratio_p is not None
        points = Points(found.log_ratio_p, None, None)
        return state, dataclasses.replace(
            found, anchored=points, running=points, moved=True, bridged=was_bridged(state)
        )

    def advance(self, state: TaskState, q: Tensor, seed: int) -> tuple[TaskState, Found]:
        """The stand-in is averaged over."""
        after, found = super().advance(state, q, seed)
        return after, seen_from(state, found, was_bridged(after))


def seen_from(state: TaskState, found: Found, bridged: bool) -> Found:
    """`found` with its views, the stand-in being that of `state`."""
    assert found.log_ratio_p is not None
    points = Points(found.log_ratio_p, found.p_weights, state.stand_in.log_ratio)
    return dataclasses.replace(found, anchored=points, running=points, bridged=bridged)


def was_bridged(state: TaskState) -> bool:
    """Whether the newest fit is a bridge."""
    newest = state.ratios[-1]
    return isinstance(newest, StepRatio) and newest.bridged_
