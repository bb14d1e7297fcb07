"""New rows against noisy means: FID, MMD, a drift test and JS, each with the noise in its interval.

Everything here is computed from what was released and from the new rows q; it costs no privacy.

**Errors.** The means of the functions over the data are known up to e_p = sampling / sqrt n + noise, over the new rows
up to sampling / sqrt m. The noise has a known law. The sampling of the new rows is that of their own values under
random normal multipliers, and the data, whose rows are gone, is given the same law: exact where nothing drifted, to
first order otherwise. DRAWS of both give the error of every figure below.

- FID of the features in the ball (`Query.points`), in units of the features. The noise raises it: the mean rise over
  draws of more noise is subtracted ("fid"), with that of sampling too in "fid_extrapolated".
- MMD^2 = |mean_p phi - mean_q phi|^2 of the released random features, less what noise and sampling add to it: E |phi|^2
  = 1, so a mean over n rows adds (1 - |mean|^2) / n.
- The drift test: z of every function, v its variance, over sqrt(v (1/n + 1/m) + noise). Bins are first merged until
  the data's noisy share promises at least EXPECTED new rows and EXPECTED old ones; v of a bin is that of the pooled
  share, of all other functions that over the new rows. Sum and maximum of z^2 a part, combined by the smallest p as in
  `drift_test.null`, whose draws are those above.
- JS up to MOST_BALANCED features: public rows, or else half of the new ones, get the weights nearest to equal ones
  under which they have the noisy means (`entropy_balance`) of the moments, and stand for the data. Where weights
  cannot give them these means, or their random features still differ from the data's by more than noise, it is refused.
  What the error of the means adds to it by itself is subtracted; where that is more than MOST_RISE it is refused. The
  interval is that of the ratio and of this error; of what neither moments nor random features show it knows nothing.

Whatever needs rows, or a density of them, is refused. Below USEFUL = 2000 of n epsilon nothing is told at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float64, Int64
from scipy.special import ndtri
from scipy.stats import chi2
from torch import Tensor

from vestige.core import Estimate, NotEstimable, rng
from vestige.core.numerics import weighted_mean
from vestige.ratios import Ratio
from vestige.ratios.cross_fit import held_out
from vestige.ratios.divergences import FAMILY, learnt
from vestige.ratios.weights.balance import entropy_balance
from vestige.vestiges.differences import of_shift
from vestige.vestiges.drift_test import ColumnShift, DriftFound
from vestige.vestiges.drift_test.columns import CodedColumn
from vestige.vestiges.drift_test.narrowing import excesses, narrowed
from vestige.vestiges.drift_test.null import MAX, SUM, Null
from vestige.vestiges.drift_test.test import statistics
from vestige.vestiges.lines import METRICS, Found, gathered
from vestige.vestiges.pairs import Tested
from vestige.vestiges.private.released import Released
from vestige.vestiges.private.statistics import symmetric
from vestige.vestiges.schema import SchemaColumn

USEFUL = 2000  # n epsilon, below which nothing is told
FID_LEAST, FID_FIRM = 5000, 20_000  # below which FID is refused, and stands on thin ice
DRAWS, NULL_DRAWS = 300, 1000
POOL = 4000  # new rows whose spread is looked at
EXPECTED = 15  # rows in a bin
LEAST_NEW = 100
MOST_BALANCED = 8  # features
RIDGE = 1e-2
MOST_RISE = 0.02  # nats of JS that the error of the means may make by itself
LEAST_ESS = 0.05  # of the base's rows, that balancing must leave
UNLIKE = 0.01  # the p-value below which a balanced base is not the data

NO_ROWS = "It needs rows or a density of them, and noisy means are all that was kept."
FEW_NEW = f"There are fewer than {LEAST_NEW} new rows."


def not_useful(worth: float) -> str:
    """The sentence that stands for every number."""
    return f"Not useful: n x epsilon is {worth:.3g}, and below {USEFUL} the noise is larger than what it hides."


@dataclass(frozen=True, eq=False)
class Against:
    """What was released, and new rows as values of its functions."""

    kept: Released
    values: Float64[Tensor, "m f"]
    seed: int

    @property
    def m(self) -> int:
        """New rows."""
        return len(self.values)

    def part(self, name: str) -> slice:
        """Where a part stands."""
        return self.kept.spans()[name]

    def sampling(self, draws: int, side: str) -> Float64[Tensor, "b f"]:
        """Draws of sqrt n times the error of a mean over n rows like the new ones."""
        pool = self.values[:: -(-self.m // POOL)]
        centred = pool - pool.mean(0)
        multipliers = torch.randn(
            draws, len(pool), generator=rng.fork(self.seed, "multipliers", side), dtype=pool.dtype
        )
        return multipliers @ centred / math.sqrt(len(pool) - 1)

    def noise(self, draws: int, side: str = "noise") -> Float64[Tensor, "b f"]:
        """Draws of what the noise does to the means."""
        return self.kept.noise(draws, rng.fork(self.seed, "private noise", side))


def fid_of(against: Against) -> Found:
    """FID of the features in the ball, in their own units."""
    kept, at, d = against.kept, against.part("moments"), against.kept.query.d
    p, q = kept.means[at], against.values[:, at].mean(0)
    value = float(frechet(p[None], q[None], d)[0])
    noise = against.noise(DRAWS)[:, at]
    sampled = against.sampling(DRAWS, "p")[:, at] / math.sqrt(kept.n), against.sampling(DRAWS, "q")[:, at]
    by_noise = frechet(p + noise, q.expand_as(noise), d)
    by_all = frechet(p + noise + sampled[0], q + sampled[1] / math.sqrt(against.m), d)
    scale = kept.query.radius**2
    error = float(by_all.std()) * scale
    plain, extrapolated = ((value - (float(rise.mean()) - value)) * scale for rise in (by_noise, by_all))
    return {"fid": (plain, error, None), "fid_extrapolated": (extrapolated, error, 0.0)}


def frechet(p: Float64[Tensor, "b k"], q: Float64[Tensor, "b k"], d: int) -> Float64[Tensor, " b"]:
    """The Frechet distance of means and second moments; what noise made negative of a covariance is cut."""
    means = p[:, :d], q[:, :d]
    both = [symmetric(x[:, d:], d) - mean[:, :, None] * mean[:, None] for x, mean in zip((p, q), means, strict=True)]
    roots = [_root(s) for s in both]
    traces = torch.linalg.svdvals(roots[0] @ roots[1].mT).sum(1)
    total = sum(root.square().sum((1, 2)) for root in roots)
    return (means[0] - means[1]).square().sum(1) + total - 2 * traces


def _root(s: Float64[Tensor, "b d d"]) -> Float64[Tensor, "b d d"]:
    """R with R'R = s, of which negative parts are cut."""
    values, vectors = torch.linalg.eigh(s)
    return values.clamp_min(0).sqrt()[:, :, None] * vectors.mT


def mmd_of(against: Against) -> Found:
    """MMD^2 under the kernel of the released random features."""
    kept, at = against.kept, against.part("random")
    p, q = kept.means[at], against.values[:, at].mean(0)
    noise = float(kept.noise_variance[at].sum())
    rise_p = (1 - (float(p.square().sum()) - noise)) / kept.n
    rise_q = (1 - float(q.square().sum())) / (against.m - 1)
    gap = p - q
    error = against.noise(DRAWS)[:, at] + against.sampling(DRAWS, "p")[:, at] / math.sqrt(kept.n)
    error = error + against.sampling(DRAWS, "q")[:, at] / math.sqrt(against.m)
    quadratic = float(error.square().sum(1).var())
    linear = max(float((2 * error @ gap).var()) - 2 * quadratic, 0.0)  # the gap has its own error in it, twice
    return {"mmd2": (float(gap.square().sum()) - noise - rise_p - rise_q, math.sqrt(linear + quadratic), 0.0)}


def merged_bins(against: Against) -> tuple[Float64[Tensor, "b g"], list[int], list[str]]:
    """A matrix that merges bins of too few rows; the column and the words of each bin that is left.

    The bins of a number are merged with their neighbours, those of categories with each other; values that nobody was
    expected to have join the last.
    """
    kept, at = against.kept, against.part("columns")
    shares = kept.means[at]
    least = EXPECTED / min(kept.n, against.m)
    owners: list[int] = []
    words: list[str] = []
    groups: list[list[int]] = []
    place = 0
    for j, column in enumerate(kept.query.columns):
        codes = list(range(column.size))
        bins, rest = codes[: column.bins], codes[column.bins :]
        rest.sort(key=lambda code: -float(shares[place + code]))
        mine: list[list[int]] = [[]]
        for code in (*bins, *rest):
            if mine[-1] and float(shares[[place + c for c in mine[-1]]].sum()) >= least:
                mine.append([])
            mine[-1].append(code)
        if len(mine) > 1 and float(shares[[place + c for c in mine[-1]]].sum()) < least:
            last = mine.pop()
            mine[-1] += last
        if len(mine) > 1:
            for group in mine:
                groups.append([place + c for c in group])
                owners.append(j)
                ends = [code for code in group if code < column.bins] or group
                names = [_named(kept.query.schema.used[j], column, code) for code in (ends[0], ends[-1])]
                words.append(_words(*names))
        place += column.size
    merging = torch.zeros(len(shares), len(groups), dtype=torch.float64)
    for g, group in enumerate(groups):
        merging[group, g] = 1
    return merging, owners, words


def _named(declared: SchemaColumn, column: CodedColumn, code: int) -> str:
    """What a code stands for: of a category its text."""
    if not declared.is_category or code >= len(column.atoms):
        return column.name_of(code)
    value = int(column.atoms[code])
    return f"'{declared.categories[value]}'" if value < len(declared.categories) else "other"


def _words(first: str, last: str) -> str:
    return first if first == last else f"{first} ... {last}"


def drift_of(against: Against) -> Tested:
    """The test of "no difference"."""
    if against.m < LEAST_NEW:
        return Tested(math.nan, untested=f"there are fewer than {LEAST_NEW} new rows")
    kept, columns = against.kept, against.part("columns")
    merging, owners, words = merged_bins(against)
    others = columns.start

    def turned(x: Tensor) -> Float64[Tensor, "b f"]:
        return torch.cat([x[:, columns] @ merging, x[:, :others]], 1)

    p, q = turned(kept.means[None])[0], turned(against.values.mean(0)[None])[0]
    n, m, bins = kept.n, against.m, merging.shape[1]
    # Errors as vectors over the functions: of the pooled sampling at unit size, and of the noise.
    sampling, noise = turned(against.sampling(NULL_DRAWS, "null")), turned(against.noise(NULL_DRAWS, "null"))
    seen = turned(against.values[:: -(-m // POOL)])
    spread = seen.var(0)
    pooled = ((n * p + m * q) / (n + m))[:bins].clamp(1e-6, 1 - 1e-6)
    variance = spread.clone()
    variance[:bins] = pooled * (1 - pooled)
    alike = (variance / spread.clamp_min(1e-30)).sqrt()
    moving = spread > 1e-12
    sampled_variance = variance * (1 / n + 1 / m)
    noise_variance = _noise_variance(kept, merging, others)
    total = (sampled_variance + noise_variance).sqrt().clamp_min(1e-15)
    z = torch.where(moving, (q - p) / total, 0.0)
    draws = (sampling * alike * math.sqrt(1 / n + 1 / m) + noise) / total
    draws = torch.where(moving, draws, 0.0)
    spans = {"columns": slice(0, bins), "moments": slice(bins, bins + kept.query.sizes["moments"])}
    spans["random"] = slice(spans["moments"].stop, len(p))
    spans = {name: span for name, span in spans.items() if span.stop > span.start}
    kinds = [(name, kind) for name in spans for kind in ((SUM,) if name == "random" else (SUM, MAX))]
    sampled = torch.where(moving, sampled_variance / total.square(), 0.0)
    names, sorts = map(list, zip(*kinds, strict=True))
    found = narrowed(statistics(draws.square(), spans), names, sorts, excesses(seen.mT, spans, sampled))
    null = Null.fit(found[None], (m,), names, sorts)
    whole, families, _ = null.p_values(statistics(z.square()[None], spans), m)
    shifts = _shifts(z, owners, words, null, kinds, m)
    schema = kept.query.schema
    named = tuple(of_shift(schema.cell_names[one.column], schema.kinds[one.column], one) for one in shifts)
    drift = DriftFound(float(whole[0]), dict(zip(null.names, families[0].tolist(), strict=True)), shifts, n, m)
    return Tested(drift.p_value, drift, named)


def _noise_variance(kept: Released, merging: Float64[Tensor, "b g"], others: int) -> Float64[Tensor, " f"]:
    """Of the means after merging: the noise of merged bins adds up, that of the count is common to them."""
    each = kept.variance * kept.query.units.square()
    own = each[1:]
    at = kept.spans()["columns"]
    merged = torch.cat([own[at] @ merging, own[:others]])
    means = torch.cat([kept.means[at] @ merging, kept.means[:others]])
    return (merged + each[0] * means.square()) / kept.n**2


def _shifts(
    z: Float64[Tensor, " f"], owners: list[int], words: list[str], null: Null, kinds: list[tuple[str, str]], m: int
) -> tuple[ColumnShift, ...]:
    """The bin of each column that differs most, against the null of the strongest of all."""
    if not owners:
        return ()
    size = z[: len(owners)].square()
    best = [
        max((k for k, owner in enumerate(owners) if owner == j), key=lambda k: float(size[k]))
        for j in dict.fromkeys(owners)
    ]
    place = kinds.index(("columns", MAX))
    q = torch.zeros(len(best), len(kinds), dtype=torch.float64)
    q[:, place] = size[best]
    p_values = null.p_values(q, m)[2][:, place].tolist()
    return tuple(ColumnShift(owners[k], words[k], float(z[k]), p) for k, p in zip(best, p_values, strict=True))


@dataclass(frozen=True, eq=False)
class Base:
    """Rows that stand for the data once they are balanced: values of the functions, and features."""

    values: Float64[Tensor, "b f"]
    points: Float64[Tensor, "b d"]

    def some(self, rows: Int64[Tensor, " k"]) -> Base:
        """Some of them."""
        return Base(self.values[rows], self.points[rows])


class Balanced(NamedTuple):
    """Weights of a base that sum to one, and what is needed to know how they move with the means."""

    weights: Float64[Tensor, " b"]
    centred: Float64[Tensor, "b k"]  # standardised functions of the base, less their weighted means
    functions: Int64[Tensor, " k"]
    spread: Float64[Tensor, " k"]

    def tilts(self, error: Float64[Tensor, "e f"]) -> Float64[Tensor, "b e"]:
        """By how much each log-weight moves, to first order, where the means of all functions are off by `error`."""
        spread = self.centred.mT @ (self.centred * self.weights[:, None])
        eye = RIDGE * torch.eye(len(spread), dtype=torch.float64)
        return self.centred @ torch.linalg.solve(spread + eye, (error[:, self.functions] / self.spread).mT)


def balanced(base: Base, target: Float64[Tensor, " f"], functions: Int64[Tensor, " k"]) -> Balanced:
    """The base with the means `target` of these functions."""
    values = base.values[:, functions]
    spread = values.std(0)
    moving = spread > 1e-3
    functions, values, spread = functions[moving], values[:, moving], spread[moving]
    centred = (values - target[functions]) / spread
    equal = values.new_full((len(values),), -math.log(len(values)))
    weights = entropy_balance(equal, centred, ridge=RIDGE).exp()
    return Balanced(weights, centred - weights @ centred, functions, spread)


def js_of(
    against: Against,
    base: Base | None,
    new: Float64[Tensor, "m d"],
    *,
    estimator: str | Ratio,
    rows: int,
    level: float,
) -> tuple[Estimate, dict[str, Any]]:
    """JS of the new rows against balanced ones that stand for the data, and the report of the ratio."""
    kept, seed = against.kept, against.seed
    if kept.query.d > MOST_BALANCED:
        told = f"JS is told of at most {MOST_BALANCED} features with an epsilon, and there are {kept.query.d}."
        return Estimate.refused(told, name="js", level=level), {}
    if base is None:
        order = torch.randperm(len(new), generator=rng.fork(seed, "base"))
        half, rest = order[: len(new) // 2], order[len(new) // 2 :]
        base, new = Base(against.values[half], new[half]), new[rest]
    at = against.part("moments")
    made = balanced(base, kept.means, torch.arange(at.start, at.stop))
    weights = made.weights
    ess = float(1 / weights.square().sum())
    error = against.noise(DRAWS, "js") + against.sampling(DRAWS, "js") / math.sqrt(kept.n)
    tilts = made.tilts(error)
    rise = float((weights @ tilts.square()).mean()) / 8  # JS of p and p (1 + t) is E t^2 / 8, to second order
    told = _unlike(against, base, weights, ess)
    if not told and rise > MOST_RISE:
        told = f"JS cannot be told: the noise alone would make it about {rise:.2g} nats."
    if told:
        return Estimate.refused(told, name="js", level=level), {}
    found = held_out(base.points, new, p_weights=weights, estimator=estimator, rows=rows, seed=seed)
    one = learnt(("js",), *found.sides(None, weights), found.refit(None, weights), level=level)["js"]
    if not one.known:
        return one, found.report
    # JS changes with p by the mean of log(2 r / (1 + r)) / 2 under the change of p.
    slope = (math.log(2) - torch.nn.functional.softplus(-found.log_ratio_p.double())) / 2
    off = float((weights * slope @ tilts).std())
    wide = float(ndtri((1 + level) / 2)) * off
    value, low, high = max(one.value - rise, 0.0), max(one.low - rise - wide, 0.0), min(one.high + wide, math.log(2))
    notes = (*one.notes, "Of what moments and random features do not show it knows nothing.")
    details = {**one.details, "by_noise": off, "rise": rise, "base_ess": ess}
    known: dict[str, Any] = {"value": value, "low": low, "high": high, "std_error": math.hypot(one.std_error, off)}
    return one.but(**known, notes=notes, details=details), found.report


def _unlike(against: Against, base: Base, weights: Float64[Tensor, " b"], ess: float) -> str:
    """Why the balanced base does not stand for the data; empty where it may."""
    if ess < LEAST_ESS * len(weights) or ess < LEAST_NEW:
        return f"JS cannot be told: balancing leaves {ess:.0f} of {len(weights)} rows that could stand for the data."
    kept, at = against.kept, against.part("random")
    values = base.values[:, at]
    mean = weighted_mean(values, weights)
    centred = (values - mean) * weights[:, None]
    covariance = centred.mT @ centred + torch.diag(kept.noise_variance[at])
    covariance += (values - mean).mT @ ((values - mean) * weights[:, None]) / kept.n
    gap = kept.means[at] - mean
    # A sum of squares of correlated normals, as a scaled chi^2 of the same mean and variance.
    trace, square = float(covariance.trace()), float(covariance.square().sum())
    p = float(chi2.sf(float(gap.square().sum()) * trace / square, trace**2 / square))
    if p < UNLIKE:
        return f"JS cannot be told: balanced rows still differ from the data in random features (p = {p:.1g})."
    return ""


def metrics_of(against: Against, level: float, on_step: Callable[[str], None]) -> dict[str, Estimate]:
    """Every metric by name; what cannot be had is refused."""

    def computed(label: str) -> Found:
        if against.m < LEAST_NEW:
            raise NotEstimable(FEW_NEW)
        if label == "FID":
            if against.kept.worth < FID_LEAST:
                told = f"FID needs n x epsilon of at least {FID_LEAST}, and it is {against.kept.worth:.3g}."
                raise NotEstimable(told)
            return fid_of(against)
        if label == "MMD":
            return mmd_of(against)
        raise NotEstimable(NO_ROWS)

    return gathered(computed, level=level, on_step=on_step)


def all_refused(reason: str, level: float) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
    """Divergences and metrics, none of which is told."""
    names = [name for _, _, names in METRICS.values() for name in names]
    return tuple({k: Estimate.refused(reason, name=k, level=level) for k in every} for every in (FAMILY, names))  # type: ignore[return-value]


def cautions(kept: Released) -> tuple[str, ...]:
    """What there is to say beside the numbers."""
    if FID_LEAST <= kept.worth < FID_FIRM:
        return (f"FID: n x epsilon is {kept.worth:.3g}; below {FID_FIRM} the noise may be a good part of it.",)
    return ()
