"""Whether rows lie near a curved surface: what differs across one that is thinner than its rows are apart is not seen.

On such rows the models of a ratio agree with each other, and with a fit that saw fewer rows, because none of them
begins to learn: the movement of `divergences.learnt` is nothing, and the interval about a value near zero is narrow and
wrong. What betrays the case is the rows themselves. Their local dimension, by the distances to the nearest neighbours
(Levina and Bickel 2004, averaged as MacKay and Ghahramani 2005 say: 1 / mean of log(r_k / r_j), j < k), is below that
of the same columns, each shuffled by itself: rows that fill their columns have a share of one, a roll or a sheet less.
Estimates of a local dimension are far too low in many dimensions, by the same factor for both.

Columns are made uncorrelated first, since correlation is no surface that a ratio would not see, and directions without
any spread are left out. Of two views, as they are and rank-Gaussian, the one that fills more counts: a plane in the
first (shares of a whole) is curved in the second, and a law that is merely skewed is round in the second alone. Columns
of few values, in which neighbours are ties, say nothing here.

`THIN` was set below the lowest share that any pair of the benchmark's families but the manifolds has; those, which it
had not seen, are what it is for (`python -m benchmarks truth`). That a view as they are is asked too came of the
compositions of its unseen set, which ranks alone call thin.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Generator, Tensor

NEIGHBOURS, BLOCK = 10, 512
THIN = 0.9
DISTINCT = 0.9  # of a column's values, or it has ties for neighbours
NO_SPREAD = 1e-6  # of the largest variance: a direction that the rows do not have


def continuous(p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"]) -> list[int]:
    """The columns whose values hardly repeat themselves on either side."""
    kept = ((x[:, j], len(x)) for j in range(p.shape[1]) for x in (p, q))
    apart = [len(column.unique()) > DISTINCT * n for column, n in kept]
    return [j for j, both in enumerate(zip(apart[::2], apart[1::2], strict=True)) if all(both)]


def uncorrelated(x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """The rows along the directions that they have, each of variance one."""
    centred = x - x.mean(0)
    scale = centred.square().mean(0).sqrt()
    centred = centred[:, scale > 0] / scale[scale > 0]
    variances, directions = torch.linalg.eigh(centred.mT @ centred / len(x))
    kept = variances > NO_SPREAD * variances.max() if len(variances) else variances > 0
    return centred @ directions[:, kept] / variances[kept].sqrt()


def local_dimension(x: Float[Tensor, "n d"], k: int = NEIGHBOURS) -> float:
    """In how many directions neighbours lie, by the growth of the distances to the first `k` of them.

    Example
    -------
    >>> angle = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 6.28
    >>> round(local_dimension(torch.stack([angle.cos(), angle.sin()], 1)), 1)
    1.0
    """
    grown, count = 0.0, 0
    for part in x.split(BLOCK):
        near = torch.cdist(part, x).topk(k + 1, 1, largest=False).values[:, 1:]
        apart = near[:, :-1] > 0  # the same row twice has no direction
        grown += float((near[:, -1:].expand_as(apart)[apart] / near[:, :-1][apart]).log().sum())
        count += int(apart.sum())
    return count / grown if grown > 0 else 0.0


def filled(x: Float[Tensor, "n d"], *, generator: Generator) -> float:
    """The local dimension of the rows as a share of that of their columns shuffled; one if there is nothing to tell."""
    rows = uncorrelated(x)
    if rows.shape[1] < 2 or len(rows) <= 2 * NEIGHBOURS:
        return 1.0
    shuffled = torch.stack([column[torch.randperm(len(rows), generator=generator)] for column in rows.mT], 1)
    whole = local_dimension(shuffled)
    return local_dimension(rows) / whole if whole > 0 else 1.0


def surface(
    views: tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]], *, generator: Generator, thin: float = THIN
) -> float:
    """What share of their directions the rows fill in the view that has more; the second is asked where it must be."""
    first = filled(views[0], generator=generator)
    return first if first >= thin else max(first, filled(views[1], generator=generator))
