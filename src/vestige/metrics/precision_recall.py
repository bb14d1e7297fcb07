"""Precision and recall of the model's samples: around neighbours (PRDC), and along a curve (PRD), with weights.

**Neighbours**: precision and recall (Kynkaanniemi et al. 2019) and density and coverage (Naeem et al. 2020).

A set's manifold is the union of balls around its rows, each as wide as the distance to the row's k-th neighbour in
the set. Precision: the share of q in p's balls. Recall: the share of p in q's balls. Density: how many of p's balls
hold a row of q, over k, on average. Coverage: the share of p's balls that hold any row of q. Distances are compared
strictly, as by the authors; nothing larger than a block of distances is held.

Weights: shares are weighted shares of the rows that are counted, and a ball of p counts n w in density. The balls
themselves are geometry and do not feel weights, but rows of weight zero are dropped first. Standard errors are over
the counted rows with the other set's balls held fixed: spreads over fresh draws of both sets are a little wider.

**Precision and recall for distributions** (PRD; Sajjadi et al. 2018): the curve, F_8 and F_1/8.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike, learnt
from vestige.metrics.base import BLOCK, Accumulator, Sums, WeightedRows, ess, merged, sizes, two_sets, uniform

# Rows of each side that k-means sees.
FIT_ROWS = 1000
# Rows assigned at a time.
ASSIGNED_ROWS = 4096
# The curve's ends: angles within this of 0 and 90 degrees are left out, as by the authors.
ANGLE_MARGIN = 1e-10
DRAWS = 200


@dataclass(frozen=True)
class Neighbourhood:
    """The four numbers; `std_error` by name."""

    precision: float
    recall: float
    density: float
    coverage: float
    std_error: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)


def _squared_distances(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """|x - y|^2 from norms and products; rows are centred by the caller, and rounding below zero is cut."""
    products = (x @ y.mT).mul_(-2)
    return products.add_(x.square().sum(1)[:, None]).add_(y.square().sum(1)).clamp_min_(0)


def _squared_radii(x: Float[Tensor, "n d"], k: int) -> Float[Tensor, " n"]:
    """The squared distance of each row to its k-th neighbour, itself not counted."""
    radii = []
    for i in range(0, len(x), BLOCK):
        distances = _squared_distances(x[i : i + BLOCK], x)
        rows = torch.arange(len(distances))
        distances[rows, rows + i] = torch.inf
        radii.append(distances.topk(k, dim=1, largest=False).values[:, -1])
    return torch.cat(radii)


def _share(counted: Float[Tensor, " n"], w: Float[Tensor, " n"]) -> tuple[float, float]:
    """A weighted mean and its standard error."""
    mean = w @ counted
    variance = (w * (counted - mean)).square().sum() / (1 - w.square().sum())
    return float(mean), float(variance.sqrt())


def precision_recall_density_coverage(
    p: ArrayLike,
    q: ArrayLike,
    *,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
    k: int = 5,
) -> Neighbourhood:
    """How far `q`, the model's samples, are where `p`, the real ones, are (precision, density), and the reverse."""
    owner = "precision_recall_density_coverage"
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, owner)
    k = checks.whole(k, "k", owner, low=1, high=min(len(x), len(y)) - 1)
    w, v = uniform(x, x_w), uniform(y, y_w)
    centre = (x.mean(0) + y.mean(0)) / 2  # distances know no origin, but their rounding does
    x, y = x - centre, y - centre
    radii_p, radii_q = _squared_radii(x, k), _squared_radii(y, k)
    balls = torch.zeros_like(v)  # of p around each row of q, a ball weighing n w
    inside_p = torch.zeros(len(y), dtype=torch.bool)
    inside_q, covered = torch.zeros(len(x), dtype=torch.bool), torch.zeros(len(x), dtype=torch.bool)
    for i in range(0, len(x), BLOCK):
        rows = slice(i, i + BLOCK)
        distances = _squared_distances(x[rows], y)
        in_ball = distances < radii_p[rows, None]
        inside_p |= in_ball.any(0)
        covered[rows] = in_ball.any(1)
        balls += (len(x) * w[rows]) @ in_ball.double()
        inside_q[rows] = (distances < radii_q).any(1)
    shares = {
        "precision": _share(inside_p.double(), v),
        "recall": _share(inside_q.double(), w),
        "density": _share(balls / k, v),
        "coverage": _share(covered.double(), w),
    }
    values = {name: mean for name, (mean, _) in shares.items()}
    errors = {name: error for name, (_, error) in shares.items()}
    return Neighbourhood(**values, std_error=errors, details={**sizes(x, y, x_w, y_w), "k": k})


@dataclass(eq=False)
class PRDC(Accumulator[WeightedRows]):
    """Collects the rows of one set for `real.compute(fake, k=5)`. Unlike its siblings it holds the data."""

    summaries_: list[WeightedRows | None] = learnt()

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> WeightedRows:
        return WeightedRows(x, weights)

    def compute(self, other: PRDC, *, k: int = 5) -> Neighbourhood:
        """Precision, recall, density and coverage of the other set (`q`) against this one (`p`)."""
        self._must_match(other, "compute")
        (p,), (q,) = self._filled(), other._filled()
        return precision_recall_density_coverage(p.x, q.x, p_weights=p.weights, q_weights=q.weights, k=k)


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
    sides: Sequence[tuple[Tensor, Tensor | None]], *, clusters: int, runs: int, seed: int
) -> Float[Tensor, "r k d"]:
    """Cluster centres of each run, from equally many rows of either side, which are (rows, weights)."""
    from sklearn.cluster import KMeans  # here: matrices and Records, which share the package, need no scikit-learn
    from sklearn.exceptions import ConvergenceWarning

    checks.whole(clusters, "clusters", "prd", low=2)
    checks.whole(runs, "runs", "prd", low=1)
    checks.whole(seed, "seed", "prd")
    counts = [len(x) for x, _ in sides]
    rows = min(FIT_ROWS, max(counts))
    centres = []
    for run in range(runs):
        generator = rng.fork_numpy(seed, "prd", run)
        drawn = []
        for x, w in sides:
            share = None if w is None else (w / w.sum()).numpy()
            replace = w is not None or rows > len(x)
            drawn.append(x[torch.from_numpy(generator.choice(len(x), rows, replace=replace, p=share))].double())
        means = KMeans(min(clusters, sum(counts)), n_init=1, random_state=int(generator.integers(2**31)))
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
    for i in range(0, len(x), ASSIGNED_ROWS):
        part = torch.addmm(half_norms, (x[i : i + ASSIGNED_ROWS] - origin).to(torch.float32), flat.mT, alpha=-1)
        nearest = part.reshape(-1, runs, clusters).argmin(2) + offsets
        counts.index_add_(0, nearest.flatten(), weights[i : i + ASSIGNED_ROWS].double().repeat_interleave(runs))
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
    x, y, x_w, y_w = two_sets(p, q, p_weights, q_weights, "prd", dtype=None)
    angles = checks.whole(angles, "angles", "prd", low=3)
    centres = fit_centres([(x, x_w), (y, y_w)], clusters=clusters, runs=runs, seed=seed)
    of_p, of_q = (histograms(rows, uniform(rows, w), centres) for rows, w in ((x, x_w), (y, y_w)))
    return _result(of_p, of_q, ess(len(x), x_w), ess(len(y), y_w), angles, seed)


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
        return fit_centres([(x, None), (y, None)], clusters=clusters, runs=runs, seed=seed)

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> Sums:
        return Sums.of(weights, counts=histograms(x, weights, self.at))

    def compute(self, other: PRD, *, angles: int = 1001, seed: int = 0) -> PRDResult:
        """The PRD curve of the other set (`q`) against this one (`p`)."""
        self._must_match(other, "compute")
        p, q = merged(self._filled()), merged(other._filled())
        checks.whole(angles, "angles", "PRD.compute", low=3)
        checks.whole(seed, "seed", "PRD.compute")
        return _result(p["counts"], q["counts"], p.ess, q.ess, angles, seed)
