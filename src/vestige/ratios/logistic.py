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
from vestige.ratios.calibration import METHODS, calibrate, held_out_figures, two_fold
from vestige.ratios.members import Prepared, Sample, prepare
from vestige.ratios.nets import NetRatio
from vestige.ratios.newton import NewtonFit, newton_logistic
from vestige.ratios.stack.features import quadratic
from vestige.ratios.standardise import Standardiser
from vestige.ratios.training import Loss, LossSlope

KINDS = ("net", "linear", "quadratic")
ROWS_A_PRODUCT = 100  # samples of the smaller side that each product z_i z_j asks for


def design(z: Float[Tensor, "n d"], form: str) -> Float[Tensor, "n f"]:
    """[1, z], [1, z, z_i^2] or [1, z, z_i z_j] for the form "linear", "diagonal" or "full"."""
    if form == "linear":
        return torch.cat([z.new_ones(len(z), 1), z], 1)
    return quadratic(z, full=form == "full")


def form_of(coefficients: int, d: int) -> str:
    """The form whose design of `d` features has so many columns (with one feature, all products are squares)."""
    return {1 + d: "linear", 1 + 2 * d: "diagonal"}.get(coefficients, "full")


def fit_convex(
    phi_p: Float[Tensor, "n_p f"],
    phi_q: Float[Tensor, "n_q f"],
    w_p: Float[Tensor, " n_p"],
    w_q: Float[Tensor, " n_q"],
    *,
    share: float,
    ridge: float,
) -> NewtonFit:
    """Coefficients of log r: those of the logit at class share `share`, with log gamma added to the constant."""
    weights = torch.cat([share * w_p / w_p.sum(), (1 - share) * w_q / w_q.sum()])
    sign = torch.cat([torch.ones_like(w_p), -torch.ones_like(w_q)])
    fit = newton_logistic(torch.cat([phi_p, phi_q]), sign, weights, ridge=ridge, tolerance=1e-12)
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
        seen = log_p[p], log_q[q], member.sample.p_weights[p], member.sample.q_weights[q]
        affine = calibrate(self.calibration, *seen)
        report: dict[str, Any] = {"held_out": held_out_figures(*seen)}
        if self.calibration is not None:
            judged = held_out_figures(*two_fold(self.calibration, *seen), *seen[2:])
            report["held_out"] = judged | {"raw": report["held_out"]}
            report["calibration"] = {"slope": affine.slope, "offset": affine.offset}
        return affine.slope, affine.offset, report

    # The convex kinds.

    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        if self.kind == "net":
            return super()._fit(p, q, p_weights, q_weights, seed)
        w_p = p.new_full((len(p),), 1 / len(p)) if p_weights is None else p_weights
        w_q = q.new_full((len(q),), 1 / len(q)) if q_weights is None else q_weights
        d = p.shape[1]
        full = d * (d + 1) / 2 <= min(len(p), len(q)) / ROWS_A_PRODUCT
        form = "linear" if self.kind == "linear" else "full" if full else "diagonal"
        shares = [share for share in (self._kept_aside() or self.held_out,) if share]
        sample, clip = Sample(p, q, w_p, w_q), self._clip(len(p), len(q))
        member = prepare(sample, seed, p_share=0.5, shares=shares, floor=self.floor, clip=clip, owner="Logistic.fit")
        phi_p, phi_q = (design(member.standardise(x), form) for x in (p, q))
        fit = partial(fit_convex, share=self._share(len(p), len(q)), ridge=self.ridge)
        rows_p, rows_q = member.p_rows[0], member.q_rows[0]
        found = fit(phi_p[rows_p], phi_q[rows_q], w_p[rows_p], w_q[rows_q])
        slope, offset, report = self._finish(member, phi_p @ found.head, phi_q @ found.head)
        if self.calibration is None:
            found = fit(phi_p, phi_q, w_p, w_q)
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
