"""The variational estimators of f-GAN (Nowozin, Cseke and Tomioka 2016), with the ratio read off the optimum.

D_f(p || q) = E_q f(p/q) >= E_p[T] - E_q[f*(T)], with equality at T = f'(p/q). The network's output v passes through
the output activation of the paper's Table 2, T = g(v), and the ratio is r = (f')^-1(T):

    divergence  f(r)                                   T = g(v)             f*(T)               log r
    kl          r log r                                v                    exp(T - 1)          v - 1
    reverse_kl  -log r                                 -exp(-v)             -1 - log(-T)        v
    js          [r log r - (1 + r) log((1 + r)/2)]/2   [log 2 - sp(-v)]/2   -log(2 - e^2T)/2    v
    hellinger   (sqrt r - 1)^2 / 2                     (1 - exp(-v)) / 2    T / (1 - 2T)        2 v
    pearson     (r - 1)^2                              v                    T^2 / 4 + T         log(1 + v/2)

(sp is softplus.) `bound` in the report is the right-hand side on held-out rows: a lower bound of the divergence.

Deviations: js and hellinger carry the factor 1/2 that makes them the Jensen-Shannon divergence and 1 - the
Bhattacharyya coefficient, which scales T and leaves the optimum alone; hellinger's activation has the sign that makes v
grow with r. The f*(g(v)) below are simplified by hand so that nothing saturates. Pearson's T may fall below -2, where
no ratio corresponds to it (CDRE section 3 says the same): r is floored at `ratio_floor`, and the report says how
often; `LSIF` is the same divergence with a positive link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from vestige.core.checks import option
from vestige.ratios.members import Prepared, Sample
from vestige.ratios.nets import NetRatio
from vestige.ratios.training import Loss


@dataclass(frozen=True)
class Variational:
    """One row of the table, as functions of the network's output v."""

    activation: Callable[[Tensor], Tensor]  # T = g(v)
    conjugate: Callable[[Tensor], Tensor]  # f*(g(v))
    ratio: Callable[[Tensor], Tensor]  # log r, before any floor (NaN or -inf where there is none)


VARIATIONAL: dict[str, Variational] = {
    "kl": Variational(lambda v: v, lambda v: torch.exp(v - 1), lambda v: v - 1),
    "reverse_kl": Variational(lambda v: -torch.exp(-v), lambda v: v - 1, lambda v: v),
    "js": Variational(
        lambda v: (math.log(2) - softplus(-v)) / 2, lambda v: (softplus(v) - math.log(2)) / 2, lambda v: v
    ),
    "hellinger": Variational(lambda v: -torch.expm1(-v) / 2, lambda v: torch.expm1(v) / 2, lambda v: 2 * v),
    "pearson": Variational(lambda v: v, lambda v: v.square() / 4 + v, lambda v: torch.log1p(v / 2)),
}


@dataclass(eq=False)
class FGAN(NetRatio):
    """The ratio read off an f-GAN critic. `ratio_floor` bounds r below for "pearson" alone."""

    divergence: str = option("js", among=VARIATIONAL)
    ratio_floor: float = option(1e-3, above=0)

    def _unbounded(self) -> str | None:
        return {"kl": "q", "pearson": "q", "reverse_kl": "p"}.get(self.divergence)

    def _loss(self, n_p: int, n_q: int) -> Loss:
        row = VARIATIONAL[self.divergence]
        return lambda v_p, v_q, w_p, w_q: (w_q * row.conjugate(v_q)).sum(1) - (w_p * row.activation(v_p)).sum(1)

    def _read(self, out: Tensor) -> Tensor:
        if self.divergence == "pearson":  # floored in v, where log r need not exist
            out = out.clamp_min(2 * (self.ratio_floor - 1))
        return VARIATIONAL[self.divergence].ratio(out)

    def fit_members(self, draw: Callable[[int], Sample], seeds: Sequence[int]) -> list[dict[str, Any]]:
        """As `NetRatio.fit_members`; the held-out loss is minus the lower bound."""
        reports = super().fit_members(draw, seeds)
        return [report | {"bound": -report["held_out_loss"] if self.held_out else None} for report in reports]

    def _finish(self, member: Prepared, log_p: Tensor, log_q: Tensor) -> tuple[float, float, dict[str, Any]]:
        if self.divergence != "pearson":
            return 1.0, 0.0, {}
        at_floor = torch.cat([log_p, log_q]) <= math.log(self.ratio_floor) + 1e-9
        return 1.0, 0.0, {"ratio_floor_share": float(at_floor.double().mean())}
