"""Could p and q be one law? The label-permutation test, refitted inside every permutation.

Under p = q every way of dealing the pooled rows into sets of these sizes is equally likely, so the share of deals whose
statistic is at least the observed one is a valid p-value at any n, d and estimator, provided that nothing was learnt
from the labels before. Counting the observed deal itself, (1 + #) / (1 + n), keeps it valid for random deals (Phipson
and Smyth 2010); where all deals are no more than `n`, each is taken once and the p-value is exact.

The default statistic is the score of a ridge logistic regression of the labels at r = 1, g' (H + ridge)^-1 g: what one
Newton step from r = 1 gains, twice. At r = 1 the Hessian does not depend on the labels, so it is factored once and all
permutations are one matrix product; a full refit costs hundreds of times more and orders the deals almost alike.
The features are z and its products (all, or squares alone where rows are few), which see means, scales and
correlations, and `WAVES` random Fourier features (Rahimi and Recht 2007) at the median distance, which see the rest.
Power at 5 % in 2-d over 100 repeats, with 32 waves (without any): 100 a side, shift 0.3 0.60 (0.72), scale 1.3 0.71
(0.88); 200 a side, correlation 0.4 0.81 (0.93), two modes of equal moments 0.34 (0.01), a rescaled Student t of 3
degrees 0.71 (0.03): somewhat less against the usual, instead of nothing against the rest.

`functions` of the pooled rows join it on request: their largest z^2 is a second statistic of every deal, and the two
are combined by the smaller of their ranks among all deals, which is ranked among all deals in turn (Westfall and Young
1993, the smallest p under the permutations themselves). That is exact, too, as long as the functions know nothing of
the labels, and costs nothing where the two say the same. The statistic is then minus the logarithm of that rank.

With an `estimator` each permutation is a fit; the statistic is mean_p log r - mean_q log r, the Jeffreys divergence.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike
from vestige.ratios.base import Ratio
from vestige.ratios.standardise import Standardiser, design, quadratic_form

WAVES = 32
CLIP = 4.5  # of standardised coordinates: one outlier must not own a product
RIDGE = 0.15  # in pseudo-rows for each feature
TIE = 1e-9  # relative: statistics this near count as equal, against the verdict "different"
BLOCK = 4_000_000  # labels shuffled at once


@dataclass(frozen=True)
class PermutationTest:
    """The observed statistic, the chance of one at least as large if p = q, and the statistics of the deals."""

    statistic: float
    p_value: float
    null: Float[Tensor, " n"]
    exact: bool


def score_features(x: Float[Tensor, "n d"], *, generator: torch.Generator) -> Float[Tensor, "n m"]:
    """Whitened features U of the pooled rows, such that |sum of U over p|^2 is the score statistic."""
    n, d = x.shape
    z = Standardiser.of(x, clip=CLIP)(x)
    some = z[torch.randperm(n, generator=generator)[:500]]
    width = float(torch.pdist(some).median()) or 1.0
    waves = torch.randn(d, WAVES, generator=generator, dtype=z.dtype) / width
    phase = 2 * math.pi * torch.rand(WAVES, generator=generator, dtype=z.dtype)
    phi = torch.cat([design(z, quadratic_form(d, n))[:, 1:], torch.cos(z @ waves + phase)], 1)
    phi = Standardiser.of(phi)(phi)
    ridge = 4 * RIDGE * phi.shape[1] / n  # the logistic curvature at r = 1 is 1/4 a row
    values, vectors = torch.linalg.eigh(phi.mT @ phi / n)
    return phi @ (vectors / (values.clamp_min(0) + ridge).sqrt())


def deals(n: int, n_p: int, count: int, *, generator: torch.Generator) -> Iterator[Bool[Tensor, "b n"]]:
    """Blocks of random label vectors, or of all of them where there are at most `count`: true for p."""
    if math.comb(n, n_p) <= count:
        chosen = torch.tensor(list(itertools.combinations(range(n), n_p)))
        yield torch.zeros(len(chosen), n, dtype=torch.bool).scatter_(1, chosen, True)
        return
    block = max(1, BLOCK // n)
    for start in range(0, count, block):
        size = min(block, count - start)
        chosen = torch.rand(size, n, generator=generator, dtype=torch.float64).argsort(1)[:, :n_p]
        yield torch.zeros(size, n, dtype=torch.bool).scatter_(1, chosen, True)


def score(features: Float[Tensor, "n m"], labels: Bool[Tensor, "b n"]) -> Float[Tensor, " b"]:
    """n_p n_q / n |mean over p - mean over q|^2 of whitened features, for every dealing of the labels."""
    n, n_p = features.shape[0], int(labels[0].sum())
    total = labels.to(features.dtype) @ (features - features.mean(0))
    return total.square().sum(1) * n / (n_p * (n - n_p))


def refitted(
    x: Float[Tensor, "n d"], estimator: Ratio, labels: Bool[Tensor, "b n"], *, seed: int
) -> Float[Tensor, " b"]:
    """mean_p log r - mean_q log r of a fresh fit to every dealing of the labels."""
    values = []
    for of_p in labels:
        p, q = x[of_p], x[~of_p]
        fitted = replace(estimator).fit(p, q, seed=seed)
        values.append(fitted.log_ratio(p).mean() - fitted.log_ratio(q).mean())
    return torch.stack(values)


def largest(functions: Float[Tensor, "n f"], labels: Bool[Tensor, "b n"]) -> Float[Tensor, " b"]:
    """The largest z^2 of the difference of means of functions, for every dealing of the labels."""
    n, n_p = functions.shape[0], int(labels[0].sum())
    centred = functions - functions.mean(0)
    variance = centred.square().sum(0) / (n - 1)
    scaled = centred[:, variance > 0] / variance[variance > 0].sqrt()
    if not scaled.shape[1]:
        return functions.new_zeros(len(labels))
    total = labels.to(scaled.dtype) @ scaled  # of p; that of q is minus it
    return total.square().amax(1) * n / (n_p * (n - n_p))


def smaller_rank(found: Float[Tensor, "b 2"]) -> Float[Tensor, " b"]:
    """Minus the logarithm of the smaller of the shares of deals that are at least as large in either statistic."""
    slack = found - TIE * found.abs()
    shares = [
        (len(found) - torch.searchsorted(found[:, k].sort().values, slack[:, k].contiguous())) / len(found)
        for k in range(found.shape[1])
    ]
    return -torch.stack(shares).amin(0).double().log()


def permutation_test(
    p: ArrayLike,
    q: ArrayLike,
    *,
    estimator: Ratio | None = None,
    functions: Float[Tensor, "m f"] | None = None,
    n: int = 200,
    seed: int = 0,
) -> PermutationTest:
    """Test p = q by `n` permutations of the labels (all of them where there are no more).

    `functions` are values of functions of the rows of p and of q after them, which know nothing of the labels.
    """
    owner = "permutation_test"
    p_, q_ = checks.pair(p, q, owner)
    n, seed = checks.whole(n, "n", owner, low=1), checks.whole(seed, "seed", owner)
    x = torch.cat([p_, q_])
    statistic: Callable[[Tensor], Tensor]
    if estimator is None:
        statistic = partial(score, score_features(x, generator=rng.fork(seed, "features")))
    else:
        statistic = partial(refitted, x, estimator, seed=seed)
    blocks = deals(len(x), len(p_), n, generator=rng.fork(seed, "deals"))
    exact = math.comb(len(x), len(p_)) <= n  # all deals, of which the observed one is the first
    if not exact:
        blocks = itertools.chain([(torch.arange(len(x)) < len(p_))[None]], blocks)
    found = [_of_deals(labels, statistic, functions) for labels in blocks]
    joint = torch.cat(found)[:, 0] if functions is None else smaller_rank(torch.cat(found))
    observed, null = float(joint[0]), joint if exact else joint[1:]
    larger = int((null >= observed - TIE * abs(observed)).sum())
    p_value = larger / len(null) if exact else (1 + larger) / (1 + len(null))
    return PermutationTest(observed, p_value, null, exact)


def _of_deals(
    labels: Bool[Tensor, "b n"], statistic: Callable[[Tensor], Tensor], functions: Float[Tensor, "n f"] | None
) -> Float[Tensor, "b s"]:
    """The statistic of every deal, and beside it that of the functions."""
    found = [statistic(labels)] if functions is None else [statistic(labels), largest(functions, labels)]
    return torch.stack(found, 1)
