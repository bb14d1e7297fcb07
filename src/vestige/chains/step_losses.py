"""Objectives of one step of CDRE's chain, each maximal where r_t / r_{t-1} is the ratio of neighbouring steps (Eq. 5).

All take the step's log-ratio s = psi_t - log r_{t-1} (Eq. 9 without its normaliser) on X_{t-1}, in the place of p, and
on X_t, in the place of q, one row of values a member, and return one value a member:

- "kliep": Eq. 10's first term, mean_p(s) - log mean_q(exp s), the normaliser of Eq. 9 inside; the paper's choice.
- "logistic": minus the balanced log-loss of the classifier with logit s.
- "lsif": mean_p(exp s) - mean_q(exp 2s) / 2. Section 3 names it for the Pearson divergence.
- "fgan": mean_p(T) - mean_q(f*(T)) with T = f'(exp s) (Nowozin et al. 2016), for the f called `critic`; section 3 has
  tried it and finds it less robust. With "kl" it is KLIEP with E_q[r] = 1 left to the optimum, with "js" it is the
  logistic loss.

The paper writes out the first alone. Deviation in the others: the network gives log r in all of them, the log-linear
form of Eq. 3, so that ratios multiply along the chain (Eq. 5) and none is negative, as the paper found of f-GAN's
chi-squared. They fix the constant of psi_t by themselves; the chain divides by Psi_t (Eq. 7) all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.ratios import losses
from vestige.ratios.losses import VARIATIONAL

# (s on p, s on q) -> one value a member, to be maximised.
StepValue = Callable[[Tensor, Tensor], Tensor]
ESTIMATORS = ("fgan", "kliep", "logistic", "lsif")
# The output v of an f-GAN critic whose ratio, read by `VARIATIONAL`, is exp s.
OUTPUT_OF: dict[str, Callable[[Tensor], Tensor]] = {
    "kl": lambda s: s + 1,
    "reverse_kl": lambda s: s,
    "js": lambda s: s,
    "hellinger": lambda s: s / 2,
    "pearson": lambda s: 2 * torch.expm1(s),
}


def _even(s: Tensor) -> Tensor:
    return torch.full_like(s, 1 / s.shape[1])


def kliep(s_p: Float[Tensor, "m b"], s_q: Float[Tensor, "m c"]) -> Float[Tensor, " m"]:
    """Eq. 9 in the first term of Eq. 10."""
    return -losses.kliep(s_p, s_q, _even(s_p), _even(s_q))


def logistic(s_p: Float[Tensor, "m b"], s_q: Float[Tensor, "m c"]) -> Float[Tensor, " m"]:
    """Minus the log-loss."""
    return -losses.logistic(s_p, s_q, _even(s_p), _even(s_q))


def lsif(s_p: Float[Tensor, "m b"], s_q: Float[Tensor, "m c"]) -> Float[Tensor, " m"]:
    """Minus the least-squares loss of the ratio."""
    return -losses.least_squares(s_p.exp(), s_q.exp(), _even(s_p), _even(s_q))


def fgan(s_p: Float[Tensor, "m b"], s_q: Float[Tensor, "m c"], *, critic: str) -> Float[Tensor, " m"]:
    """The variational bound of D_f."""
    row, output = VARIATIONAL[critic], OUTPUT_OF[critic]
    return row.activation(output(s_p)).mean(1) - row.conjugate(output(s_q)).mean(1)


def step_value(estimator: str, critic: str) -> StepValue:
    """The objective called `estimator`."""
    values: dict[str, StepValue] = {"kliep": kliep, "logistic": logistic, "lsif": lsif}
    return partial(fgan, critic=critic) if estimator == "fgan" else values[estimator]
