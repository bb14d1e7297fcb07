"""Gaussian kernels centred on samples of q: the features of ULSIF, RULSIF and kernel KLIEP.

phi_j(x) = exp(-|z(x) - c_j|^2 / (2 sigma^2)), where z standardises x by the mean and deviation of q and the centres
c_j are rows of q. So neither the centres nor the standardisation holds anything of p. (Statistics of the pooled
samples gave nearly the same error of log r on five pairs of Gaussians, and would keep more.)

Squared distances are computed once per fit; a bandwidth only rescales them. Candidate bandwidths are multiples of the
median distance between samples of either side and the centres: the one number of p that is read here.

Deviation from Kanamori et al. (2009) and Sugiyama et al. (2008), who centre on samples of p: a stored estimator would
then hold real data.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core.checks import learnt, option
from vestige.core.rng import fork
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.standardise import Standardiser

# Multiples of the median distance: a factor of sqrt(2) between neighbours, from 1/8 to 2.
BANDWIDTHS = tuple(2 ** (k / 2) for k in range(-6, 3))
# Measured: from about this dimension no number of samples makes kernels work.
WIDE = 10
# Rows of each side that the median distance is taken over.
MEDIAN_ROWS = 500
# Rows of x per block when a ratio is evaluated, so that memory stays bounded for any number of rows.
BLOCK = 65536


@dataclass(frozen=True)
class Kernels:
    """Where the kernels stand: a standardisation and centres in standardised units."""

    standardise: Standardiser
    centres: Float[Tensor, "b d"]

    @classmethod
    def of(
        cls, q: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None, max_centres: int, generator: torch.Generator
    ) -> Kernels:
        """At most `max_centres` distinct rows of `q`, drawn without replacement in proportion to their weights."""
        standardise = Standardiser.of(q, weights)
        # Gumbel's trick: the largest of log w + noise are a weighted draw without replacement, for any number of rows.
        noise = -torch.empty(len(q), dtype=torch.float64).exponential_(generator=generator).log()
        keys = noise if weights is None else noise + weights.log()
        positive = len(q) if weights is None else int((weights > 0).sum())
        chosen = keys.topk(min(max_centres, positive)).indices
        return cls(standardise, torch.unique(standardise(q[chosen]), dim=0))

    def squared_distances(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n b"]:
        """|z(x) - c|^2 for each row of x and each centre."""
        z, c = self.standardise(x), self.centres
        squares = z.square().sum(1, keepdim=True) + c.square().sum(1)
        return squares.addmm_(z, c.mT, alpha=-2).clamp_min_(0)  # rounding may leave -1e-16


def median_distance(near: Sample) -> float:
    """Median of `near`, squared distances to the centres, over rows evenly spaced in weight; 1 if it is zero."""
    thinned = []
    at = (torch.arange(MEDIAN_ROWS, dtype=torch.float64) + 0.5) / MEDIAN_ROWS
    for squared, weights in ((near.p, near.w_p), (near.q, near.w_q)):
        index = torch.searchsorted(weights.cumsum(0), at).clamp_max(len(squared) - 1)
        thinned.append(squared[index].reshape(-1))
    return float(torch.cat(thinned).median().sqrt()) or 1.0


def gaussian(squared: Float[Tensor, "n b"], sigma: float) -> Float[Tensor, "n b"]:
    """exp(-squared / (2 sigma^2))."""
    return (squared * (-0.5 / sigma**2)).exp_()


def gaussian_path(squared: Float[Tensor, "n b"], sigmas: Sequence[float]) -> Iterator[Float[Tensor, "n b"]]:
    """`gaussian` for each of `sigmas` in turn; the tensor of one turn is overwritten in the next.

    Where sigma^2 halves the kernel is squared in place, which costs a sixth of an exponential: eight halvings leave a
    relative error of 2^8 roundings.
    """
    phi, before = squared, math.nan
    for sigma in sigmas:
        halved = math.isclose(before**2, 2 * sigma**2, rel_tol=1e-14)
        phi = phi.square_() if halved else gaussian(squared, sigma)
        before = sigma
        yield phi


@dataclass(eq=False, kw_only=True)
class KernelRatio(Ratio):
    """What the estimators on kernels share; their centres are rows of q."""

    max_centres: int = option(100, low=1)
    bandwidths: tuple[float, ...] = option(BANDWIDTHS, above=0, least=1)  # multiples of the median distance to centres

    kernels_: Kernels = learnt()
    sigma_: float = learnt()
    theta_: Float[Tensor, " b"] = learnt()

    def _place(self, sample: Sample, seed: int) -> tuple[Sample, list[float]]:
        """Place the kernels; returns squared distances to them, and the bandwidths from wide to narrow."""
        self.report_["warnings"] = []
        if (d := sample.p.shape[1]) >= WIDE:
            self._caution(
                f"kernel estimators fail in {d} dimensions at any number of samples (in 10 they find a KL of 0.8 "
                "where 1.12 is true). Use Logistic(kind='quadratic') or Stack."
            )
        self.kernels_ = Kernels.of(sample.q, sample.q_weights, self.max_centres, fork(seed, "centres"))
        distances = self.kernels_.squared_distances
        near = dataclasses.replace(sample, p=distances(sample.p), q=distances(sample.q))
        median = self.report_["median_distance"] = median_distance(near)
        return near, [multiple * median for multiple in sorted(self.bandwidths, reverse=True)]

    @abstractmethod
    def _at_distances(self, squared: Float[Tensor, "n b"]) -> Float[Tensor, " n"]:
        """log r of rows at these squared distances from the centres."""

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return torch.cat([self._at_distances(self.kernels_.squared_distances(block)) for block in x.split(BLOCK)])
