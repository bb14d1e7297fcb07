"""Could the two sets be samples of one distribution? The p-value that `compare` prints, with an exact level.

A label-permutation test (`ratios.permutation`) is exact as long as nothing was learnt from the labels before. What
comes before it here treats both sides alike: columns of files are coded by the pooled rows, constants are those of the
pool, and principal components are fitted on the very rows that are then tested, as many or as few of either side.

Beside the score of the ratio's own features the test looks at single columns: their ranks, spreads and categories, and
what is left of them given the others (`by_column.given_others`). The two are one test, whose null are the same
permutations.

Weighted rows are first drawn by weight. Drawing m rows with chances m w, none above a half, is rejection sampling: what
is drawn is a sample of the weighted distribution in which no row is twice. So m is the smaller of half of what the rows
are worth and half of what the largest weight allows. Fewer than `FEWEST_DRAWN` are not tested, because such weights
have most of their mass where there are no rows: the p-value is NaN then, which is no sign of a difference or of none.

`tests/vestiges/test_no_difference.py` draws 500 pairs from one distribution for vectors, tables, images, unequal sizes
and weights, and holds the p-values against the uniform distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.ratios.permutation import permutation_test
from vestige.ratios.weights import resample
from vestige.vestiges.lines import some_rows
from vestige.vestiges.plan import principal_rows

PERMUTATIONS = 500
LEAST = 1 / (1 + PERMUTATIONS)  # no p-value of so many permutations is smaller
FEWEST_DRAWN = 20


def p_value(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    weights: Float[Tensor, " n_q"] | None,
    *,
    rows: int,
    projected: bool,
    seed: int,
    beside: Callable[[Tensor, Tensor], Float[Tensor, "n f"] | None] = lambda *_: None,
) -> float:
    """Of "no difference", on at most `rows` rows a side; NaN where the weights are worth too few rows.

    `projected` says that the features are principal components, which were fitted on at most as many rows. `beside`
    gives values of functions that are tested together with them, of the rows of p and q at these places.
    """
    choose = principal_rows if projected else some_rows
    of_p, of_q = choose(len(p), rows, seed, "p"), choose(len(q), rows, seed, "q")
    if weights is not None:
        drawn = by_weight(weights[of_q], seed)
        if drawn is None:
            return math.nan
        of_q = of_q[drawn]
    functions = beside(of_p, of_q)
    return permutation_test(p[of_p], q[of_q], functions=functions, n=PERMUTATIONS, seed=seed).p_value


def by_weight(weights: Float[Tensor, " n"], seed: int) -> Tensor | None:
    """Positions of rows drawn by weight, none twice; None where that leaves fewer than FEWEST_DRAWN."""
    share = weights / weights.sum()
    allowed = min(float(1 / share.square().sum()), float(1 / share.max()))
    size = int(allowed / 2)
    return None if size < FEWEST_DRAWN else torch.as_tensor(resample(size, share.log(), seed))
