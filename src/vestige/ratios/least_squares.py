"""ULSIF and RULSIF: kernel density ratios by least squares, tuned by exact leave-one-out.

Kanamori, Hido and Sugiyama, "A least-squares approach to direct importance estimation" (2009); Yamada et al.,
"Relative density-ratio estimation for robust distribution comparison" (2011). `kernels.py` has the features.

RULSIF fits the relative ratio g = p / (alpha p + (1 - alpha) q), which is at most 1/alpha, and reads r = (1 - alpha) g
/ (1 - alpha g) off it, with alpha g bounded by `cap`; ULSIF is alpha = 0, where r = g.

Deviations. The paper sets negative entries of theta to zero after the fit, which ruins it: the mean of r over q must
be 1, and becomes e^0.2 to e^6 on pairs of shifted and scaled Gaussians. Here theta keeps its sign. Where theta .
phi(x) is small or negative, min(theta+ . phi(x), `floor`) stands in for it if larger, theta+ being the fit under theta
>= 0: so log r exists and still falls in the tails, and never below log `least`. Then r is divided by its mean over q,
stored at fit, unless `normalise` is off. How many training rows each bound touched is in `report_["clips"]`.

The algebra of least-squares ratios: normal equations, their solution, and exact leave-one-out in closed form.

The model is theta . phi(x) for g(x) = p(x) / (alpha p(x) + (1 - alpha) q(x)); alpha = 0 is the plain ratio. theta
minimises 1/2 theta'H theta - h'theta + lambda/2 |theta|^2 (Kanamori, Hido and Sugiyama 2009; Yamada et al. 2011),
hence

    theta = (H + lambda I)^-1 h,   H = alpha E_p[phi phi'] + (1 - alpha) E_q[phi phi'],   h = E_p[phi].

Leave-one-out. Row k weighs u in the numerator E_p and w in the mixture of the denominator: u its weight in p and w =
alpha u for a row of p; u = 0 and w = (1 - alpha) v for a row of q that weighs v. Leaving it out removes both and
renormalises the rest: H_k = (H - w phi phi') / (1 - w), h_k = (h - u phi) / (1 - u). With a = phi'(H + lambda (1 - w)
I)^-1 phi and c = phi'(H + lambda (1 - w) I)^-1 h, Sherman and Morrison give the held-out value

    g_k = (1 - w) / (1 - u) * (c - u a) / (1 - w a),

and the score is sum w g_k^2 / 2 - sum u g_k over all rows of both sides. In the eigenbasis of H, a and c are two
matrix products for all lambdas together: one eigendecomposition per bandwidth, and nothing of size n x n.

Deviation: Kanamori et al. leave out the i-th rows of p and q together, for i up to the smaller size, and set negative
entries of each theta_i to zero. Here rows leave one at a time and theta keeps its sign: nothing depends on the order
of rows, every row is scored when n_p != n_q, and weights have a meaning.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, Kind, option
from vestige.core.numerics import log_mean_exp, weighted_mean
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


def normal_equations(
    phi_p: Float[Tensor, "n_p b"],
    phi_q: Float[Tensor, "n_q b"],
    p_weights: Float[Tensor, " n_p"] | None,
    q_weights: Float[Tensor, " n_q"] | None,
    alpha: float,
) -> tuple[Float[Tensor, "b b"], Float[Tensor, " b"]]:
    """H and h; weights sum to one."""
    H = (1 - alpha) * _second_moment(phi_q, q_weights)
    if alpha:
        H = H + alpha * _second_moment(phi_p, p_weights)
    return H, weighted_mean(phi_p, p_weights)


def _second_moment(phi: Float[Tensor, "n b"], weights: Float[Tensor, " n"] | None) -> Float[Tensor, "b b"]:
    return phi.mT @ phi / len(phi) if weights is None else phi.mT @ (phi * weights[:, None])


def solve(
    H: Float[Tensor, "b b"], h: Float[Tensor, " b"], ridge: float
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"] | None]:
    """The minimiser over all theta, and the minimiser over theta >= 0, or None where its active set cycles."""
    values, basis = torch.linalg.eigh(H)
    values = values.clamp_min(0) + ridge  # H is positive semi-definite but for rounding
    target = basis.mT @ h
    # Up to a constant the objective is |root theta - image|^2 / 2.
    root, image = values.sqrt()[:, None] * basis.mT, target / values.sqrt()
    try:
        positive = torch.from_numpy(nnls(root.numpy(), image.numpy(), maxiter=30 * len(h))[0])
    except RuntimeError:
        positive = None
    return basis @ (target / values), positive


def held_out(
    z: Float[Tensor, "n b"],
    values: Float[Tensor, " b"],
    target: Float[Tensor, " b"],
    u: Float[Tensor, " _"],
    w: Float[Tensor, " _"],
    lambdas: Float[Tensor, " l"],
) -> Float[Tensor, "n l"]:
    """g_k for every row and every lambda.

    `z` are features and `target` is h, both in the eigenbasis of H, whose eigenvalues are `values`; `u` and `w` are the
    weights of each row in numerator and denominator, or one number for all rows.
    """
    if len(w) == 1:  # one ridge for all rows: two products serve every lambda
        inverse = 1 / (values[:, None] + lambdas * (1 - w))
        a, c = z.square() @ inverse, z @ (inverse * target[:, None])
    else:
        a, c = z.new_empty(len(z), len(lambdas)), z.new_empty(len(z), len(lambdas))
        for i, ridge in enumerate(lambdas):
            scaled = z / (values + ridge * (1 - w)[:, None])
            a[:, i], c[:, i] = (scaled * z).sum(1), scaled @ target
    u, w = u[:, None], w[:, None]
    return (1 - w) / (1 - u) * (c - u * a) / (1 - w * a)


def loo_scores(
    phi_p: Float[Tensor, "n_p b"],
    phi_q: Float[Tensor, "n_q b"],
    p_weights: Float[Tensor, " n_p"] | None,
    q_weights: Float[Tensor, " n_q"] | None,
    lambdas: Float[Tensor, " l"],
    alpha: float = 0.0,
) -> Float[Tensor, " l"]:
    """The leave-one-out score of each lambda; the smallest is best."""
    H, h = normal_equations(phi_p, phi_q, p_weights, q_weights, alpha)
    values, basis = torch.linalg.eigh(H)
    values, target = values.clamp_min(0), basis.mT @ h
    u = phi_p.new_tensor([1 / len(phi_p)]) if p_weights is None else p_weights
    v = phi_q.new_tensor([1 / len(phi_q)]) if q_weights is None else q_weights
    g_p = held_out(phi_p @ basis, values, target, u, alpha * u, lambdas)
    g_q = held_out(phi_q @ basis, values, target, torch.zeros_like(v), (1 - alpha) * v, lambdas)
    scores = (1 - alpha) / 2 * weighted_mean(g_q.square(), q_weights) - weighted_mean(g_p, p_weights)
    return scores + alpha / 2 * weighted_mean(g_p.square(), p_weights) if alpha else scores


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
