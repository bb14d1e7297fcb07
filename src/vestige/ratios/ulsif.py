"""ULSIF and RULSIF: kernel density ratios by least squares, tuned by exact leave-one-out.

Kanamori, Hido and Sugiyama, "A least-squares approach to direct importance estimation" (2009); Yamada et al.,
"Relative density-ratio estimation for robust distribution comparison" (2011). `least_squares.py` has the algebra and
the definition of leave-one-out, `kernels.py` the features.

RULSIF fits the relative ratio g = p / (alpha p + (1 - alpha) q), which is at most 1/alpha, and reads r = (1 - alpha) g
/ (1 - alpha g) off it, with alpha g bounded by `cap`; ULSIF is alpha = 0, where r = g.

Deviations. The paper sets negative entries of theta to zero after the fit, which ruins it: the mean of r over q must
be 1, and becomes e^0.2 to e^6 on pairs of shifted and scaled Gaussians. Here theta keeps its sign. Where theta .
phi(x) is small or negative, min(theta+ . phi(x), `floor`) stands in for it if larger, theta+ being the fit under theta
>= 0: so log r exists and still falls in the tails, and never below log `least`. Then r is divided by its mean over q,
stored at fit, unless `normalise` is off. How many training rows each bound touched is in `report_["clips"]`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, Kind, option
from vestige.core.numerics import log_mean_exp
from vestige.core.rng import fork
from vestige.ratios.base import Ratio
from vestige.ratios.kernels import (
    BANDWIDTHS,
    BLOCK,
    Kernels,
    caution,
    caution_if_wide,
    gaussian,
    gaussian_path,
    median_distance,
)
from vestige.ratios.least_squares import loo_scores, normal_equations, solve

LAMBDAS = tuple(10.0**k for k in range(-8, 1))


@dataclass(eq=False, kw_only=True)
class _LeastSquares(Ratio):
    """What ULSIF and RULSIF share: everything but alpha."""

    max_centres: int = option(100, low=1)
    bandwidths: tuple[float, ...] = option(BANDWIDTHS, above=0, least=1)  # multiples of the median distance to centres
    lambdas: tuple[float, ...] = option(LAMBDAS, above=0, least=1)
    floor: float = option(0.03, high=1)  # and no less than `least`
    least: float = option(1e-12, above=0, high=1)
    normalise: bool = option(True)

    kernels_: Kernels = field(init=False, repr=False)
    sigma_: float = field(init=False, repr=False)
    theta_: Float[Tensor, " b"] = field(init=False, repr=False)
    positive_: Float[Tensor, " b"] = field(init=False, repr=False)  # the fit under theta >= 0
    log_z_: float = field(init=False, repr=False)

    def _check(self) -> None:
        super()._check()
        checks.number(self.floor, "floor", type(self).__name__, low=self.least)

    @abstractmethod
    def _mixing(self) -> tuple[float, float]:
        """alpha, and the largest value of alpha g."""

    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        owner = f"{type(self).__name__}.fit"
        alpha, cap = self._mixing()
        multiples = sorted(self.bandwidths, reverse=True)
        lambdas = torch.tensor(sorted(self.lambdas, reverse=True), dtype=torch.float64)
        for name, weights in (("p_weights", p_weights), ("q_weights", q_weights)):
            if weights is not None and not bool(weights.max() < 1):
                checks.refuse(name, owner, "spread over at least 2 samples", "all weight on one")
        caution_if_wide(self.report_)

        self.kernels_ = Kernels.of(q, q_weights, self.max_centres, fork(seed, "centres"))
        near_p, near_q = self.kernels_.squared_distances(p), self.kernels_.squared_distances(q)
        median = median_distance(near_p, near_q, p_weights, q_weights)
        sigmas = [m * median for m in multiples]
        paths = zip(gaussian_path(near_p, sigmas), gaussian_path(near_q, sigmas), strict=True)
        scores = torch.stack([loo_scores(*phi, p_weights, q_weights, lambdas, alpha) for phi in paths])
        row, column = divmod(int(scores.argmin()), len(lambdas))
        self.sigma_, ridge = sigmas[row], float(lambdas[column])
        phi_p, phi_q = gaussian(near_p, self.sigma_), gaussian(near_q, self.sigma_)
        self.theta_, positive = solve(*normal_equations(phi_p, phi_q, p_weights, q_weights, alpha), ridge)
        self.positive_ = torch.zeros_like(self.theta_) if positive is None else positive
        if positive is None:
            caution(self.report_, "the fit under theta >= 0 did not converge, so log r is 'least' in the tails.")
        self.log_z_ = 0.0
        log_r_q = self._log_r(phi_q)
        if self.normalise:
            self.log_z_ = float(log_mean_exp(log_r_q, q_weights))
        self.report_ |= {
            "kept_of_p": "the median distance to the centres, and coefficients fitted to the kernels' means over p",
            "converged": positive is not None,
            "sigma": self.sigma_,
            "lambda": ridge,
            "median_distance": median,
            "centres": len(self.theta_),
            "loo_score": float(scores[row, column]),
            "log_normaliser": self.log_z_,
            "bounds": {"floor": self.floor, "least": self.least} | ({"cap": cap} if alpha else {}),
            "clips": self._clips(torch.cat([phi_p, phi_q])),
        }

    def _values(self, phi: Float[Tensor, "n b"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """theta . phi as fitted, and what stands in for it where that is too small."""
        fitted, positive = (phi @ torch.stack([self.theta_, self.positive_], 1)).unbind(1)
        return fitted, positive.clamp(self.least, self.floor)

    def _log_r(self, phi: Float[Tensor, "n b"]) -> Float[Tensor, " n"]:
        alpha, cap = self._mixing()
        g = torch.maximum(*self._values(phi))
        if alpha == 0:
            return g.log() - self.log_z_
        share = (alpha * g).clamp_max(cap)
        return share.log() - torch.log1p(-share) + math.log((1 - alpha) / alpha) - self.log_z_

    def _clips(self, phi: Float[Tensor, "n b"]) -> dict[str, int]:
        """How many training rows each bound touched."""
        alpha, cap = self._mixing()
        fitted, tail = self._values(phi)
        counts = {"floor": fitted < tail, "least": (fitted < tail) & (tail <= self.least)}
        if alpha:
            counts["cap"] = alpha * fitted > cap
        return {name: int(hit.sum()) for name, hit in counts.items()}

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        blocks = [self._log_r(gaussian(self.kernels_.squared_distances(b), self.sigma_)) for b in x.split(BLOCK)]
        return torch.cat(blocks)


@dataclass(eq=False)
class ULSIF(_LeastSquares):
    """p/q by unconstrained least squares."""

    def _mixing(self) -> tuple[float, float]:
        return 0.0, 1.0


@dataclass(eq=False)
class RULSIF(_LeastSquares):
    """p/q through the relative ratio p / (alpha p + (1 - alpha) q), which is bounded even where q has no mass."""

    alpha: float = option(0.1, low=0, below=1)
    cap: float = option(0.999, above=0, below=1)

    def _mixing(self) -> tuple[float, float]:
        return self.alpha, self.cap

    def relative(self, x: ArrayLike) -> object:
        """p(x) / (alpha p(x) + (1 - alpha) q(x)), between 0 and 1/alpha, consistent with `log_ratio`."""
        x_ = checks.samples(x, "x", "RULSIF.relative", width=self.width_)
        log_r = self.log_ratio(x_)
        return Kind.of(x).give(1 / (self.alpha + (1 - self.alpha) * torch.exp(-log_r)))
