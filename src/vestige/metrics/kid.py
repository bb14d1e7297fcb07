"""KID: squared MMD under the cubic kernel (x.y/d + 1)^3 (Binkowski et al. 2018, section 4), with weights.

Deviation: they average over random subsets of 1000; here it is the whole U-statistic, which has no subset noise, and
`std_error` is its standard error, not the spread of subsets. For small d the kernel's own feature map, the third
moments of (x / sqrt d, 1), gives the same number in O(n d^3) without any pair of rows: it streams and it merges.

The feature map of the cubic kernel: (x.y/d + 1)^3 = phi(x).phi(y), with z = (x / sqrt d, 1) and phi the products
z_i z_j z_k, j <= k <= i, each times the root of the number of orders in which it occurs (1, 3 or 6).

Sums of phi over rows are matrix products of z with its pairs z_j z_k. Pairs are taken in strips of the larger index
k, and a strip meets only z_i with i >= the strip's first k: a third of the work of all pairs with all z.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, checks
from vestige.core.checks import ArrayLike, option
from vestige.metrics.base import measured, sizes, two_sets
from vestige.metrics.kernels import (
    Embedding,
    Polynomial,
    mmd_squared,
    quadratic_variance,
    squared_influences,
    std_error,
    uniform,
)

KERNEL = Polynomial(degree=3, offset=1.0)
# Third moments of wider features would fill gigabytes (about width^3 / 5 numbers a group).
MAX_MOMENT_WIDTH = 256
# Unweighted rows of each side from which the error of the moment form is taken: enough for 2 % of it. Weighted sets
# use every row, since their weight may sit on few.
ERROR_ROWS = 2000
# Rows at once: pairs of a strip stay within a few megabytes.
ROWS = 1024
# Larger indices k in a strip: narrower ones waste less on i < k, wider ones make better matrix products.
STRIP = 8


@functools.lru_cache(maxsize=8)
def _root_orders(width: int) -> Float[Tensor, " f"]:
    """The scale of every product in the order of `cubic_sum`; zero where a strip holds a product twice (i < k)."""
    scales = []
    for low in range(0, width, STRIP):
        k = torch.cat([torch.full((b + 1,), b) for b in range(low, min(low + STRIP, width))])
        j = torch.cat([torch.arange(b + 1) for b in range(low, min(low + STRIP, width))])
        i = torch.arange(low, width)[:, None]
        orders = 6 // (1 + (j == k).long() + (k == i).long()).where((j != k) | (k != i), torch.tensor(6))
        scales.append((orders * (i >= k)).flatten())
    return torch.cat(scales).to(torch.float64).sqrt()


def _strips(z: Float[Tensor, "e n"]) -> Iterator[tuple[int, Float[Tensor, "s n"]]]:
    """The first index of each strip, and its pairs z_j z_k, j <= k."""
    width = len(z)
    for low in range(0, width, STRIP):
        high = min(low + STRIP, width)
        pairs, start = z.new_empty((high * (high + 1) - low * (low + 1)) // 2, z.shape[1]), 0
        for k in range(low, high):
            torch.mul(z[: k + 1], z[k], out=pairs[start : start + k + 1])
            start += k + 1
        yield low, pairs


def _lifted(x: Float[Tensor, "n d"]) -> Iterator[tuple[slice, Float[Tensor, "e n2"]]]:
    """z of some rows at a time, a column a row."""
    for first in range(0, len(x), ROWS):
        rows = slice(first, first + ROWS)
        part = x[rows]
        yield rows, torch.cat([part.mT / x.shape[1] ** 0.5, x.new_ones(1, len(part))])


def cubic_sum(x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
    """sum w phi(x)."""
    sums: list[Tensor] = []
    for rows, z in _lifted(x):
        weighted = z * weights[rows]
        parts = [weighted[low:] @ pairs.mT for low, pairs in _strips(z)]
        sums = [a.add_(b) for a, b in zip(sums, parts, strict=True)] if sums else parts
    return torch.cat([part.flatten() for part in sums]) * _root_orders(x.shape[1] + 1)


def cubic_product(phi: Float[Tensor, " f"], x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    """phi . phi(x) for each row."""
    scaled, width, result = phi * _root_orders(x.shape[1] + 1), x.shape[1] + 1, x.new_zeros(len(x))
    for rows, z in _lifted(x):
        start = 0
        for low, pairs in _strips(z):
            size = (width - low) * len(pairs)
            block = scaled[start : start + size].reshape(width - low, len(pairs))
            result[rows] += (z[low:] * (block @ pairs)).sum(0)
            start += size
    return result


def _by_moments(
    x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], w: Float[Tensor, " n"], v: Float[Tensor, " m"], weighted: bool
) -> tuple[float, float]:
    """The U-statistic and its standard error from third moments, without any pair of rows for the value."""
    phi_p, phi_q = cubic_sum(x, w), cubic_sum(y, v)
    value, influences = -2 * float(phi_p @ phi_q), 0.0
    for rows, weights, phi, sign in ((x, w, phi_p, 1), (y, v, phi_q, -1)):
        own, square = KERNEL.diagonal(rows), weights.square().sum()
        within = (phi @ phi - weights.square() @ own) / (1 - square)
        value += float(within)
        step = 1 if weighted else -(-len(rows) // ERROR_ROWS)
        h = cubic_product((phi_p - phi_q) * sign, rows[::step])
        # A row is no neighbour of itself; the mean over its neighbours in this term is taken as that over all pairs.
        h += (weights * (within - own) / (1 - weights))[::step]
        influences += len(rows) / len(h) * squared_influences(h, weights[::step], square)
    return value, std_error(influences, quadratic_variance(x, y, w, v, KERNEL))


def kid(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    form: str = "auto",
) -> Estimate:
    """KID between real features `p` and the model's `q`. `form`: "moments", "blocks", or "auto", the cheaper one."""
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "kid")
    checks.one_of(form, ("auto", "moments", "blocks"), "form", "kid")
    d, n = x.shape[1], len(x) + len(y)
    if form == "auto":
        # Multiplications: about n (d+1)^3 / 2 by moments, with their making; n^2 (d + ~10 for the cube) by pairs.
        form = "moments" if d <= MAX_MOMENT_WIDTH and (d + 1) ** 3 < 2 * n * (d + 10) else "blocks"
    w, v = uniform(len(x), x_w, x), uniform(len(y), y_w, y)
    value, error = (
        _by_moments(x, y, w, v, x_w is not None or y_w is not None)
        if form == "moments"
        else mmd_squared(x, y, w, v, KERNEL)
    )
    return measured("kid", value, error, {**sizes(x, y, x_w, y_w), "form": form})


@dataclass(eq=False, kw_only=True)
class KID(Embedding):
    """Third moments of one set of features, exact for the whole U-statistic; `real.compute(fake)`.

    Each group keeps about width^3 / 5 numbers, so features wider than `MAX_MOMENT_WIDTH` are refused: use `kid`.
    """

    groups: int = option(20, low=1)

    def _checked(self, x: Float[Tensor, "n d"], owner: str) -> Float[Tensor, "n d"]:
        if x.shape[1] > MAX_MOMENT_WIDTH:
            checks.refuse("features", owner, f"at most {MAX_MOMENT_WIDTH} wide (kid() takes any width)", x.shape[1])
        return x

    def _phi_sum(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Float[Tensor, " f"]:
        return cubic_sum(x, weights)

    def _diagonal(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return KERNEL.diagonal(x)
