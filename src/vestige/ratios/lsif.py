"""Least-squares importance fitting by a network: minimise E_q[r^2] / 2 - E_p[r].

(Kanamori, Hido and Sugiyama 2009, with a network in place of kernels.) The ratio is r = softplus(v + log(e - 1)),
positive, and one at v = 0 where training starts. Softplus rather than exp: it grows linearly, so that a large ratio
costs its square and not the exponential of it, and the gradient stays bounded where exp's grows with r^2. Towards
r = 0 both agree: log r -> v + log(e - 1). For the closed-form kernel estimators see `ulsif`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import softplus

from vestige.ratios import losses
from vestige.ratios.nets import NetRatio
from vestige.ratios.training import Loss

_ONE = math.log(math.e - 1)  # softplus of it is one


def log_softplus(v: Tensor) -> Tensor:
    """log softplus(v), which for very negative v is v itself."""
    # Below -20, softplus(v) = exp(v) to nine digits; log(exp(v)) must not underflow on the way.
    return softplus(v.clamp_min(-20.0)).log() + (v + 20.0).clamp_max(0.0)


@dataclass(eq=False, kw_only=True)
class LSIF(NetRatio):
    """Least-squares fit of the ratio by a network."""

    def _unbounded(self) -> str | None:
        return "q"

    def _loss(self, n_p: int, n_q: int) -> Loss:
        return lambda v_p, v_q, w_p, w_q: losses.least_squares(softplus(v_p + _ONE), softplus(v_q + _ONE), w_p, w_q)

    def _read(self, out: Tensor) -> Tensor:
        return log_softplus(out + _ONE)
