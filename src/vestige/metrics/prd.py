"""Precision and recall for distributions (PRD; Sajjadi et al. 2018): the curve, F_8 and F_1/8, with weights.

Both sets are quantised by k-means of the pooled rows; for histograms p and q over clusters and each slope lambda =
tan(angle), precision = sum min(lambda p, q) and recall = sum min(p, q / lambda) (their Algorithm 1), averaged over runs
of k-means. F_8 (recall) and F_1/8 (precision) are the largest F scores along the curve.

Deviations: k-means sees a subsample with as many rows of either side (drawn by weight), one start a run, and all rows
are assigned once, to the centres of all runs in one product; their code clusters every row with ten starts a run.
Two sets of one law do not reach 1, because histograms of finite samples differ: `same_law` is what they would reach,
by drawing both sets anew from the pooled histogram; `std_error` comes from drawing each anew from its own. Draws are
multinomial, of the effective sample sizes, with the clusters held fixed.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike, learnt
from vestige.metrics.base import Accumulator, Sums, ess, merged, two_sets
from vestige.metrics.kernels import uniform

# Rows of each side that k-means sees.
FIT_ROWS = 1000
# Rows assigned at a time.
BLOCK = 4096
# The curve's ends: angles within this of 0 and 90 degrees are left out, as by the authors.
ANGLE_MARGIN = 1e-10
DRAWS = 200


@dataclass(frozen=True)
class PRDResult:
    """The curve and its two summaries; `same_law` is what two sets of one law of these sizes would reach."""

    precision: Float[Tensor, " a"]
    recall: Float[Tensor, " a"]
    f8: float
    f1_8: float
    same_law: dict[str, float]
    std_error: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)


def curve(
    p: Float[Tensor, "*r k"], q: Float[Tensor, "*r k"], angles: int
) -> tuple[Float[Tensor, "*r a"], Float[Tensor, "*r a"]]:
    """Precision and recall of `q` against `p` along the slopes, from histograms that sum to one."""
    slopes = torch.linspace(ANGLE_MARGIN, math.pi / 2 - ANGLE_MARGIN, angles, dtype=torch.float64).tan()
    # One cluster at a time: an array of clusters x slopes x draws would leave the cache.
    precision = sum(
        torch.minimum(a[..., None] * slopes, b[..., None]) for a, b in zip(p.unbind(-1), q.unbind(-1), strict=True)
    )
    assert isinstance(precision, Tensor)
    return precision, precision / slopes


def f_score(precision: Float[Tensor, "*r a"], recall: Float[Tensor, "*r a"], beta: float) -> Float[Tensor, "*r"]:
    """The largest F_beta along the curve."""
    # Both are zero together where the sets do not meet: F is 0 there.
    top = (1 + beta**2) * precision * recall
    return (top / (beta**2 * precision + recall).clamp_min(torch.finfo(top.dtype).tiny)).amax(-1)


def fit_centres(
    p: Float[Tensor, "n d"],
    q: Float[Tensor, "m d"],
    p_weights: Float[Tensor, " n"] | None,
    q_weights: Float[Tensor, " m"] | None,
    *,
    clusters: int,
    runs: int,
    seed: int,
) -> Float[Tensor, "r k d"]:
    """Cluster centres of each run, from equally many rows of either side."""
    rows = min(FIT_ROWS, max(len(p), len(q)))
    centres = []
    for run in range(runs):
        generator = rng.fork_numpy(seed, "prd", run)
        drawn = []
        for x, w in ((p, p_weights), (q, q_weights)):
            share = None if w is None else (w / w.sum()).numpy()
            replace = w is not None or rows > len(x)
            drawn.append(x[torch.from_numpy(generator.choice(len(x), rows, replace=replace, p=share))])
        means = KMeans(clusters, n_init=1, random_state=int(generator.integers(2**31)))
        with warnings.catch_warnings():
            # Fewer distinct rows than clusters leave clusters empty, which a histogram does not mind.
            warnings.simplefilter("ignore", ConvergenceWarning)
            pooled = torch.cat(drawn)
            means.fit((pooled - pooled.mean(0)).to(torch.float32).numpy())
        centres.append(torch.from_numpy(means.cluster_centers_).to(torch.float64) + pooled.mean(0))
    return torch.stack(centres)


def histograms(
    x: Float[Tensor, "n d"], weights: Float[Tensor, " n"], centres: Float[Tensor, "r k d"]
) -> Float[Tensor, "r k"]:
    """The weight nearest to each centre, for all runs by one product a block."""
    runs, clusters, d = centres.shape
    origin = centres.mean((0, 1))  # assignments know no origin, but the rounding of float32 products does
    flat = (centres.reshape(-1, d) - origin).to(torch.float32)
    half_norms = flat.square().sum(1) / 2
    counts = torch.zeros(runs * clusters, dtype=torch.float64)
    offsets = torch.arange(runs) * clusters
    for i in range(0, len(x), BLOCK):
        part = torch.addmm(half_norms, (x[i : i + BLOCK] - origin).to(torch.float32), flat.mT, alpha=-1)
        nearest = part.reshape(-1, runs, clusters).argmin(2) + offsets
        counts.index_add_(0, nearest.flatten(), weights[i : i + BLOCK].repeat_interleave(runs))
    return counts.reshape(runs, clusters)


def _result(
    p: Float[Tensor, "r k"], q: Float[Tensor, "r k"], ess_p: float, ess_q: float, angles: int, seed: int
) -> PRDResult:
    """The curve from weight sums per cluster and run."""
    p, q = p / p.sum(1, keepdim=True), q / q.sum(1, keepdim=True)
    # Sums of shares exceed 1 by rounding only.
    precision, recall = (side.mean(0).clamp(0, 1) for side in curve(p, q, angles))
    generator, betas = rng.fork_numpy(seed, "prd", "draws"), {"f8": 8.0, "f1_8": 1 / 8}

    def drawn(first: Tensor, second: Tensor) -> dict[str, Tensor]:
        """F scores of fresh histograms, runs taking turns."""
        sets = []
        for side, size in ((first, ess_p), (second, ess_q)):
            law = side[torch.arange(DRAWS) % len(side)].numpy()
            counts = generator.multinomial(max(1, round(size)), law / law.sum(1, keepdims=True))
            sets.append(torch.from_numpy(counts / counts.sum(1, keepdims=True)))
        curves = curve(sets[0], sets[1], min(angles, 201))
        return {name: f_score(*curves, beta) for name, beta in betas.items()}

    pooled = (p * ess_p + q * ess_q) / (ess_p + ess_q)
    same, own = drawn(pooled, pooled), drawn(p, q)
    scores = {name: float(f_score(precision, recall, beta)) for name, beta in betas.items()}
    return PRDResult(
        precision,
        recall,
        **scores,
        same_law={name: float(values.mean()) for name, values in same.items()},
        std_error={name: float(values.std()) for name, values in own.items()},
        details={"ess_p": ess_p, "ess_q": ess_q, "runs": p.shape[0], "clusters": p.shape[1]},
    )


def prd(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    clusters: int = 20,
    runs: int = 10,
    angles: int = 1001,
    seed: int = 0,
) -> PRDResult:
    """The PRD curve of the model's samples `q` against real samples `p`."""
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "prd")
    options = _options(clusters=clusters, runs=runs, seed=seed)
    angles = checks.whole(angles, "angles", "prd", low=3)
    clusters = min(options["clusters"], len(x) + len(y))
    centres = fit_centres(x, y, x_w, y_w, clusters=clusters, runs=options["runs"], seed=options["seed"])
    sides = [histograms(rows, uniform(len(rows), w, rows), centres) for rows, w in ((x, x_w), (y, y_w))]
    return _result(sides[0], sides[1], ess(len(x), x_w), ess(len(y), y_w), angles, options["seed"])


def _options(**options: int) -> dict[str, int]:
    lows = {"clusters": 2, "runs": 1, "seed": -math.inf}
    return {name: checks.whole(value, name, "prd", low=lows[name]) for name, value in options.items()}


@dataclass(eq=False)
class PRD(Accumulator[Sums]):
    """Weight per cluster of one set, for centres that were fitted before; `real.compute(fake)`.

    `PRD.centres(p, q)` fits the centres on what can be held (the model's samples serve for both where real data is
    not to be kept); every set that is compared must use the same ones.
    """

    at: Any  # the centres, (clusters, d) or (runs, clusters, d); a tensor of the latter shape from then on
    summaries_: list[Sums | None] = learnt()

    def __post_init__(self) -> None:
        tensor = torch.as_tensor(np.asarray(self.at), dtype=torch.float64)
        if tensor.ndim not in (2, 3) or tensor.numel() == 0 or not bool(tensor.isfinite().all()):
            checks.refuse("centres", "PRD", "finite, (clusters, d) or (runs, clusters, d)", tuple(tensor.shape))
        self.at = tensor if tensor.ndim == 3 else tensor[None]
        super().__post_init__()
        self.width_ = tensor.shape[-1]

    @staticmethod
    def centres(p: ArrayLike, q: ArrayLike, *, clusters: int = 20, runs: int = 10, seed: int = 0) -> Tensor:
        """Centres of k-means, (runs, clusters, d)."""
        x, y, _, _ = two_sets(p, q, None, None, "prd")
        options = _options(clusters=clusters, runs=runs, seed=seed)
        return fit_centres(x, y, None, None, **{**options, "clusters": min(clusters, len(x) + len(y))})

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> Sums:
        w = x.new_ones(len(x)) if weights is None else weights
        return Sums({"counts": histograms(x, w, self.at), "weight_sq": w.square().sum()})

    def compute(self, other: PRD, *, angles: int = 1001, seed: int = 0) -> PRDResult:
        """The PRD curve of the other set (`q`) against this one (`p`)."""
        self._must_match(other, "compute")
        p, q = merged(self._filled()), merged(other._filled())
        sizes = [float(s["counts"][0].sum() ** 2 / s["weight_sq"]) for s in (p, q)]
        angles = checks.whole(angles, "angles", "PRD.compute", low=3)
        return _result(p["counts"], q["counts"], sizes[0], sizes[1], angles, checks.whole(seed, "seed", "PRD.compute"))
