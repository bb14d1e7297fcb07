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

import dataclasses
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, Kind, learnt, option
from vestige.core.numerics import log_mean_exp, weighted_mean
from vestige.ratios.base import Sample
from vestige.ratios.kernels import KernelRatio, gaussian, gaussian_path

LAMBDAS = tuple(10.0**k for k in range(-8, 1))


def normal_equations(phi: Sample, alpha: float) -> tuple[Float[Tensor, "b b"], Float[Tensor, " b"]]:
    """H and h of the features `phi` of both sides."""
    H = (1 - alpha) * _second_moment(phi.q, phi.q_weights)
    if alpha:
        H = H + alpha * _second_moment(phi.p, phi.p_weights)
    return H, weighted_mean(phi.p, phi.p_weights)


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


def loo_scores(phi: Sample, lambdas: Float[Tensor, " l"], alpha: float = 0.0) -> Float[Tensor, " l"]:
    """The leave-one-out score of each lambda on the features `phi` of both sides; the smallest is best."""
    H, h = normal_equations(phi, alpha)
    values, basis = torch.linalg.eigh(H)
    values, target = values.clamp_min(0), basis.mT @ h
    u = phi.p.new_tensor([1 / len(phi.p)]) if phi.p_weights is None else phi.p_weights
    v = phi.q.new_tensor([1 / len(phi.q)]) if phi.q_weights is None else phi.q_weights
    g_p = held_out(phi.p @ basis, values, target, u, alpha * u, lambdas)
    g_q = held_out(phi.q @ basis, values, target, torch.zeros_like(v), (1 - alpha) * v, lambdas)
    scores = (1 - alpha) / 2 * weighted_mean(g_q.square(), phi.q_weights) - weighted_mean(g_p, phi.p_weights)
    return scores + alpha / 2 * weighted_mean(g_p.square(), phi.p_weights) if alpha else scores


@dataclass(eq=False, kw_only=True)
class ULSIF(KernelRatio):
    """p/q by unconstrained least squares."""

    alpha = 0.0  # no option here: it is 0 by definition, and alpha g has no bound
    cap = 1.0

    lambdas: tuple[float, ...] = option(LAMBDAS, above=0, least=1)
    floor: float = option(0.03, high=1)  # and no less than `least`
    least: float = option(1e-12, above=0, high=1)
    normalise: bool = option(True)

    positive_: Float[Tensor, " b"] = learnt()  # the fit under theta >= 0
    log_z_: float = learnt()

    def _check(self) -> None:
        super()._check()
        checks.number(self.floor, "floor", type(self).__name__, low=self.least)

    def _fit(self, sample: Sample, seed: int) -> None:
        lambdas = torch.tensor(sorted(self.lambdas, reverse=True), dtype=torch.float64)
        for name, weights in (("p_weights", sample.p_weights), ("q_weights", sample.q_weights)):
            if weights is not None and not bool(weights.max() < 1):
                must = "spread over at least 2 samples"
                checks.refuse(name, f"{type(self).__name__}.fit", must, "all weight on one")
        near, sigmas = self._place(sample, seed)
        paths = zip(gaussian_path(near.p, sigmas), gaussian_path(near.q, sigmas), strict=True)
        features = (dataclasses.replace(near, p=phi_p, q=phi_q) for phi_p, phi_q in paths)
        scores = torch.stack([loo_scores(phi, lambdas, self.alpha) for phi in features])
        row, column = divmod(int(scores.argmin()), len(lambdas))
        self.sigma_, ridge = sigmas[row], float(lambdas[column])
        phi = dataclasses.replace(near, p=gaussian(near.p, self.sigma_), q=gaussian(near.q, self.sigma_))
        self.theta_, positive = solve(*normal_equations(phi, self.alpha), ridge)
        self.positive_ = torch.zeros_like(self.theta_) if positive is None else positive
        if positive is None:
            self._caution("the fit under theta >= 0 did not converge, so log r is 'least' in the tails.")
        self.log_z_ = 0.0
        if self.normalise:
            self.log_z_ = float(log_mean_exp(self._log_r(phi.q), sample.q_weights))
        self.report_ |= {
            "kept_of_p": "the median distance to the centres, and coefficients fitted to the kernels' means over p",
            "converged": positive is not None,
            "sigma": self.sigma_,
            "lambda": ridge,
            "centres": len(self.theta_),
            "loo_score": float(scores[row, column]),
            "log_normaliser": self.log_z_,
            "bounds": {"floor": self.floor, "least": self.least} | ({"cap": self.cap} if self.alpha else {}),
            "clips": self._clips(torch.cat([phi.p, phi.q])),
        }

    def _values(self, phi: Float[Tensor, "n b"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """theta . phi as fitted, and what stands in for it where that is too small."""
        fitted, positive = (phi @ torch.stack([self.theta_, self.positive_], 1)).unbind(1)
        return fitted, positive.clamp(self.least, self.floor)

    def _log_r(self, phi: Float[Tensor, "n b"]) -> Float[Tensor, " n"]:
        g, alpha = torch.maximum(*self._values(phi)), self.alpha
        if alpha == 0:
            return g.log() - self.log_z_
        share = (alpha * g).clamp_max(self.cap)
        return share.log() - torch.log1p(-share) + math.log((1 - alpha) / alpha) - self.log_z_

    def _clips(self, phi: Float[Tensor, "n b"]) -> dict[str, int]:
        """How many training rows each bound touched."""
        fitted, tail = self._values(phi)
        counts = {"floor": fitted < tail, "least": (fitted < tail) & (tail <= self.least)}
        if self.alpha:
            counts["cap"] = self.alpha * fitted > self.cap
        return {name: int(hit.sum()) for name, hit in counts.items()}

    def _at_distances(self, squared: Float[Tensor, "n b"]) -> Float[Tensor, " n"]:
        return self._log_r(gaussian(squared, self.sigma_))


@dataclass(eq=False)
class RULSIF(ULSIF):
    """p/q through the relative ratio p / (alpha p + (1 - alpha) q), which is bounded even where q has no mass."""

    alpha: float = option(0.1, low=0, below=1)
    cap: float = option(0.999, above=0, below=1)

    def relative(self, x: ArrayLike) -> object:
        """p(x) / (alpha p(x) + (1 - alpha) q(x)), between 0 and 1/alpha, consistent with `log_ratio`."""
        log_r = self._log_ratio(self._rows(x, "relative"))
        return Kind.of(x).give(1 / (self.alpha + (1 - self.alpha) * torch.exp(-log_r)))
