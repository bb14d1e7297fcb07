"""KLIEP: the ratio r = p/q under which samples of p are likeliest.

It maximises E_p[log r] subject to E_q[r] = 1 (CDRE Eq. 2).

Here r is a mixture of kernels on q, fitted to the certified optimum, with likelihood cross-validation of the
bandwidth; `nets.KLIEPNet` is the log-linear model of CDRE Eq. 3 with a network. Kernels are the better choice in a few
dimensions where q covers p; as the mixture has no negative parts, it cannot rise beyond the outermost samples of q.

Sugiyama et al., "Direct importance estimation for covariate shift adaptation" (2008). r(x) = sum_j theta_j phi_j(x)
with theta >= 0 and E_q[r] = 1 maximises E_p[log r]. With m_j = E_q[phi_j] and b_j = theta_j m_j the constraint is that
b lies on the simplex, so r = sum_j b_j phi_j / m_j is a mixture; `best_mixture` finds the maximum with a certificate.

Every sum of kernels is taken relative to the nearest centre, exp(-(d_j^2 - min d^2) / (2 sigma^2)), and the rest added
to the logarithm: log r is finite for any x, without a floor. The paper's gradient steps need a step size and have no
certificate.

The best mixture: maximise sum_i w_i log (A b)_i over the simplex, certified, monotone, without a step size.

At b the gradient is g_j = sum_i w_i A_ij / (A b)_i, and sum_j b_j g_j = 1. The objective is concave, so no point of
the simplex lies higher than the present one by more than max_j g_j - 1: this gap is the certificate.

EM is the update b <- b g: it never lowers the objective and needs no step size, but its last digits are slow (300
rounds leave a gap of 1e-3). So after `em_rounds` of it each round first tries a Newton step on the columns that can
matter (b_j > 0 or g_j > 1). The multiplier of sum b = 1 is one at the optimum, which leaves only b >= 0: a small
non-negative least-squares problem, whose exact zeros shrink the next round. A step that does not raise the objective
as its slope promises is halved; after `HALVINGS` the round makes the EM update instead. The objective rises in every
round, and four or five Newton steps bring the gap under 1e-6. (Kim, Carbonetto, Stephens and Anitescu 2020 solve the
same problem by sequential quadratic programming.)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import option
from vestige.core.numerics import weighted_mean
from vestige.core.rng import fork
from vestige.ratios.base import Sample
from vestige.ratios.kernels import KernelRatio, gaussian, gaussian_path

HALVINGS = 20
ARMIJO = 1e-4  # a step must gain this share of what its slope promises


@dataclass(frozen=True)
class BestMixture:
    """Proportions, the objective they reach, and how far below the maximum it can be."""

    proportions: Float[Tensor, " b"]
    objective: float
    gap: float
    rounds: int


def best_mixture(
    columns: Float[Tensor, "b n"],
    weights: Float[Tensor, " n"],
    *,
    start: Float[Tensor, " b"] | None = None,
    tolerance: float = 1e-6,
    max_rounds: int = 200,
    em_rounds: int = 10,
) -> BestMixture:
    """Proportions within `tolerance` of the maximum, or where `max_rounds` ended.

    `columns` is A transposed, with A b > 0 at the start; `weights` are positive and sum to one. Scaling a row of A
    adds a constant to the objective and changes nothing else. A good start needs no `em_rounds`; with as many as
    `max_rounds` it is EM alone.
    """
    b = columns.new_full((len(columns),), 1 / len(columns)) if start is None else start
    mixed = b @ columns
    for rounds in range(max_rounds + 1):
        slopes = weights / mixed
        g = columns @ slopes
        gap = float(g.max()) - 1
        if gap <= tolerance or rounds == max_rounds:
            break
        moved = _newton_step(columns, weights, b, mixed, g) if rounds >= em_rounds else None
        b, mixed = moved or (b * g, (b * g) @ columns)
    return BestMixture(b, float(weights @ mixed.log()), gap, rounds)


def _newton_step(
    columns: Float[Tensor, "b n"],
    weights: Float[Tensor, " n"],
    b: Float[Tensor, " b"],
    mixed: Float[Tensor, " n"],
    g: Float[Tensor, " b"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, " n"]] | None:
    """b and A b after a Newton step of sum w log(A b) - sum b under b >= 0, scaled to sum one; None without a gain."""
    active = ((b > 0) | (g > 1)).nonzero()[:, 0]
    rows = columns[active]
    scaled = rows * (weights.sqrt() / mixed)
    values, basis = torch.linalg.eigh(scaled @ scaled.mT)
    values = values.clamp_min(float(values[-1]) * len(values) * torch.finfo(values.dtype).eps)
    # With H the negative Hessian, H b = g; so the model x'Hx/2 - (2g - 1)'x is |root x - image|^2 / 2 + constant.
    root, image = values.sqrt()[:, None] * basis.mT, (basis.mT @ (2 * g[active] - 1)) / values.sqrt()
    try:
        move = torch.from_numpy(nnls(root.numpy(), image.numpy())[0]) - b[active]
    except RuntimeError:  # its active set cycled; EM makes this round
        return None
    gain, slope = move @ rows, float((g[active] - 1) @ move)
    before = float(weights @ mixed.log())
    for t in (0.5**k for k in range(HALVINGS)):
        trial, next_b = mixed + t * gain, b.index_add(0, active, t * move)
        total = float(next_b.sum())
        if bool(trial.min() > 0) and float(weights @ trial.log()) - math.log(total) > before + ARMIJO * t * slope:
            return next_b / total, trial / total
    return None


def relative(squared: Float[Tensor, "n b"]) -> tuple[Float[Tensor, "n b"], Float[Tensor, " n"]]:
    """Squared distances above the smallest of each row, and that smallest."""
    nearest = squared.amin(1)
    return squared - nearest[:, None], nearest


@dataclass(eq=False, kw_only=True)
class KLIEP(KernelRatio):
    """p/q by maximum likelihood: log r(x) = log sum_j theta_j exp(-|z(x) - c_j|^2 / (2 sigma^2))."""

    folds: int = option(5, low=2)
    tolerance: float = option(1e-6, above=0)  # converged: no mixture has a mean log-likelihood higher by more
    max_rounds: int = option(200, low=1)

    def _fit(self, sample: Sample, seed: int) -> None:
        order = torch.randperm(len(sample.p), generator=fork(seed, "folds"))
        order = order[sample.w_p[order] > 0]
        weights = sample.w_p[order]
        if len(self.bandwidths) > 1 and len(order) < self.folds:
            checks.refuse("p", "KLIEP.fit", f"at least as many weighted samples as folds ({self.folds})", len(order))
        near, sigmas = self._place(dataclasses.replace(sample, p=sample.p[order], p_weights=weights), seed)
        near_p, nearest = relative(near.p)

        best, best_score, fits = 0, -torch.inf, []
        paths = zip(gaussian_path(near_p, sigmas), gaussian_path(near.q, sigmas), strict=True)
        for i, (phi_p, phi_q) in enumerate(paths):
            mean_q = weighted_mean(phi_q, sample.q_weights)  # positive: each centre is itself a row of q
            columns = (phi_p / mean_q).mT.contiguous()
            fit = best_mixture(columns, weights, tolerance=self.tolerance, max_rounds=self.max_rounds)
            fits.append((fit, mean_q))
            if len(sigmas) == 1:
                break
            score = self._held_out(columns, weights, fit)
            score -= float(weights @ nearest) / (2 * sigmas[i] ** 2)
            if score > best_score:
                best, best_score = i, score
        (fit, mean_q), self.sigma_ = fits[best], sigmas[best]
        used = fit.proportions > 0
        self.theta_ = (fit.proportions / mean_q)[used]
        self.kernels_ = dataclasses.replace(self.kernels_, centres=self.kernels_.centres[used])
        self.report_ |= {
            "sigma": self.sigma_,
            "centres": int(used.sum()),
            "converged": fit.gap <= self.tolerance,
            "gap": fit.gap,
            "tolerance": self.tolerance,
            "rounds": fit.rounds,
            "objective": fit.objective - float(weights @ nearest) / (2 * self.sigma_**2),
            "held_out_objective": best_score if len(sigmas) > 1 else None,
            "kept_of_p": "the median distance to the centres, and the proportions of the kernels, fitted to p",
        }
        if fit.gap > self.tolerance:
            self._caution(
                f"not at the optimum: after {fit.rounds} rounds the gap is {fit.gap:.3g} and should be at "
                f"most {self.tolerance:g}. Raise 'max_rounds'."
            )

    def _held_out(self, columns: Float[Tensor, "b n"], weights: Float[Tensor, " n"], whole: BestMixture) -> float:
        """Mean of log (A b) over rows that their own b never saw; folds are blocks of rows, which come in random order.

        From the proportions of all rows, `whole`, a few Newton steps suffice.
        """
        solve = partial(best_mixture, tolerance=self.tolerance, max_rounds=self.max_rounds, em_rounds=0)
        total = 0.0
        edges = [len(weights) * k // self.folds for k in range(self.folds + 1)]
        for low, high in pairwise(edges):
            seen = torch.cat([columns[:, :low], columns[:, high:]], 1)
            of_seen = torch.cat([weights[:low], weights[high:]])
            fit = solve(seen, of_seen / of_seen.sum(), start=whole.proportions)
            total += float(weights[low:high] @ (fit.proportions @ columns[:, low:high]).log())
        return total

    def _at_distances(self, squared: Float[Tensor, "n b"]) -> Float[Tensor, " n"]:
        near, nearest = relative(squared)
        return (gaussian(near, self.sigma_) @ self.theta_).log() - nearest / (2 * self.sigma_**2)
