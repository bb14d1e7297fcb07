"""Where one set ends and the other goes on: edges of a sample's support, found along scores.

A score is larger the farther a row lies outside of the set `b`. Let e(s) be the share of the rows of `a` above the
score that a share s of b's own rows exceeds: the ROC curve of the score, read near zero. If a share of `a` lies where
`b` has nothing, those rows are above all of b, and e(s) - s stays flat at that share as s falls. In a tail, which b has
too but seldom, e(s) - s falls like a power of s. So an edge is where e(s) - s grows, by more than noise allows, with a
power below `FLAT` between s and `SPAN` s. Nothing is assumed of the score: a poor one finds less.

Three kinds of scores are looked at: the held-out log-ratio, which sees any part that a fitted ratio can tell; the
distance to the k-th nearest row of b in coordinates that are ranked column by column and put through the normal
quantile; and every column itself, upwards and downwards, which sees a range that b leaves out.

The limits were chosen on sixty pairs of sets (half-spaces, clusters and boxes that one side lacks; shifted, scaled and
correlated normals, Student t, mixtures, maps of them) of 600 and 3000 rows; `LEAST`, and the rule for discrete scores,
after a look at the zoo of the benchmarks. docs/numbers.md has what they do on that zoo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import ndtri
from scipy.stats import rankdata
from torch import Tensor

SHARE = 0.005  # of b's rows beyond the cutoff, and more where that is fewer than SHARE_ROWS rows
SHARE_ROWS = 10
SPAN = 4.0
FLAT, FLAT_SIGMAS = 0.15, 2.0  # the largest power, and by how many standard errors the growth is to stay below it
LEAST = 0.05  # of a's rows: less is not called a part, since some tails look like it
SIGMAS = 5.0  # by which a share must exceed what chance gives, as there are two scores a column
NEIGHBOURS = 10
BLOCK = 1024  # rows whose distances are held at once


@dataclass(frozen=True)
class Edges:
    """For each of m scores: is there an edge? And which rows of a, and of b, are beyond the near side of any."""

    found: Bool[Tensor, " m"]
    near: tuple[Bool[Tensor, " n_a"], Bool[Tensor, " n_b"]]
    far: tuple[Bool[Tensor, " n_a"], Bool[Tensor, " n_b"]]  # the same of the far side, which is nearer to b's middle


def worth(weights: Float[Tensor, " n"]) -> float:
    """Kish's effective number of rows of weights that sum to one."""
    return float(1 / weights.square().sum())


def renewed(weights: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """The weights, made to sum to one."""
    return weights / weights.sum()


def cutoff(
    score: Float[Tensor, "n m"], weights: Float[Tensor, " n"], share: float
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """For each score the value that the share of `weights` reaches from above, and what part of its ties is above."""
    ordered, order = score.sort(0, descending=True)
    reached = weights[order].cumsum(0) >= share * (1 - 1e-9)
    value = ordered.gather(0, reached.to(torch.int8).argmax(0)[None])[0]
    above = weights @ (score > value).to(weights.dtype)
    ties = weights @ (score == value).to(weights.dtype)
    return value, ((share - above) / ties).clamp(0, 1)


def _above(
    score: Float[Tensor, "n m"], weights: Float[Tensor, " n"], value: Float[Tensor, " m"], part: Float[Tensor, " m"]
) -> Float[Tensor, " m"]:
    """The share of `weights` above each value, ties counted in part."""
    dtype = weights.dtype
    return weights @ (score > value).to(dtype) + part * (weights @ (score == value).to(dtype))


def edges(
    score_a: Float[Tensor, "n_a m"],
    score_b: Float[Tensor, "n_b m"],
    w_a: Float[Tensor, " n_a"],
    w_b: Float[Tensor, " n_b"],
) -> Edges:
    """The edges of b along each of m scores, and the rows beyond any; weights sum to one."""
    rows = min(worth(w_a), worth(w_b))
    share = min(max(SHARE, SHARE_ROWS / worth(w_b)), 1 / (2 * SPAN))
    near_value, near_part = cutoff(score_b, w_b, share)
    far_value, far_part = cutoff(score_b, w_b, SPAN * share)
    near = _above(score_a, w_a, near_value, near_part) - share
    far = _above(score_a, w_a, far_value, far_part) - SPAN * share
    least = max(LEAST, SIGMAS * math.sqrt(2 * share / rows))  # of two shares of size `share`, each from so many rows
    growth = far - near
    between = (SPAN - 1) * share  # of b; of a it is that and the growth
    of_a = (growth + between).clamp_min(0)
    # Binomial noise of both shares, and that of the cutoffs, beyond and between which only so many rows of b lie.
    noise = ((between + of_a) / rows + of_a.square() * (1 / share + 1 / between) / worth(w_b)).sqrt()
    smooth = (near >= least) & (growth + FLAT_SIGMAS * noise <= (SPAN**FLAT - 1) * near)
    # Of a discrete score both cutoffs may be one value, which b hardly exceeds if it is the end of its support.
    strictly = [w @ (score > near_value).to(w.dtype) for score, w in ((score_a, w_a), (score_b, w_b))]
    at_the_end = (strictly[0] >= least) & (strictly[1] <= share / SPAN)
    found = torch.where(near_value == far_value, at_the_end, smooth)
    marks = [
        tuple((score[:, found] > value[found]).any(1) for score in (score_a, score_b))
        for value in (near_value, far_value)
    ]
    return Edges(found, (marks[0][0], marks[0][1]), (marks[1][0], marks[1][1]))


def ranked(
    p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"]
) -> tuple[Float[Tensor, "n_p d"], Float[Tensor, "n_q d"]]:
    """Each column through the ranks of the pooled rows (ties at their mean rank) and the normal quantile."""
    pooled = np.concatenate([p.numpy(), q.numpy()])
    z = torch.from_numpy(ndtri((rankdata(pooled, axis=0) - 0.5) / len(pooled)))
    return z[: len(p)], z[len(p) :]


def neighbour_distances(
    a: Float[Tensor, "n_a d"], b: Float[Tensor, "n_b d"], k: int
) -> tuple[Float[Tensor, " n_a"], Float[Tensor, " n_b"]]:
    """The distance of each row of a, and of each row of b, to its k-th nearest row of b, itself not counted."""
    # topk of a few is thrice as fast as kthvalue, and the same number
    of_a = [torch.cdist(part, b).topk(k, 1, largest=False).values[:, -1] for part in a.split(BLOCK)]
    of_b = [torch.cdist(part, b).topk(k + 1, 1, largest=False).values[:, -1] for part in b.split(BLOCK)]
    return torch.cat(of_a), torch.cat(of_b)
