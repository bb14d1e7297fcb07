"""The weighted value against the number of weighted steps, as in LFIW Fig. 3, with what needs no weights beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vestige.policy.evaluation import Evaluation
from vestige.show import curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WEIGHTED = {"lfiw_tempered": "weighted, tempered", "lfiw": "weighted"}
BESIDE = {"model": "model", "logged": "logged", "fitted_q": "fitted Q"}


def picture(found: Evaluation, *, truth: float | None = None) -> Figure:
    """Curves over H with their intervals; `truth` is drawn where it is known."""
    series = {WEIGHTED[name]: found.curves[name].values for name in WEIGHTED}
    bands = {WEIGHTED[name]: (found.curves[name].low, found.curves[name].high) for name in WEIGHTED}
    estimates = {BESIDE[name]: found.estimates[name].value for name in BESIDE if name in found.estimates}
    beside = {name: value for name, value in estimates.items() if math.isfinite(value)}
    return curves(
        series | {name: [value] * len(found.curves["lfiw"].hs) for name, value in beside.items()},
        list(found.curves["lfiw"].hs),
        title="Value of the policy",
        x_label="weighted steps",
        y_label=f"return over {found.horizon} steps",
        bands=bands,
        reference=None if truth is None else {"truth": truth},
    )
