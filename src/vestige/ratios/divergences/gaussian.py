"""Gaussians and the exact divergences between two of them, in any dimension: the oracle of the tests.

All rest on one integral, A(s) = log of the integral of p^s q^(1-s) = log E_q[r^s], a sum over the axes that make both
covariances diagonal (q white, p with variances v_i and mean m_i). It is infinite where s + (1-s) v_i <= 0.
Closed forms: alpha(a), pearson_chi2 (s = 2), neyman_chi2 (s = -1), hellinger2 (s = 1/2), kl and reverse_kl (the slopes
at s = 1 and 0), jeffreys (their sum).

js and total_variation are one-dimensional integrals, good to about 1e-8 in every dimension: by Parseval on
the line s = 1/2 + it,
    1 - TV     = integral of min(p, q) = 1/(2 pi) * integral over t of exp A(s) / (s (1 - s)),
    log 2 - JS                         = 1/4      * integral over t of exp A(s) / (s (1 - s) cosh(pi t)).
The first oscillates along the line, so it is taken along a ray from s = 1/2 that leans to the side where it decays;
all singular points lie on the real axis, so nothing is crossed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.integrate import quad
from torch import Tensor

from vestige.core import NotEstimable, checks
from vestige.ratios.divergences import family

# Absolute error asked of the one-dimensional integrals behind js and total_variation.
QUADRATURE_ERROR = 1e-9


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, cov) in float64; `factor` is the lower L with L L' = cov."""

    mean: Float[Tensor, " d"]
    cov: Float[Tensor, "d d"]
    factor: Float[Tensor, "d d"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        mean = checks.vector(self.mean, "mean", "Gaussian")
        cov = checks.samples(self.cov, "cov", "Gaussian", width=len(mean))
        if len(cov) != len(mean) or not torch.allclose(cov, cov.mT):
            checks.refuse("cov", "Gaussian", f"symmetric, {len(mean)} x {len(mean)}", f"shape {tuple(cov.shape)}")
        factor, info = torch.linalg.cholesky_ex(cov)
        if int(info):
            checks.refuse("cov", "Gaussian", "positive definite", "a matrix that is not")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "cov", cov)
        object.__setattr__(self, "factor", factor)

    @classmethod
    def isotropic(cls, mean: float, std: float, d: int) -> Self:
        """Every coordinate independent N(mean, std^2)."""
        std = checks.number(std, "std", "Gaussian.isotropic", low=0, open_low=True)
        d = checks.whole(d, "d", "Gaussian.isotropic", low=1)
        eye = torch.eye(d, dtype=torch.float64)
        return cls(torch.full((d,), float(mean), dtype=torch.float64), eye * std**2)

    def sample(self, n: int, *, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """`n` independent draws."""
        noise = torch.randn(n, len(self.mean), dtype=torch.float64, generator=generator)
        return self.mean + noise @ self.factor.mT

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log density of each row."""
        z = torch.linalg.solve_triangular(self.factor, (x.to(torch.float64) - self.mean).mT, upper=False)
        log_det = self.factor.diagonal().log().sum()
        return -z.square().sum(0) / 2 - log_det - len(self.mean) * math.log(2 * math.pi) / 2


def _axes(p: Gaussian, q: Gaussian) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of p along the axes in which q is white and p is diagonal."""
    if len(p.mean) != len(q.mean):
        checks.refuse("q", "gaussian_divergence", f"as wide as 'p' ({len(p.mean)} features)", f"{len(q.mean)}")
    half = torch.linalg.solve_triangular(q.factor, p.factor, upper=False)
    basis, scale, _ = torch.linalg.svd(half)
    mean = torch.linalg.solve_triangular(q.factor, (p.mean - q.mean)[:, None], upper=False)[:, 0]
    return (basis.mT @ mean).numpy(), scale.square().numpy()


def _log_power(s: complex, mean: NDArray[np.float64], var: NDArray[np.float64]) -> complex:
    """A(s) = log E_q[r^s]; infinite where it diverges."""
    mixed = s + (1 - s) * var
    if np.isreal(s) and np.any(mixed.real <= 0):
        return complex(math.inf)
    terms = (1 - s) * np.log(var) - np.log(mixed) - s * (1 - s) * mean**2 / mixed
    return complex(terms.sum() / 2)


def _integral(lean: float, damped: bool, scale: float, mean: NDArray[np.float64], var: NDArray[np.float64]) -> float:
    """Integral of exp A(s) / (s (1 - s)) over all t, from s = 1/2 along i + `lean`; `damped` by 1 / cosh(pi t).

    `scale` is where exp A begins to fall: between near laws that is far out, and the quadrature must be told.
    """
    ray = 1j + lean

    def integrand(u: float) -> float:
        x = math.tan(u) / 2  # the half line onto a finite interval
        s = 0.5 + ray * x
        density = np.exp(_log_power(s, mean, var)) / (s * (1 - s))
        damping = 1 / math.cosh(math.pi * x) if damped else 1.0
        # 2 for both halves, dx = (1 + 4 x^2) / 2 du
        return float((density * ray / 1j).real * damping * (1 + 4 * x * x))

    # beyond x = 200 the damping is below e^-600
    top = math.atan(2 * 200.0) if damped else math.pi / 2
    points = [u for u in (math.atan(2 * scale * c) for c in (0.1, 1.0, 10.0)) if u < top]
    value, error, *_ = quad(
        integrand, 0.0, top, limit=1000, epsabs=QUADRATURE_ERROR, epsrel=0.0, points=points or None, full_output=1
    )
    if error > 100 * QUADRATURE_ERROR:
        raise NotEstimable(f"The integral did not settle: its error is {error:.1e}, not {QUADRATURE_ERROR:.0e}.")
    return float(value)


def _lean(mean: NDArray[np.float64], var: NDArray[np.float64]) -> float:
    """The side to which exp A decays: A(s) is about -rate s far out."""
    other = var != 1
    rate = (np.log(var[other]) - mean[other] ** 2 / (1 - var[other])).sum() / 2
    return 0.5 if rate >= 0 else -0.5


def gaussian_divergence(name: str, p: Gaussian, q: Gaussian) -> float:
    """The divergence `name` of `p` from `q` (D(p || q), conventions of `family`); inf where it diverges."""
    name = family.get(name).name
    mean, var = _axes(p, q)
    kl = float((var - 1 - np.log(var) + mean**2).sum()) / 2
    reverse_kl = float((1 / var - 1 + np.log(var) + mean**2 / var).sum()) / 2
    if name in ("kl", "reverse_kl", "jeffreys"):
        return {"kl": kl, "reverse_kl": reverse_kl, "jeffreys": kl + reverse_kl}[name]
    if name in ("js", "total_variation"):
        if kl + reverse_kl <= 0:  # the same law, up to rounding
            return 0.0
        scale = 1 / math.sqrt(kl + reverse_kl)  # about one over the spread of log r
        if name == "js":
            return math.log(2) - _integral(0.0, True, scale, mean, var) / 4
        return 1 - _integral(_lean(mean, var), False, scale, mean, var) / (2 * math.pi)
    order = family.alpha_order(name)
    assert order is not None
    exponent = _log_power(order, mean, var).real
    power = math.expm1(exponent) if exponent < 709 else math.inf
    if name == "hellinger2":
        return -power
    return power if name.endswith("chi2") else power / (order * (order - 1))
