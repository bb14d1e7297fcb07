"""A fitted ratio whose coordinates are rounded, to be kept when one of its sides is gone.

A ratio holds averages over its rows: shift and scale of the coordinates that it sees, knots of their distributions,
means and variances of mixtures. They are rounded to a hundredth of their standard errors over `n` rows
(`core.rounding`), and knots beyond which fewer than 50 rows lie are replaced by those of a normal tail, so that none is
near an extreme. Weights that were fitted in the coordinates stay as they are: but for these few rows, what moves is a
ten-thousandth of a deviation.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor

from vestige.core.rounding import ROWS_TOGETHER, rounded
from vestige.ratios.stack.marginals import Columns, Marginals
from vestige.ratios.stack.mixture import GaussianMixture
from vestige.ratios.standardise import Standardiser


def with_rounded_coordinates(thing: Any, n: int) -> Any:  # noqa: ANN401 - a ratio, or a part of one
    """`thing` with the averages over `n` rows that it holds rounded; it is left as it is."""
    if isinstance(thing, Standardiser):
        told = _shift_and_scale(thing.shift, thing.scale, n)
        return dataclasses.replace(thing, shift=told["shift"], scale=told["scale"])
    if isinstance(thing, GaussianMixture):
        rows = (thing.log_share.exp() * n).clamp_min(1.0)[:, None]
        mean = rounded(thing.mean, (thing.variance / rows).sqrt())
        return GaussianMixture(thing.log_share, mean, rounded(thing.variance, thing.variance * (2 / rows).sqrt()))
    if isinstance(thing, Columns):
        middle, width = (rounded(x, thing.width / n**0.5) for x in (thing.middle, thing.width))
        return dataclasses.replace(thing.without_extremes(ROWS_TOGETHER / n), middle=middle, width=width)
    if isinstance(thing, Marginals):
        error = torch.full_like(thing.mean, n**-0.5)
        root = rounded(thing.root, thing.root.abs() * n**-0.5)
        own = {name: with_rounded_coordinates(getattr(thing, name), n) for name in ("columns", "radius")}
        return Marginals(own["columns"], rounded(thing.mean, error), root, own["radius"])
    if isinstance(thing, dict):
        told = {key: with_rounded_coordinates(value, n) for key, value in thing.items()}
        if isinstance(told.get("shift"), Tensor) and isinstance(told.get("scale"), Tensor):
            told |= _shift_and_scale(told["shift"], told["scale"], n)
        return told
    if isinstance(thing, list | tuple) and not hasattr(thing, "_fields"):
        return type(thing)(with_rounded_coordinates(value, n) for value in thing)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        made = copy.copy(thing)
        for key, value in vars(thing).items():
            object.__setattr__(made, key, with_rounded_coordinates(value, n))
        return made
    return thing


def _shift_and_scale(shift: Tensor, scale: Tensor, n: int) -> dict[str, Tensor]:
    return {
        "shift": rounded(shift, scale / n**0.5).to(shift.dtype),
        "scale": rounded(scale, scale / (2 * n) ** 0.5).to(scale.dtype),
    }
