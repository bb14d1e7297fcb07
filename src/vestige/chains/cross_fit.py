"""Any ratio estimator with held-out log-ratios: fitted once a fold on the rest, so that no row judges itself.

The folds' fits are averaged for a new x. On request Platt's two numbers, fitted on the held-out values, calibrate them
(LFIW App. C.1): a loss without a lower bound may overshoot, and an estimator that found nothing ends at r = 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.strategy import scalar, under
from vestige.core import rng
from vestige.core.numerics import weighted_mean
from vestige.ratios import Ratio, Stack
from vestige.ratios.calibration import Affine, platt
from vestige.ratios.stack.stacking import assign_folds


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Fits that each lack a fold, and the map from their values to log p/q."""

    fits: tuple[Ratio, ...]
    affine: Affine

    def log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The mean over folds."""
        return self.affine(torch.stack([fit.log_ratio(x) for fit in self.fits]).mean(0))

    def state(self) -> dict[str, Tensor]:
        """As tensors by name."""
        state = {"slope": scalar(self.affine.slope), "offset": scalar(self.affine.offset)}
        for k, fit in enumerate(self.fits):
            state |= {f"fold.{k}.{key}": value for key, value in fit.state_dict().items()}
        return state

    @classmethod
    def from_state(cls, estimator: Ratio, state: Mapping[str, Tensor]) -> CrossFit:
        """The inverse of `state`, for fits of `estimator`."""
        folds = len({key.split(".")[1] for key in state if key.startswith("fold.")})
        fits = [dataclasses.replace(estimator).load_state_dict(under(f"fold.{k}.", state)) for k in range(folds)]
        return cls(tuple(fits), Affine(float(state["slope"]), float(state["offset"])))


FittedRatio = Stack | CrossFit


class HeldOutFit(NamedTuple):
    """A fitted ratio, its held-out values, and how much larger KL(p || q) looks on rows that were fitted on."""

    ratio: FittedRatio
    log_ratio_p: Float[Tensor, " n_p"]
    log_ratio_q: Float[Tensor, " n_q"]
    gap: float


def cross_fit(
    estimator: Ratio,
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    p_weights: Float[Tensor, " n_p"] | None,
    q_weights: Float[Tensor, " n_q"] | None,
    *,
    folds: int,
    calibrated: bool,
    seed: int,
) -> HeldOutFit:
    """Copies of `estimator`, each fitted without one fold of both sides."""
    sides = [(x, x.new_full((len(x),), 1 / len(x)) if w is None else w) for x, w in ((p, p_weights), (q, q_weights))]
    fold = [assign_folds(w, folds, generator=rng.fork(seed, "folds", i)) for i, (_, w) in enumerate(sides)]
    values = [torch.empty(len(x), dtype=torch.float64) for x, _ in sides]
    fits, inside = [], 0.0
    for k in range(folds):
        (p_in, w_p), (q_in, w_q) = ((x[f != k], w[f != k]) for (x, w), f in zip(sides, fold, strict=True))
        child = rng.child_seed(seed, "fold", k)
        fit = dataclasses.replace(estimator).fit(p_in, q_in, p_weights=w_p, q_weights=w_q, seed=child)
        for value, (x, _), f in zip(values, sides, fold, strict=True):
            value[f == k] = fit.log_ratio(x[f == k])
        inside += float(weighted_mean(fit.log_ratio(p_in), w_p)) / folds
        fits.append(fit)
    affine = platt(values[0], values[1], sides[0][1], sides[1][1]) if calibrated else Affine(1.0, 0.0)
    gap = affine.slope * (inside - float(weighted_mean(values[0], sides[0][1])))
    return HeldOutFit(CrossFit(tuple(fits), affine), affine(values[0]), affine(values[1]), gap)
