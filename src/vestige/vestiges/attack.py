"""Attacks on a vestige: how well somebody who reads the file can tell who was in the data.

The attacker has the vestige, a row, and rows of the same distribution that were not kept (`reference`: published ones,
or another half). The answer is the AUC of telling rows that were kept (`members`) from rows that were not (`fresh`):
0.5 is guessing, 1 is certainty. Each attack gives every row a score, the higher the more it looks like a member.

- **density**: log d(x) less the mean of log r(x) over `RIVALS` densities r of the same kind and options, each fitted to
  as many rows drawn from the reference: what is high at every such density is common, and what is high at d alone was
  learnt by heart (the offline attack of Carlini et al. 2022, "Membership inference attacks from first principles",
  without its division by the rivals' spread, which did not help here). One rival finds about half as much.
- **map**: the mean of r(x) over as many rival maps less d(x), where d(x) is what the fitted feature map, or the
  principal components, leave of a row (|x - x'|^2 with x' its reconstruction), and r(x) the same of a map that was
  fitted to reference rows. Rows that a map was fitted to lie nearer to it.
- **moments**: (f(x) - m)' S^-1 (k - m) with f all functions whose means are stored, k the stored means, m and S mean
  and covariance over the reference rows, S plus `RIDGE` times the number of functions over that of rows times its
  diagonal. To first order this is the likelihood ratio of "k contains f(x) / n". Homer et al. 2008 ("Resolving
  individuals contributing trace amounts of DNA ...") take distances for it and Sankararaman et al. 2009 ("Genomic
  privacy and limits of individual detection in a pool") prove the inner product best for independent columns, where S
  is diagonal. Functions: the features' mean and covariance, and the drift test's dictionary with its squares, random
  features among them. Third moments, which are kept on request alone, are not used.

**last row**: this attacker knows all rows but one, and two candidates for the last. The candidate is taken with which
the sums agree better with those that are stored; the answer is how often that is right. Nothing that is rounded to what
n rows can support stops it, since hundreds of roundings average out: only noise, as in `keep(..., epsilon=)`, does.

The AUC's interval is that of DeLong, DeLong and Clarke-Pearson 1988 over the rows; over redrawn references, of which
there are R, the wider one of theirs and of that from the R values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from jaxtyping import Float, Int
from scipy.stats import beta, rankdata
from torch import Tensor

from vestige.core import Estimate, NotEstimable, checks, rng
from vestige.densities import Density
from vestige.features.fixed import PCA
from vestige.vestiges.batches import held
from vestige.vestiges.drift_test import DriftTest
from vestige.vestiges.frame import Axes, Frame, Rows
from vestige.vestiges.keep import keep
from vestige.vestiges.reference import seen_of_cells
from vestige.vestiges.vestige import Vestige

SIZES = (300, 1000, 10_000)
FRESH = 4000  # rows of either side that are scored, at most
REFERENCE = 2  # times n: reference rows, at most
RIVALS = 8
COVARIANCE_ROWS = 2000  # of the reference, at most
RIDGE = 1.0
BLOCK = 1024  # rows at a time
TRIALS = 500  # of the attack that knows all other rows
Scores: TypeAlias = "Callable[[Rows], Float[Tensor, ' n']]"
NOTHING_FITTED = "Neither a feature map nor principal components were fitted to the rows."


def auc(
    members: Float[Tensor, " m"], fresh: Float[Tensor, " n"], *, level: float = 0.95, name: str = "auc"
) -> Estimate:
    """The chance that a member's score is above that of a fresh row, ties counting half; DeLong's interval.

    A row of either side can be told from all others or from none, so its standard error is at least that of half a row.
    """
    x, y = (np.asarray(side, dtype=np.float64) for side in (members, fresh))
    m, n = len(x), len(y)
    ranks = rankdata(np.concatenate([x, y]))
    above = (ranks[:m] - rankdata(x)) / n  # of each member: the share of fresh rows below it
    below = 1 - (ranks[m:] - rankdata(y)) / m
    error = math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
    error = max(error, 0.5 / min(m, n))
    return _within(Estimate.normal(float(above.mean()), error, level, n=m + n, name=name))


def together(found: Sequence[Estimate]) -> Estimate:
    """The mean of the AUCs of redrawn references, with the wider interval of the two that there are."""
    known = [one for one in found if one.known]
    if not known:
        return found[0]
    values, errors = np.array([one.value for one in known]), np.array([one.std_error for one in known])
    within = float(np.sqrt(np.square(errors).sum())) / len(known)
    between = float(values.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 2 else 0.0
    made = Estimate.normal(float(values.mean()), max(within, between), known[0].level, name=known[0].name)
    return _within(made.but(n=sum(one.n or 0 for one in known), details={"references": len(known)}))


def _within(estimate: Estimate) -> Estimate:
    return estimate.but(low=max(estimate.low, 0.0), high=min(estimate.high, 1.0))


# ---- the three attacks: from a vestige and reference rows to scores of rows


def by_density(kept: Vestige, reference: Rows, seed: int = 0) -> Scores:
    """The log-density of the vestige's density, less that of densities of reference rows."""
    parts, frame = kept.reference.parts, kept.frame
    scores = density_scores(
        [part.density for part in parts], [part.rows for part in parts], _given(frame, reference), _kinds(frame), seed
    )
    return lambda rows: scores(_given(frame, rows))


def density_scores(
    own: Sequence[Density],
    shares: Sequence[float],
    reference: Float[Tensor, "n c"],
    kinds: tuple[str, ...] | None,
    seed: int = 0,
) -> Callable[[Float[Tensor, "m c"]], Float[Tensor, " m"]]:
    """The log-density of a union of densities, less that of densities like the first of reference cells."""
    learnt = int(own[0].report_.get("n", len(reference)))
    rivals = [own[0].copy().fit(reference[some], kinds, seed=i) for i, some in _drawn(len(reference), learnt, seed)]
    logs = torch.tensor(list(shares), dtype=torch.float64).log() - math.log(sum(shares))

    def scores(cells: Float[Tensor, "m c"]) -> Float[Tensor, " m"]:
        union = torch.logsumexp(torch.stack([_finite(density, cells) for density in own], 1) + logs, 1)
        return union - torch.stack([_finite(rival, cells) for rival in rivals]).mean(0)

    return scores


def _drawn(n: int, count: int, seed: int) -> list[tuple[int, Tensor]]:
    """For each rival its number and the reference rows that it is fitted to."""
    streams = ((i, rng.fork(seed, "rivals", str(i))) for i in range(RIVALS))
    return [(i, torch.randperm(n, generator=generator)[:count]) for i, generator in streams]


def _given(frame: Frame, rows: Rows) -> Float[Tensor, "n c"]:
    """What a density is fitted to."""
    cells = frame.cells(rows).cells
    return cells if frame.density_of_cells else seen_of_cells(frame, cells)


def _kinds(frame: Frame) -> tuple[str, ...] | None:
    return frame.kinds if frame.density_of_cells else None


def _finite(density: Density, given: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    """The log-density; where there is none, one nat below the least there is, so that two can be held together."""
    found = density.log_density(given)
    known = found[found.isfinite()]
    return found.clamp_min(float(known.min()) - 1 if len(known) else 0.0)


def by_residual(kept: Vestige, reference: Rows, seed: int = 0) -> Scores:
    """What maps fitted to reference rows leave of a row, less what the vestige's own leave of it."""
    frame, drawn = kept.frame, _drawn(len(reference), kept.n, seed)
    found: list[tuple[Scores, list[Scores]]] = []  # what the own leaves, and what each rival does
    left_over: list[int] = []  # dimensions, so that each is taken in units of its variance, as in a likelihood
    if isinstance(frame.map, PCA):
        fitted = [PCA(dims=frame.map.dims).fit(picked(reference, some), seed=i) for i, some in drawn]
        found.append((_left_by_map(frame.map), [_left_by_map(one) for one in fitted]))
        left_over.append(max(len(frame.map.mean_) - frame.map.dims, 1))
    if frame.axes is not None:
        of_features, k = frame.features(frame.cells(reference).cells), len(frame.axes.directions)
        plain = bool((frame.axes.scale.scale == 1).all())
        axes = [Axes.of(of_features[some], k, standardised=not plain) for _, some in drawn]
        found.append((_left_by_axes(frame, frame.axes), [_left_by_axes(frame, one) for one in axes]))
        left_over.append(of_features.shape[1] - k)
    if not found:
        raise NotEstimable(NOTHING_FITTED)
    few = _first(reference, FRESH)
    scales = [float(own(few).mean()) / across for (own, _), across in zip(found, left_over, strict=True)]

    def scores(rows: Rows) -> Float[Tensor, " n"]:
        each = [torch.stack([rival(rows) for rival in rivals]).mean(0) - own(rows) for own, rivals in found]
        return torch.stack([one / scale for one, scale in zip(each, scales, strict=True)]).sum(0)

    return scores


def _left_by_map(fitted: PCA) -> Scores:
    def left(rows: Rows) -> Float[Tensor, " n"]:
        assert isinstance(rows, Tensor)
        return _left(rows.reshape(len(rows), -1).double() - fitted.mean_, fitted.directions_)

    return left


def _left_by_axes(frame: Frame, axes: Axes) -> Scores:
    return lambda rows: _left(axes.scale(frame.features(frame.cells(rows).cells)), axes.directions)


def _left(centred: Float[Tensor, "n d"], directions: Float[Tensor, "k d"]) -> Float[Tensor, " n"]:
    """The squared length of what lies across orthonormal directions."""
    return centred.square().sum(1) - (centred @ directions.mT).square().sum(1)


def by_moments(kept: Vestige, reference: Rows, seed: int = 0) -> Scores:
    """The inner product of a row's functions with what the stored means add to those of reference rows."""
    known = Functions(kept, reference)
    weights = known.weights(seed)
    return lambda rows: torch.cat([block @ weights for block in known.of(rows)])


class Functions:
    """Every function whose mean a vestige stores, about the mean of reference rows, in their deviations."""

    def __init__(self, kept: Vestige, reference: Rows) -> None:
        self.kept, self.cells = kept, kept.frame.cells(reference).cells
        own = kept.frame.features(self.cells).double()
        self.centre, self.varying = own.mean(0), torch.nonzero((own != own[0]).any(0)).flatten()
        start = self._raw(self.cells[:BLOCK]).mean(0)  # about which sums of squares lose no digits
        total, squares = torch.zeros_like(start), torch.zeros_like(start)
        for block in self.cells.split(BLOCK):
            f = self._raw(block) - start
            total, squares = total + f.sum(0), squares + f.square().sum(0)
        mean = total / len(self.cells)
        variance = squares / len(self.cells) - mean.square()
        self.moving = torch.nonzero(variance > 1e-12 * (start.square() + variance.max())).flatten()
        self.mean, self.scale = (start + mean)[self.moving], variance[self.moving].sqrt()
        self.gap = (stored_means(kept, self.centre, self.varying)[self.moving] - self.mean) / self.scale

    def _raw(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n k"]:
        z = (self.kept.frame.features(cells).double() - self.centre)[:, self.varying]
        i, j = torch.triu_indices(z.shape[1], z.shape[1])
        f = self.kept.test.dictionary.evaluate(cells).mT
        return torch.cat([z, z[:, i] * z[:, j], f, f.square()], 1)

    def of(self, rows: Rows) -> list[Float[Tensor, "b k"]]:
        """Of rows, some at a time."""
        return [self.standard(block) for block in self.kept.frame.cells(rows).cells.split(BLOCK)]

    def standard(self, cells: Float[Tensor, "n c"]) -> Float[Tensor, "n k"]:
        """Of cells."""
        return (self._raw(cells)[:, self.moving] - self.mean) / self.scale

    def weights(self, seed: int) -> Float[Tensor, " k"]:
        """S^-1 (k - m); where functions are more than rows, by the rows' own products (Woodbury)."""
        some = torch.randperm(len(self.cells), generator=rng.fork(seed, "covariance"))[:COVARIANCE_ROWS]
        z = torch.cat([self.standard(block) for block in self.cells[some].split(BLOCK)])
        m, k = z.shape
        ridge = RIDGE * k / m
        if k <= m:
            return torch.linalg.solve(z.mT @ z / m + ridge * torch.eye(k, dtype=z.dtype), self.gap)
        inner = z @ z.mT / m + ridge * torch.eye(m, dtype=z.dtype)
        return (self.gap - z.mT @ torch.linalg.solve(inner, z @ self.gap) / m) / ridge


def stored_means(kept: Vestige, about: Float[Tensor, " d"], varying: Int[Tensor, " v"]) -> Float[Tensor, " k"]:
    """The stored means of all functions, in the order of `Functions`: of these features, about a point, and others."""
    sums = kept.moments.whole()
    shift = (sums.mean.double() - about)[varying]
    second = (sums.scatter.double() / sums.weight)[varying][:, varying] + torch.outer(shift, shift)
    i, j = torch.triu_indices(len(shift), len(shift))
    test = kept.test
    return torch.cat([shift, second[i, j], test.moments.total / _units(test), test.moments.squares / _units(test)])


def _units(test: DriftTest) -> Float[Tensor, " f"]:
    """Of each function of the dictionary: how many rows its mean is of."""
    units = torch.full_like(test.moments.total, float(test.moments.units), dtype=torch.float64)
    units[test.dictionary.learnt] = float(test.moments.units_learnt)
    return units


ATTACKS: dict[str, Callable[[Vestige, Rows, int], Scores]] = {
    "density": by_density,
    "map": by_residual,
    "moments": by_moments,
}


# ---- runs


def measure(
    kept: Vestige, members: Rows, fresh: Rows, reference: Rows, *, level: float = 0.95, seed: int = 0
) -> dict[str, Estimate]:
    """The AUC of every attack of ATTACKS on one vestige; one that has nothing to look at is refused.

    Parameters
    ----------
    kept
        Of rows to which `members` belong.
    members, fresh
        Rows that were kept, and rows of the same distribution that were not.
    reference
        Further rows that were not kept, which the attacker has; at least as many as were kept are best.
    """
    found = {}
    for name, attack in ATTACKS.items():
        try:
            scores = attack(kept, reference, seed)
            found[name] = auc(scores(members), scores(fresh), level=level, name=name)
        except NotEstimable as error:
            found[name] = Estimate.refused(str(error), name=name, level=level)
    return found


def last_row(kept: Vestige, members: Rows, fresh: Rows, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """How often an attacker who knows all rows but one tells the last one from a fresh row, by the stored means.

    `members` are *all* rows that were kept. The learnt families of the drift test, which count a part of the rows that
    the attacker does not know, are left out. The interval is that of Clopper and Pearson.
    """
    known = Functions(kept, members)
    dictionary = kept.test.dictionary
    apart = torch.zeros(sum(dictionary.sizes.values()), dtype=torch.bool)
    apart[dictionary.learnt] = kept.test.moments.units_learnt < kept.test.moments.units
    first = len(stored_means(kept, known.centre, known.varying)) - 2 * len(apart)
    usable = ~torch.cat([torch.zeros(first, dtype=torch.bool), apart, apart])[known.moving]
    order = torch.randperm(len(members), generator=rng.fork(seed, "last row"))[: min(TRIALS, len(fresh))]
    own, other = (
        torch.cat(known.of(picked(x, rows)))[:, usable]
        for x, rows in ((members, order), (fresh, torch.arange(len(order))))
    )
    # With the true row the sums differ from the stored ones by their rounding alone, with another by the two rows' gap.
    rounding = known.gap[usable]
    with_other = (rounding + (own - other) / kept.n).square().sum(1)
    right = int((with_other > rounding.square().sum()).sum()) + int((with_other == rounding.square().sum()).sum()) / 2
    n, tail = len(order), (1 - level) / 2
    low = float(beta.ppf(tail, right, n - right + 1)) if right else 0.0
    high = float(beta.ppf(1 - tail, right + 1, n - right)) if right < n else 1.0
    share = right / n
    error = max(math.sqrt(share * (1 - share) / n), 0.5 / n)
    return Estimate(share, low, high, level, error, n=n, name="last row")


def run(
    population: Any,  # noqa: ANN401 - whatever `keep` takes and fits in memory
    *,
    sizes: Sequence[int] = SIZES,
    references: int = 1,
    make: Callable[..., Vestige] = keep,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Every attack on vestiges of `n` rows drawn from a population, for each n of `sizes`.

    Parameters
    ----------
    population
        Rows to draw from: members, fresh rows and the attacker's reference are disjoint draws, so there must be at
        least three times the largest size.
    references
        How often the members are drawn anew.
    make
        Makes the vestige of rows: `keep`, or that with options, as in `functools.partial(keep, density="trees")`.

    Returns
    -------
    DataFrame
        A row for each n and attack: "n", "attack", "auc", "low", "high", "verdict", "reason"; "last row" is the share
        of right guesses of the attacker who knows all other rows.

    Example
    -------
    >>> rows = np.random.default_rng(0).normal(size=(400, 4))
    >>> found = run(rows, sizes=[100])
    >>> list(found.attack)
    ['density', 'map', 'moments', 'last row']
    """
    rows = held(population, name="population", owner="attack.run").rows
    total, largest = len(rows), max(checks.whole(n, "sizes", "attack.run", low=1) for n in sizes)
    if total < 3 * largest:
        checks.refuse("population", "attack.run", f"at least {3 * largest} rows for sizes of {largest}", total)
    found = []
    for n in sizes:
        each: dict[str, list[Estimate]] = {}
        for r in range(references):
            for name, one in once(rows, n, make=make, level=level, seed=rng.child_seed(seed, f"{n} {r}")).items():
                each.setdefault(name, []).append(one)
        for name, estimates in each.items():
            one = together(estimates)
            found.append((n, name, one.value, one.low, one.high, one.verdict, one.reason))
    return pd.DataFrame(found, columns=["n", "attack", "auc", "low", "high", "verdict", "reason"])


def once(
    rows: Rows, n: int, *, make: Callable[..., Vestige] = keep, level: float = 0.95, seed: int = 0
) -> Mapping[str, Estimate]:
    """Every attack on one vestige of n rows of a population: those of ATTACKS, and "last row"."""
    order = torch.randperm(len(rows), generator=rng.fork(seed, "population"))
    count = min(n, FRESH) if len(rows) < 3 * n + FRESH else FRESH
    members, fresh = picked(rows, order[:n]), picked(rows, order[n : n + count])
    reference = picked(rows, order[n + count : n + count + max(REFERENCE * n, 2 * COVARIANCE_ROWS)])
    kept = make(members, seed=seed)
    found = measure(kept, _first(members, FRESH), fresh, reference, level=level, seed=seed)
    return found | {"last row": last_row(kept, members, fresh, level=level, seed=seed)}


def picked(rows: Rows, places: Tensor) -> Rows:
    """The rows at these places."""
    return rows.take(pa.array(places.numpy())) if isinstance(rows, pa.Table) else rows[places]


def _first(rows: Rows, count: int) -> Rows:
    return rows.slice(0, count) if isinstance(rows, pa.Table) else rows[:count]
