"""The best mixture: maximise sum_i w_i log (A b)_i over the simplex, certified, monotone, without a step size.

At b the gradient is g_j = sum_i w_i A_ij / (A b)_i, and sum_j b_j g_j = 1. The objective is concave, so no point of
the simplex lies higher than the present one by more than max_j g_j - 1: this gap is the certificate.

EM is the update b <- b g: it never lowers the objective and needs no step size, but its last digits are slow (300
rounds leave a gap of 1e-3). So after `em_rounds` of it each round first tries a Newton step on the columns that can
matter (b_j > 0 or g_j > 1). The multiplier of sum b = 1 is one at the optimum, which leaves only b >= 0: a small
non-negative least-squares problem, whose exact zeros shrink the next round. A step that does not raise the objective
as its slope promises is halved; after `HALVINGS` the round makes the EM update instead. The objective rises in every
round, and four or five Newton steps bring the gap under 1e-6. (Kim, Carbonetto, Stephens and Anitescu 2020 solve the
same problem by sequential quadratic programming.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from scipy.optimize import nnls
from torch import Tensor

HALVINGS = 20
ARMIJO = 1e-4  # a step must gain this share of what its slope promises


@dataclass(frozen=True)
class BestMixture:
    """Proportions, the objective they reach, and how far below the maximum it can be."""

    proportions: Float[Tensor, " b"]
    objective: float
    gap: float
    rounds: int


def best_mixture(
    columns: Float[Tensor, "b n"],
    weights: Float[Tensor, " n"],
    *,
    start: Float[Tensor, " b"] | None = None,
    tolerance: float = 1e-6,
    max_rounds: int = 200,
    em_rounds: int = 10,
) -> BestMixture:
    """Proportions within `tolerance` of the maximum, or where `max_rounds` ended.

    `columns` is A transposed, with A b > 0 at the start; `weights` are positive and sum to one. Scaling a row of A
    adds a constant to the objective and changes nothing else. A good start needs no `em_rounds`; with as many as
    `max_rounds` it is EM alone.
    """
    b = columns.new_full((len(columns),), 1 / len(columns)) if start is None else start
    mixed = b @ columns
    for rounds in range(max_rounds + 1):
        slopes = weights / mixed
        g = columns @ slopes
        gap = float(g.max()) - 1
        if gap <= tolerance or rounds == max_rounds:
            break
        moved = _newton_step(columns, weights, b, mixed, g) if rounds >= em_rounds else None
        b, mixed = moved or (b * g, (b * g) @ columns)
    return BestMixture(b, float(weights @ mixed.log()), gap, rounds)


def _newton_step(
    columns: Float[Tensor, "b n"],
    weights: Float[Tensor, " n"],
    b: Float[Tensor, " b"],
    mixed: Float[Tensor, " n"],
    g: Float[Tensor, " b"],
) -> tuple[Float[Tensor, " b"], Float[Tensor, " n"]] | None:
    """b and A b after a Newton step of sum w log(A b) - sum b under b >= 0, scaled to sum one; None without a gain."""
    active = ((b > 0) | (g > 1)).nonzero()[:, 0]
    rows = columns[active]
    scaled = rows * (weights.sqrt() / mixed)
    values, basis = torch.linalg.eigh(scaled @ scaled.mT)
    values = values.clamp_min(float(values[-1]) * len(values) * torch.finfo(values.dtype).eps)
    # With H the negative Hessian, H b = g; so the model x'Hx/2 - (2g - 1)'x is |root x - image|^2 / 2 + constant.
    root, image = values.sqrt()[:, None] * basis.mT, (basis.mT @ (2 * g[active] - 1)) / values.sqrt()
    try:
        move = torch.from_numpy(nnls(root.numpy(), image.numpy())[0]) - b[active]
    except RuntimeError:  # its active set cycled; EM makes this round
        return None
    gain, slope = move @ rows, float((g[active] - 1) @ move)
    before = float(weights @ mixed.log())
    for t in (0.5**k for k in range(HALVINGS)):
        trial, next_b = mixed + t * gain, b.index_add(0, active, t * move)
        total = float(next_b.sum())
        if bool(trial.min() > 0) and float(weights @ trial.log()) - math.log(total) > before + ARMIJO * t * slope:
            return next_b / total, trial / total
    return None
