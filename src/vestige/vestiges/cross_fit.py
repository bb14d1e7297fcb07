"""Log-ratios that no row has judged itself by: every row's value comes from a fit that has not seen the row.

An estimator that cross-fits on its own (`Stack`) hands over its held-out values; any other is fitted once a fold, on
the rest. Of very large sets a random part is fitted on, and the rows outside it are held out by nature: they get the
mean of the folds' log-ratios. Platt's two numbers, fitted on the held-out values, then calibrate them
(LFIW App. C.1); the slope is never negative, so an estimator that found nothing ends at r = 1.

A `Bootstrap` brings intervals with it: each row's come from an ensemble that has not seen the row.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.numerics import weighted_mean
from vestige.ratios import RATIOS, Ratio
from vestige.ratios.auto import MANY_FEATURES, auto, look
from vestige.ratios.bootstrap import Bootstrap
from vestige.ratios.calibration import held_out_figures, platt
from vestige.ratios.stack.stack import Stack

# Rows of each side that a ratio is fitted on, and rows whose log-ratios are computed at once.
FIT_ROWS = 20_000
BLOCK = 8192
FOLDS = 3
# An estimator that is worse than a simple classifier by so much has missed what there is to see.
BLIND_NATS = 0.05


@dataclass(frozen=True)
class HeldOut:
    """Calibrated held-out log p/q on the rows of both sides, and how they came about."""

    log_ratio_p: Float[Tensor, " n_p"]
    log_ratio_q: Float[Tensor, " n_q"]
    interval_q: Float[Tensor, "n_q 2"] | None  # of a bootstrap
    report: dict[str, Any]
    warnings: tuple[str, ...]
    blind: str | None  # why the log-ratios miss a difference that is plain to see


@dataclass(frozen=True)
class Part:
    """The rows of one side that are fitted on: all, or as many as are allowed, at random and in random order."""

    x: Float[Tensor, "m d"]
    weights: Float[Tensor, " m"] | None
    rows: Int[Tensor, " m"]  # their positions in the whole side

    @classmethod
    def of(cls, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None, most: int, seed: int, side: str) -> Part:
        """At most `most` rows of `x`; rows of weight zero have nothing to say."""
        order = torch.randperm(len(x), generator=rng.fork(seed, "held-out", side))
        order = order if weights is None else order[weights[order] > 0]
        order = order[:most]
        if len(order) < 2 * FOLDS:
            checks.refuse(side, "held_out", f"at least {2 * FOLDS} rows of positive weight", len(order))
        return cls(x[order].to(torch.float64), None if weights is None else weights[order], order)

    def keep(self, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows and weights under the mask."""
        return self.x[mask], None if self.weights is None else self.weights[mask]


def held_out(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    *,
    q_weights: Float[Tensor, " n_q"] | None = None,
    estimator: str | Ratio = "auto",
    rows: int = FIT_ROWS,
    bootstrap: int = 0,
    seed: int = 0,
) -> HeldOut:
    """Cross-fit `estimator` ("auto", a name of RATIOS, or a ratio) on at most `rows` rows a side, and calibrate.

    `bootstrap` fits make an ensemble with intervals; its base is `estimator`, and `Logistic` for "auto".
    """
    part_p, part_q = Part.of(p, None, rows, seed, "p"), Part.of(q, q_weights, rows, seed, "q")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ratio, why = choose(estimator, part_p.x, part_q.x, bootstrap)
        value_p, value_q, gap = _cross_fit(ratio, p, q, part_p, part_q, seed)
    w_p = torch.full((len(p),), 1 / len(p), dtype=torch.float64)
    w_q = torch.full((len(q),), 1 / len(q), dtype=torch.float64) if q_weights is None else q_weights
    affine = platt(value_p[:, 0], value_q[:, 0], w_p, w_q)
    log_p, log_q = affine(value_p), affine(value_q)
    figures = held_out_figures(log_p[:, 0], log_q[:, 0], w_p, w_q)
    simple = look(part_p.x, part_q.x, seed=seed) if q_weights is None and p.shape[1] <= MANY_FEATURES else None
    report = {
        "estimator": type(ratio).__name__,
        "why": why,
        "rows_p": len(part_p.x),
        "rows_q": len(part_q.x),
        "gap": gap,
        "calibration": {"slope": affine.slope, "offset": affine.offset},
        "held_out": figures,
        "simple_log_loss": simple,
    }
    blind = None
    if simple is not None and figures["log_loss"] > simple + BLIND_NATS:
        blind = f"a simple classifier does better than {type(ratio).__name__} (held-out log-loss {simple:.3f} against "
        blind += f"{figures['log_loss']:.3f})"
    told = tuple(dict.fromkeys(str(w.message) for w in caught))
    return HeldOut(log_p[:, 0], log_q[:, 0], log_q[:, 1:] if log_q.shape[1] > 1 else None, report, told, blind)


def choose(estimator: str | Ratio, p: Tensor, q: Tensor, bootstrap: int) -> tuple[Ratio, str]:
    """An unfitted estimator, and why this one."""
    if isinstance(estimator, Ratio):
        base, why = copy.deepcopy(estimator), "as given"
    elif estimator == "auto" and bootstrap:
        base, why = RATIOS["Logistic"](), "its networks train as one, so that a bootstrap of it is cheap"
    elif estimator == "auto":
        base = auto(p, q)
        why = str(base.report_["why"]).rstrip(".")
    else:
        names = ["auto", *(name for name in RATIOS if name != "Bootstrap")]  # which is asked for by `bootstrap`
        base, why = RATIOS[checks.one_of(estimator, names, "estimator", "held_out")](), "as asked for"
    return (
        (Bootstrap(base, bootstrap), f"{bootstrap} fits of {type(base).__name__}: {why}") if bootstrap else (base, why)
    )


def _cross_fit(
    ratio: Ratio, p: Tensor, q: Tensor, part_p: Part, part_q: Part, seed: int
) -> tuple[Float[Tensor, "n_p k"], Float[Tensor, "n_q k"], float]:
    """Held-out values of every row, and how much larger KL(p || q) looks on rows that were fitted on."""
    if isinstance(ratio, Stack):
        ratio.fit(part_p.x, part_q.x, p_weights=part_p.weights, q_weights=part_q.weights, seed=seed)
        fits: list[Ratio] = [ratio]
        inside = [ratio.held_out_p_[:, None], ratio.held_out_q_[:, None]]
        gap = ratio.gap_
    else:
        fits, inside, gap = _fold_by_fold(ratio, part_p, part_q, seed)
    values = []
    for x, part, own in zip((p, q), (part_p, part_q), inside, strict=True):
        value = own.new_empty(len(x), own.shape[1])
        rest = torch.ones(len(x), dtype=torch.bool)
        rest[part.rows] = False
        if bool(rest.any()):
            value[rest] = torch.stack([evaluate(fit, x[rest]) for fit in fits]).mean(0)
        value[part.rows] = own
        values.append(value)
    return values[0], values[1], gap


def _fold_by_fold(ratio: Ratio, part_p: Part, part_q: Part, seed: int) -> tuple[list[Ratio], list[Tensor], float]:
    """One fit a fold, without it; the values of its rows; the mean log-ratio of p inside less that outside."""
    parts = (part_p, part_q)
    folds = [torch.arange(len(part.x)) % FOLDS for part in parts]  # the rows are in random order
    fits: list[Ratio] = []
    values: list[list[Tensor]] = [[], []]
    gap = 0.0
    for k in range(FOLDS):
        (train_p, w_p), (train_q, w_q) = (part.keep(fold != k) for part, fold in zip(parts, folds, strict=True))
        fit = copy.deepcopy(ratio).fit(
            train_p, train_q, p_weights=w_p, q_weights=w_q, seed=rng.child_seed(seed, "fold", k)
        )
        fits.append(fit)
        for out, part, fold in zip(values, parts, folds, strict=True):
            out.append(evaluate(fit, part.x[fold == k]))
        inside = weighted_mean(evaluate(fit, train_p)[:, 0], w_p)
        gap += float(inside - values[0][k][:, 0].mean()) / FOLDS
    joined = []
    for out, fold in zip(values, folds, strict=True):
        value = torch.empty(len(fold), out[0].shape[1], dtype=torch.float64)
        for k in range(FOLDS):
            value[fold == k] = out[k]
        joined.append(value)
    return fits, joined, gap


def evaluate(fit: Ratio, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """log-ratio of each row, and for a bootstrap the ends of its interval."""
    rows = []
    for block in torch.split(x, BLOCK):
        block = block.to(torch.float64)
        columns = [fit.log_ratio(block), *(fit.interval(block) if isinstance(fit, Bootstrap) else ())]
        rows.append(torch.stack(columns, 1))
    return torch.cat(rows)
