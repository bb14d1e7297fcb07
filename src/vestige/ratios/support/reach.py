"""What of either set is out of the other's reach, and what follows for numbers, weights and averages.

`q` is the model, whose rows are weighted by r = p/q to stand for the data `p`. A part of p where q has no rows is out
of reach: no weight brings it back. E_q[r] is the share of p that q reaches, so the mean raw weight estimates it, as far
as the ratio is right; a ratio that is badly fitted has a mean weight off one as well. Therefore a part is called
missing only where an edge of q's support is found (`edges`): by the held-out log-ratio, by neighbours, or by a column.
The share beyond the edges is then what is missing, and the interval of the mean weight is widened to hold it; where no
edge is found, it is widened to hold one. The mirror, E_p[q/p], is the share of q that the data reaches.

Cost is bounded: neighbours see `NEIGHBOUR_ROWS` rows a side, as many of each; edges along columns are looked for in
`COLUMN_CELLS` numbers a side. Log-ratios are looked at whole.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri
from torch import Tensor

from vestige.core import Estimate, rng
from vestige.ratios.support.edges import NEIGHBOURS, Edges, edges, neighbour_distances, ranked, worth
from vestige.ratios.support.tails import heavier
from vestige.ratios.weights.diagnosis import Diagnosis
from vestige.ratios.weights.expectation import ratio_variance

NEIGHBOUR_ROWS = 2000
COLUMN_CELLS = 1_000_000
FAR_SHARE = 0.001  # of a set's own rows are farther from their neighbours than the distance that is called far
INDICES = 1000  # rows outside that are named, at most
OUT_OF_REACH = "cannot reach part of the data"
# Divergences that are infinite where the model (q) has nothing and the data (p) has rows, and the other way round.
NEEDS_REACH: dict[str, tuple[str, ...]] = {
    "kl": ("p",),
    "pearson_chi2": ("p",),
    "reverse_kl": ("q",),
    "neyman_chi2": ("q",),
    "jeffreys": ("p", "q"),
}


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

    @property
    def complete(self) -> bool:
        """Whether nothing of the data was found out of the model's reach."""
        return self.missed.value == 0

    def sentences(self, real: str = "the data", fake: str = "the model") -> tuple[str, ...]:
        """What is out of reach, one plain sentence for either direction; none where nothing is."""
        told = []
        if not self.complete:
            told.append(f"{_capital(fake)} does not reach {share_in_words(self.missed)} of {real}.")
        if self.made.value > 0:
            told.append(f"{_capital(share_in_words(self.made))} of {fake} lies where {real} has no rows.")
        return tuple(told)


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:] if words.startswith(("the ", "about ", "at ")) else words


def share_in_words(share: Estimate) -> str:
    """As in "about 48 %" and "at least 12 %"."""
    if share.verdict == "at least":
        return f"at least {100 * share.low:.0f} %"
    return f"about {100 * share.value:.0f} %"


def reach(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    log_ratio_p: Float[Tensor, " n_p"],
    log_ratio_q: Float[Tensor, " n_q"],
    *,
    q_weights: Float[Tensor, " n_q"] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Reach:
    """Look for parts of either set that the other does not reach; the log-ratios log p/q are held out.

    Example
    -------
    >>> rows = torch.randn(3000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> half = rows[1500:][rows[1500:, 0] < 0]  # of as many further rows: a model that has lost one side
    >>> on_p = torch.where(rows[:1500, 0] < 0, -0.7, 6.0).double()  # log 1/2, and a large value where q has nothing
    >>> print(*reach(rows[:1500], half, on_p, torch.full((len(half),), -0.7).double()).sentences())
    The model does not reach about 50 % of the data.
    """
    w_p = torch.full_like(log_ratio_p, 1 / len(p))
    w_q = torch.full_like(log_ratio_q, 1 / len(q)) if q_weights is None else q_weights / q_weights.sum()
    log_edges = [
        edges(a[:, None], b[:, None], w_a, w_b)
        for a, b, w_a, w_b in ((log_ratio_p, log_ratio_q, w_p, w_q), (-log_ratio_q, -log_ratio_p, w_q, w_p))
    ]
    columns = [_some(x, w, max(NEIGHBOUR_ROWS, COLUMN_CELLS // p.shape[1]), seed, "columns") for x, w in ((p, w_p), (q, w_q))]
    near = [_some(x, w, min(NEIGHBOUR_ROWS, *map(_positive, (w_p, w_q))), seed, "neighbours") for x, w in ((p, w_p), (q, w_q))]
    z = ranked(*(x[rows].to(torch.float64) for x, rows in zip((p, q), near, strict=True)))
    sides = []
    for i in (0, 1):
        x, w, mine, other = (p, q)[i], (w_p, w_q)[i], columns[i], columns[1 - i]
        x_b, w_b = (p, q)[1 - i], (w_p, w_q)[1 - i]
        both = [torch.cat([v, -v], 1).to(torch.float64) for v in (x[mine], x_b[other])]
        along = edges(*both, _renewed(w, mine), _renewed(w_b, other))
        k = min(NEIGHBOURS, len(near[0]) - 1)
        distance, own = neighbour_distances(z[i], z[1 - i], k)
        even = torch.full_like(own, 1 / len(own))
        far = float((distance > own.quantile(1 - FAR_SHARE)).double().mean())
        found = [(log_edges[i], torch.arange(len(x)), torch.arange(len(x_b))), (along, mine, other)]
        found.append((edges(distance[:, None], own[:, None], even, even), near[i], near[1 - i]))
        sides.append((*_joined(found, w, w_b, level), far))
    means = [
        _mean_ratio(log_ratio_q, w_q, sides[0][0], level, "mean weight"),
        _mean_ratio(-log_ratio_p, w_p, sides[1][0], level, "mean inverse weight"),
    ]
    shares = [side[0].but(name=name) for side, name in zip(sides, ("missed", "made"), strict=True)]
    told = [_heavy(x[a].double(), y[b].double()) for x, y, a, b in ((p, q, *columns), (q, p, *columns[::-1]))]
    return Reach(*means, *shares, sides[0][2], sides[1][2], sides[0][1], sides[1][1], *told)


def _positive(weights: Float[Tensor, " n"]) -> int:
    return int((weights > 0).sum())


def _some(x: Tensor, weights: Float[Tensor, " n"], most: int, seed: int, label: str) -> Int[Tensor, " m"]:
    """At most so many rows of positive weight, at random."""
    kept = torch.nonzero(weights > 0)[:, 0]
    order = torch.randperm(len(kept), generator=rng.fork(seed, "reach", label, len(x)))
    return kept[order[:most]] if len(kept) > most else kept


def _renewed(weights: Float[Tensor, " n"], rows: Int[Tensor, " m"]) -> Float[Tensor, " m"]:
    """The weights of some rows, summing to one again."""
    return weights[rows] / weights[rows].sum()


def _joined(
    found: list[tuple[Edges, Int[Tensor, " m_a"], Int[Tensor, " m_b"]]],
    w_a: Float[Tensor, " n_a"],
    w_b: Float[Tensor, " n_b"],
    level: float,
) -> tuple[Estimate, Int[Tensor, " k"]]:
    """The share of a beyond any edge of b that was found, less what b itself has there; and where those rows are.

    Each kind of score saw rows of its own; those that every kind with an edge saw are counted.
    """
    with_edge = [one for one in found if bool(one[0].found.any())]
    if not with_edge:
        nothing = "no edge was found, which is no proof that there is none"
        return Estimate(0.0, 0.0, level=level, verdict="at least", reason=nothing), torch.zeros(0, dtype=torch.int64)
    shares = {}
    outside = torch.zeros(len(w_a), dtype=torch.bool)
    for which in ("beyond", "far"):
        counted = []
        for side, weights in (("a", w_a), ("b", w_b)):
            seen = torch.ones(len(weights), dtype=torch.bool)
            beyond = torch.zeros(len(weights), dtype=torch.bool)
            for edge, rows_a, rows_b in with_edge:
                rows = rows_a if side == "a" else rows_b
                of_edge: Bool[Tensor, " m"] = getattr(edge, f"{which}_{side}")
                beyond[rows[of_edge]] = True
                here = torch.zeros(len(weights), dtype=torch.bool)
                here[rows] = True
                seen &= here
            counted.append((float(weights[beyond & seen].sum() / weights[seen].sum()), worth(_renewed(weights, torch.nonzero(seen)[:, 0]))))
            if (which, side) == ("beyond", "a"):
                outside = beyond
        (share_a, rows_a_), (share_b, rows_b_) = counted
        error = math.sqrt(share_a * (1 - share_a) / rows_a_ + share_b * (1 - share_b) / rows_b_)
        shares[which] = share_a - share_b, error
    (value, error), (upper, upper_error) = shares["beyond"], shares["far"]
    z = float(ndtri((1 + level) / 2))
    low, high = max(value - z * error, 0.0), min(max(upper + z * upper_error, value + z * error), 1.0)
    where = torch.nonzero(outside)[:, 0][:INDICES]
    estimate = Estimate(min(value, 1.0), low, high, level, error, n=len(w_a))
    if upper - value > BLURRED * value:
        return estimate.but(verdict="at least", reason="the edge is blurred"), where
    return estimate, where


BLURRED = 0.1  # growth of the share from the near to the far side of an edge, beyond which more may be missing


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


def _heavy(a: Float[Tensor, "n_a d"], b: Float[Tensor, "n_b d"]) -> str:
    found = heavier(a, b)
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
    refused if a tail says that it may be infinite without any edge; others stay.
    """
    if not estimate.known:
        return estimate
    for side in NEEDS_REACH.get(name, ()):
        heavy, share = (reach.heavy_p, reach.missed) if side == "p" else (reach.heavy_q, reach.made)
        lacks = "the model does not reach {} of the data" if side == "p" else "{} of the model lies where the data has no rows"
        if heavy:
            return estimate.withdrawn(f"The {name} is infinite or cannot be told from these samples: {heavy}.")
        if share.value > 0 and estimate.verdict == "ok":
            estimate = estimate.but(verdict="at least", reason=lacks.format(share_in_words(share)))
    return estimate


def reachable(diagnosis: Diagnosis, reach: Reach) -> Diagnosis:
    """The diagnosis of weights in the light of the reach: never good where a part of the data is out of it."""
    if reach.complete:
        return diagnosis
    told = (
        f"The model does not reach {share_in_words(reach.missed)} of the data: averages over its rows stand for the rest "
        "alone, whatever the weights."
    )
    word = diagnosis.verdict if diagnosis.verdict == "unreliable" else OUT_OF_REACH
    return dataclasses.replace(diagnosis, verdict=word, warnings=(told, *diagnosis.warnings))
