"""Every sample metric of two sets as an estimate, with what two samples from the same distribution would give.

FID and PRD see all rows. KID, MMD and the neighbourhood metrics, whose cost grows with pairs of rows, see a random part
of at most `pair_rows` rows a side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, InputError, NotEstimable, rng
from vestige.metrics.fid import fid
from vestige.metrics.kid import kid
from vestige.metrics.mmd import mmd
from vestige.metrics.neighbours import precision_recall_density_coverage
from vestige.metrics.prd import prd

PAIR_ROWS = 5000
# The share of rows equal to another beyond which balls around rows say nothing.
MAX_REPEATED = 0.1


# (value, standard error, value for two samples from the same distribution) by name, or the sentence that refuses it
Found: TypeAlias = dict[str, tuple[float, float, float | None] | str]


@dataclass(frozen=True)
class Sets:
    """The two sets, whole and in part."""

    p: Float[Tensor, "n_p d"]
    q: Float[Tensor, "n_q d"]
    q_weights: Float[Tensor, " n_q"] | None
    some_p: Float[Tensor, "m_p d"]
    some_q: Float[Tensor, "m_q d"]
    some_weights: Float[Tensor, " m_q"] | None
    seed: int


def _fid(s: Sets) -> Found:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = fid(s.p, s.q, q_weights=s.q_weights, extrapolate=True, std_error=True)
    plain = found.value + found.details["bias_removed"]
    at_infinity = str(caught[0].message) if caught else (found.value, found.std_error, 0.0)
    # Both have the same first-order terms, hence the same standard error (see `metrics.fid`).
    return {"fid": (plain, found.std_error, None), "fid_extrapolated": at_infinity}


def _kid(s: Sets) -> Found:
    found = kid(s.some_p, s.some_q, q_weights=s.some_weights)
    return {"kid": (found.value, found.std_error, 0.0)}


def _mmd(s: Sets) -> Found:
    found = mmd(s.some_p, s.some_q, q_weights=s.some_weights)
    return {"mmd2": (found.value, found.std_error, 0.0)}


def _prd(s: Sets) -> Found:
    found = prd(s.p, s.q, q_weights=s.q_weights, seed=s.seed)
    return {
        "prd_f8_recall": (found.f8, found.std_error["f8"], found.same_law["f8"]),
        "prd_f1_8_precision": (found.f1_8, found.std_error["f1_8"], found.same_law["f1_8"]),
    }


def _neighbours(s: Sets) -> Found:
    for name, x in (("real", s.some_p), ("fake", s.some_q)):
        repeated = 1 - len(torch.unique(x, dim=0)) / len(x)
        if repeated > MAX_REPEATED:
            raise NotEstimable(
                f"Neighbourhoods have no size where rows repeat, and {repeated:.0%} of the {name} rows do."
            )
    found = precision_recall_density_coverage(s.some_p, s.some_q, q_weights=s.some_weights)
    return {
        "precision": (found.precision, found.std_error["precision"], None),
        "recall": (found.recall, found.std_error["recall"], None),
        "density": (found.density, found.std_error["density"], 1.0),
        "coverage": (found.coverage, found.std_error["coverage"], None),
    }


METRICS: dict[str, tuple[Callable[[Sets], Found], tuple[str, ...]]] = {
    "FID": (_fid, ("fid", "fid_extrapolated")),
    "KID": (_kid, ("kid",)),
    "MMD": (_mmd, ("mmd2",)),
    "PRD": (_prd, ("prd_f8_recall", "prd_f1_8_precision")),
    "neighbours": (_neighbours, ("precision", "recall", "density", "coverage")),
}


def metric_estimates(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    *,
    q_weights: Float[Tensor, " n_q"] | None = None,
    level: float = 0.95,
    pair_rows: int = PAIR_ROWS,
    seed: int = 0,
    on_step: Callable[[str], None] = lambda _: None,
) -> dict[str, Estimate]:
    """All metrics of the model's rows `q` against the data `p`; what cannot be had is refused.

    The detail `same` is the value for two samples from the same distribution, None where that is not known.
    """
    rows_p, rows_q = some_rows(len(p), pair_rows, seed, "p"), some_rows(len(q), pair_rows, seed, "q")
    sets = Sets(p, q, q_weights, p[rows_p], q[rows_q], None if q_weights is None else q_weights[rows_q], seed)
    out: dict[str, Estimate] = {}
    for label, (compute, names) in METRICS.items():
        on_step(label)
        try:
            found = compute(sets)
        except (NotEstimable, InputError) as error:
            found = dict.fromkeys(names, str(error))
        for name in names:
            one = found[name]
            if isinstance(one, str):
                out[name] = Estimate.refused(one, name=name, level=level)
                continue
            value, std_error, same = one
            out[name] = Estimate.normal(value, std_error, level, name=name, details={"same": same})
    return out


def some_rows(n: int, most: int, seed: int, side: str) -> Tensor:
    """Positions of at most `most` rows at random, in their order."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=rng.fork(seed, "pair rows", side))[:most].sort().values
