"""Cross-fitting: folds, held-out predictions, and the logistic that joins them (Wolpert 1992; Breiman 1996).

A model's coefficient cannot be negative, and their sum is free: models that none of the held-out rows confirm get a
sum near zero, which is what p = q asks for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from torch import Tensor

from vestige.ratios.newton import logistic_loss


def assign_folds(weights: Float[Tensor, " n"], folds: int, *, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Random folds of equal size up to one, for rows that count and for rows of weight zero alike."""
    order = torch.randperm(len(weights), generator=generator)
    order = order[torch.argsort((weights[order] == 0).to(torch.int8), stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(weights)) % folds
    return fold


def combine(
    held_out: Float[Tensor, "n models"],
    sign: Float[Tensor, " n"],
    weights: Float[Tensor, " n"],
    *,
    ridge: float,
    top: float,
) -> Float[Tensor, " models"]:
    """Coefficients in [0, top] of the logistic on held-out log-ratios, with a ridge towards 1 / models."""
    k = held_out.shape[1]
    target, weights = (sign > 0).to(weights.dtype), weights / weights.sum()

    def objective(c: Any) -> tuple[float, Any]:  # noqa: ANN401 - numpy's side of scipy
        c_ = torch.from_numpy(c)
        f = held_out @ c_
        value = logistic_loss(f, sign, weights) + ridge * (c_ - 1 / k).square().sum() / 2
        slope = held_out.mT @ (weights * (torch.sigmoid(f) - target)) + ridge * (c_ - 1 / k)
        return float(value), slope.numpy()

    start = np.full(k, 1 / k)
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, top)] * k,
        options={"ftol": 1e-13, "gtol": 1e-9},
    )
    return torch.from_numpy(found.x)


def held_out_of(every: Float[Tensor, "folds models n"], fold: Int[Tensor, " n"]) -> Float[Tensor, "n models"]:
    """Of all folds' predictions, each row's from the models that were fitted without it."""
    return every.gather(0, fold.expand(1, every.shape[1], -1))[0].mT
