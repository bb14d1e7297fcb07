"""KLIEP: the ratio r = p/q under which samples of p are likeliest.

It maximises E_p[log r] subject to E_q[r] = 1 (CDRE Eq. 2).

kind="kernel": a mixture of kernels on q, to the certified optimum, with likelihood cross-validation of the bandwidth;
see `kliep_kernel`. kind="net": the log-linear model of CDRE Eq. 3 with a network for psi; see `kliep_net`,
whose settings go into `network`. Kernels are the better choice in a few dimensions where q covers p; as the mixture
has no negative parts, it cannot rise beyond the outermost samples of q.
"""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass, field

from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import option
from vestige.ratios.base import Ratio
from vestige.ratios.kernels import BANDWIDTHS, caution, caution_if_wide
from vestige.ratios.kliep_kernel import KernelMixture, fit_kernel_mixture
from vestige.ratios.kliep_net import KLIEPNet

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
