"""What the stack's classifiers see of a sample: standardised coordinates, their products, and the nearest centre.

Coordinates are standardised by the even mixture of p and q and clamped: where q is narrower than p, q's own scale
would put a good part of p beyond the clip (4 % of each coordinate of N(0, 1) seen from N(0.5, 0.5^2)). Of p this
keeps the mixture's mean and deviation (`stack.mixture` keeps more), and by="model" standardises by q alone for those
who may not keep even that. Centres are k-means centres of q alone, so no row of p can be among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.ratios.base import Sample
from vestige.ratios.newton import Design
from vestige.ratios.standardise import Standardiser, design, mixture_standardiser

LLOYD_ITERATIONS = 25  # at most


def nearest(z: Float[Tensor, "n d"], centres: Float[Tensor, "k d"]) -> Int[Tensor, " n"]:
    """Index of the nearest centre."""
    # |z|^2 is the same for every centre; a row's answer must not depend on the other rows, so no expanded cdist mode
    return (centres.square().sum(1) - 2 * z @ centres.mT).argmin(1)


def k_means(
    z: Float[Tensor, "n d"], weights: Float[Tensor, " n"], k: int, *, generator: torch.Generator
) -> Float[Tensor, "k d"]:
    """Lloyd's algorithm from k-means++ seeds, under sample weights that sum to one."""
    chosen = [int(torch.multinomial(weights, 1, generator=generator))]
    gap = (z - z[chosen[0]]).square().sum(1)
    for _ in range(1, k):
        mass = weights * gap
        if not bool(mass.sum() > 0):  # fewer distinct rows than centres
            break
        chosen.append(int(torch.multinomial(mass, 1, generator=generator)))
        gap = torch.minimum(gap, (z - z[chosen[-1]]).square().sum(1))
    centres = z[chosen]
    for _ in range(LLOYD_ITERATIONS):
        group = nearest(z, centres)
        mass = weights.new_zeros(len(centres)).index_add_(0, group, weights)
        sums = torch.zeros_like(centres).index_add_(0, group, weights[:, None] * z)
        used = (mass > 0)[:, None]  # a centre that lost its rows stays where it is
        moved = torch.where(used, sums / torch.where(used, mass[:, None], 1.0), centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    return centres


@dataclass(frozen=True)
class StackFeatures:
    """The fixed map from samples to what the models see."""

    standardise: Standardiser
    centres: Float[Tensor, "k d"]
    full: bool

    @classmethod
    def of(
        cls, sample: Sample, *, clip: float, centres: int, full: bool, generator: torch.Generator, by: str = "mixture"
    ) -> StackFeatures:
        """Learn shift, scale and centres."""
        standardise = mixture_standardiser(sample, p_share=0.0 if by == "model" else 0.5, clip=clip)
        z = standardise(sample.q)
        found = k_means(z, sample.w_q, centres, generator=generator) if centres > 1 else z[:0]
        return cls(standardise, found.clone(), full)

    def __call__(self, x: Float[Tensor, "n d"]) -> Design:
        """phi, the nearest centre of each row and, where there are centres, [1, z - centre]."""
        z = self.standardise(x)
        phi = design(z, "full" if self.full else "diagonal")
        if not len(self.centres):
            return Design.dense(phi)
        group = nearest(z, self.centres)
        local = torch.cat([z.new_ones(len(z), 1), z - self.centres[group]], 1)
        return Design(phi, group, local, len(self.centres))

    def clipped(self, x: Float[Tensor, "n d"]) -> float:
        """The share of rows that the clip changes."""
        s = self.standardise
        if s.clip is None:
            return 0.0
        return float((((x - s.shift) / s.scale).abs() > s.clip).any(1).double().mean())
