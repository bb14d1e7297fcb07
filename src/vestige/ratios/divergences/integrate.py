"""Divergences of any two densities in one or two dimensions, by the trapezoid rule on a box: an oracle for tests.

The rule is exact to rounding for smooth densities that vanish at the edge of the box; the kink of total_variation
leaves an error of the order of the squared step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.ratios.divergences import family

LogDensity = Callable[[Float[Tensor, "n d"]], Float[Tensor, " n"]]


def integrated_divergence(
    name: str, log_p: LogDensity, log_q: LogDensity, low: list[float], high: list[float], *, points: int = 2001
) -> float:
    """D(p || q) of two log densities over the box from `low` to `high`, `points` along each axis."""
    owner = "divergences.integrated_divergence"
    div = family.get(name)
    points = checks.whole(points, "points", owner, low=2)
    if len(low) not in (1, 2) or len(high) != len(low):
        checks.refuse(
            "low", owner, "the corner of a box in one or two dimensions", f"{len(low)} and {len(high)} numbers"
        )
    axes = [torch.linspace(a, b, points, dtype=torch.float64) for a, b in zip(low, high, strict=True)]
    edge = torch.ones(points, dtype=torch.float64)
    edge[0] = edge[-1] = 0.5
    cell = edge * (axes[0][1] - axes[0][0])
    if len(axes) == 2:
        cell = torch.outer(cell, edge * (axes[1][1] - axes[1][0])).reshape(-1)
    grid = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    at_p, at_q = log_p(grid), log_q(grid)
    total = torch.zeros((), dtype=torch.float64)
    # p a + q b rather than q f(r), which is 0 * inf where q underflows
    for log_density, map_ in ((at_p, div.two_sided[0]), (at_q, div.two_sided[1])):
        if map_ is not None:
            kept = log_density > -700  # beyond it the density, not the map, decides: the term is zero
            total = total + cell[kept] @ (log_density[kept].exp() * map_((at_p - at_q)[kept]))
    return float(total)
