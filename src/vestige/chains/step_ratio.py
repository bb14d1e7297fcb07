"""The ratio of one step: a stack, or another estimator in its place, and a bridge where the two sets lie far apart.

A classifier that separates two sets without error cannot say how far apart they are. Where the held-out KL(p || q) of
the first fit exceeds `bridge_above` nats, the step is fitted again as a cross-fitted `Bridge` over waymarks, and the
report says so. `other` is cross-fitted and calibrated (see `cross_fit`); `Stack` cross-fits by itself.

Each jump of the bridge is a small network with a quadratic skip, not the quadratic that is `Bridge`'s default: a step
need not be Gaussian. KL at n = 10000, fresh rows: N(0, I) against N(1, 0.6^2 I), 10-d, 17.67 nats: stack 12.3, bridge
of quadratics 18.2, of networks 18.5; two modes against one between them, 2-d, 12.74 and 19.54 nats: stack 14.2 and
21.8, quadratics 21.2 and 36.3, networks 12.6 and 19.6.

`fit_from` starts a stack at the one before it; other estimators, and whatever follows a bridge, start anew.
"""

from __future__ import annotations

import math
from typing import Self

from jaxtyping import Float
from torch import Tensor

from vestige.chains.cross_fit import CrossFit, HeldOut, cross_fit
from vestige.core.checks import ArrayLike
from vestige.core.numerics import weighted_mean
from vestige.ratios import FGAN, LSIF, ULSIF, Bridge, KLIEPNet, Logistic, Ratio, Stack

# What may learn a step, by name; None is the stack itself.
ESTIMATORS: dict[str, Ratio | None] = {
    "stack": None,
    "kliep": KLIEPNet(),
    "logistic": Logistic(),
    "quadratic": Logistic(kind="quadratic"),
    "lsif": LSIF(),
    "ulsif": ULSIF(),
    "fgan": FGAN(),
}
JUMP = Logistic(steps=300, skip="quadratic")


class StepRatio(Stack):
    """A `Stack` that may be relieved of a step; its settings are set after construction, not by it."""

    other: Ratio | None = None
    bridge: Ratio | None = None
    bridge_above: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        self._relief: CrossFit | None = None
        self.bridged_ = False

    @classmethod
    def like(cls, stack: Stack, other: Ratio | None, waymarks: int, bridge_above: float) -> StepRatio:
        """With the recipe of an unfitted `stack`."""
        ratio = cls(**{key: value for key, value in stack.config().items() if key != "estimator"})
        ratio.other, ratio.bridge, ratio.bridge_above = other, Bridge(JUMP, waymarks), bridge_above
        return ratio

    def fit_from(
        self,
        previous: Stack,
        p: ArrayLike,
        q: ArrayLike,
        *,
        p_weights: ArrayLike | None = None,
        q_weights: ArrayLike | None = None,
        seed: int = 0,
    ) -> Self:
        """As `Stack.fit_from`, where both are stacks."""
        if self.other is not None or (isinstance(previous, StepRatio) and previous._relief is not None):
            return self.fit(p, q, p_weights=p_weights, q_weights=q_weights, seed=seed)
        return super().fit_from(previous, p, q, p_weights=p_weights, q_weights=q_weights, seed=seed)

    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        self._relief, self.bridged_ = None, False
        sides = p, q, p_weights, q_weights
        if self.other is None:
            super()._fit(*sides, seed)
        else:
            self._take(cross_fit(self.other, *sides, folds=self.folds, calibrated=True, seed=seed))
        if float(weighted_mean(self.held_out_p_, p_weights)) > self.bridge_above:
            assert self.bridge is not None
            self._take(cross_fit(self.bridge, *sides, folds=self.folds, calibrated=False, seed=seed))
            self.bridged_ = True

    def _take(self, found: HeldOut) -> None:
        self._relief, self.gap_ = found.ratio, found.gap
        self.held_out_p_, self.held_out_q_ = found.log_ratio_p, found.log_ratio_q

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return super()._log_ratio(x) if self._relief is None else self._relief.log_ratio(x)

    def _state(self) -> dict[str, Tensor]:
        if self._relief is None:
            return super()._state()
        kind = "bridge." if self.bridged_ else "other."
        return {kind + key: value for key, value in self._relief.state().items()}

    def _load_state(self, state: dict[str, Tensor]) -> None:
        kind = next((kind for kind in ("bridge", "other") if f"{kind}.slope" in state), None)
        if kind is None:
            return super()._load_state(state)
        estimator = self.bridge if kind == "bridge" else self.other
        if estimator is None:
            raise KeyError(f"an estimator for its {kind}")
        inner = {key.removeprefix(f"{kind}."): value for key, value in state.items()}
        self._relief, self.bridged_ = CrossFit.from_state(estimator, inner), kind == "bridge"
