"""KLIEP: the ratio r = p/q under which samples of p are likeliest.

It maximises E_p[log r] subject to E_q[r] = 1 (CDRE Eq. 2).

kind="kernel": a mixture of kernels on q, to the certified optimum, with likelihood cross-validation of the bandwidth;
see `kliep_kernel`. kind="net": the log-linear model of CDRE Eq. 3 with a network for psi; see `kliep_net`,
whose settings go into `network`. Kernels are the better choice in a few dimensions where q covers p; as the mixture
has no negative parts, it cannot rise beyond the outermost samples of q.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.ratios.base import Ratio
from vestige.ratios.kernels import BANDWIDTHS, candidates, caution, caution_if_wide
from vestige.ratios.kliep_kernel import KernelMixture, fit_kernel_mixture
from vestige.ratios.kliep_net import KLIEPNet

KINDS = ("kernel", "net")


@dataclass(eq=False)
class KLIEP(Ratio):
    """p/q by maximum likelihood. `network` concerns kind "net" alone, the other settings kind "kernel"."""

    kind: str = "kernel"
    _: KW_ONLY
    max_centres: int = 100
    bandwidths: Sequence[float] = BANDWIDTHS  # multiples of the median distance to the centres
    folds: int = 5
    tolerance: float = 1e-6  # converged: no mixture of these kernels has a mean log-likelihood higher by more
    max_rounds: int = 200
    network: KLIEPNet | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mixture_: KernelMixture | None = None
        self.network_: KLIEPNet | None = None

    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        owner = "KLIEP.fit"
        checks.one_of(self.kind, KINDS, "kind", owner)
        self.mixture_ = self.network_ = None
        if self.kind == "net":
            # A copy: what the caller handed over stays unfitted.
            self.network_ = dataclasses.replace(self.network) if self.network is not None else KLIEPNet()
            self.network_._fit(p, q, p_weights, q_weights, seed)
            self.report_ |= self.network_.report_ | {"kind": "net"}
            return
        supported = len(p) if p_weights is None else int((p_weights > 0).sum())
        folds = checks.whole(self.folds, "folds", owner, low=2)
        multiples = candidates(self.bandwidths, "bandwidths", owner)
        if len(multiples) > 1 and supported < folds:
            checks.refuse("p", owner, f"at least as many weighted samples as folds ({folds})", supported)
        caution_if_wide(self.report_)
        self.mixture_, found = fit_kernel_mixture(
            p,
            q,
            p_weights,
            q_weights,
            max_centres=checks.whole(self.max_centres, "max_centres", owner, low=1),
            multiples=multiples,
            folds=folds,
            tolerance=checks.number(self.tolerance, "tolerance", owner, low=0, open_low=True),
            max_rounds=checks.whole(self.max_rounds, "max_rounds", owner, low=1),
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

    def _state(self) -> dict[str, Tensor]:
        if self.network_ is not None:
            return self.network_._state()
        assert self.mixture_ is not None
        return self.mixture_.state()

    def _load_state(self, state: dict[str, Tensor]) -> None:
        if self.kind == "net":
            self.network_ = dataclasses.replace(self.network) if self.network is not None else KLIEPNet()
            self.network_._load_state(state)
        else:
            self.mixture_ = KernelMixture.from_state(state)
