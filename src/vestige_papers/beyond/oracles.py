"""The oracle of images: who keeps the rows sees what a vestige sees, and smooths it likewise."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vestige.core import Estimate, NotEstimable, rng
from vestige.features.kept import ROWS_A_DIRECTION
from vestige.ratios import Ratio
from vestige.ratios.cross_fit import held_out
from vestige.ratios.divergences import learnt
from vestige.vestiges.frame import COMPONENTS


def components(features: Float64[Tensor, "n d"]) -> tuple[Float64[Tensor, " d"], Float64[Tensor, "k d"]]:
    """Mean and first principal directions, as `keep` chooses them for features of a map."""
    mean = features.mean(0)
    k = min(COMPONENTS, len(features) // ROWS_A_DIRECTION)
    return mean, torch.linalg.svd(features - mean, full_matrices=False).Vh[:k]


def smoothed_js(
    p: Float[Tensor, "n k"], q: Float[Tensor, "m k"], scale: Float[Tensor, " k"], *, estimator: str | Ratio, seed: int
) -> Estimate:
    """JS of two sets of rows with noise of these deviations on both."""
    own = rng.child_seed(seed, "oracle")
    noise = [torch.randn(x.shape, generator=rng.fork(own, side), dtype=x.dtype) for x, side in ((p, "p"), (q, "q"))]
    try:
        ratio = held_out(p + scale * noise[0], q + scale * noise[1], estimator=estimator, seed=own)
    except NotEstimable as error:
        return Estimate.refused(str(error), name="js")
    return learnt(["js"], *ratio.sides(None), ratio.refit(None))["js"]
