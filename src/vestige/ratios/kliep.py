"""KLIEP: the ratio r = p/q under which samples of p are likeliest.

It maximises E_p[log r] subject to E_q[r] = 1 (CDRE Eq. 2).

kind="kernel": a mixture of kernels on q, to the certified optimum, with likelihood cross-validation of the bandwidth;
see below. kind="net": the log-linear model of CDRE Eq. 3 with a network for psi; see `nets.KLIEPNet`,
whose settings go into `network`. Kernels are the better choice in a few dimensions where q covers p; as the mixture
has no negative parts, it cannot rise beyond the outermost samples of q.

Kernel KLIEP: the mixture of kernels on q under which p is likeliest, its bandwidth by likelihood cross-validation.

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
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import option
from vestige.core.numerics import weighted_mean
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
from vestige.ratios.nets import KLIEPNet

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


KINDS = ("kernel", "net")


@dataclass(eq=False)
class KLIEP(Ratio):
    """p/q by maximum likelihood. `network` concerns kind "net" alone, the other settings kind "kernel"."""

    kind: str = option("kernel", among=KINDS)
    _: KW_ONLY
    max_centres: int = option(100, low=1)
    bandwidths: tuple[float, ...] = option(BANDWIDTHS, above=0, least=1)  # multiples of the median distance to centres
    folds: int = option(5, low=2)
    tolerance: float = option(1e-6, above=0)  # converged: no mixture has a mean log-likelihood higher by more
    max_rounds: int = option(200, low=1)
    network: KLIEPNet | None = None

    mixture_: KernelMixture | None = field(init=False, repr=False, default=None)
    network_: KLIEPNet | None = field(init=False, repr=False, default=None)

    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        owner = "KLIEP.fit"
        self.mixture_ = self.network_ = None
        if self.kind == "net":
            # A copy: what the caller handed over stays unfitted.
            self.network_ = dataclasses.replace(self.network) if self.network is not None else KLIEPNet()
            self.network_._fit(p, q, p_weights, q_weights, seed)
            self.report_ |= self.network_.report_ | {"kind": "net"}
            return
        supported = len(p) if p_weights is None else int((p_weights > 0).sum())
        if len(self.bandwidths) > 1 and supported < self.folds:
            checks.refuse("p", owner, f"at least as many weighted samples as folds ({self.folds})", supported)
        caution_if_wide(self.report_)
        self.mixture_, found = fit_kernel_mixture(
            p,
            q,
            p_weights,
            q_weights,
            max_centres=self.max_centres,
            multiples=sorted(self.bandwidths, reverse=True),
            folds=self.folds,
            tolerance=self.tolerance,
            max_rounds=self.max_rounds,
            seed=seed,
        )
        kept = "the median distance to the centres, and the proportions of the kernels, fitted to p"
        self.report_ |= found | {"kind": "kernel", "kept_of_p": kept}
        if not found["converged"]:
            caution(
                self.report_,
                f"not at the optimum: after {found['rounds']} rounds the gap is {found['gap']:.3g} and should be at "
                f"most {self.tolerance:g}. Raise 'max_rounds'.",
            )

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        if self.network_ is not None:
            return self.network_._log_ratio(x)
        assert self.mixture_ is not None
        return self.mixture_.log_ratio(x)
