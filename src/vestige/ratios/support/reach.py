"""What of either set is out of the other's reach, and what follows for numbers, weights and averages.

`q` is the model, whose rows are weighted by r = p/q to stand for the data `p`. A part of p where q has no rows is out
of reach: no weight brings it back. E_q[r] is the share of p that q reaches, so the mean raw weight estimates it, as far
as the ratio is right; a ratio that is badly fitted has a mean weight off one as well. Therefore a part is called
missing only where an edge of q's support is found (`edges`): by the held-out log-ratio, by neighbours, or by a column.
The share beyond the edges is then what is missing, and the interval of the mean weight is widened to hold it; where no
edge is found, it is widened to hold one. The mirror, E_p[q/p], is the share of q that the data reaches.

Without an edge a mean weight that falls short of one, by more than its error and by more than a few percent, still says
that a part is out of reach or the ratio off: such weights are not "good".

Rows near a curved surface (`surface`) may differ across it without any model of the ratio seeing it: no number of such
rows is more than "at least", no weights are "good".

Cost is bounded: neighbours see `NEIGHBOUR_ROWS` rows a side, as many of each; edges along columns are looked for in
`COLUMN_CELLS` numbers a side. Log-ratios are looked at whole.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri
from torch import Tensor

from vestige.core import Estimate, rng
from vestige.core.estimate import share_in_words
from vestige.ratios.divergences.family import get
from vestige.ratios.divergences.learnt import OFF_ERRORS, OFF_SHARE
from vestige.ratios.support.edges import NEIGHBOURS, Edges, edges, neighbour_distances, ranked, renewed, worth
from vestige.ratios.support.surface import THIN, continuous, surface
from vestige.ratios.support.tails import heavier
from vestige.ratios.weights.diagnosis import Diagnosis
from vestige.ratios.weights.expectation import ratio_variance, unreached

NEIGHBOUR_ROWS = 2000
COLUMN_CELLS = 1_000_000
FAR_SHARE = 0.001  # of a set's own rows are farther from their neighbours than the distance that is called far
# From this growth of the share from the near to the far side of its edges on, more may be missing; so too where the
# mean weight leaves that much less missing than the edges do, as it does where it is blurred.
BLURRED = 0.1
BLURRED_EDGE = "the edge is blurred, and more may lie beyond"
INDICES = 1000  # rows outside that are named, at most
ALMOST_ALL = 0.9  # of the data: weights of a model that does not reach so much are of no use to anybody
OUT_OF_REACH = "cannot reach part of the data"


@dataclass(frozen=True)
class Reach:
    """How far either set reaches into the other.

    Parameters
    ----------
    mean_weight, mean_inverse
        E_q[p/q], the share of the data that the model reaches, and E_p[q/p]; raw, so they may exceed one.
    missed, made
        The share of the data that the model does not reach, and of the model that lies where the data has nothing.
        Zero where no edge was found, which is no proof that there is none; "at least" where an edge is blurred.
    far_p, far_q
        The share of the data whose tenth-nearest row of the model is farther than all but 0.1 % of the model's rows
        have theirs; and of the model, alike. Coordinates are rank-Gaussian.
    outside_p, outside_q
        Positions of the rows beyond an edge, at most 1000.
    heavy_p, heavy_q
        Why KL(p || q), and KL(q || p), may be infinite: a tail of one side that the other has not; empty where not.
    filled_p, filled_q
        The local dimension of either side's rows as a share of what their columns would have independently.
    """

    mean_weight: Estimate
    mean_inverse: Estimate
    missed: Estimate
    made: Estimate
    far_p: float
    far_q: float
    outside_p: Int[Tensor, " k_p"]
    outside_q: Int[Tensor, " k_q"]
    heavy_p: str = ""
    heavy_q: str = ""
    filled_p: float = 1.0
    filled_q: float = 1.0

    @property
    def thin(self) -> str:
        """Why a difference may not be seen at all, where rows of either side lie near a curved surface; else empty."""
        share = min(self.filled_p, self.filled_q)
        told = (
            f"rows lie near a curved surface (they fill {share:.0%} of their directions), and what differs across it "
        )
        return f"{told}may not be seen" if share < THIN else ""

    @property
    def shares(self) -> tuple[float, float]:
        """What of the data the model does not reach, and of the model the data."""
        return self.missed.value, self.made.value

    @property
    def scant(self) -> str:
        """Why weights are not sure although no edge was found: their mean falls short of one; empty where not."""
        mean, error = self.mean_weight.value, self.mean_weight.std_error
        short = 1 - mean > max(OFF_SHARE, OFF_ERRORS * error)
        told = (
            f"mean raw weight is {mean:.2g} and should be 1: part of the data may be out of reach, or the ratio is off"
        )
        return told if self.complete and short else ""

    @property
    def complete(self) -> bool:
        """Whether nothing of the data was found out of the model's reach."""
        return self.missed.value == 0

    def sentences(self, real: str = "the data", fake: str = "the model") -> tuple[str, ...]:
        """What is out of reach, one plain sentence for either direction; none where nothing is."""
        told = []
        if not self.complete:
            told.append(f"{_capital(unreached(self.missed, real, fake))}.")
        if self.made.value > 0:
            told.append(f"{_capital(share_in_words(self.made))} of {fake} lies where {real} has no rows.")
        return tuple(told)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:] if words.startswith(("the ", "about ", "at ")) else words


def reach(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    log_ratio_p: Float[Tensor, " n_p"],
    log_ratio_q: Float[Tensor, " n_q"],
    *,
    p_weights: Float[Tensor, " n_p"] | None = None,
    q_weights: Float[Tensor, " n_q"] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Reach:
    """Look for parts of either set that the other does not reach; the log-ratios log p/q are held out.

    Example
    -------
    >>> rows = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> half = rows[1500:]  # as many further rows
    >>> half = half[half[:, 0] < 0]  # a model that has lost one side
    >>> on_p = torch.where(rows[:1500, 0] < 0, -0.7, 6.0).double()  # log 1/2, and a large value where q has nothing
    >>> print(*reach(rows[:1500], half, on_p, torch.full((len(half),), -0.7).double()).sentences())
    The model does not reach about 50 % of the data.
    """
    w_p, w_q = (
        torch.full_like(log_r, 1 / len(log_r)) if weights is None else weights / weights.sum()
        for log_r, weights in ((log_ratio_p, p_weights), (log_ratio_q, q_weights))
    )
    cells = max(NEIGHBOUR_ROWS, COLUMN_CELLS // p.shape[1])
    close = min(NEIGHBOUR_ROWS, *(int((w > 0).sum()) for w in (w_p, w_q)))
    of_p, of_q = (
        _Set(x, w, log_r, _some(w, cells, seed, f"columns {side}"), _some(w, close, seed, f"neighbours {side}"))
        for x, w, log_r, side in ((p, w_p, log_ratio_p, "p"), (q, w_q, log_ratio_q, "q"))
    )
    near_p, near_q = (one.x[one.close].to(torch.float64) for one in (of_p, of_q))
    z_p, z_q = ranked(near_p, near_q)
    smooth, turned = continuous(near_p, near_q), rng.fork(seed, "reach", "surface")
    on_p = _looked(of_p, of_q, (z_p, z_q), 1.0, level)
    on_q = _looked(of_q, of_p, (z_q, z_p), -1.0, level)
    return Reach(
        _mean_ratio(log_ratio_q, w_q, on_p.share, level, "mean weight"),
        _mean_ratio(-log_ratio_p, w_p, on_q.share, level, "mean inverse weight"),
        on_p.share.but(name="missed"),
        on_q.share.but(name="made"),
        on_p.far,
        on_q.far,
        on_p.rows,
        on_q.rows,
        _heavy(of_p, of_q),
        _heavy(of_q, of_p),
        *(surface((z[:, smooth], x[:, smooth]), generator=turned) for z, x in ((z_p, near_p), (z_q, near_q))),
    )


class _Set(NamedTuple):
    """One of the two sets, and which of its rows are looked at column by column, and by their neighbours."""

    x: Float[Tensor, "n d"]
    weights: Float[Tensor, " n"]  # sum to one
    log_ratio: Float[Tensor, " n"]
    columns: Int[Tensor, " m"]
    close: Int[Tensor, " k"]


class _Beyond(NamedTuple):
    """What of a set is beyond the other's edges: the share, the rows, and the share of rows far by neighbours."""

    share: Estimate
    rows: Int[Tensor, " k"]
    far: float


def _some(weights: Float[Tensor, " n"], most: int, seed: int, label: str) -> Int[Tensor, " m"]:
    """At most so many rows of positive weight, at random."""
    kept = torch.nonzero(weights > 0)[:, 0]
    if len(kept) <= most:
        return kept
    return kept[torch.randperm(len(kept), generator=rng.fork(seed, "reach", label))[:most]]


def _looked(
    a: _Set, b: _Set, z: tuple[Float[Tensor, "k d"], Float[Tensor, "k d"]], sign: float, level: float
) -> _Beyond:
    """The rows of `a` beyond an edge of `b`, by each kind of score; `sign` turns log p/q into log a/b."""
    by_ratio = edges(sign * a.log_ratio[:, None], sign * b.log_ratio[:, None], a.weights, b.weights)
    along_a, along_b = (torch.cat([x, -x], 1) for x in (one.x[one.columns].to(torch.float64) for one in (a, b)))
    by_column = edges(along_a, along_b, *(renewed(one.weights[one.columns]) for one in (a, b)))
    distance, own = neighbour_distances(*z, min(NEIGHBOURS, len(b.close) - 1))
    w_a, w_b = (renewed(one.weights[one.close]) for one in (a, b))
    by_neighbours = edges(distance[:, None], own[:, None], w_a, w_b)
    whole = _joined(
        [(by_ratio, torch.arange(len(a.x)), torch.arange(len(b.x))), (by_column, a.columns, b.columns)], a, b, level
    )
    part = _joined([(by_neighbours, a.close, b.close)], a, b, level)
    share, rows = part if part[0].value > whole[0].value else whole
    by_mean = 1 - float((torch.logsumexp(sign * b.log_ratio + b.weights.log(), 0)).exp())
    if share.value > 0 and by_mean < (1 - BLURRED) * share.value:
        share = share.but(verdict="at least", reason=BLURRED_EDGE)
    return _Beyond(share, rows, float(w_a @ (distance > own.quantile(1 - FAR_SHARE)).double()))


def _joined(
    found: list[tuple[Edges, Int[Tensor, " _"], Int[Tensor, " _"]]],
    a: _Set,
    b: _Set,
    level: float,
) -> tuple[Estimate, Int[Tensor, " k"]]:
    """The share of a beyond any edge of b that was found, less what b itself has there; and where those rows are.

    Each kind of score looks at rows of its own; the share is of those that every kind with an edge looked at.
    """
    found = [one for one in found if bool(one[0].found.any())]
    if not found:
        nothing = "no edge was found, which is no proof that there is none"
        return Estimate(0.0, 0.0, level=level, verdict="at least", reason=nothing), torch.zeros(0, dtype=torch.int64)
    z = float(ndtri((1 + level) / 2))
    rows_a, rows_b = [one[1] for one in found], [one[2] for one in found]
    (value, error), (upper, upper_error) = (
        _less(
            _union([a_ for a_, _ in marks], rows_a, a.weights),
            _union([b_ for _, b_ in marks], rows_b, b.weights),
        )
        for marks in ([one[0].near for one in found], [one[0].far for one in found])
    )
    outside = torch.zeros(len(a.x), dtype=torch.bool)
    for edge, rows, _ in found:
        outside[rows[edge.near[0]]] = True
    low, high = max(value - z * error, 0.0), min(max(upper + z * upper_error, value + z * error), 1.0)
    share = Estimate(min(value, 1.0), low, high, level, error, n=len(a.x), ess=worth(a.weights))
    if upper - value > BLURRED * value:
        share = share.but(verdict="at least", reason=BLURRED_EDGE)
    return share, torch.nonzero(outside)[:, 0][:INDICES]


def _union(
    marks: list[Bool[Tensor, " _"]], looked_at: list[Int[Tensor, " _"]], weights: Float[Tensor, " n"]
) -> tuple[float, float]:
    """Of the rows that all kinds of scores looked at, the share that some kind marked, and its variance."""
    marked, seen = (torch.zeros(len(weights), dtype=torch.int64) for _ in range(2))
    for mark, rows in zip(marks, looked_at, strict=True):
        marked[rows[mark]] = 1
        seen[rows] += 1
    common = renewed(weights * (seen == len(marks)))
    share = float(common @ marked.to(common.dtype))
    return share, share * (1 - share) / worth(common)


def _less(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """The difference of two shares, and its standard error."""
    return a[0] - b[0], math.sqrt(a[1] + b[1])


def _mean_ratio(
    log_r: Float[Tensor, " n"], weights: Float[Tensor, " n"], missed: Estimate, level: float, name: str
) -> Estimate:
    """The mean of r, its sampling interval widened to hold what the edges say: one, or what they leave."""
    top = log_r.max().clamp_max(700.0)  # beyond which exp overflows
    r = (log_r.clamp_max(float(top))).exp()
    value, error = float(weights @ r), float(ratio_variance(r, weights).sqrt())
    plain = Estimate.normal(value, error, level, name=name, n=len(r), ess=worth(weights))
    low, high = (1.0, 1.0) if missed.value == 0 else (1 - missed.high, 1 - missed.low)
    return plain.but(low=max(min(plain.low, low), 0.0), high=max(plain.high, high))


def _heavy(a: _Set, b: _Set) -> str:
    """Why a column's tail forbids KL(a || b); empty where none does."""
    found = heavier(*(one.x[one.columns].to(torch.float64) for one in (a, b)))
    if found is None:
        return ""
    column, xi, theta = found
    return (
        f"the tail of feature {column} is too heavy for the other side's (its Pareto index is {xi:.2f}; from about "
        f"{theta:.2f} on the expectation is infinite, from half of that on it has no error)"
    )


def verdict(name: str, estimate: Estimate, reach: Reach) -> Estimate:
    """The divergence `name` in the light of the reach.

    One that is infinite where the other side has nothing is "at least" what was found if a part is out of reach, and
    refused if a tail says that it may be infinite without any edge; every one is "at least" of rows near a surface.
    """
    if not estimate.known:
        return estimate
    if reach.thin:
        estimate = estimate.but(verdict="at least", reason="; ".join(filter(None, (reach.thin, estimate.reason))))
    for side in get(name).needs:
        heavy, share = (reach.heavy_p, reach.missed) if side == "p" else (reach.heavy_q, reach.made)
        made = f"{share_in_words(share)} of the model lies where the data has no rows"
        if heavy:
            return estimate.withdrawn(f"The {name} is infinite or cannot be told from these samples: {heavy}.")
        if share.value > 0:
            told = (f"the {unreached(share)}" if side == "p" else made, estimate.reason)
            estimate = estimate.but(verdict="at least", reason="; ".join(filter(None, told)))
    return estimate


def reachable(diagnosis: Diagnosis, reach: Reach) -> Diagnosis:
    """The diagnosis of weights in the light of the reach, which decides the verdict where a part is out of it."""
    if reach.thin and diagnosis.verdict == "good":
        warnings = (f"The {reach.thin}.", *diagnosis.warnings)
        diagnosis = dataclasses.replace(diagnosis, verdict="usable with care", warnings=warnings)
    if reach.scant and diagnosis.verdict == "good":
        warnings = (f"The {reach.scant}.", *diagnosis.warnings)
        diagnosis = dataclasses.replace(diagnosis, verdict="usable with care", warnings=warnings)
    if reach.complete:
        return diagnosis
    told = f"The {unreached(reach.missed)}: averages over its rows stand for the rest alone, whatever the weights."
    word = "unreliable" if reach.missed.low > ALMOST_ALL else OUT_OF_REACH
    return dataclasses.replace(diagnosis, verdict=word, warnings=(told, *diagnosis.warnings))
