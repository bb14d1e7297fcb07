"""Every sample metric of two sets as an estimate, with what two samples from the same distribution would give.

FID and PRD see all rows. KID, MMD and the neighbourhood metrics, whose cost grows with pairs of rows, see a random part
of at most `pair_rows` rows a side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import Estimate, InputError, NotEstimable, rng
from vestige.metrics.fid import fid
from vestige.metrics.mmd import kid, mmd
from vestige.metrics.precision_recall import prd, precision_recall_density_coverage

PAIR_ROWS = 5000
# The share of rows equal to another beyond which balls around rows say nothing.
MAX_REPEATED = 0.1
# (value, standard error, value for two samples from the same distribution) by name, or the sentence that refuses it
Found: TypeAlias = dict[str, tuple[float, float, float | None] | str]


def _fid(p: Tensor, q: Tensor, q_weights: Tensor | None, _: int) -> Found:
    with heard() as told:
        found = fid(p, q, q_weights=q_weights, extrapolate=True, std_error=True)
    return fid_found(found, told)


@contextmanager
def heard() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings of what is done within, in a list instead of where they would go."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def fid_found(found: Estimate, told: Sequence[warnings.WarningMessage]) -> Found:
    """FID, and FID extrapolated to infinitely many rows, from an estimate of the second and its warnings."""
    plain = found.value + found.details["bias_removed"]
    at_infinity = str(told[0].message) if told else (found.value, found.std_error, 0.0)
    # Both have the same first-order terms, hence the same standard error (see `metrics.fid`).
    return {"fid": (plain, found.std_error, None), "fid_extrapolated": at_infinity}


def _kid(p: Tensor, q: Tensor, q_weights: Tensor | None, _: int) -> Found:
    found = kid(p, q, q_weights=q_weights)
    return {"kid": (found.value, found.std_error, 0.0)}


def _mmd(p: Tensor, q: Tensor, q_weights: Tensor | None, _: int) -> Found:
    found = mmd(p, q, q_weights=q_weights)
    return {"mmd2": (found.value, found.std_error, 0.0)}


def _prd(p: Tensor, q: Tensor, q_weights: Tensor | None, seed: int) -> Found:
    found = prd(p, q, q_weights=q_weights, seed=seed)
    return {
        "prd_f8_recall": (found.f8, found.std_error["f8"], found.same_law["f8"]),
        "prd_f1_8_precision": (found.f1_8, found.std_error["f1_8"], found.same_law["f1_8"]),
    }


def _neighbours(p: Tensor, q: Tensor, q_weights: Tensor | None, _: int) -> Found:
    for name, x in (("real", p), ("fake", q)):
        repeated = 1 - len(torch.unique(x, dim=0)) / len(x)
        if repeated > MAX_REPEATED:
            raise NotEstimable(
                f"Neighbourhoods have no size where rows repeat, and {repeated:.0%} of the {name} rows do."
            )
    found = precision_recall_density_coverage(p, q, q_weights=q_weights)
    same = {"density": 1.0}
    return {name: (getattr(found, name), error, same.get(name)) for name, error in found.std_error.items()}


# What computes them, whether it compares pairs of rows, and the names of what it finds.
METRICS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor | None, int], Found], bool, tuple[str, ...]]] = {
    "FID": (_fid, False, ("fid", "fid_extrapolated")),
    "KID": (_kid, True, ("kid",)),
    "MMD": (_mmd, True, ("mmd2",)),
    "PRD": (_prd, False, ("prd_f8_recall", "prd_f1_8_precision")),
    "neighbours": (_neighbours, True, ("precision", "recall", "density", "coverage")),
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
    whole, part = (p, q, q_weights), (p[rows_p], q[rows_q], None if q_weights is None else q_weights[rows_q])

    def computed(label: str) -> Found:
        compute, of_pairs, _ = METRICS[label]
        return compute(*(part if of_pairs else whole), seed)

    return gathered(computed, level=level, on_step=on_step)


def gathered(computed: Callable[[str], Found], *, level: float, on_step: Callable[[str], None]) -> dict[str, Estimate]:
    """An estimate for each name of METRICS, from what is computed for each label; what cannot be had is refused."""
    out: dict[str, Estimate] = {}
    for label, (_, _, names) in METRICS.items():
        on_step(label)
        try:
            found = computed(label)
        except (NotEstimable, InputError) as error:
            found = dict.fromkeys(names, str(error))
        for name in names:
            one = found[name]
            if isinstance(one, str):
                out[name] = Estimate.refused(one, name=name, level=level)
            else:
                value, std_error, same = one
                out[name] = Estimate.normal(value, std_error, level, name=name, details={"same": same})
    return out


def some_rows(n: int, most: int, seed: int, side: str) -> Tensor:
    """Positions of at most `most` rows at random, in their order."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=rng.fork(seed, "pair rows", side))[:most].sort().values
