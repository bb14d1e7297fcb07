"""The noise and what it costs: OpenDP's discrete Gaussian on whole numbers, and OpenDP's own accounting.

All that leaves is one vector of whole numbers, the sums of `statistics`, whose L2 distance between neighbouring sets is
at most a whole number. So there is one measurement: `make_gaussian`, which is zero-concentrated private, turned into an
(epsilon, delta) by `make_zCDP_to_approxDP` and `make_fix_delta`. Its map is the only accountant here: the scale of the
noise is the smallest at which the map of the very measurement that is then invoked stays within what was asked for.
The parts of the vector share this one expense (`Query.shares`), so that nothing has to be composed.

Whole numbers have no rounding: sums do not depend on the order of the rows, and the noise is drawn exactly (Canonne,
Kamath and Steinke 2020). OpenDP takes its bits from the operating system. No seed of ours reaches it.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from vestige.core import MissingPackage, checks

OWNER = "keep"
LEAST_SCALE, MOST_SCALE = (
    0.01,
    1e5,
)  # standard deviations of the noise in sensitivities, between which one is looked for


@functools.cache
def _opendp() -> Any:  # noqa: ANN401 - a module without types
    try:
        dp = import_module("opendp.prelude")
    except ImportError as error:
        raise MissingPackage("Keeping rows with an epsilon needs OpenDP: pip install 'vestige[private]'") from error
    dp.enable_features("contrib")
    return dp


def measurement(size: int, scale: float, delta: float) -> Any:  # noqa: ANN401 - OpenDP's
    """Adds noise of this scale to `size` whole numbers; its map goes from an L2 distance to (epsilon, delta)."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64"), size=size), dp.l2_distance(T="f64")
    return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale)), delta)


@functools.cache
def noise_scale(size: int, sensitivity: int, epsilon: float, delta: float) -> float:
    """The smallest scale at which one unit more or less costs no more than (epsilon, delta)."""
    epsilon = checks.number(epsilon, "epsilon", OWNER, low=0, high=MOST_EPSILON, open_low=True)
    delta = checks.number(delta, "delta", OWNER, low=0, high=1, open_low=True, open_high=True)
    dp = _opendp()

    def enough(times: float) -> bool:
        made = measurement(size, times * sensitivity, delta)
        return bool(made.check(float(sensitivity), (epsilon, delta)))

    if not enough(MOST_SCALE):
        checks.refuse("epsilon", OWNER, f"large enough for noise below {MOST_SCALE:g} sensitivities", epsilon)
    return float(dp.binary_search(enough, bounds=(LEAST_SCALE, MOST_SCALE))) * sensitivity


def spent(size: int, scale: float, sensitivity: int, delta: float) -> float:
    """The epsilon of noise of this scale, by OpenDP's map."""
    return float(measurement(size, scale, delta).map(float(sensitivity))[0])


def released(sums: Int64[Tensor, " k"], scale: float, delta: float) -> Int64[Tensor, " k"]:
    """The sums with noise; the sums themselves go no further."""
    return torch.tensor(measurement(len(sums), scale, delta)(sums.tolist()), dtype=torch.int64)


MOST_EPSILON = 50.0  # beyond it there is nothing left to promise
