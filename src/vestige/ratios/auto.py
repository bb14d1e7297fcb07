"""The estimator that a pair of sample sets asks for, and why in one sentence.

Measured: what each loses in logistic loss on fresh rows against the true log-ratio, in thousandths of a nat, mean of 3
data sets (n = 5000: 1). gauss: N(0, I) against a shifted, narrower one; modes: two against one; skew: sinh-arcsinh,
rotated. The quadratic logistic stands at its better ridge of 1e-4 and 1e-2.

    set        n     linear  quadratic  ULSIF  Stack      set         n     linear  quadratic  ULSIF  Stack
    gauss 2-d  60        67         19    170     25      gauss 20-d  60       179        362    154     90
               200       48          6    270      8                  200      127         56    161     37
               1000      45          1    210      1                  1000     106         11    149     11
               5000      43          0    159      0                  5000     102          1    140      1
    modes 2-d  60       429         42    132     54      gauss 100-d 60       878        754    166    161
               200      416         13     83     12                  200      287        706    150    104
               1000     416         11    313      5                  1000      73         58    109     44
               5000     417         10    162      1                  5000      54          7     92      8
    skew 5-d   60       193         91    238     76
               200      158         54    129     44
               1000     153         46    112     16
               5000     152         45    119      6

So: `Stack`, except for few rows of few features, where a ridged quadratic does as well and is simpler; for more
features than `MANY_FEATURES`, where the stack takes minutes (14 CPU-s at 1000 rows of 1000, with d^3 beyond); and for
sets that a simple classifier tells apart almost without error, which one classifier cannot measure (`bridge.py` has
the figures). Kernels win nowhere here.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.bridge import Bridge
from vestige.ratios.logistic import Logistic
from vestige.ratios.newton import logistic_loss, newton_logistic
from vestige.ratios.stack.stack import Stack
from vestige.ratios.standardise import design, mixture_standardiser

FEW_ROWS, FEW_FEATURES = 200, 3
MANY_FEATURES = 1000
FAR_LOSS = 0.02  # held-out nats a row, of 0.69 for one law: below it a classifier hardly errs
LOOK_ROWS, LOOK_FEATURES = 2000, 200  # the quick look at separability: rows of each side, features for squares


def look(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    *,
    p_weights: Float[Tensor, " n_p"] | None = None,
    seed: int,
) -> float:
    """Held-out logistic loss of a ridged classifier on z and squares (z alone in many dimensions), halves swapped."""
    of_p, of_q = (
        torch.randperm(len(x), generator=rng.fork(seed, "look", side))[:LOOK_ROWS] for side, x in (("p", p), ("q", q))
    )
    p, q = p[of_p], q[of_q]
    sample = Sample(p, q, None if p_weights is None else p_weights[of_p] / p_weights[of_p].sum())
    z = mixture_standardiser(sample, clip=Stack.clip)(torch.cat([p, q]))
    phi = design(z, "diagonal" if z.shape[1] <= LOOK_FEATURES else "linear")
    sign = torch.cat([torch.ones_like(sample.w_p), -torch.ones_like(sample.w_q)])
    weights = torch.cat([sample.w_p, sample.w_q])
    half = torch.cat([torch.arange(len(p)), torch.arange(len(q))]) % 2 == 0
    loss = 0.0
    for fit, judge in ((half, ~half), (~half, half)):
        scale = min(len(p), len(q)) / float(weights.sum())
        ridge = Stack.ridge * phi.shape[1]
        found = newton_logistic(phi[fit], sign[fit], weights[fit] * scale, ridge=ridge)
        loss += float(logistic_loss(phi[judge] @ found.head, sign[judge], weights[judge] / 2))
    return loss


def auto(p: ArrayLike, q: ArrayLike, *, seed: int = 0) -> Ratio:
    """An unfitted estimator for these sets; `reason_` says why, and `report_["why"]` repeats it after the fit."""
    p_, q_ = checks.pair(p, q, "auto")
    n, d = min(len(p_), len(q_)), p_.shape[1]
    chosen: Ratio
    if d > MANY_FEATURES:
        chosen = Logistic(kind="linear", ridge=0.1)
        reason = f"{d} features are too many for products: a linear logistic with a strong ridge."
    elif (loss := look(p_, q_, seed=seed)) < FAR_LOSS:
        chosen = Bridge()
        reason = f"A simple classifier hardly errs (held-out loss {loss:.2g}): waymarks bridge the gap."
    elif n < FEW_ROWS and d <= FEW_FEATURES:
        chosen = Logistic(kind="quadratic", ridge=1e-2)
        reason = f"{n} rows of {d} feature{'s' * (d > 1)} carry no more than a ridged quadratic."
    else:
        chosen = Stack()
        reason = f"{n} rows of {d} feature{'s' * (d > 1)}: the cross-fitted stack loses least on most kinds of sets."
    chosen.reason_ = chosen.report_["why"] = reason
    return chosen
