"""A chain by vestiges: the strategy `vestige`, in which nothing that a model drew stands for the data.

When the data of a task is here, a vestige of it is kept (`vestige.vestiges`): moments, a drift test, and a density
whose weighted draws take its place ever after. That takes no sample of a model. So a task may come without samples, a
step may have samples of some tasks alone, and what is compared with the data may as well be data that came in. In
`anchored` samples of a model stand for the data, and where they do not overlap with it, as on images, nothing can be
told.

- While the data is here, divergences come from the data itself, as in `anchored`.
- Later a ratio learns reference draws, under their weights, against the samples of the step, and the interval is
  widened by what the vestige knows of its own error (`estimates`). The fit is a fresh one at every step: on images one
  that starts at the step before loses 6 to 12 % of js, and none is needed to go on.
- The p-value of "nothing has changed" is that of the vestige's drift test, FID is that of its moments; both see every
  sample. A ratio sees at most `most_rows`, drawn at random.

What a vestige holds is all that is stored. The ratio of the last step, which knows rows that may be data, too, stays in
memory: `Chain.log_ratio` and `Chain.weights` answer until the chain is closed, `vs.weigh(chain.vestige(task), rows)`
ever after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.anchored import ESTIMATORS, Anchored, FittedRatio, bridged
from vestige.chains.strategy import Points, Strategy, TaskLogRatios
from vestige.core import Estimate, NotFitted, rng
from vestige.core.checks import declared, option
from vestige.metrics.base import WeightedRows
from vestige.metrics.fid import FID
from vestige.ratios.cross_fit import HeldOutFit
from vestige.vestiges import Vestige, keep
from vestige.vestiges.lines import some_rows

# Options that are those of `anchored`: how a step's ratio is learnt.
FITTING = (
    *("estimator", "folds", "epochs", "min_steps", "decays", "clip", "rows_a_product", "wide", "wide_epochs", "second"),
    *("bridge_above", "waymarks"),
)


@dataclass(frozen=True, eq=False)
class TaskVestige:
    """The vestige of one task, and the ratio of the last step, which is never stored."""

    vestige: Vestige
    newest: FittedRatio | None = field(default=None, init=False)

    def beside(self, ratio: FittedRatio) -> TaskVestige:
        """The same with the ratio of this step."""
        after = TaskVestige(self.vestige)
        object.__setattr__(after, "newest", ratio)
        return after


@dataclass(frozen=True)
class FromVestige(Strategy[dict[int, TaskVestige]]):
    """Reference draws of a vestige of each task's data take the place of the data."""

    name: ClassVar[str] = "vestige"
    keeps_vestige: ClassVar[bool] = True
    # 2: vestiges are rounded, and know nothing of fewer than 50 rows; 3: other ends of intervals, fewer "ok"
    version: ClassVar[int] = 3
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        name: {key: value for key, value in options.items() if key in FITTING}
        for name, options in Anchored.presets.items()
    }
    estimator: str = option(Anchored.estimator, among=ESTIMATORS)
    folds: int = option(Anchored.folds, low=2)
    epochs: int = option(Anchored.epochs, low=1)
    min_steps: int = option(Anchored.min_steps, low=1)
    decays: tuple[float, ...] = option(Anchored.decays, least=1)
    clip: float = option(Anchored.clip, above=0, below=math.inf)
    rows_a_product: float = option(Anchored.rows_a_product, above=0, below=math.inf)
    wide: int = option(Anchored.wide, low=0)
    wide_epochs: int = option(Anchored.wide_epochs, low=1)
    second: bool = option(Anchored.second)
    bridge_above: float = option(Anchored.bridge_above, above=0, below=math.inf)
    waymarks: int = option(Anchored.waymarks, low=1)
    most_rows: int = option(20_000, low=100)  # of either side that a ratio sees

    def __post_init__(self) -> None:
        declared(self, f"Chain('{self.name}')")

    def step(
        self, state: dict[int, TaskVestige] | None, real: Mapping[int, Any], model: Mapping[int, Any], seed: int
    ) -> tuple[dict[int, TaskVestige], dict[int, TaskLogRatios]]:
        """Tasks do not touch each other: each is kept when it comes, and judged where it has samples."""
        seeds = {task: rng.child_seed(seed, "task", task) for task in (*real, *model)}
        after = {task: TaskVestige(own.vestige) for task, own in (state or {}).items()}
        after |= {task: TaskVestige(keep(rows, seed=seeds[task])) for task, rows in real.items()}
        found = {}
        for task, rows in model.items():
            ratio, found[task] = self._judged(after[task].vestige, real.get(task), rows, seeds[task])
            after[task] = after[task].beside(ratio)
        return after, found

    def _judged(self, kept: Vestige, real: Any, new: Any, seed: int) -> tuple[FittedRatio, TaskLogRatios]:  # noqa: ANN401
        """New rows against the data itself while it is here, and against reference draws ever after."""
        frame = kept.frame
        aligned = kept.cells(new)
        cells, features = aligned.cells, frame.features(kept.comparable(aligned.cells))
        if real is None:
            p, weights = kept.points()
        else:
            p, weights = frame.seen(frame.features(kept.cells(real).cells)), None
        of_p, of_q = (some_rows(n, self.most_rows, seed, side) for n, side in ((len(p), "p"), (len(cells), "q")))
        p, weights = p[of_p], None if weights is None else weights[of_p] / weights[of_p].sum()
        q = frame.seen(features)
        fit = self._fit(p, q[of_q], weights, seed)
        found = TaskLogRatios(
            fit.log_ratio_q,
            fit.log_ratio_p,
            weights,
            gap=fit.gap,
            anchored=Points(fit.log_ratio_p, weights, None),
            bridged=bridged(fit.ratio),
            fewer=fit.fewer,
            all_q=None if len(of_q) == len(q) else fit.ratio.log_ratio(q).index_copy(0, of_q, fit.log_ratio_q),
            p_value=kept.test.test(cells).p_value,
            fid=_fid(kept, features),
            notes=(*aligned.notes, *aligned.warnings, *filter(None, [frame.note])),
        )
        if weights is not None:
            worth = 1 / float(weights.square().sum())
            found = replace(found, depth=2, errors=kept.errors, anchors=len(weights), anchors_ess=worth)
        return fit.ratio, found

    def _fit(self, p: Tensor, q: Tensor, p_weights: Tensor | None, seed: int) -> HeldOutFit:
        anew = Anchored(**{name: getattr(self, name) for name in FITTING})
        return anew.fit_step(p, q, p_weights, None, seed)

    def log_ratio(self, state: dict[int, TaskVestige], task: int, x: Any) -> Float[Tensor, " n"]:  # noqa: ANN401 - rows
        """By the ratio of the last step."""
        own = state[task]
        if own.newest is None:
            _closed()
        frame = own.vestige.frame
        return own.newest.log_ratio(frame.seen(frame.features(own.vestige.cells(x, "x").cells)))

    def anchor_samples(self, state: dict[int, TaskVestige], task: int) -> tuple[Tensor, Tensor]:
        """Reference draws, as a ratio sees them, and their weights."""
        return state[task].vestige.points()

    def vestige(self, state: dict[int, TaskVestige], task: int) -> Vestige:
        """That of the task."""
        return state[task].vestige


def _closed() -> NoReturn:
    raise NotFitted(
        "Chain.log_ratio was called for a task without samples in the last step, or after the chain was loaded: take a "
        "step, or use vs.weigh(chain.vestige(task), rows)."
    )


def _fid(kept: Vestige, features: Float[Tensor, "n d"]) -> Estimate:
    """From moments, as with the rows; the draws tell how much those of as many rows vary."""
    draws, weights = kept.feature_points()
    rows = WeightedRows(draws, weights), WeightedRows(features, torch.ones(len(features), dtype=features.dtype))
    new = FID(groups=kept.moments.groups).update(features)
    found = kept.moments_beside(new).compute(new, std_error=True, rows=rows)
    return Estimate.normal(found.value, found.std_error, name="fid")
