"""The contract of every feature map: samples in, (n, width) features out, in which ratios and distances are taken.

A map is a dataclass: its fields are its configuration, `fit` learns, `update` goes on learning when a new task comes,
and what was learnt ends in `_`. A subclass writes `_fit`, `_update`, `_codes` and, where it has a network, `_rebuild`,
which makes that of a stored map; checks, batches, kinds of arrays, saving and loading are done here, once. `fit` and
`update` change the map wholly or not at all, and keep no sample; what they do keep of the data is said in `keeps`.

**A map that changes.** A density ratio of codes means something only if all its samples went through one map. Maps
with `consistent = True` (identity, pca, pretrained) stay as `fit` left them and `update` does nothing to them, so codes
may be kept. The others (classifier, vae, cvae) change with every `update`, and after one:

- a weighted reference sample (the anchored and keyframe strategies of a chain) must be kept as *raw generated
  samples* and encoded anew by the newest map, together with this step's samples: `transform_each`. The weights stay,
  for they belong to the samples and not to their codes. Codes of an older map against codes of the newest would show
  the map's movement as a drift of the model;
- the every-step chain evaluates the last step's network on codes of today's samples (psi_{t-1}(x_t) in CDRE Eq. 10),
  which no re-encoding can correct: either that network keeps the map that it was trained with, or the codes of one
  sample must stay nearly the same from step to step, which is what the tie of `cvae` (Eq. 15) is for; `code_drift`
  says how nearly.

**How far the codes of the same samples move** when a map is updated, which CDRE Eq. 15 is there to keep small:

    drift = mean |z_t(x) - z_{t-1}(x)|^2 / total variance of z_{t-1}

over samples x: 0 where nothing moved, 2 where the new codes are independent of the old ones with the same mean and
variance. A chain whose earlier steps saw z_{t-1} reads this as noise, or as a drift of the model.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vestige import store
from vestige.core import NotFitted, __version__, checks, params, rng
from vestige.core.checks import ArrayLike, Kind, declared, learnt
from vestige.features.rows import Argument, Groups, Rows, admit, gather, numbers, shape_of
from vestige.nets.training import evaluating
from vestige.store.stored import Stored

BATCH_SIZE = 1000


@dataclass(eq=False)
class FeatureMap(Stored, ABC):
    """Turns samples into features."""

    stored_as: ClassVar[str] = "features"
    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when its results change: a part of the ids of Records
    consistent: ClassVar[bool]  # whether codes, once computed, stay right: the map never changes after `fit`
    keeps: ClassVar[str]  # what is kept of the data that it was fitted on, in words
    min_rows: ClassVar[int] = 1
    dtype: ClassVar[torch.dtype] = torch.float32  # of its arithmetic
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    shape_: tuple[int, ...] | None = learnt(None)  # of one sample
    tasks_: int = learnt(0)  # how many tasks it has seen
    report_: dict[str, Any] = learnt(factory=dict)

    get_params, set_params = params.get_params, params.set_params

    def __post_init__(self) -> None:
        declared(self)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's
        return params.tags(transformer=True)

    def __sklearn_is_fitted__(self) -> bool:
        return self.shape_ is not None

    @property
    def n_features_in_(self) -> int:
        """Numbers of a sample, under scikit-learn's name for it."""
        return math.prod(self._fitted(f"{type(self).__name__}.n_features_in_"))

    def fit(self, x: Groups, y: Groups | None = None, *, seed: int = 0) -> Self:
        """Learn from `x`, one array or one a task; `y` are labels, for maps that use them. Returns self."""
        owner = f"{type(self).__name__}.fit"
        seed = checks.whole(seed, "seed", owner)
        shape = shape_of(x, "x", owner)
        rows, tasks = gather([Argument("x", x, y, 1)], owner, shape, dtype=self.dtype, min_rows=self.min_rows)
        report = self._fit(rows, shape, seed)
        self.shape_, self.tasks_ = shape, tasks
        self.report_ = {"map": self.name, "step": 1, "n": len(rows), "tasks": tasks, "keeps": self.keeps, **report}
        return self

    def update(
        self,
        x_new: Groups,
        x_generated: Groups | None = None,
        *,
        y_new: Groups | None = None,
        y_generated: Groups | None = None,
        seed: int = 0,
    ) -> Self:
        """Go on learning: real samples of new tasks, and generated ones in place of old tasks whose data is gone.

        Each may be one array a task. One array of generated samples stands for all old tasks in equal parts. A
        consistent map checks its arguments and stays as it is.
        """
        owner = f"{type(self).__name__}.update"
        shape, seed = self._fitted(owner), checks.whole(seed, "seed", owner)
        parts = [Argument("x_new", x_new, y_new, 1)]
        if x_generated is not None:
            parts.append(Argument("x_generated", x_generated, y_generated, self.tasks_))
        rows, _ = gather(parts, owner, shape, dtype=self.dtype, min_rows=self.min_rows)
        new = len(x_new) if isinstance(x_new, Mapping) else 1
        if not self.consistent:
            report = self._update(rows, shape, seed)
            step = self.report_.get("step", 1) + 1
            self.report_ |= {"step": step, "n": len(rows), "tasks": self.tasks_ + new, **report}
        self.tasks_ += new
        return self

    def transform(self, x: ArrayLike, *, batch_size: int = BATCH_SIZE) -> Any:  # noqa: ANN401 - the kind that came in
        """The features of each row of `x`, whatever else is in the call."""
        owner = f"{type(self).__name__}.transform"
        rows = admit(x, "x", owner, self._fitted(owner))
        return Kind.of(x).give(self.codes(rows, batch_size=batch_size))

    __call__ = transform

    def fit_transform(self, x: ArrayLike, y: ArrayLike | None = None, *, seed: int = 0) -> Any:  # noqa: ANN401
        """The features of `x`, from which the map learns first."""
        return self.fit(x, y, seed=seed).transform(x)

    def transform_each(self, kept: Mapping[Any, ArrayLike]) -> dict[Hashable, Float[Tensor, "_ f"]]:
        """Raw samples that were kept, task by task, encoded by this map as it is now (see above)."""
        owner, found = f"{type(self).__name__}.transform_each", {}
        for task, x in kept.items():
            rows = admit(x, f"kept[{task!r}]", owner, self._fitted(owner))
            found[task] = self.codes(rows).to(torch.float64)
        return found

    @torch.no_grad()
    def codes(self, rows: Shaped[Tensor, "n d"], *, batch_size: int = BATCH_SIZE) -> Float[Tensor, "n f"]:
        """Features of rows that have been admitted, `batch_size` at a time, in the map's own precision.

        They are computed where the map's network is, and on the CPU by a map that has none.
        """
        owner = f"{type(self).__name__}.transform"
        size = checks.whole(batch_size, "batch_size", owner, low=1)
        shape = self._fitted(owner)
        net = getattr(self, "net_", None)
        place = torch.device("cpu") if net is None else next(net.parameters()).device
        with evaluating([] if net is None else [net]):
            found = torch.cat([self._codes(numbers(part.to(place), self.dtype), shape) for part in rows.split(size)])
        if not bool(torch.isfinite(found.sum())) and not bool(torch.isfinite(found).all()):
            checks.refuse("x", owner, f"small enough for {self.dtype} arithmetic", "features that are not finite")
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self._fitted(f"{type(self).__name__}.shape")

    @property
    def width(self) -> int:
        """How many features come out."""
        return self._width(self._fitted(f"{type(self).__name__}.width"))

    def _fitted(self, owner: str) -> tuple[int, ...]:
        if self.shape_ is None:
            raise NotFitted(f"{owner} was called before fit.")
        return self.shape_

    @abstractmethod
    def _width(self, shape: tuple[int, ...]) -> int:
        """Features that samples of `shape` have."""

    @abstractmethod
    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        """Learn, then take over what was learnt; returns what happened, for the report."""

    def _update(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        """The same for a new step; only maps that are not consistent have one."""
        raise AssertionError(f"{self.name} does not change: its update is never asked for")

    @abstractmethod
    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        """Features of one batch."""

    def config(self) -> dict[str, Any]:
        """The configuration as plain JSON."""
        return {"map": self.name, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}}

    def state_dict(self) -> dict[str, Tensor]:
        """Everything learnt that `transform` and `update` need, copied."""
        self._fitted(f"{type(self).__name__}.state_dict")
        return super().state_dict()

    def digest(self) -> str:
        """A hash of all that decides what `transform` gives: configuration, state, and the version of the code."""
        hashed = hashlib.sha256(f"{__version__}{store.canonical(self.config())}".encode())
        for key, value in sorted(self.state_dict().items()):
            hashed.update(f"{key}{value.dtype}{tuple(value.shape)}".encode())
            hashed.update(value.contiguous().numpy().tobytes())
        return hashed.hexdigest()


def relative_drift(before: Float[Tensor, "n f"], after: Float[Tensor, "n f"]) -> float:
    """The drift from one set of codes to another of the same samples, row by row."""
    before, after = before.to(torch.float64), after.to(torch.float64)
    variance = (before - before.mean(0)).square().sum(1).mean()
    if not bool(variance > 0):
        checks.refuse("before", "relative_drift", "codes that differ between samples", "the same code for all")
    return float((after - before).square().sum(1).mean() / variance)


def code_drift(before: FeatureMap, after: FeatureMap, x: ArrayLike) -> float:
    """The drift of the codes of `x` from the map `before` (a `copy` taken before `update`) to the map `after`."""
    if before.width != after.width:
        checks.refuse("after", "code_drift", f"as wide as 'before' ({before.width} features)", after.width)
    rows = admit(x, "x", "code_drift", before.shape, min_rows=2)
    return relative_drift(before.codes(rows), after.codes(rows))


def drift_by_step(
    feature_map: FeatureMap,
    real: Mapping[str | int, ArrayLike],
    generated: Mapping[str | int, ArrayLike],
    held: Mapping[str | int, ArrayLike],
    *,
    seed: int = 0,
) -> list[float]:
    """Fit on the first task of `real`, update with each next, and measure the drift of the old tasks at each update.

    At every update `generated` stands for the tasks whose data is gone; the drift is that of their rows in `held`,
    which the map never sees.
    """
    tasks = list(real)
    if len(tasks) < 2:
        checks.refuse("real", "drift_by_step", "of at least 2 tasks", len(tasks))
    drifts = []
    feature_map.fit({tasks[0]: real[tasks[0]]}, seed=rng.child_seed(seed, "step", 0))
    for t in range(1, len(tasks)):
        old, before = tasks[:t], feature_map.copy()
        replay = {task: generated[task] for task in old}
        feature_map.update({tasks[t]: real[tasks[t]]}, replay, seed=rng.child_seed(seed, "step", t))
        rows = torch.cat([admit(held[task], f"held[{task!r}]", "drift_by_step", before.shape) for task in old])
        drifts.append(code_drift(before, feature_map, rows))
    return drifts
