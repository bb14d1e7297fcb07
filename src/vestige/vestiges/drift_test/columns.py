"""One column of cells as codes, and the scores of its codes.

A number's code is its bin, or its atom: a value that at least `MIN_ROWS` rows, and a share `MIN_SHARE` of them, have in
common (a zero of a sparse column, a whole number). Bins lie between quantiles of what is no atom. Their edges are
rounded to two significant digits of the column's scale, so that an edge is not the value of a row. Codes of fewer rows
count as having none. A category's code is its own where that many rows have it; the others share one. The last two
codes are "rare", the categories that share one, and "missing".

A code of a number has a rank score: the mid-rank of its rows, mapped to [-1, 1] and standardised. Categories have no
order, and missing cells no rank: their score is 0. Where rows are too few for four bins, bins and ranks are those of a
normal of the column's centre and scale; that changes what is tested and not its level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.special import ndtr
from torch import Tensor

from vestige.core.rounding import ROWS_TOGETHER
from vestige.vestiges.rare import scale_of
from vestige.vestiges.spelling import Write, between, least_gap, spelt

MIN_ROWS = ROWS_TOGETHER  # that a bin, an atom, a category or a leaf holds
MIN_SHARE = 0.01  # of the rows, the same
ATOM_SHARE = 0.03  # of the rows from which on a value of a number is an atom
REACH = 4.0  # scales from the centre at which the standard score of a number is clipped
FEW_EDGES = 3  # between bins, below which they are those of a normal
NORMAL_EDGES = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
NORMAL_IQR = 1.349  # interquartile range of a standard normal


@dataclass(frozen=True)
class CodedColumn:
    """How the cells of one column are coded, frozen."""

    kind: str
    edges: Float[Tensor, " e"]  # between bins
    atoms: Float[Tensor, " a"]  # values, or codes of categories, that have a code of their own
    centre: float
    scale: float
    linear: Float[Tensor, " k"]  # the standardised rank score of each code
    shares: Float[Tensor, " k"]  # of the rows that the column was fitted on

    @property
    def bins(self) -> int:
        """How many codes are bins."""
        return len(self.edges) + 1 if self.kind == "number" else 0

    @property
    def size(self) -> int:
        """How many codes there are, "rare" and "missing" included."""
        return self.bins + len(self.atoms) + 2

    @classmethod
    def fit(cls, x: Float[Tensor, " n"], kind: str, bins: int) -> CodedColumn:
        """Codes of the rows `x`, at most `bins` of them bins."""
        seen = x[~x.isnan()]
        least = max(MIN_ROWS, math.ceil((MIN_SHARE if kind == "category" else ATOM_SHARE) * len(x)))
        values, counts = seen.unique(return_counts=True)
        atoms = values[counts >= least]
        centre, scale = (0.0, 1.0) if kind == "category" or not len(seen) else _centre_and_scale(seen)
        edges = x.new_zeros(0)
        if kind == "number":
            rest = seen[~torch.isin(seen, atoms)]
            edges = _edges(rest, min(bins, len(rest) // MIN_ROWS), scale)
            if len(edges) < FEW_EDGES and not len(atoms) and len(seen):
                return _normal(x, centre, scale)
        blank = cls(kind, edges, atoms, centre, scale, x.new_zeros(0), x.new_zeros(0))
        codes = blank.codes(x)
        shares = _told(torch.bincount(codes, minlength=blank.size), len(x))
        return cls(kind, edges, atoms, centre, scale, _linear(blank, x, codes, shares), shares)

    def codes(self, x: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The code of each cell."""
        bins, size, x = self.bins, self.size, x.contiguous()
        if self.kind == "number":
            codes = torch.searchsorted(self.edges, x, right=True)
        else:
            codes = torch.full(x.shape, size - 2, dtype=torch.int64, device=x.device)
        if size > bins + 2:
            place = torch.searchsorted(self.atoms, x).clamp_max_(size - bins - 3)
            codes = torch.where(self.atoms[place] == x, bins + place, codes)
        return codes.masked_fill_(x.isnan(), size - 1)

    def name_of(self, code: int, write: Write = spelt) -> str:
        """A code in words; `write` spells a number that is to be told from others so far away."""
        if code >= self.size - 2:
            return "missing" if code == self.size - 1 else "rare or new categories"
        if code >= self.bins:
            value = float(self.atoms[code - self.bins])
            is_category = self.kind == "category"
            return f"category {value:g}" if is_category else f"equal to {write(value, least_gap(self.atoms.numpy()))}"
        whole = "that are none of the common ones" if len(self.atoms) else "any number"
        return between(self.edges.numpy(), code, write) or whole

    def standard(self, x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """(x - centre) / scale, clipped; 0 where it is missing."""
        return ((x - self.centre) / self.scale).clamp(-REACH, REACH).nan_to_num(nan=0.0)


def _told(counts: Int[Tensor, " k"], n: int) -> Float[Tensor, " k"]:
    """Shares of `n` rows; fewer than `MIN_ROWS` count as none."""
    return torch.where(counts < MIN_ROWS, 0, counts).to(torch.float64) / n


def _normal(x: Float[Tensor, " n"], centre: float, scale: float) -> CodedColumn:
    """A number of too few rows for bins of their own: bins and shares of a normal of its centre and scale."""
    steps = torch.tensor(NORMAL_EDGES, dtype=torch.float64)
    edges = centre + scale * steps
    below = torch.as_tensor(ndtr(steps.numpy()))
    inside = torch.diff(below, prepend=below.new_zeros(1), append=below.new_ones(1))
    missing = _told(x.isnan().sum()[None], len(x))
    shares = torch.cat([inside * (1 - missing), missing.new_zeros(1), missing])
    scores = torch.cat([2 * (inside.cumsum(0) - inside / 2) - 1, missing.new_zeros(2)])
    return CodedColumn(
        "number", edges, x.new_zeros(0), centre, scale, scores / (shares @ scores.square()).sqrt(), shares
    )


def rounded(x: Float[Tensor, " n"], scale: float) -> Float[Tensor, " n"]:
    """To two significant digits of `scale`."""
    step = 10.0 ** (math.floor(math.log10(scale)) - 1)
    return (x / step).round() * step


def _centre_and_scale(x: Float[Tensor, " n"]) -> tuple[float, float]:
    """Median, and the narrowest spread between symmetric quantiles that is not 0, as that of a normal's deviation."""
    ordered = x.sort().values
    at = [ordered[min(int(q * len(x)), len(x) - 1)] for q in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)]
    spreads = [float(high - low) for low, high in ((at[2], at[4]), (at[1], at[5]), (at[0], at[6]))]
    normal = (NORMAL_IQR, 2.563, 3.290)
    scale = next((s / w for s, w in zip(spreads, normal, strict=True) if s > 0), 0.0)
    if not scale > 0:  # the spread of those that differ from the median
        return scale_of(x.numpy())
    scale = float(f"{scale:.1e}")
    return float(rounded(at[3][None], scale)), scale


def _edges(x: Float[Tensor, " n"], bins: int, scale: float) -> Float[Tensor, " e"]:
    """Quantiles that cut `x` into `bins` parts, rounded; parts that rounding left with too few rows are joined."""
    if bins < 2:
        return x.new_zeros(0)
    ordered = x.sort().values
    wanted = rounded(ordered[[len(x) * i // bins for i in range(1, bins)]], scale).unique()
    least, kept, below = max(MIN_ROWS, len(x) // (2 * bins)), [], 0
    for edge, up_to in zip(wanted.tolist(), torch.searchsorted(ordered, wanted).tolist(), strict=True):
        if up_to - below >= least and len(x) - up_to >= least:
            kept.append(edge)
            below = up_to
    return x.new_tensor(kept)


def _linear(
    column: CodedColumn, x: Float[Tensor, " n"], codes: Int[Tensor, " n"], shares: Float[Tensor, " k"]
) -> Float[Tensor, " k"]:
    """Mid-ranks of the codes of a number in the order of their rows' means, standardised over all rows."""
    scores = torch.zeros_like(shares)
    present = [k for k in range(column.size - 2) if column.kind == "number" and shares[k] > 0]
    if len(present) < 2:
        return scores
    means = [float(x[codes == k].mean()) for k in present]
    order = torch.tensor(present)[torch.tensor(means).argsort()]
    share = shares[order] / shares[order].sum()
    scores[order] = 2 * (share.cumsum(0) - share / 2) - 1
    return scores / (shares @ scores.square()).sqrt()
