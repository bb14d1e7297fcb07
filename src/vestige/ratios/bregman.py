"""Ratio matching: the network whose exponential is nearest to p/q under q in a Bregman divergence.

(Sugiyama, Suzuki and Kanamori 2012.) The generator f decides what counts: "squared" is LSIF, "kl" is KLIEP with
its normalisation left free, "logistic" is the classifier, "power" is Basu's family between "kl" (a -> 0) and twice
"squared" (a = 1), robust to outliers of p as a grows, and "exponential" is the loss of boosting. `losses.GENERATORS`
holds them. Here r = exp(psi) for all; the estimators named after the special cases differ in link or normalisation
(`LSIF`: softplus; `KLIEPNet`: normalised; `Logistic`: calibration).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from vestige.core.checks import option
from vestige.ratios import losses
from vestige.ratios.nets import NetRatio
from vestige.ratios.training import Loss


@dataclass(eq=False)
class Bregman(NetRatio):
    """Ratio matching by a network. `power` is the a of the generator "power" and is not used by the others."""

    generator: str = option("logistic", among=(*losses.GENERATORS, "power"))
    power: float = option(0.5, above=0)

    def _unbounded(self) -> str | None:
        return None if self.generator in ("logistic", "exponential") else "q"

    def _loss(self, n_p: int, n_q: int) -> Loss:
        power = self.generator == "power"
        generator = losses.power_generator(self.power) if power else losses.GENERATORS[self.generator]
        return partial(losses.bregman, generator=generator)
