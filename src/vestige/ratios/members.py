"""The samples of ensemble members on their way into a batched network, and the network's way back to log-ratios.

A member has its own sample, its own standardisation and its own split into rows for training, for early stopping and,
on request, rows kept aside. Weights say how often a row counts; a bootstrap is a set of weights, so a row is never
on both sides of a split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.nets.batched import BatchedMLP
from vestige.ratios.standardise import Standardiser
from vestige.ratios.training import MemberRows

# Hidden layers of about this many numbers stay in the cache; larger blocks of members are slower, not faster.
BLOCK_CELLS = 2**20


@dataclass(frozen=True)
class Sample:
    """What one member is fitted on: float64 samples, and weights that sum to one."""

    p: Float[Tensor, "n_p d"]
    q: Float[Tensor, "n_q d"]
    p_weights: Float[Tensor, " n_p"]
    q_weights: Float[Tensor, " n_q"]


@dataclass(frozen=True)
class Prepared:
    """A sample with its standardisation and its rows by use: training, early stopping, and kept aside if asked for."""

    sample: Sample
    standardise: Standardiser
    p_rows: list[Tensor]
    q_rows: list[Tensor]
    clipped: float  # the share of rows that the clip of the standardisation changed


def split(w: Float[Tensor, " n"], shares: Sequence[float], owner: str, generator: torch.Generator) -> list[Tensor]:
    """Random disjoint rows: what is left over first, then `shares` of the whole. Each part has some weight."""
    order = torch.randperm(len(w), generator=generator)
    sizes = [max(1, round(share * len(w))) for share in shares]
    sizes = [len(w) - sum(sizes), *sizes]
    heavy = order[w[order] > 0][: len(sizes)]
    if len(heavy) < len(sizes) or sizes[0] < 1:
        checks.refuse("p and q", owner, f"at least {len(sizes)} samples of positive weight each", len(heavy))
    light = order[~torch.isin(order, heavy)].split([size - 1 for size in sizes])
    return [torch.cat([heavy[i : i + 1], rows]) for i, rows in enumerate(light)]


def reach(n: int, rows: float = 5.0) -> float:
    """Deviations beyond which a normal sample of `n` has `rows` rows on each side; one at the least."""
    return max(1.0, -math.sqrt(2) * float(torch.erfinv(torch.tensor(min(2 * rows / n, 1.0) - 1, dtype=torch.float64))))


def prepare(
    sample: Sample, seed: int, *, p_share: float, shares: Sequence[float], floor: float, clip: float | None, owner: str
) -> Prepared:
    """Standardise by the mixture in which p has the mass `p_share`, and split both."""
    both = torch.cat([sample.p, sample.q])
    weights = torch.cat([p_share * sample.p_weights, (1 - p_share) * sample.q_weights])
    standardise = Standardiser.of(both, weights, floor=floor, clip=clip)
    far = 0.0 if clip is None else float((standardise(both).abs() >= clip).any(1).double().mean())
    p_rows = split(sample.p_weights, shares, owner, rng.fork(seed, "split", "p"))
    q_rows = split(sample.q_weights, shares, owner, rng.fork(seed, "split", "q"))
    return Prepared(sample, standardise, p_rows, q_rows, far)


def feature_map(z: Float[Tensor, "*m n d"], quadratic: bool) -> Float[Tensor, "*m n k"]:
    """z, or [z, (z^2 - 1) / sqrt 2], whose halves both have unit variance under a standard normal."""
    return torch.cat([z, (z.square() - 1) / math.sqrt(2)], -1) if quadratic else z


def sides(members: Sequence[Prepared], part: int, quadratic: bool) -> tuple[MemberRows, MemberRows]:
    """The rows of p and of q in one part of the split, of all members, as a batched network takes them."""
    found: list[MemberRows] = []
    for side in ("p", "q"):
        x, w = [], []
        for m in members:
            rows = getattr(m, f"{side}_rows")[part]
            weights = getattr(m.sample, f"{side}_weights")[rows]
            x.append(m.standardise(getattr(m.sample, side)[rows]))
            w.append(weights / weights.sum())
        features = feature_map(torch.stack(x).to(torch.float32), quadratic)
        found.append(MemberRows(features, torch.stack(w).to(torch.float32)))
    return found[0], found[1]


@torch.no_grad()
def evaluate(
    net: BatchedMLP,
    state: dict[str, Tensor],
    x: Float[Tensor, "*m n d"],
    *,
    quadratic: bool,
) -> Float[Tensor, "m n"]:
    """Outputs of every member on one set (n, d), or on one each (m, n, d), in float64 and in pieces of bounded size.

    float64, so that what a row gives hardly depends on the shape of the call.
    """
    shift, scale, clip = state["shift"].unsqueeze(1), state["scale"].unsqueeze(1), state["clip"][:, None, None]
    members, n = len(shift), x.shape[-2]
    width = max(w.shape[-1] for w in net.weights)
    rows = max(1, min(n, BLOCK_CELLS // width))
    block = max(1, BLOCK_CELLS // (rows * width))
    out = torch.empty(members, n, dtype=torch.float64)
    for i in range(0, members, block):
        chosen = slice(i, i + block)
        part = net.part(chosen, torch.float64)
        for j in range(0, n, rows):
            seen = x[j : j + rows] if x.ndim == 2 else x[chosen, j : j + rows]
            z = ((seen - shift[chosen]) / scale[chosen]).clamp(-clip[chosen], clip[chosen])
            out[chosen, j : j + rows] = part(feature_map(z, quadratic)).squeeze(2)
    return out
