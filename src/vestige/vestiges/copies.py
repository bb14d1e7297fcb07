"""Model samples that repeat rows of the data, exactly or nearly, beyond the rate at which two halves of the data do.

Rows are points: numbers in deviations, of images all pixels on one scale. The data is cut into halves A and B at
random, and a row x, of B or of the model, is held against A: with a the row of A nearest to x,

    rho(x) = |x - a| / |a - a'|,   a' the row of A nearest to a,

which is the distance to a in units of the distance that rows keep from each other there. The unit makes rho fair to a
model that draws more from the dense parts of the data, where all distances are small: how often rho is small depends on
A alone, and hardly on where x lies. Rows of A that A has twice belong to nobody and are not counted.

Rows of B and rows of the model that are not copies have one and the same law of rho if both are draws of one
distribution. For rows that are uniform locally, in d dimensions, the chance of rho <= r is r^d / (1 + r^d). So with t
the 5 % quantile of rho over B, or its 20th smallest value, and s the chance of rho <= t, that of rho <= r t is at most
r^d (1 + t^d) s. d is taken at the lower end of Hill's estimate from the rows of B below t, within `DIMENSIONS`. This
holds down to the lattice that values lie on, at r_0 (the step of the finest column); below it the chance falls no
more. So the number of model rows with rho <= r t is held against a binomial of the chance max(r, r_0)^d (1 + t^d) s,
with s at the upper end of its interval, for r in RATIOS and both halves: a test of the level LEVEL, corrected for their
number. Where rows of B coincide with A, d is 1 and the upper end of that rate is added. The rows of the r with the
largest excess are the copies.

An exact copy of a row with a value of its own, in a column of numbers on no lattice, needs no test: two rows do not
agree in all digits by chance. At most EXACT_ROWS rows of either side are looked at for these, and `most` for near
copies.

`tests/vestiges/test_copies.py` draws pairs from one distribution, discrete ones among them, and plants copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Float64, Int64
from scipy.stats import beta, binom, chi2
from torch import Tensor

from vestige.core import InputError, checks, rng
from vestige.data.readers.columns import encode
from vestige.features.rows import numbers
from vestige.vestiges.frame import Rows

LEVEL = 0.001
QUANTILE, LEAST_NEAR = 0.05, 20  # of rho over a half: the share, and the number of rows, below t
SURE = 0.99  # of the upper end of a rate
RATIOS = (0.5, 0.2, 0.05, 0.001)
DIMENSIONS = (1.0, 4.0)
LEAST_ROWS = 40  # of the data, below which near copies are not looked for
LEAST_COPIES = 3  # that are near ones
MOST_ROWS = 5000  # of either side that are looked at for near copies, and for exact ones:
EXACT_ROWS, COLUMNS = 50_000, 64  # these rows, and so many columns for values of their own
PIXELS = 64  # columns of one range, from which on they are taken for pixels
SHOWN = 10
BLOCK = 1024


@dataclass(frozen=True)
class Copies:
    """Rows of the model that repeat rows of the data."""

    rows: tuple[int, ...]  # of the model, in order
    of: tuple[int, ...]  # the rows of the data that they repeat
    exact: int  # how many do so in every digit
    looked: tuple[int, int]  # rows of the data and of the model that near copies were looked for among
    note: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def repeated(self) -> int:
        """How many rows of the data are repeated."""
        return len(set(self.of))

    def sentence(self) -> str:
        """In words; empty where there are none."""
        if not self.rows:
            return ""
        k = self.repeated
        exactly = "exactly" if self.exact == len(self) else f"exactly in {self.exact} rows" if self.exact else "nearly"
        return f"The model repeats {k} of the data's rows, {exactly}."

    def refuse(self, what: str, owner: str) -> None:
        """Raise an error that names the rows, if there are any."""
        if not self.rows:
            return
        shown = ", ".join(map(str, self.rows[:SHOWN])) + (", ..." if len(self) > SHOWN else "")
        raise InputError(
            f"The {what} of {owner} must not repeat rows of the data. Got {len(self)} that do, rows {shown}, instead: "
            "leave them out, or say that this is meant with allow_copies=True (--allow-copies)."
        )


def copies(p: Float[Tensor, "n_p d"], q: Float[Tensor, "n_q d"], *, most: int = MOST_ROWS, seed: int = 0) -> Copies:
    """The rows of the model's `q` that repeat rows of the data `p`."""
    of_p, of_q = (_some(len(z), EXACT_ROWS, seed, side) for z, side in ((p, "data"), (q, "model")))

    def same(i: int, j: int) -> bool:
        return bool((q[of_q[i]] == p[of_p[j]]).all())

    some = torch.linspace(0, p.shape[1] - 1, min(p.shape[1], COLUMNS)).long()
    alike = _alike(p[:, some][of_p].to(torch.float64), q[:, some][of_q].to(torch.float64))
    exact = {i: j for i, j in alike.items() if same(i, j)}
    near = min(len(of_p), most), min(len(of_q), most)
    found = exact.copy()
    if near[0] >= LEAST_ROWS:
        x, y = p[of_p[: near[0]]].to(torch.float64), q[of_q[: near[1]]].to(torch.float64)
        for i, j in _near(x, y, seed):
            found.setdefault(i, j)
    equal = len(exact) + sum(same(i, j) for i, j in found.items() if i not in exact)
    pairs = sorted((int(of_q[i]), int(of_p[j])) for i, j in found.items())
    cut = near[0] < len(p) or near[1] < len(q)
    note = f"Near copies were looked for among {near[0]} rows of the data and {near[1]} of the model." if cut else ""
    return Copies(tuple(i for i, _ in pairs), tuple(j for _, j in pairs), equal, near, note)


def _some(n: int, most: int, seed: int, side: str) -> Int64[Tensor, " m"]:
    """Places in random order, so that the first of them are a sample, too."""
    return torch.randperm(n, generator=rng.fork(seed, "copies", side))[:most]


def _alike(p: Float64[Tensor, "n_p c"], q: Float64[Tensor, "n_q c"]) -> dict[int, int]:
    """Rows of q that equal, in some columns, a row of p which has in one of them a value of its own, on no lattice."""
    own = torch.stack([alone(column) for column in p.T]).any(0)
    rows = torch.nonzero(own).flatten().tolist()
    places = {row.tobytes(): j for j, row in zip(rows, p[own].numpy() + 0.0, strict=True)}  # -0.0 becomes 0.0
    return {i: places[key] for i, row in enumerate(q.numpy() + 0.0) if (key := row.tobytes()) in places}


def alone(x: Float64[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Which values of a column nobody else has; none where values lie on a lattice, or most are shared.

    On a lattice many neighbours are one step apart; of other values no two pairs are equally near.
    """
    values, back, counts = x.unique(return_inverse=True, return_counts=True)
    gaps = values.diff()
    lattice = len(gaps) < 2 or int((gaps <= gaps.min() * (1 + 1e-3)).sum()) > 2
    single = counts[back] == 1
    return torch.zeros_like(single) if lattice or float(single.double().mean()) < 0.5 else single


def _near(p: Float64[Tensor, "n_p d"], q: Float64[Tensor, "n_q d"], seed: int) -> list[tuple[int, int]]:
    """Pairs of a row of q and the row of p that it is too near to."""
    x, y, step = scaled(p, q)
    order = torch.randperm(len(x), generator=rng.fork(seed, "halves"))
    halves = order[: len(x) // 2], order[len(x) // 2 :]
    found: dict[int, int] = {}
    for a, b in (halves, halves[::-1]):
        unit = nearest(x[a], x[a], apart=True)[0]
        rho_b, _ = in_units(x[b], x[a], unit)
        rho_q, place = in_units(y, x[a], unit)
        for i in (
            torch.nonzero(too_near(rho_b, rho_q, step / float(unit.median().clamp_min(1e-300)))).flatten().tolist()
        ):
            found.setdefault(i, int(a[place[i]]))
    return sorted(found.items())


def too_near(rho_b: Float64[Tensor, " n"], rho_q: Float64[Tensor, " m"], step: float) -> Bool[Tensor, " m"]:
    """Which rows of the model are nearer to the data than its halves are to each other; `step` is r_0 t."""
    finite = rho_b[rho_b.isfinite()]
    rank = max(LEAST_NEAR, int(QUANTILE * len(rho_b)))
    none = torch.zeros_like(rho_q, dtype=torch.bool)
    if len(finite) < rank:
        return none
    t, n = float(finite.sort().values[rank - 1]), len(rho_b)
    coincide = int((rho_b == 0).sum())
    added = upper(coincide, n) if coincide else 0.0
    if t == 0:
        tried = [(0.0, added)]
    else:
        d = 1.0 if coincide else dimension(finite[finite <= t], t)
        rate = (1 + t**d) * upper(rank, n)
        tried = [(r * t, min(added + max(r, min(step / t, 1.0)) ** d * rate, 1.0)) for r in RATIOS]
    best, excess = none, 0.0
    for limit, chance in tried:
        held = rho_q <= limit
        k, expected = int(held.sum()), chance * len(rho_q)
        too_many = k >= LEAST_COPIES and binom.sf(k - 1, len(rho_q), chance) <= LEVEL / (2 * len(tried))
        if too_many and k - expected > excess:
            best, excess = held, k - expected
    return best


def dimension(rho: Float64[Tensor, " k"], t: float) -> float:
    """The lower end of Hill's estimate of the power with which the chance of small values falls, within DIMENSIONS."""
    total = float((t / rho).log().sum())
    low = float(chi2.ppf(1 - SURE, 2 * len(rho))) / (2 * total) if total > 0 else DIMENSIONS[1]
    return min(max(low, DIMENSIONS[0]), DIMENSIONS[1])


def upper(count: int, n: int) -> float:
    """The upper end of the interval of Clopper and Pearson of a rate."""
    return float(beta.ppf(SURE, count + 1, n - count)) if count < n else 1.0


def scaled(
    p: Float64[Tensor, "n_p d"], q: Float64[Tensor, "n_q d"]
) -> tuple[Float64[Tensor, "n_p d"], Float64[Tensor, "n_q d"], float]:
    """Both in deviations of p, of pixels in one; and the step of the finest column, in the same units."""
    spread = p.std(0)
    if pixels(p):
        spread = torch.full_like(spread, float(spread.square().mean().sqrt()))
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    steps = [float(gap.min()) / float(s) for x, s in zip(p.T, spread, strict=True) if len(gap := x.unique().diff())]
    return (p - p.mean(0)) / spread, (q - p.mean(0)) / spread, min(steps, default=0.0)


def pixels(p: Float64[Tensor, "n d"]) -> bool:
    """Whether many columns are all shares, or all whole numbers up to 255."""
    if p.shape[1] < PIXELS or float(p.min()) < 0:
        return False
    return float(p.max()) <= 1 or (float(p.max()) <= 255 and bool((p == p.round()).all()))


def nearest(
    x: Float64[Tensor, "n d"], a: Float64[Tensor, "m d"], *, apart: bool = False
) -> tuple[Float64[Tensor, " n"], Int64[Tensor, " n"]]:
    """The distance to, and place of, the row of `a` nearest to each row; `apart`: that is another than itself."""
    squares, places = a.square().sum(1), []
    for start in range(0, len(x), BLOCK):
        block = x[start : start + BLOCK]
        far = squares - 2 * block @ a.mT
        if apart:
            rows = torch.arange(len(block))
            far[rows, start + rows] = torch.inf
        places.append(far.argmin(1))
    place = torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)
    return (x - a[place]).square().sum(1).sqrt(), place  # anew: products lose the digits of small distances


def in_units(
    x: Float64[Tensor, "n d"], a: Float64[Tensor, "m d"], unit: Float64[Tensor, " m"]
) -> tuple[Float64[Tensor, " n"], Int64[Tensor, " n"]]:
    """rho of each row and its nearest; infinite where that is a row that there is twice."""
    far, place = nearest(x, a)
    return torch.where(unit[place] > 0, far / unit[place], torch.inf), place


def copies_of_rows(p: Rows, q: Rows, *, drop: Sequence[str] = (), most: int = MOST_ROWS, seed: int = 0) -> Copies:
    """The same of tables, whose columns but those of `drop` become numbers together, or of arrays of any shape."""
    if isinstance(p, pa.Table) and isinstance(q, pa.Table):
        p, q = (side.drop_columns([name for name in drop if name in side.column_names]) for side in (p, q))
        (x, y), _ = encode([p, q], ["the data", "the model"])
        return copies(x, y, most=most, seed=seed)
    if isinstance(p, pa.Table) or isinstance(q, pa.Table):
        raise InputError(
            "Rows of the data and of the model must both be tables, or both be arrays. Got one of each instead."
        )
    x, y = (numbers(side.reshape(len(side), -1), torch.float64) for side in (p, q))
    if x.shape[1] != y.shape[1]:
        checks.refuse("model", "copies", f"as wide as the data, {x.shape[1]} numbers a row", y.shape[1])
    return copies(x, y, most=most, seed=seed)
