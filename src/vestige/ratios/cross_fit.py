"""Cross-fitting: log-ratios that no row has judged itself by, since every row's value comes from a fit without the row.

`fold_by_fold` fits any estimator once a fold, on the rest; a `Stack` cross-fits by itself and hands over its held-out
values. Platt's two numbers, fitted on the held-out values, calibrate them (LFIW App. C.1): a loss without a lower bound
may overshoot, and as the slope is never negative, an estimator that found nothing ends at r = 1.

`cross_fit` is the plain case: all rows, the folds' mean for a new x. `held_out` is what two sets of any size are
compared by: of very large ones a random part is fitted on, and the rows outside it, held out by nature, get the mean of
the folds' log-ratios. The part is fitted once more with fewer folds, so that it can be told what is not learnt yet
(`divergences.learnt`). A `Bootstrap` brings intervals with it: each row's come from an ensemble that has not seen it.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.numerics import weighted_mean
from vestige.ratios import RATIOS, build
from vestige.ratios.auto import MANY_FEATURES, auto, look
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.bootstrap import Bootstrap
from vestige.ratios.calibration import Affine, held_out_figures, platt
from vestige.ratios.divergences.estimate import Side
from vestige.ratios.divergences.learnt import Refit
from vestige.ratios.logistic import Logistic
from vestige.ratios.stack.stack import Stack, assign_folds

# Rows of each side that a ratio is fitted on, and rows whose log-ratios are computed at once.
FIT_ROWS = 20_000
BLOCK = 8192
FOLDS, FEWER_FOLDS = 3, 2
# An estimator that is worse than a simple classifier by so much has missed what there is to see.
BLIND_NATS = 0.05


class FoldFits(NamedTuple):
    """One fit a fold (a `Stack` is one for all), the values of every row by the fit without it, the folds of the rows,
    and how much larger KL(p || q) looks inside."""

    fits: tuple[Ratio, ...]
    value_p: Float[Tensor, "n_p k"]
    value_q: Float[Tensor, "n_q k"]
    fold_p: Int[Tensor, " n_p"]
    fold_q: Int[Tensor, " n_q"]
    gap: float


def fold_by_fold(
    estimator: Ratio, sample: Sample, folds: tuple[Int[Tensor, " n_p"], Int[Tensor, " n_q"]], *, seed: int
) -> FoldFits:
    """Copies of `estimator`, each fitted without the rows of both sides that `folds` gives its number.

    A `Stack` chooses as many folds as it has itself, and is fitted in place.
    """
    if isinstance(estimator, Stack):
        weights = {"p_weights": sample.p_weights, "q_weights": sample.q_weights}
        one = estimator.fit(sample.p, sample.q, **weights, seed=seed)
        return FoldFits((one,), one.held_out_p_[:, None], one.held_out_q_[:, None], one.fold_p_, one.fold_q_, one.gap_)
    fold_p, fold_q = folds
    fits: list[Ratio] = []
    value_p, value_q, inside = [], [], []
    for k in range(1 + int(fold_p.max())):
        seen = sample.rows(fold_p != k, fold_q != k)
        weights = {"p_weights": seen.p_weights, "q_weights": seen.q_weights}
        fit = dataclasses.replace(estimator).fit(seen.p, seen.q, **weights, seed=rng.child_seed(seed, "fold", k))
        fits.append(fit)
        value_p.append(evaluate(fit, sample.p[fold_p == k]))
        value_q.append(evaluate(fit, sample.q[fold_q == k]))
        inside.append(float(weighted_mean(evaluate(fit, seen.p)[:, 0], seen.p_weights)))
    held_p, held_q = _in_order(value_p, fold_p), _in_order(value_q, fold_q)
    gap = sum(inside) / len(fits) - float(weighted_mean(held_p[:, 0], sample.p_weights))
    return FoldFits(tuple(fits), held_p, held_q, fold_p, fold_q, gap)


def in_turn(sample: Sample, folds: int) -> tuple[Int[Tensor, " n_p"], Int[Tensor, " n_q"]]:
    """Folds of rows that stand in random order."""
    return torch.arange(len(sample.p)) % folds, torch.arange(len(sample.q)) % folds


def _in_order(values: list[Tensor], fold: Int[Tensor, " n"]) -> Float[Tensor, "n k"]:
    """Values of one fold after the other, put where their rows stand."""
    joined = torch.cat(values)
    return torch.empty_like(joined).index_copy_(0, torch.argsort(fold, stable=True), joined)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Fits that each lack a fold, and the map from their values to log p/q."""

    fits: tuple[Ratio, ...]
    affine: Affine

    def log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The mean over folds."""
        return self.affine(torch.stack([fit.log_ratio(x) for fit in self.fits]).mean(0))


class HeldOutFit(NamedTuple):
    """A fitted ratio, its held-out values, and how much larger KL(p || q) looks on rows that were fitted on."""

    ratio: Stack | CrossFit
    log_ratio_p: Float[Tensor, " n_p"]
    log_ratio_q: Float[Tensor, " n_q"]
    gap: float
    fewer: tuple[Float[Tensor, " n_p"], Float[Tensor, " n_q"]] | None = None  # by a fit that saw fewer rows


def cross_fit(estimator: Ratio, sample: Sample, *, folds: int, calibrated: bool, seed: int) -> HeldOutFit:
    """Copies of `estimator`, each fitted without one fold of both sides, and on request calibrated."""
    w_p, w_q = sample.w_p, sample.w_q
    fold_p, fold_q = (assign_folds(w, folds, generator=rng.fork(seed, "folds", i)) for i, w in enumerate((w_p, w_q)))
    found = fold_by_fold(estimator, sample, (fold_p, fold_q), seed=seed)
    raw_p, raw_q = found.value_p[:, 0], found.value_q[:, 0]
    affine = platt(raw_p, raw_q, w_p, w_q) if calibrated else Affine(1.0, 0.0)
    return HeldOutFit(CrossFit(found.fits, affine), affine(raw_p), affine(raw_q), affine.slope * found.gap)


class Fewer(NamedTuple):
    """Which rows were fitted on, and their held-out log-ratios by the second fit, which saw fewer of them."""

    rows_p: Int[Tensor, " m_p"]
    rows_q: Int[Tensor, " m_q"]
    log_ratio_p: Float[Tensor, " m_p"]
    log_ratio_q: Float[Tensor, " m_q"]


@dataclass(frozen=True, eq=False)
class Folds:
    """The fits that each lack a fold, the rows of either side that were fitted on, and the fold of each of these."""

    fits: tuple[Ratio, ...]
    affine: Affine
    rows_p: Int[Tensor, " m_p"]
    rows_q: Int[Tensor, " m_q"]
    fold_p: Int[Tensor, " m_p"]
    fold_q: Int[Tensor, " m_q"]

    def log_ratio(self, x: Float[Tensor, "n d"], fold: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """log p/q of each row of `x` by the fit that has not seen its `fold`."""
        first = self.fits[0]
        if isinstance(first, Stack):
            return self.affine(first.without(x, fold))
        value = x.new_empty(len(x))
        for k, fit in enumerate(self.fits):
            value[fold == k] = evaluate(fit, x[fold == k])[:, 0]
        return self.affine(value)


@dataclass(frozen=True)
class HeldOut:
    """Calibrated held-out log p/q on the rows of both sides, and how they came about."""

    log_ratio_p: Float[Tensor, " n_p"]
    log_ratio_q: Float[Tensor, " n_q"]
    interval_q: Float[Tensor, "n_q 2"] | None  # of a bootstrap
    report: dict[str, Any]
    warnings: tuple[str, ...]
    blind: str | None  # why the log-ratios miss a difference that is plain to see
    fewer: Fewer | None = None
    folds: Folds | None = None  # the fits themselves, to ask them about other rows

    def sides(
        self, q_weights: Float[Tensor, " n_q"] | None = None, p_weights: Float[Tensor, " n_p"] | None = None
    ) -> tuple[Side, Side]:
        """What divergences are estimated from, under the weights that it was fitted under, which sum to one."""
        return Side.of(self.log_ratio_p, p_weights), Side.of(self.log_ratio_q, q_weights)

    def refit(
        self, q_weights: Float[Tensor, " n_q"] | None = None, p_weights: Float[Tensor, " n_p"] | None = None
    ) -> Refit | None:
        """The rows that were fitted on, by both fits."""
        if self.fewer is None:
            return None
        rows_p, rows_q, log_ratio_p, log_ratio_q = self.fewer
        p = Side.of(self.log_ratio_p[rows_p], _of_rows(p_weights, rows_p))
        q = Side.of(self.log_ratio_q[rows_q], _of_rows(q_weights, rows_q))
        return Refit(p, q, log_ratio_p, log_ratio_q)


def _of_rows(weights: Float[Tensor, " n"] | None, rows: Int[Tensor, " m"]) -> Float[Tensor, " m"] | None:
    """The weights of some rows, made to sum to one."""
    return None if weights is None else weights[rows] / weights[rows].sum()


def fitted_rows(n: int, weights: Float[Tensor, " n"] | None, most: int, seed: int, side: str) -> Int[Tensor, " m"]:
    """At most `most` of `n` rows at random and in random order; rows of weight zero have nothing to say."""
    order = torch.randperm(n, generator=rng.fork(seed, "held-out", side))
    order = (order if weights is None else order[weights[order] > 0])[:most]
    if len(order) < 2 * FOLDS:
        checks.refuse(side, "held_out", f"at least {2 * FOLDS} rows of positive weight", len(order))
    return order


def held_out(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    *,
    p_weights: Float[Tensor, " n_p"] | None = None,
    q_weights: Float[Tensor, " n_q"] | None = None,
    estimator: str | Ratio = "auto",
    rows: int = FIT_ROWS,
    bootstrap: int = 0,
    seed: int = 0,
) -> HeldOut:
    """Cross-fit `estimator` ("auto", a name of RATIOS, or a ratio) on at most `rows` rows a side, and calibrate.

    Weights sum to one: of rows of `p` where these stand for data that is gone, of rows of `q` where these were
    weighted before. `bootstrap` fits make an ensemble with intervals; its base is `estimator`, and `Logistic` for
    "auto".
    """
    whole = Sample(p, q, p_weights, q_weights)
    chosen = fitted_rows(len(p), p_weights, rows, seed, "p"), fitted_rows(len(q), q_weights, rows, seed, "q")
    part = whole.rows(*chosen)
    part = dataclasses.replace(part, p=part.p.to(torch.float64), q=part.q.to(torch.float64))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ratio, why = choose(estimator, part, bootstrap)
        found = fold_by_fold(ratio, part, in_turn(part, FOLDS), seed=seed)
        second = None if bootstrap else fold_by_fold(*with_fewer_rows(ratio, part), seed=rng.child_seed(seed, "fewer"))
    fewer = None if second is None else Fewer(*chosen, *calibrated(second, part))
    value_p = _everywhere(p, chosen[0], found.value_p, found)
    value_q = _everywhere(q, chosen[1], found.value_q, found)
    w_p, w_q = whole.w_p, whole.w_q
    affine = platt(value_p[:, 0], value_q[:, 0], w_p, w_q)
    log_p, log_q = affine(value_p), affine(value_q)
    figures = held_out_figures(log_p[:, 0], log_q[:, 0], w_p, w_q)
    seen = q_weights is None and p.shape[1] <= MANY_FEATURES
    simple = look(part.p, part.q, p_weights=part.p_weights, seed=seed) if seen else None
    report = {
        "estimator": type(ratio).__name__,
        "why": why,
        "rows_p": len(part.p),
        "rows_q": len(part.q),
        "gap": found.gap,
        "calibration": {"slope": affine.slope, "offset": affine.offset},
        "held_out": figures,
        "simple_log_loss": simple,
    }
    blind = None
    if simple is not None and figures["log_loss"] > simple + BLIND_NATS:
        blind = f"a simple classifier does better than {type(ratio).__name__} (held-out log-loss {simple:.3f} against "
        blind += f"{figures['log_loss']:.3f})"
    told = tuple(dict.fromkeys(str(w.message) for w in caught))
    interval = log_q[:, 1:] if log_q.shape[1] > 1 else None
    judges = Folds(found.fits, affine, *chosen, found.fold_p, found.fold_q)
    return HeldOut(log_p[:, 0], log_q[:, 0], interval, report, told, blind, fewer, judges)


def choose(estimator: str | Ratio, sample: Sample, bootstrap: int) -> tuple[Ratio, str]:
    """An unfitted estimator, and why this one."""
    if isinstance(estimator, Ratio):
        base, why = dataclasses.replace(estimator), "as given"
    elif estimator == "auto" and bootstrap:
        base, why = Logistic(), "its networks train as one, so that a bootstrap of it is cheap"
    elif estimator == "auto":
        base = auto(sample.p, sample.q)
        why = str(base.report_["why"]).rstrip(".")
    else:
        names = ["auto", *(name for name in RATIOS if name != "bootstrap")]  # which is asked for by `bootstrap`
        base, why = build(checks.one_of(estimator, names, "estimator", "held_out")), "as asked for"
    return (
        (Bootstrap(base, bootstrap), f"{bootstrap} fits of {type(base).__name__}: {why}") if bootstrap else (base, why)
    )


def _everywhere(
    x: Float[Tensor, "n d"], rows: Int[Tensor, " m"], own: Float[Tensor, "m k"], found: FoldFits
) -> Float[Tensor, "n k"]:
    """Held-out values of every row of `x`: `own` of the `rows` that were fitted on, the fits' mean of the others."""
    value = own.new_empty(len(x), own.shape[1])
    rest = torch.ones(len(x), dtype=torch.bool)
    rest[rows] = False
    if bool(rest.any()):
        value[rest] = torch.stack([evaluate(fit, x[rest]) for fit in found.fits]).mean(0)
    value[rows] = own
    return value


def with_fewer_rows(
    ratio: Ratio, sample: Sample
) -> tuple[Ratio, Sample, tuple[Int[Tensor, " n_p"], Int[Tensor, " n_q"]]]:
    """What `fold_by_fold` is told for a second fit, which sees fewer rows: FEWER_FOLDS folds."""
    fewer = dataclasses.replace(ratio, folds=FEWER_FOLDS, gap_warning=math.inf) if isinstance(ratio, Stack) else ratio
    return fewer, sample, in_turn(sample, FEWER_FOLDS)


def calibrated(found: FoldFits, sample: Sample) -> tuple[Float[Tensor, " n_p"], Float[Tensor, " n_q"]]:
    """The held-out values as log-ratios, by Platt's two numbers."""
    value_p, value_q = found.value_p[:, 0], found.value_q[:, 0]
    affine = platt(value_p, value_q, sample.w_p, sample.w_q)
    return affine(value_p), affine(value_q)


def evaluate(fit: Ratio, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """log-ratio of each row, and for a bootstrap the ends of its interval."""
    rows = []
    for block in torch.split(x, BLOCK):
        block = block.to(torch.float64)
        columns = [fit.log_ratio(block), *(fit.interval(block) if isinstance(fit, Bootstrap) else ())]
        rows.append(torch.stack(columns, 1))
    return torch.cat(rows)
