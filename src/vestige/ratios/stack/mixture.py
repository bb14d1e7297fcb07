"""Centres by k-means under weights, and the stack's generative models: mixtures of diagonal Gaussians.

p and q are modelled by a mixture each, and log p/q is the difference of log densities.
They join where rows are too few for all products of coordinates (many dimensions), and there only. A model of each
density has far fewer directions to overfit than a classifier that separates them: between eight modes and eight moved
ones in 64 dimensions, 6000 rows a side, it alone finds a kl of 5.4 for 5.6. Elsewhere the classifiers need no such
assumption. Fitted by EM under sample weights, in standardised coordinates, from the same k-means centres of q for both
sides; at a warm start from the mixtures before.

What is kept of p are averages. A component that carries fewer than LEAST rows keeps its starting mean and the pooled
variance within components instead, so that none can close in on one row; the others' variances are drawn towards that
by `prior` pseudo-rows, and none falls below FLOOR.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST, FLOOR = 50.0, 1e-6  # rows of a component that has a mean of its own; of variances
COLD, WARM = 20, 5  # iterations of EM, from centres and from the mixtures before
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
    centres = z[torch.tensor(chosen)]
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


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Diagonal Gaussians with their shares."""

    log_share: Float[Tensor, " k"]
    mean: Float[Tensor, "k d"]
    variance: Float[Tensor, "k d"]

    def joint(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """log share plus log density of each row under each component."""
        precise = 1 / self.variance
        far = z.square() @ precise.mT - 2 * z @ (self.mean * precise).mT + (self.mean.square() * precise).sum(1)
        size = self.variance.log().sum(1) + z.shape[1] * math.log(2 * math.pi)
        return self.log_share - (far + size) / 2

    def log_prob(self, z: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Log density of each row."""
        return torch.logsumexp(self.joint(z), 1)


def maximise(
    z: Float[Tensor, "n d"], counted: Float[Tensor, "n k"], centres: Float[Tensor, "k d"], *, prior: float
) -> GaussianMixture:
    """The mixture of rows of which `counted` belong to each component."""
    mass = counted.sum(0)[:, None]
    first, second = counted.mT @ z, counted.mT @ z.square()
    enough = mass >= LEAST
    mean = torch.where(enough, first / torch.where(enough, mass, 1.0), centres)
    around = (second - 2 * mean * first + mass * mean.square()).clamp_min(0)  # rounding
    within = (around.sum(0) / mass.sum()).clamp_min(FLOOR)
    variance = torch.where(enough, ((around + prior * within) / (mass + prior)).clamp_min(FLOOR), within)
    return GaussianMixture(((mass + 1) / (mass + 1).sum()).log()[:, 0], mean, variance)


def fit_mixture(
    z: Float[Tensor, "n d"],
    rows: Float[Tensor, " n"],
    start: GaussianMixture | Float[Tensor, "k d"],
    *,
    iterations: int,
    prior: float = 10.0,
) -> GaussianMixture:
    """EM from a mixture, or from centres; `rows` says how many rows each row counts for."""
    if isinstance(start, GaussianMixture):
        centres, share = start.mean, torch.softmax(start.joint(z), 1)
    else:
        centres, share = start, torch.nn.functional.one_hot(nearest(z, start), len(start)).to(z.dtype)
    found = maximise(z, share * rows[:, None], centres, prior=prior)
    for _ in range(iterations - 1):
        share = torch.softmax(found.joint(z), 1)
        found = maximise(z, share * rows[:, None], centres, prior=prior)
    return found


@dataclass(frozen=True, eq=False)
class Pairs:
    """For each model and fold a mixture of p and one of q; the first model has one component, the second many."""

    mixtures: tuple[tuple[tuple[GaussianMixture, GaussianMixture], ...], ...]  # model, fold, side

    @classmethod
    def fit(
        cls,
        z: Float[Tensor, "n d"],
        n_p: int,
        trained: Float[Tensor, "folds n"],
        centres: Float[Tensor, "k d"],
        previous: Pairs | None,
    ) -> Pairs:
        """Each fold's models, under its own weights of the rows."""
        starts = [z.new_zeros(1, z.shape[1])] + ([centres] if len(centres) > 1 else [])
        models = []
        for m, start in enumerate(starts):
            folds = []
            for f, weights in enumerate(trained):
                of_p, of_q = previous.mixtures[m][f] if previous else (start, start)
                steps = 1 if len(start) == 1 else WARM if previous else COLD
                p = fit_mixture(z[:n_p], weights[:n_p], of_p, iterations=steps)
                folds.append((p, fit_mixture(z[n_p:], weights[n_p:], of_q, iterations=steps)))
            models.append(tuple(folds))
        return cls(tuple(models))

    def log_ratio(self, z: Float[Tensor, "n d"]) -> list[Float[Tensor, "folds n"]]:
        """log p/q by each model, in every fold."""
        return [torch.stack([p.log_prob(z) - q.log_prob(z) for p, q in folds]) for folds in self.mixtures]
