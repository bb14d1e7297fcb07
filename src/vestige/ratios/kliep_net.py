"""KLIEP with a network for psi (CDRE Eq. 2 and 3): r = exp(psi) / mean_q exp(psi).

An estimator that offers KLIEP by network as one of its kinds delegates: it builds a `KLIEPNet` from its own fields,
passes `_fit`, `_log_ratio`, `_state` and `_load_state` on to it, and merges the `report_` that the inner fit has filled
into its own.

Deviation: the normaliser of Eq. 3 is taken once, over all of q at fit, and stored; the authors' code normalises by
whatever batch is passed. How the network is trained, and what differs there, is said in `nets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vestige.core.numerics import log_mean_exp
from vestige.ratios import losses
from vestige.ratios.members import Prepared
from vestige.ratios.nets import NetRatio
from vestige.ratios.training import Loss


@dataclass(eq=False, kw_only=True)
class KLIEPNet(NetRatio):
    """KLIEP with a network for psi (CDRE Eq. 2, 3)."""

    def _unbounded(self) -> str | None:
        return "q"

    def _loss(self, n_p: int, n_q: int) -> Loss:
        return losses.kliep

    def _centred(self, v_p: Tensor, v_q: Tensor, w_q: Tensor) -> tuple[Tensor, Tensor]:
        level = torch.logsumexp(v_q + w_q.log(), 1, keepdim=True)
        return v_p - level, v_q - level

    def _finish(self, member: Prepared, log_p: Tensor, log_q: Tensor) -> tuple[float, float, dict[str, Any]]:
        log_normaliser = float(log_mean_exp(log_q, member.sample.q_weights))  # Eq. 3's denominator
        return 1.0, -log_normaliser, {"log_normaliser": log_normaliser}
