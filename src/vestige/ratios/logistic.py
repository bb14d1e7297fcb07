"""The ratio of a probabilistic classifier (LFIW section 2.3, Proposition 1): log r = logit + log gamma.

kind "net" is a small MLP trained with early stopping on held-out log-loss (never accuracy), "linear" and "quadratic"
are convex and solved by Newton's method in float64: for Gaussians of equal covariance the linear one is exact, for any
two Gaussians the quadratic one. Quadratic means all products z_i z_j while there are at least 100 samples on the
smaller side for each, else squares alone.

Class imbalance. `balance="weights"` gives p and q half of the loss each, so that gamma = 1; "prior" keeps plain
cross-entropy over all rows and corrects by log gamma = log(n_q / n_p) (Eq. 4). They agree in the limit.

Calibration ("platt", "temperature" or None) is fitted on `calibration_share` of the rows, which neither training nor
early stopping sees (their mean and deviation do enter the standardisation). The held-out figures in the report
(log-loss, accuracy, reliability in 10 bins, ECE; App. C.1) come from these rows, of the raw classifier ("raw") and
after calibration, the latter two-fold: each half of the rows is judged by the map fitted on the other half. Without
calibration the figures come from the early-stopping rows of a net, whose best step they chose, or from rows held out
of a first convex fit, which is then repeated on all rows; with `held_out=0` there are none.

Deviations from LFIW: balance by weights instead of equal minibatches; selection by log-loss instead of accuracy
(App. C.3); ridge on the convex kinds; standardised features are clamped at `clip` deviations.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import VestigeWarning
from vestige.core.checks import option
from vestige.ratios import losses
from vestige.ratios.base import Sample
from vestige.ratios.calibration import METHODS, calibrate, held_out_figures, two_fold
from vestige.ratios.nets import NetRatio
from vestige.ratios.newton import NewtonFit, newton_logistic
from vestige.ratios.standardise import Standardiser, design, quadratic_form
from vestige.ratios.training import Loss, LossSlope, Prepared, prepare

KINDS = ("net", "linear", "quadratic")


def form_of(coefficients: int, d: int) -> str:
    """The form whose design of `d` features has so many columns (with one feature, all products are squares)."""
    return {1 + d: "linear", 1 + 2 * d: "diagonal"}.get(coefficients, "full")


def fit_convex(phi: Sample, *, share: float, ridge: float) -> NewtonFit:
    """Coefficients of log r: those of the logit at class share `share`, with log gamma added to the constant."""
    w_p, w_q = phi.w_p, phi.w_q
    weights = torch.cat([share * w_p / w_p.sum(), (1 - share) * w_q / w_q.sum()])
    sign = torch.cat([torch.ones_like(w_p), -torch.ones_like(w_q)])
    fit = newton_logistic(torch.cat([phi.p, phi.q]), sign, weights, ridge=ridge, tolerance=1e-12)
    fit.head[0] += math.log((1 - share) / share)  # Eq. 4
    return fit


@dataclass(eq=False)
class Logistic(NetRatio):
    """Classifier ratio. Fields of `NetRatio` but `floor`, `clip` and `held_out` concern kind "net" alone."""

    kind: str = option("net", among=KINDS)
    balance: str = option("weights", among=("weights", "prior"))
    calibration: str | None = option(None, among=METHODS)
    calibration_share: float = option(0.2, above=0, high=0.5)
    ridge: float = option(1e-4, low=0)  # on all coefficients of the convex kinds but the constant
    _: KW_ONLY
    gradient_clip: float | None = option(None, above=0)  # the slope of this loss is bounded

    def _share(self, n_p: int, n_q: int) -> float:
        """The class share of p: 1 / (1 + gamma) of Eq. 4."""
        return 0.5 if self.balance == "weights" else n_p / (n_p + n_q)

    def _loss(self, n_p: int, n_q: int) -> Loss:
        return partial(losses.logistic, share=self._share(n_p, n_q))

    def _loss_slope(self, n_p: int, n_q: int) -> LossSlope:
        return partial(losses.logistic_slope, share=self._share(n_p, n_q))

    def _kept_aside(self) -> float:
        return 0.0 if self.calibration is None else self.calibration_share

    def _finish(self, member: Prepared, log_p: Tensor, log_q: Tensor) -> tuple[float, float, dict[str, Any]]:
        if self.calibration is None and not self.held_out:
            return 1.0, 0.0, {"held_out": None}
        p, q = member.p_rows[-1], member.q_rows[-1]
        seen = log_p[p], log_q[q], member.sample.w_p[p], member.sample.w_q[q]
        affine = calibrate(self.calibration, *seen)
        report: dict[str, Any] = {"held_out": held_out_figures(*seen)}
        if self.calibration is not None:
            judged = held_out_figures(*two_fold(self.calibration, *seen), *seen[2:])
            report["held_out"] = judged | {"raw": report["held_out"]}
            report["calibration"] = {"slope": affine.slope, "offset": affine.offset}
        return affine.slope, affine.offset, report

    # The convex kinds.

    def _fit(self, sample: Sample, seed: int) -> None:
        if self.kind == "net":
            return super()._fit(sample, seed)
        sizes, d = (len(sample.p), len(sample.q)), sample.p.shape[1]
        form = "linear" if self.kind == "linear" else quadratic_form(d, min(sizes))
        shares = [share for share in (self._kept_aside() or self.held_out,) if share]
        clip = self._clip(*sizes)
        member = prepare(sample, seed, p_share=0.5, shares=shares, floor=self.floor, clip=clip, owner="Logistic.fit")
        phi_p, phi_q = (design(member.standardise(x), form) for x in (sample.p, sample.q))
        phi = Sample(phi_p, phi_q, sample.w_p, sample.w_q)
        fit = partial(fit_convex, share=self._share(*sizes), ridge=self.ridge)
        found = fit(phi.rows(member.p_rows[0], member.q_rows[0]))
        slope, offset, report = self._finish(member, phi_p @ found.head, phi_q @ found.head)
        if self.calibration is None:
            found = fit(phi)
        self.members_ = {
            "shift": member.standardise.shift,
            "scale": member.standardise.scale,
            "coefficients": slope * found.head,
        }
        self.members_["coefficients"][0] += offset
        self.report_ |= {
            "converged": found.converged,
            "iterations": found.iterations,
            "decrement": found.decrement,
            "held_out_loss": report["held_out"] and report["held_out"]["log_loss"],
            "form": form,
            "clips": {"features": member.clipped},
            "kept_of_p": "mean and deviation of its even mixture with q, and the coefficients",
            "warnings": [],
            **report,
        }
        if not found.converged:
            text = f"Newton's method of Logistic stopped with {found.decrement:.2g} nats to gain. Raise 'ridge'."
            self.report_["warnings"].append(text)
            warnings.warn(text, VestigeWarning, stacklevel=4)

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        if self.kind == "net":
            return super()._log_ratio(x)
        coefficients = self.members_["coefficients"]
        z = Standardiser(self.members_["shift"], self.members_["scale"], self._clip(0, 0))(x)
        return design(z, form_of(len(coefficients), x.shape[1])) @ coefficients
