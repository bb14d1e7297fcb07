"""Squared maximum mean discrepancy (Gretton et al. 2012) with an RBF or a polynomial kernel, weighted, with its error.

The function is the whole weighted U-statistic, block by block (`kernels.py`). The bandwidth of the RBF kernel is the
median distance between pooled rows (of a subsample) unless it is given.

The accumulator cannot hold an RBF kernel exactly in finite space. It keeps random Fourier features (Rahimi and Recht
2007): an unbiased kernel whose error falls as 1/sqrt(frequencies) and is the same for both sets, so equal sets still
give zero. Bandwidth, number of frequencies and seed must agree between sets. The cubic kernel streams exactly: `KID`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.core.checks import ArrayLike, option
from vestige.metrics.base import measured, sizes, two_sets
from vestige.metrics.kernels import RBF, Embedding, Kernel, Polynomial, mmd_squared, uniform

# Pooled rows from which the median distance is taken.
MEDIAN_ROWS = 1000


def median_distance(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> float:
    """The median distance between distinct rows of both sets, on every k-th row of each."""
    rows = torch.cat([side[:: -(-2 * len(side) // MEDIAN_ROWS)] for side in (x, y)])
    return float(torch.pdist(rows).median())


def mmd(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    kernel: str = "rbf",
    bandwidth: float | None = None,
    degree: int = 3,
    gamma: float | None = None,
    offset: float = 1.0,
) -> Estimate:
    """MMD^2 between real features `p` and the model's `q`; unbiased, so it may be negative.

    `bandwidth` belongs to "rbf" (None: the median distance), `degree`, `gamma` (None: 1/d) and `offset` to
    "polynomial", (gamma x.y + offset)^degree.
    """
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "mmd")
    details: dict[str, Any] = {**sizes(x, y, x_w, y_w), "kernel": checks.one_of(kernel, KERNELS, "kernel", "mmd")}
    k: Kernel
    if kernel == "rbf":
        centre = (x.mean(0) + y.mean(0)) / 2  # distances know no origin, but their rounding does
        x, y = x - centre, y - centre
        details["bandwidth"] = _bandwidth(bandwidth, x, y)
        k = RBF(details["bandwidth"])
    else:
        gamma = 1 / x.shape[1] if gamma is None else checks.number(gamma, "gamma", "mmd", low=0, open_low=True)
        offset = checks.number(offset, "offset", "mmd", low=0)  # below zero it is no kernel
        k = Polynomial(checks.whole(degree, "degree", "mmd", low=1), gamma, offset)
        details |= {"degree": degree, "gamma": gamma, "offset": offset}
    value, error = mmd_squared(x, y, uniform(len(x), x_w, x), uniform(len(y), y_w, y), k)
    return measured("mmd", value, error, details)


KERNELS = ("rbf", "polynomial")


def _bandwidth(bandwidth: float | None, x: Tensor, y: Tensor) -> float:
    if bandwidth is not None:
        return checks.number(bandwidth, "bandwidth", "mmd", low=0, open_low=True)
    median = median_distance(x, y)
    if not median > 0:
        raise NotEstimable(
            "More than half of the rows of mmd are equal, so the median distance is 0: give 'bandwidth'."
        )
    return median


@dataclass(eq=False, kw_only=True)
class MMD(Embedding):
    """Random Fourier features of one set, for the RBF kernel; `real.compute(fake)`.

    The bandwidth must be given, since it has to be the same for every chunk of both sets.
    """

    bandwidth: float = option(above=0)
    frequencies: int = option(2048, low=1)
    seed: int = option(0)
    groups: int = option(20, low=1)

    @functools.cached_property
    def _directions(self) -> Float[Tensor, "d f"]:
        """The frequencies, drawn once the width is known."""
        generator = rng.fork(self.seed, "fourier")
        normal = torch.randn(self.width_ or 0, self.frequencies, generator=generator, dtype=torch.float64)
        return normal / self.bandwidth

    def _phi_sum(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
        angles = x @ self._directions
        return torch.cat([weights @ angles.cos(), weights @ angles.sin()]) / self.frequencies**0.5

    def _diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return x.new_ones(len(x))  # cos^2 + sin^2
