"""Divergences of two fixed sets by a density ratio (CDRE Eq. 4, App. B): by the paper's estimator and by ours.

    kliep   a KLIEP network (Eq. 2, 3), and Eq. 4 over samples of q. The paper has 256-256 units, batches of 2000, a
            rate of 1e-5 and at most 1000 epochs (App. A.2): `kliep="paper"`. "fast" is a 32-32 network at 1e-3: at its
            own rate of 1e-2 `KLIEPNet` learnt nothing in 784 dimensions from 3000 images (seen on one set of Fig. 5's
            noise: held-out loss rose at once; at 1e-3 the KL was 0.65 for log 2)
    stack   the cross-fitted `Stack`, and two-sided forms over rows that it has not seen

Where an expectation is infinite, both still give a number, as the paper does; `refused` says what our own estimator
would refuse, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import data, features
from vestige.core import rng
from vestige.data import DataSet
from vestige.ratios import KLIEPNet, Stack, divergences

ESTIMATORS = ("kliep", "stack")
KLIEP: dict[str, dict[str, Any]] = {
    "fast": {"skip": "none", "learning_rate": 1e-3, "weight_decay": 0.0, "steps": 600, "epochs": 1, "patience": 60},
    "paper": {
        "hidden": (256, 256),
        "skip": "none",
        "learning_rate": 1e-5,
        "weight_decay": 0.0,
        "batch_size": 2000,
        "steps": 1,
        "epochs": 1000,
        "gradient_clip": None,
        "clip": None,
    },
}


@dataclass(frozen=True)
class StaticDivergences:
    """Divergences by name, and the refusals of estimates that cannot be trusted."""

    values: dict[str, float]
    refused: dict[str, str]


def estimated(
    p: Float[Tensor, "n_p d"],
    q: Float[Tensor, "n_q d"],
    names: Sequence[str],
    *,
    estimator: str,
    kliep: str = "fast",
    seed: int,
) -> StaticDivergences:
    """D(p || q) for each of `names`."""
    log_ratios: tuple[Tensor, Tensor | None]
    sides: dict[str, Any]
    if estimator == "kliep":
        ratio = KLIEPNet(**KLIEP[kliep]).fit(p, q, seed=seed)
        log_ratios, sides = (ratio.log_ratio(q.double()), None), {"samples": "q", "form": "eq4"}
    else:
        stack = Stack(**Stack.presets["fast"]).fit(p, q, seed=seed)
        log_ratios, sides = (stack.held_out_q_, stack.held_out_p_), {"error": "influence"}
    plain = divergences.estimates(names, *log_ratios, **sides, max_k=math.inf, min_ess=0.0)
    strict = divergences.estimates(names, *log_ratios, **sides)
    refused = {name: e.reason for name, e in strict.items() if not e.known}
    return StaticDivergences({name: e.value for name, e in plain.items()}, refused)


def shuffled(source: DataSet, seed: int) -> tuple[Float[Tensor, "n *shape"], Tensor]:
    """All training rows as floats, and their labels, in an order drawn by `seed`."""
    order = torch.randperm(len(source.train_x), generator=rng.fork(seed, "order"))
    return source.floats(source.train_x[order]), source.train_y[order]


def load(name: str) -> DataSet:
    """A data set by name, without a bar of its own."""
    return data.load(name, progress=False)


def encoder(name: str, x: Tensor, y: Tensor, *, seed: int, **options: Any) -> features.FeatureMap:  # noqa: ANN401
    """The feature map `name`, fitted."""
    return features.build(name, **options).fit(x, y, seed=seed)


def scalar(value: float) -> Float[Tensor, ""]:
    """A number as Records hold them."""
    return torch.tensor(value, dtype=torch.float64)
