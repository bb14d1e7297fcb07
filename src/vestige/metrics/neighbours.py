"""Precision and recall (Kynkaanniemi et al. 2019) and density and coverage (Naeem et al. 2020), with weights.

A set's manifold is the union of balls around its rows, each as wide as the distance to the row's k-th neighbour in
the set. Precision: the share of q in p's balls. Recall: the share of p in q's balls. Density: how many of p's balls
hold a row of q, over k, on average. Coverage: the share of p's balls that hold any row of q. Distances are compared
strictly, as by the authors; nothing larger than a block of distances is held.

Weights: shares are weighted shares of the rows that are counted, and a ball of p counts n w in density. The balls
themselves are geometry and do not feel weights, but rows of weight zero are dropped first. Standard errors are over
the counted rows with the other set's balls held fixed: spreads over fresh draws of both sets are a little wider.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, learnt
from vestige.metrics.base import Accumulator, sizes, two_sets
from vestige.metrics.kernels import BLOCK, uniform


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
    w, v = uniform(len(x), x_w, x), uniform(len(y), y_w, y)
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


@dataclass(frozen=True)
class Collected:
    """The rows themselves: balls depend on all of a set, so no smaller summary gives the same numbers."""

    x: Float[Tensor, "n d"]
    weights: Float[Tensor, " n"]

    def merge(self, other: Collected) -> Collected:
        """Both sets together."""
        return Collected(torch.cat([self.x, other.x]), torch.cat([self.weights, other.weights]))


@dataclass(eq=False)
class PRDC(Accumulator[Collected]):
    """Collects the rows of one set for `real.compute(fake, k=5)`. Unlike its siblings it holds the data."""

    summaries_: list[Collected | None] = learnt()

    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> Collected:
        return Collected(x.clone(), x.new_ones(len(x)) if weights is None else weights)

    def compute(self, other: PRDC, *, k: int = 5) -> Neighbourhood:
        """Precision, recall, density and coverage of the other set (`q`) against this one (`p`)."""
        self._must_match(other, "compute")
        (p,), (q,) = self._filled(), other._filled()
        return precision_recall_density_coverage(p.x, q.x, p_weights=p.weights, q_weights=q.weights, k=k)
