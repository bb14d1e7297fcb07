"""The feature map of the cubic kernel: (x.y/d + 1)^3 = phi(x).phi(y), with z = (x / sqrt d, 1) and phi the products
z_i z_j z_k, j <= k <= i, each times the root of the number of orders in which it occurs (1, 3 or 6).

Sums of phi over rows are matrix products of z with its pairs z_j z_k. Pairs are taken in strips of the larger index
k, and a strip meets only z_i with i >= the strip's first k: a third of the work of all pairs with all z.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

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
