"""Kernel KLIEP: the mixture of kernels on q under which p is likeliest, its bandwidth by likelihood cross-validation.

Sugiyama et al., "Direct importance estimation for covariate shift adaptation" (2008). r(x) = sum_j theta_j phi_j(x)
with theta >= 0 and E_q[r] = 1 maximises E_p[log r]. With m_j = E_q[phi_j] and b_j = theta_j m_j the constraint is that
b lies on the simplex, so r = sum_j b_j phi_j / m_j is a mixture and `simplex.py` finds the maximum with a certificate.

Every sum of kernels is taken relative to the nearest centre, exp(-(d_j^2 - min d^2) / (2 sigma^2)), and the rest added
to the logarithm: log r is finite for any x, without a floor. The paper's gradient steps need a step size and have no
certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.numerics import weighted_mean
from vestige.core.rng import fork
from vestige.ratios.kernels import BLOCK, Kernels, gaussian, gaussian_path, median_distance
from vestige.ratios.simplex import BestMixture, best_mixture


@dataclass(frozen=True)
class KernelMixture:
    """log r(x) = log sum_j theta_j exp(-|z(x) - c_j|^2 / (2 sigma^2)), over the centres with theta_j > 0."""

    kernels: Kernels
    theta: Float[Tensor, " b"]
    sigma: float

    def log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """log p(x)/q(x)."""
        values = []
        for block in x.split(BLOCK):
            near, nearest = relative(self.kernels.squared_distances(block))
            values.append((gaussian(near, self.sigma) @ self.theta).log() - nearest / (2 * self.sigma**2))
        return torch.cat(values)


def relative(squared: Float[Tensor, "n b"]) -> tuple[Float[Tensor, "n b"], Float[Tensor, " n"]]:
    """Squared distances above the smallest of each row, and that smallest."""
    nearest = squared.amin(1)
    return squared - nearest[:, None], nearest


def held_out_likelihood(
    columns: Float[Tensor, "b n"],
    weights: Float[Tensor, " n"],
    whole: BestMixture,
    folds: int,
    tolerance: float,
    rounds: int,
) -> float:
    """Mean of log (A b) over rows that their own b never saw; folds are blocks of rows, which come in random order."""
    total = 0.0
    edges = [len(weights) * k // folds for k in range(folds + 1)]
    for low, high in pairwise(edges):
        seen = torch.cat([columns[:, :low], columns[:, high:]], 1)
        of_seen = torch.cat([weights[:low], weights[high:]])
        start = whole.proportions  # of all rows: a few Newton steps from there suffice
        fit = best_mixture(
            seen, of_seen / of_seen.sum(), start=start, tolerance=tolerance, max_rounds=rounds, em_rounds=0
        )
        total += float(weights[low:high] @ (fit.proportions @ columns[:, low:high]).log())
    return total


def fit_kernel_mixture(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    p_weights: Float[Tensor, " n_p"] | None,
    q_weights: Float[Tensor, " n_q"] | None,
    *,
    max_centres: int,
    multiples: Sequence[float],
    folds: int,
    tolerance: float,
    max_rounds: int,
    seed: int,
) -> tuple[KernelMixture, dict[str, Any]]:
    """The fitted mixture and what to report of it. `multiples` of the median distance fall from wide to narrow."""
    order = torch.randperm(len(p), generator=fork(seed, "folds"))
    weights = torch.full((len(p),), 1 / len(p), dtype=torch.float64) if p_weights is None else p_weights[order]
    order, weights = order[weights > 0], weights[weights > 0]
    kernels = Kernels.of(q, q_weights, max_centres, fork(seed, "centres"))
    near_p, near_q = kernels.squared_distances(p[order]), kernels.squared_distances(q)
    median = median_distance(near_p, near_q, None if p_weights is None else weights, q_weights)
    near_p, nearest = relative(near_p)
    sigmas = [m * median for m in multiples]

    best, best_score, fits = 0, -torch.inf, []
    paths = zip(gaussian_path(near_p, sigmas), gaussian_path(near_q, sigmas), strict=True)
    for i, (phi_p, phi_q) in enumerate(paths):
        mean_q = weighted_mean(phi_q, q_weights)  # positive: each centre is itself a row of q
        columns = (phi_p / mean_q).mT.contiguous()
        fit = best_mixture(columns, weights, tolerance=tolerance, max_rounds=max_rounds)
        fits.append((fit, mean_q))
        if len(sigmas) == 1:
            break
        score = held_out_likelihood(columns, weights, fit, folds, tolerance, max_rounds)
        score -= float(weights @ nearest) / (2 * sigmas[i] ** 2)
        if score > best_score:
            best, best_score = i, score
    fit, mean_q = fits[best]
    used = fit.proportions > 0
    theta = (fit.proportions / mean_q)[used]
    report = {
        "sigma": sigmas[best],
        "median_distance": median,
        "centres": int(used.sum()),
        "converged": fit.gap <= tolerance,
        "gap": fit.gap,
        "tolerance": tolerance,
        "rounds": fit.rounds,
        "objective": fit.objective - float(weights @ nearest) / (2 * sigmas[best] ** 2),
        "held_out_objective": best_score if len(sigmas) > 1 else None,
    }
    return KernelMixture(Kernels(kernels.standardise, kernels.centres[used]), theta, sigmas[best]), report
