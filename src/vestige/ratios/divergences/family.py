"""The f family: D_f(p || q) = E_q[f(p/q)], everything evaluated from log r = log p/q (CDRE Eq. 4).

`p` is the numerator (real data), `q` the denominator (model). Conventions, all in nats: kl is KL(p || q); js has the
maximum log 2; hellinger2 is 1 - BC in [0, 1], BC the Bhattacharyya coefficient; total_variation lies in [0, 1];
pearson_chi2 is E_q[(r - 1)^2], neyman_chi2 E_p[(1/r - 1)^2]; alpha(a) is (E_q[r^a] - 1) / (a (a - 1)) with the limits
kl at a = 1 and reverse_kl at a = 0 (so alpha(2) is half of pearson_chi2 and alpha(0.5) four times hellinger2).

Three ways to average, with the same value:
- `f` on samples of q: Eq. 4. On samples of p the same is done with the `reverse` divergence of -log r.
- `light` on samples of q: f(r) - c (r - 1) with c = lim f(r)/r, the one member of the class of f whose terms grow
  slower than r. It rests on E_q[r] = 1; None where c is infinite.
- `two_sided` = (a, b): E_p[a] + E_q[b], chosen to be bounded or light-tailed. None means that the side is not needed.

Slopes, conjugates and activations follow f-GAN (Nowozin et al. 2016, Tables 1, 2 and 6). Deviations: js and hellinger2
are half of theirs, so slopes and activations are halved too; conjugates are the supremum over r >= 0 alone (theirs
of pearson_chi2 and total_variation fall below it where the slope leaves the range of f').
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from vestige.core import checks

Map: TypeAlias = Callable[[Float[Tensor, "*n"]], Float[Tensor, "*n"]]
LOG_2 = math.log(2.0)


@dataclass(frozen=True)
class FDivergence:
    """One member of the family. All maps but `conjugate` and `activation` take log r."""

    name: str
    reverse: str  # the name of the same divergence with p and q exchanged
    f: Map
    two_sided: tuple[Map | None, Map | None]
    slope: Map  # f'(r): the optimal critic of the variational bound
    conjugate: Map  # f*(t) = sup over r >= 0 of r t - f(r)
    upper: float = math.inf  # its largest value
    light: Map | None = None
    slope_below: float = math.inf  # f* is finite below this t (at it too where f* is continuous)
    activation: Map = torch.positive  # any real v to the domain of f*

    @property
    def needs(self) -> tuple[str, ...]:
        """The sides, of "p" and "q", no part of which may be out of the other's reach if it is to be finite.

        "p" where f(r) / r has no limit as r grows: mass of p where q has none is then worth infinity. "q" is the same
        of the reverse divergence, that is, of f(r) as r falls to zero.
        """
        end = torch.tensor(math.inf, dtype=torch.float64)
        slopes = {"p": self.slope, "q": get(self.reverse).slope}
        return tuple(side for side, slope in slopes.items() if float(slope(end)) == math.inf)


def _times_r(log_r: Float[Tensor, "*n"], x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """r x with 0 * inf = 0: where p vanishes the term does."""
    return torch.where(log_r == -math.inf, 0.0, log_r.exp() * x)


OMEGA_ITERATIONS = 12  # of Newton


def log_wright_omega(z: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """y with y + exp(y) = z, by Newton from above; one more step carries the gradient."""
    with torch.no_grad():
        y = torch.where(z > 1, z.clamp_min(1.0).log(), z)
        for _ in range(OMEGA_ITERATIONS):
            y = y - (y + y.exp() - z) / (1 + y.exp())
    return y - (y + y.exp() - z) / (1 + y.exp())


def _js_light(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    # log 2 - (log(1 + r) + r log(1 + 1/r)) / 2; the second summand is 1 to 14 digits from log r = 32 on
    capped = log_r.clamp_max(32.0)
    return LOG_2 + (logsigmoid(-log_r) + _times_r(capped, logsigmoid(capped))) / 2


def _jeffreys_conjugate(t: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    y = log_wright_omega(1 - t)  # y = -log r at the supremum
    return y.exp() + (-y).exp() + t - 2


def alpha(a: float) -> FDivergence:
    """alpha(a): f(r) = (r^a - 1 - a (r - 1)) / (a (a - 1)); kl and reverse_kl at their limits."""
    a = checks.number(a, "a", "alpha", open_low=True, open_high=True)
    if a == 1:
        return FAMILY["kl"]
    if a == 0:
        return FAMILY["reverse_kl"]
    scale = a * (a - 1)

    def f(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return ((a * log_r).expm1() - a * log_r.expm1()) / scale

    def power(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return (a * log_r).expm1() / scale

    def power_p(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return ((a - 1) * log_r).expm1() / scale

    def bounded(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return ((a * log_r + logsigmoid(-log_r)).exp() - 0.5) / scale  # r^a / (1 + r) lies in (0, 1)

    def slope(log_r: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return ((a - 1) * log_r).expm1() / (a - 1)

    def conjugate(t: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        base = 1 + (a - 1) * t
        inside = (base.clamp_min(0).pow(a / (a - 1)) - 1) / a  # below the range of f' (a > 1) the supremum is at r = 0
        return inside if a > 1 else torch.where(base >= 0, inside, math.inf)

    return FDivergence(
        name=f"alpha({a:.12g})",
        reverse=f"alpha({1 - a:.12g})",
        upper=-1 / scale if 0 < a < 1 else math.inf,
        f=f,
        light=power if a < 1 else None,
        two_sided=(bounded, bounded) if 0 < a < 1 else (power_p, None) if a > 1 else (None, power),
        slope=slope,
        conjugate=conjugate,
        slope_below=math.inf if a > 1 else 1 / (1 - a),
        activation=slope,
    )


# x is log r, t a slope f'(r), v any real number.
FAMILY: dict[str, FDivergence] = {
    "kl": FDivergence(
        name="kl",
        reverse="reverse_kl",
        f=lambda x: _times_r(x, x),
        two_sided=(lambda x: x, None),
        slope=lambda x: 1 + x,
        conjugate=lambda t: (t - 1).exp(),
    ),
    "reverse_kl": FDivergence(
        name="reverse_kl",
        reverse="kl",
        f=torch.neg,
        light=torch.neg,
        two_sided=(None, torch.neg),
        slope=lambda x: -(-x).exp(),
        conjugate=lambda t: torch.where(t < 0, -1 - (-t).clamp_min(0).log(), math.inf),
        slope_below=0.0,
        activation=lambda v: -(-v).exp(),
    ),
    "js": FDivergence(
        name="js",
        reverse="js",
        upper=LOG_2,
        f=lambda x: (_times_r(x, LOG_2 + logsigmoid(x)) + LOG_2 + logsigmoid(-x)) / 2,
        light=_js_light,
        two_sided=(lambda x: (LOG_2 + logsigmoid(x)) / 2, lambda x: (LOG_2 + logsigmoid(-x)) / 2),
        slope=lambda x: (LOG_2 + logsigmoid(x)) / 2,
        conjugate=lambda t: torch.where(2 * t < LOG_2, -(2 - (2 * t).exp()).clamp_min(0).log() / 2, math.inf),
        slope_below=LOG_2 / 2,
        activation=lambda v: (LOG_2 + logsigmoid(v)) / 2,
    ),
    "hellinger2": FDivergence(
        name="hellinger2",
        reverse="hellinger2",
        upper=1.0,
        f=lambda x: (x / 2).expm1().square() / 2,
        light=lambda x: -(x / 2).expm1(),
        two_sided=(lambda x: (1 - 1 / (x / 2).cosh()) / 2, lambda x: (1 - 1 / (x / 2).cosh()) / 2),
        slope=lambda x: -(-x / 2).expm1() / 2,
        conjugate=lambda t: torch.where(2 * t < 1, t / (1 - 2 * t).clamp_min(0), math.inf),
        slope_below=0.5,
        activation=lambda v: -(-v).expm1() / 2,
    ),
    "pearson_chi2": FDivergence(
        name="pearson_chi2",
        reverse="neyman_chi2",
        f=lambda x: x.expm1().square(),
        two_sided=(lambda x: x.expm1(), None),
        slope=lambda x: 2 * x.expm1(),
        conjugate=lambda t: t.clamp_min(-2).square() / 4 + t.clamp_min(-2),
    ),
    "neyman_chi2": FDivergence(
        name="neyman_chi2",
        reverse="pearson_chi2",
        f=lambda x: (x / 2).sinh().square() * 4,
        light=lambda x: (-x).expm1(),
        two_sided=(None, lambda x: (-x).expm1()),
        slope=lambda x: -(-2 * x).expm1(),
        conjugate=lambda t: torch.where(t <= 1, 2 - 2 * (1 - t).clamp_min(0).sqrt(), math.inf),
        slope_below=1.0,
        activation=lambda v: -(-v).expm1(),
    ),
    "total_variation": FDivergence(
        name="total_variation",
        reverse="total_variation",
        upper=1.0,
        f=lambda x: x.expm1().abs() / 2,
        light=lambda x: -x.clamp_max(0).expm1(),
        two_sided=(lambda x: x.sign() / 2, lambda x: -x.sign() / 2),
        slope=lambda x: x.sign() / 2,
        conjugate=lambda t: torch.where(t <= 0.5, t.clamp_min(-0.5), math.inf),
        slope_below=0.5,
        activation=lambda v: v.tanh() / 2,
    ),
    "jeffreys": FDivergence(
        name="jeffreys",
        reverse="jeffreys",
        f=lambda x: x.expm1() * x,
        two_sided=(lambda x: x, torch.neg),
        slope=lambda x: x - (-x).expm1(),
        conjugate=_jeffreys_conjugate,
    ),
}

NAMES = (*FAMILY, "alpha(a)")


def get(name: str) -> FDivergence:
    """The member called `name`; "alpha(0.5)" and the like are built."""
    found = re.fullmatch(r"alpha\(\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\)", str(name))
    if found:
        return alpha(float(found.group(1)))
    return FAMILY[checks.one_of(name, FAMILY.keys() | {"alpha(0.5)"}, "name", "divergences")]


def alpha_order(name: str) -> float | None:
    """s for those that are a function of E_q[r^s] alone; None for kl, reverse_kl, js, jeffreys, total_variation."""
    known = {"pearson_chi2": 2.0, "neyman_chi2": -1.0, "hellinger2": 0.5}
    if name.startswith("alpha("):
        return float(name[len("alpha(") : -1])
    return known.get(name)
