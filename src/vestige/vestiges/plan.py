"""What a comparison will cost, before it begins: rows and features that its parts see, seconds and bytes.

A ratio is fitted on a bounded number of rows and of features. Beyond `MANY_FEATURES` it sees principal components of
the standardised, pooled rows, which know nothing of the labels, so that a permutation test stays exact. Divergences of
a projection are never larger than those of the rows themselves (data processing), so they are called "at least", and
weights are never called good, since they correct nothing outside of it. FID
sees every row and feature; KID, MMD and neighbourhoods see at most `pair_rows` rows a side, fewer in many features.

The seconds are operations over the speed of a product that is timed on the spot. The constants were read off `python
-m benchmarks compare`, which prints announced and measured cost side by side; they are right within a factor of two.
"""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.core import InputError, checks, rng
from vestige.core.machine import free_memory
from vestige.ratios.importance import ROWS as IMPORTANCE_ROWS
from vestige.ratios.standardise import Standardiser
from vestige.ratios.weights import Diagnosis

MANY_FEATURES, COMPONENTS = 256, 64
# Pairs of rows times features that a metric may cost; at fewer features all of `pair_rows` are seen.
PAIR_OPERATIONS = 2e10
LEAST_ROWS = 1000  # below this a memory budget cuts nothing more
FEWEST_ROWS = 6  # that a ratio can be cross-fitted on
LOOKED_ROWS = 60_000  # of either side, whose log-ratios a comparison averages
BLOCK = 8192  # rows that are copied at once
SHARED_OUT = 32  # columns whose shares of the difference are looked at, those that differ most


@dataclass(frozen=True)
class Plan:
    """What each part of a comparison sees, and about what that costs on one core."""

    n_p: int
    n_q: int
    d: int
    rows: int  # of either side that the ratio is fitted on
    pair_rows: int  # of either side in metrics that compare pairs of rows
    components: int | None  # principal components that the ratio sees, where there are too many features
    seconds: float
    bytes: float

    def __str__(self) -> str:
        seen = f"{self.components} principal components of {self.d}" if self.components else f"{self.d}"
        told = f"about {self.seconds:.0f} s of one core and {self.bytes / 1e9:.1f} GB beside the data: the ratio is "
        told += f"fitted on {min(self.rows, max(self.n_p, self.n_q))} rows a side, {seen} features"
        if self.pair_rows:
            told += f"; KID, MMD and neighbourhoods see {min(self.pair_rows, max(self.n_p, self.n_q))} rows a side"
        return told


def plan(
    n_p: int,
    n_q: int,
    d: int,
    *,
    rows: int,
    pair_rows: int,
    memory: float | None,
    owner: str,
    seen: int | None = None,
) -> Plan:
    """The plan for sets of these sizes within `memory` bytes (None: half of what is free); no pairs, no metrics.

    `seen` is the number of components that a ratio will see, where that was settled before.
    """
    budget = free_memory() / 2 if memory is None else checks.number(memory, "memory", owner, low=0, open_low=True)
    rows = checks.whole(rows, "rows", owner, low=FEWEST_ROWS)
    if d * pair_rows**2 > PAIR_OPERATIONS:
        pair_rows = max(LEAST_ROWS, math.isqrt(int(PAIR_OPERATIONS / d)))
    k = (COMPONENTS if d > MANY_FEATURES else d) if seen is None else seen
    while (needed := _bytes(n_p, n_q, d, k, rows, pair_rows)) > budget:
        if max(rows, pair_rows) <= LEAST_ROWS:
            raise InputError(
                f"The sets of {owner} need about {needed / 1e9:.2g} GB beside the data ({n_p} and {n_q} rows of {d} "
                f"features), and its memory is {budget / 1e9:.2g} GB: raise 'memory', or leave out features."
            )
        rows, pair_rows = (min(most, max(LEAST_ROWS, most // 2)) for most in (rows, pair_rows))
    seconds = _operations(n_p, n_q, d, k, rows, pair_rows) / speed()
    return Plan(n_p, n_q, d, rows, pair_rows, k if k < d else None, seconds, needed)


def _bytes(n_p: int, n_q: int, d: int, k: int, rows: int, pair_rows: int) -> float:
    fitted = min(rows, n_p) + min(rows, n_q)
    ratio = 8 * fitted * 10 * (k + 8) + 600 * (n_p + n_q) + (4 * (n_p + n_q) * k + 12 * fitted * d if k < d else 0)
    fid = 8 * (10 * d**2 + 3 * min(BLOCK, max(n_p, n_q)) * d)
    pairs = 8 * (min(pair_rows, n_p) + min(pair_rows, n_q)) * (4 * d + 2048)
    return max(ratio, fid + 4 * (n_p + n_q), pairs) if pair_rows else ratio


def _operations(n_p: int, n_q: int, d: int, k: int, rows: int, pair_rows: int) -> float:
    """Additions and multiplications, weighed by how far each part stays below the speed of a plain product."""
    fitted = min(rows, n_p) + min(rows, n_q)
    looked = min(LOOKED_ROWS, n_p) + min(LOOKED_ROWS, n_q) if pair_rows else n_p + n_q  # every row is weighed
    ratio = fitted * (1.8e7 + 1e5 * k) + looked * (4e5 + 4e4 * k) + (40.0 * fitted * d * k if k < d else 0)
    if not pair_rows:
        return ratio
    pairs = 3 * 3.0 * (min(pair_rows, n_p) + min(pair_rows, n_q)) ** 2 * (d + 60)
    ratio += 2 * IMPORTANCE_ROWS * min(d, SHARED_OUT) * (4e5 + 4e4 * k) if k == d else 0
    return ratio + pairs + 1.5 * (n_p + n_q) * d**2 + 45.0 * d**3 + 4e3 * (n_p + n_q) * d


@functools.cache
def speed() -> float:
    """Additions and multiplications of a float64 product in a second of this process on this machine."""
    x = torch.ones(384, 384, dtype=torch.float64)
    x @ x
    start = time.process_time()
    for _ in range(4):
        x @ x
    return 4 * 2 * len(x) ** 3 / (time.process_time() - start)


def principal_rows(n: int, most: int, seed: int, side: str) -> Int[Tensor, " m"]:
    """Positions of the rows of a side that principal components are fitted on."""
    return torch.randperm(n, generator=rng.fork(seed, "principal", side))[:most]


def principal(
    p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"], components: int, *, rows: int, seed: int
) -> tuple[Float[Tensor, "n_p k"], Float[Tensor, "n_q k"], float]:
    """Both sets in the principal components of at most `rows` standardised rows a side; the share of variance kept."""
    from sklearn.utils.extmath import randomized_svd  # here: few comparisons need it

    some = [x[principal_rows(len(x), rows, seed, side)].to(torch.float32) for side, x in (("p", p), ("q", q))]
    pooled = torch.cat(some)
    scale = Standardiser.of(pooled)
    z = scale(pooled)
    _, values, axes = randomized_svd(z.numpy(), components, n_iter=2, random_state=rng.child_seed(seed, "axes") % 2**32)
    turned = torch.from_numpy(axes.T.copy())
    out = [torch.cat([scale(block.to(torch.float32)) @ turned for block in x.split(BLOCK)]) for x in (p, q)]
    return out[0], out[1], float((values**2).sum() / z.square().sum())


def projected(
    p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"], planned: Plan, estimator: object, seed: int
) -> tuple[Float[Tensor, "n_p k"], Float[Tensor, "n_q k"], str]:
    """What the ratio sees of both sets, and the sentence that says so where that is not every feature."""
    if planned.components is None or estimator != "auto":
        return p, q, ""
    seen_p, seen_q, share = principal(p, q, planned.components, rows=planned.rows, seed=seed)
    told = (
        f"The ratio saw {planned.components} principal components of {planned.d} features, {share:.0%} of the variance."
    )
    return seen_p, seen_q, told


def cautious(diagnosis: Diagnosis, told: str) -> Diagnosis:
    """Of a ratio that did not see every feature, which is what `told` says: its weights are not good."""
    return replace(diagnosis, verdict="usable with care") if told and diagnosis.verdict == "good" else diagnosis
