"""The ratio of one step: a stack, or another estimator in its place, and a bridge where the two sets lie far apart.

A classifier that separates two sets without error cannot say how far apart they are. Where the held-out KL(p || q) of
the first fit exceeds `bridge_above` nats, the step is fitted again as a cross-fitted `Bridge` over waymarks, and the
report says so. Other estimators are cross-fitted and calibrated (`ratios.cross_fit`); a `Stack` does so by itself.

Each jump of the bridge is a small network with a quadratic skip, not the quadratic that is `Bridge`'s default: a step
need not be Gaussian. KL at n = 10000, fresh rows: N(0, I) against N(1, 0.6^2 I), 10-d, 17.67 nats: stack 12.3, bridge
of quadratics 18.2, of networks 18.5; two modes against one between them, 2-d, 12.74 and 19.54 nats: stack 14.2 and
21.8, quadratics 21.2 and 36.3, networks 12.6 and 19.6.

A stack starts at the one before it; other estimators, and whatever follows a bridge, start anew.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.numerics import weighted_mean
from vestige.ratios import LSIF, ULSIF, Bridge, FGANRatio, KLIEPNet, Logistic, Ratio, Stack
from vestige.ratios.cross_fit import CrossFit, HeldOutFit, cross_fit

FittedRatio = Stack | CrossFit

# What may learn a step, by name; None is the stack itself.
ESTIMATORS: dict[str, Ratio | None] = {
    "stack": None,
    "kliep": KLIEPNet(),
    "logistic": Logistic(),
    "quadratic": Logistic(kind="quadratic"),
    "lsif": LSIF(),
    "ulsif": ULSIF(),
    "fgan": FGANRatio(),
}
JUMP = Logistic(steps=300, skip="quadratic")


def bridged(ratio: FittedRatio) -> bool:
    """Whether the ratio is a sum over waymarks."""
    return isinstance(ratio, CrossFit) and isinstance(ratio.fits[0], Bridge)


def fit_step(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    p_weights: Float[Tensor, " n_p"] | None,
    *,
    stack: Stack,
    estimator: str,
    bridge_above: float,
    waymarks: int,
    start: FittedRatio | None,
    seed: int,
) -> HeldOutFit:
    """log p/q by `stack`, which is not fitted yet, or by another `estimator`; by a bridge if that finds them far apart.

    No value for a single row of p stays in the ratio.
    """
    weights = checks.weights(p_weights, len(p), "p_weights", "Chain.step")
    other = ESTIMATORS[estimator]
    if other is not None:
        found = cross_fit(other, p, q, weights, None, folds=stack.folds, calibrated=True, seed=seed)
    else:
        if isinstance(start, Stack):
            stack.fit_from(start, p, q, p_weights=p_weights, seed=seed)
        else:
            stack.fit(p, q, p_weights=p_weights, seed=seed)
        found = HeldOutFit(stack, stack.held_out_p_, stack.held_out_q_, stack.gap_)
        del stack.held_out_p_, stack.held_out_q_
    if float(weighted_mean(found.log_ratio_p, weights)) <= bridge_above:
        return found
    bridge = Bridge(JUMP, waymarks)
    return cross_fit(bridge, p, q, weights, None, folds=stack.folds, calibrated=False, seed=seed)
