"""Drifting distributions beyond the paper's Gaussians, whose divergences are known: what chains are measured on.

    melting   2-d, two modes that move together until they are one: no quadratic is its log-ratio
    skewed    5-d, rotated sinh-arcsinh: skewed and heavy-tailed data, a model that shifts, narrows and loses the skew
    mixture   64-d, eight modes that each move their own way and narrow, in 30 or more small steps
    still     2-d, p = q_t throughout: whatever is found is false
    poor      2-d, a first generator so far off that few of its samples look like data, and then a slow drift
Truths are closed forms between Gaussians and a two-dimensional integral for `melting`. For `skewed` and `mixture` they
are averages of exact log-ratios over TRUTH_ROWS fixed draws of each side; `true_error` says how far off those may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains import Distribution, Drift
from vestige.core import Estimate, rng
from vestige.core.checks import number, refuse, whole
from vestige.ratios import divergences
from vestige.ratios.divergences import Gaussian

# Fixed draws of each distribution behind a truth that has no closed form, and how many at a time.
TRUTH_ROWS, TRUTH_CHUNK = 2**18, 2**14
# Half the side of the square over which two-dimensional truths are integrated; densities vanish far inside.
BOX = 12.0
LogDensity = Callable[[Float[Tensor, "n d"]], Float[Tensor, " n"]]


def integrated_divergence(
    name: str, log_p: LogDensity, log_q: LogDensity, low: list[float], high: list[float], *, points: int = 2001
) -> float:
    """D(p || q) of two log densities over the box from `low` to `high`, `points` along each axis, by trapezoids.

    Exact to rounding for smooth densities that vanish at the edge of the box; the kink of total_variation leaves an
    error of the order of the squared step.
    """
    owner = "integrated_divergence"
    div = divergences.get(name)
    points = whole(points, "points", owner, low=2)
    if len(low) not in (1, 2) or len(high) != len(low):
        must = "the corner of a box in one or two dimensions"
        refuse("low", owner, must, f"{len(low)} and {len(high)} numbers")
    axes = [torch.linspace(a, b, points, dtype=torch.float64) for a, b in zip(low, high, strict=True)]
    edge = torch.ones(points, dtype=torch.float64)
    edge[0] = edge[-1] = 0.5
    cell = edge * (axes[0][1] - axes[0][0])
    if len(axes) == 2:
        cell = torch.outer(cell, edge * (axes[1][1] - axes[1][0])).reshape(-1)
    grid = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    at_p, at_q = log_p(grid), log_q(grid)
    total = torch.zeros((), dtype=torch.float64)
    # p a + q b rather than q f(r), which is 0 * inf where q underflows
    for log_density, map_ in ((at_p, div.two_sided[0]), (at_q, div.two_sided[1])):
        if map_ is not None:
            kept = log_density > -700  # beyond it the density, not the map, decides: the term is zero
            total = total + cell[kept] @ (log_density[kept].exp() * map_((at_p - at_q)[kept]))
    return float(total)


@dataclass(frozen=True, eq=False)
class Modes:
    """An even mixture of Gaussians with round covariances: `means` and one `std` for all."""

    means: Float[Tensor, "k d"]
    std: float

    def sample(self, n: int, *, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """`n` independent draws."""
        k, d = self.means.shape
        mode = torch.randint(k, (n,), generator=generator)
        return self.means[mode] + self.std * torch.randn(n, d, generator=generator, dtype=torch.float64)

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log density of each row."""
        k, d = self.means.shape
        far = torch.stack([(x - mean).square().sum(1) for mean in self.means], 1) / (2 * self.std**2)
        return torch.logsumexp(-far, 1) - math.log(k) - d * math.log(self.std * math.sqrt(2 * math.pi))


@dataclass(frozen=True, eq=False)
class SinhArcsinh:
    """Rows `shift + scale * sinh((asinh z + skew) / tail) @ basis'` with z ~ N(0, I) (Jones and Pewsey 2009).

    A positive `skew` leans to the right, a `tail` below one has heavier tails than a Gaussian; `basis` is orthogonal.
    """

    shift: Float[Tensor, " d"]
    scale: float
    skew: Float[Tensor, " d"]
    tail: Float[Tensor, " d"]
    basis: Float[Tensor, "d d"]

    def sample(self, n: int, *, generator: torch.Generator) -> Float[Tensor, "n d"]:
        """`n` independent draws."""
        z = torch.randn(n, len(self.shift), generator=generator, dtype=torch.float64)
        return self.shift + self.scale * ((z.asinh() + self.skew) / self.tail).sinh() @ self.basis.mT

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log density of each row."""
        y = (x - self.shift) @ self.basis / self.scale
        bent = self.tail * y.asinh() - self.skew
        log_slope = self.tail.log() + bent.cosh().log() - (1 + y.square()).log() / 2  # dz/dy
        d = len(self.shift)
        return (log_slope - bent.sinh().square() / 2).sum(1) - d * math.log(self.scale * math.sqrt(2 * math.pi))


class DriftBed(Drift):
    """A drift of distributions that need not be Gaussian, of one task."""

    def true_of(self, name: str, t: int, task: int) -> float:
        """A closed form between Gaussians, an integral in the plane, or an average over fixed draws."""
        p, q = self.p(task), self.q(t, task)
        if isinstance(p, Gaussian) and isinstance(q, Gaussian):
            return super().true_of(name, t, task)
        if self.d <= 2:
            box = [-BOX] * self.d, [BOX] * self.d
            return integrated_divergence(name, p.log_prob, q.log_prob, *box, points=801)
        return float(self._average(name, t).value)

    def true_error(self, name: str, t: int) -> float:
        """The standard error of `true`: 0 where it is a closed form or an integral."""
        exact = self.d <= 2 or isinstance(self.p(), Gaussian)
        return 0.0 if exact else float(self._average(name, t).std_error)

    def ess(self, t: int = 1) -> float:
        """1 / E_q[r^2]: the share that samples of q_t are worth when they are weighted to stand for p."""
        return 1 / (1 + self.true("pearson_chi2", t))

    def _average(self, name: str, t: int) -> Estimate:
        on_p, on_q = _truth_log_ratios(self, t)
        return divergences.estimate(name, on_q, on_p)


@lru_cache(maxsize=16)
def _truth_log_ratios(drift: DriftBed, t: int) -> tuple[Tensor, Tensor]:
    """Exact log-ratios on TRUTH_ROWS draws of p and of q_t, the same in every process."""
    sides = []
    for side, law in (("p", drift.p()), ("q", drift.q(t))):
        generator = rng.fork(0, "truth", side, t)
        chunks = [law.sample(TRUTH_CHUNK, generator=generator) for _ in range(TRUTH_ROWS // TRUTH_CHUNK)]
        sides.append(torch.cat([drift.true_log_ratio(x, t) for x in chunks]))
    return sides[0], sides[1]


def melting(*, n_steps: int = 10, reach: float = 1.95) -> DriftBed:
    """Modes at +-(reach, reach) that have met at 0 by the last step; kl there is 3.12."""
    whole(n_steps, "n_steps", "melting", low=1)
    corner = torch.full((2,), number(reach, "reach", "melting"), dtype=torch.float64)
    ends = torch.stack([corner, -corner])

    def model(t: int, _: int) -> Distribution:
        return Modes(ends * (1 - t / n_steps), 1.0)

    return DriftBed("melting", 2, n_steps, lambda _: Modes(ends, 1.0), model)


def skewed(*, n_steps: int = 10) -> DriftBed:
    """Skews of both signs and tails down to 0.75 in a turned basis; the model shifts, narrows and straightens."""
    whole(n_steps, "n_steps", "skewed", low=1)
    noise = torch.randn(5, 5, generator=rng.fork(0, "skewed"), dtype=torch.float64)
    basis = torch.linalg.qr(noise).Q
    skew = torch.tensor([0.6, -0.4, 0.3, 0.0, -0.2], dtype=torch.float64)
    tail = torch.tensor([0.75, 0.8, 0.9, 1.0, 1.0], dtype=torch.float64)
    still = torch.zeros(5, dtype=torch.float64)

    def model(t: int, _: int) -> Distribution:
        a = t / n_steps
        return SinhArcsinh(still + 0.45 * a, 1 - 0.3 * a, skew * (1 - 0.5 * a), tail, basis)

    return DriftBed("skewed", 5, n_steps, lambda _: SinhArcsinh(still, 1.0, skew, tail, basis), model)


def mixture(*, d: int = 64, n_steps: int = 30, modes: int = 8) -> DriftBed:
    """Overlapping modes, each moved its own way by two deviations, and a sixth narrower, at the last step."""
    for value, name in ((d, "d"), (n_steps, "n_steps"), (modes, "modes")):
        whole(value, name, "mixture", low=1)
    shape, generator = (modes, d), rng.fork(0, "mixture")
    means = 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    moves = torch.nn.functional.normalize(torch.randn(shape, generator=generator, dtype=torch.float64), dim=1)

    def model(t: int, _: int) -> Distribution:
        a = t / n_steps
        return Modes(means + 2.1 * a * moves, 1 - 0.17 * a)

    return DriftBed("mixture", d, n_steps, lambda _: Modes(means, 1.0), model)


def still(d: int = 2, *, n_steps: int = 10) -> DriftBed:
    """N(0, I) on both sides at every step."""
    whole(d, "d", "still", low=1)
    whole(n_steps, "n_steps", "still", low=1)
    law = Gaussian.isotropic(0.0, 1.0, d)
    return DriftBed("still", d, n_steps, lambda _: law, lambda t, _: law)


def poor(d: int = 2, *, n_steps: int = 10, ess: float = 0.15, step: float = 0.02) -> DriftBed:
    """N(0, I), and a model whose first samples are worth the share `ess`; later steps move and narrow by `step`.

    The first model is N(m, I) with d m^2 = -log ess, for E_q[r^2] = exp(d m^2).
    """
    whole(d, "d", "poor", low=1)
    whole(n_steps, "n_steps", "poor", low=1)
    number(ess, "ess", "poor", low=0, high=1, open_low=True)
    if number(step, "step", "poor") * (n_steps - 1) >= 1:
        refuse("n_steps", "poor", f"below {1 + 1 / step:g}, where the model's std reaches 0", n_steps)
    first = math.sqrt(-math.log(ess) / d)

    def model(t: int, _: int) -> Distribution:
        return Gaussian.isotropic(first + step * (t - 1), 1 - step * (t - 1), d)

    return DriftBed("poor", d, n_steps, lambda _: Gaussian.isotropic(0.0, 1.0, d), model)


# Every drift by its name, one line each.
DRIFTS: dict[str, Callable[..., DriftBed]] = {
    "melting": melting,
    "skewed": skewed,
    "mixture": mixture,
    "still": still,
    "poor": poor,
}
