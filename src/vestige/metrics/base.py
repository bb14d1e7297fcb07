"""The contract of the sample metrics: a pure function on (features, weights), and an accumulator that merges.

An accumulator is the summary of ONE set of samples: `update` takes rows, `merge` takes another accumulator, and
`real.compute(fake)` compares two of them, so a set larger than memory is read in chunks, workers merge what they saw,
and the real data may be gone when the model's samples arrive. `p` is the real data, `q` the model's samples.

Rows are dealt in turn to `groups` sub-summaries; the whole is their merge and does not depend on the dealing, and
their spread gives a standard error (`groups.py`).

Weights of chunks are raw: only their ratios matter, but across all chunks of a set. Rows of weight zero are dropped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Self

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import store
from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.core.errors import NotEstimable, StoreError
from vestige.metrics.groups import S

# Above this the square of a weight times the number of rows overflows; weights may be rescaled freely.
MAX_RAW_WEIGHT = 1e140
# Weights whose effective sample size exceeds 1 by less than this are those of one row: no covariance, no pair.
ONE_ROW = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error where one was asked for and can be had, and what it rests on."""

    value: float
    std_error: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise NotEstimable("The metric is not finite: its features are too large, or one row has all the weight.")

    def __float__(self) -> float:
        return self.value


def positive_rows(
    x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None, name: str, owner: str, *, least: int = 2
) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"] | None]:
    """Rows of weight zero left out, since they must not count; `least` rows must remain."""
    if weights is None:
        return x, None
    kept = weights > 0
    if int(kept.sum()) < least:
        checks.refuse(f"{name}_weights", owner, f"positive for at least {least} samples", f"{int(kept.sum())}")
    if least > 1 and float(weights.square().sum() / weights.sum() ** 2) > 1 - ONE_ROW:
        checks.refuse(f"{name}_weights", owner, "spread over more than one sample", "all weight on one")
    return (x, weights) if bool(kept.all()) else (x[kept], weights[kept])


def two_sets(
    p: object, q: object, p_weights: object | None, q_weights: object | None, owner: str
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Both sets at the door: float64, equal widths, two or more rows of positive weight, weights that sum to one."""
    p_, q_ = checks.pair(p, q, owner)
    p_, p_w = positive_rows(p_, checks.weights(p_weights, len(p_), "p_weights", owner), "p", owner)
    q_, q_w = positive_rows(q_, checks.weights(q_weights, len(q_), "q_weights", owner), "q", owner)
    return p_, q_, p_w, q_w


def ess(n: int, weights: Float[Tensor, " n"] | None) -> float:
    """Kish's effective sample size."""
    return float(n) if weights is None else float(weights.sum() ** 2 / weights.square().sum())


def sizes(p: Tensor, q: Tensor, p_w: Tensor | None, q_w: Tensor | None) -> dict[str, Any]:
    """Sample sizes and effective sample sizes, for `Estimate.details`."""
    return {"n_p": len(p), "n_q": len(q), "ess_p": ess(len(p), p_w), "ess_q": ess(len(q), q_w)}


class Accumulator(ABC, Generic[S]):
    """Summaries of one set of samples, dealt in turn to `groups` of them."""

    def __init__(self, *, groups: int) -> None:
        self.groups = checks.whole(groups, "groups", type(self).__name__, low=1)
        self.n = 0
        self.width: int | None = None
        self.summaries: list[S | None] = [None] * self.groups

    @classmethod
    def from_chunks(cls, chunks: Iterable[Any], **options: Any) -> Self:  # noqa: ANN401
        """The accumulator of a set that arrives as chunks of rows, or as pairs (rows, weights)."""
        accumulator = cls(**options)
        for chunk in chunks:
            accumulator.update(*chunk) if isinstance(chunk, tuple) else accumulator.update(chunk)
        return accumulator

    def update(self, features: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Take in rows; a chunk may be of any length from one row on."""
        owner = f"{type(self).__name__}.update"
        x = self._checked(checks.samples(features, "features", owner, width=self.width), owner)
        w = None if weights is None else checks.vector(weights, "weights", owner, length=len(x))
        if w is not None and not bool(((w >= 0) & (w <= MAX_RAW_WEIGHT)).all()):
            got = f"{float(w.min()):.4g} to {float(w.max()):.4g}"
            checks.refuse("weights", owner, f"in [0, {MAX_RAW_WEIGHT:g}]", got)
        self.width = x.shape[1]
        x, w = positive_rows(x, w, "features", owner, least=0)
        for g in range(self.groups):
            first = (g - self.n) % self.groups  # the dealing goes on where the last chunk ended
            rows, row_weights = x[first :: self.groups], None if w is None else w[first :: self.groups]
            if len(rows):
                self._take(g, self._summary(rows, row_weights))
        self.n += len(x)
        return self

    def merge(self, other: Self) -> Self:
        """Take in all that `other` has seen."""
        self._must_match(other, "merge")
        for g, summary in enumerate(other.summaries):
            if summary is not None:
                self._take(g, summary)
        self.n += other.n
        self.width = self.width or other.width
        return self

    def _take(self, g: int, summary: S) -> None:
        mine = self.summaries[g]
        self.summaries[g] = summary if mine is None else mine.merge(summary)

    def _checked(self, x: Float[Tensor, "n d"], owner: str) -> Float[Tensor, "n d"]:
        """Further demands of a metric on its rows."""
        return x

    @abstractmethod
    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> S:
        """What is kept of rows of positive weight."""

    @abstractmethod
    def _pack(self, summary: S) -> dict[str, Tensor]:
        """A summary as tensors by name."""

    @abstractmethod
    def _unpack(self, tensors: dict[str, Tensor]) -> S:
        """The inverse of `_pack`."""

    def _config(self) -> dict[str, Any]:
        """What must agree between accumulators that are merged or compared; plain JSON."""
        return {"groups": self.groups}

    def _filled(self, *, need: int = 1) -> list[S]:
        """The summaries of the groups that hold rows."""
        filled = [s for s in self.summaries if s is not None]
        if self.n < 2 or len(filled) < need:
            must = f"at least 2, in {need} group{'s' * (need > 1)} or more"
            checks.refuse("samples", f"{type(self).__name__}.compute", must, f"{self.n} in {self.groups}")
        return filled

    def _must_match(self, other: Self, verb: str) -> None:
        """Refuse an accumulator of another kind, configuration or width; one that saw nothing has no width yet."""
        owner = f"{type(self).__name__}.{verb}"
        if type(other) is not type(self):
            checks.refuse("other", owner, f"a {type(self).__name__}", type(other).__name__)
        widths = {side.width for side in (self, other)} - {None}
        if other._config() != self._config() or len(widths) > 1:
            mine, theirs = ({**side._config(), "width": side.width} for side in (self, other))
            checks.refuse("other", owner, f"an accumulator with {mine}", theirs)

    def state_dict(self) -> dict[str, Tensor]:
        """All that was seen, as tensors."""
        state = {"n": torch.tensor(self.n), "width": torch.tensor(self.width or 0)}
        for g, summary in enumerate(self.summaries):
            packed = {} if summary is None else self._pack(summary)
            state |= {f"{g}.{name}": tensor for name, tensor in packed.items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Self:
        """Take over what an accumulator of the same configuration has seen."""
        try:
            n, width = int(state["n"]), int(state["width"]) or None
            parts: dict[int, dict[str, Tensor]] = {}
            for key in state.keys() - {"n", "width"}:
                g, _, name = key.partition(".")
                parts.setdefault(int(g), {})[name] = state[key]
            summaries = [self._unpack(parts.pop(g)) if g in parts else None for g in range(self.groups)]
        except (KeyError, ValueError) as error:
            raise StoreError(f"The stored {type(self).__name__} lacks or misnames the key {error}.") from None
        if parts:
            raise StoreError(f"The stored {type(self).__name__} has {max(parts) + 1} groups, not {self.groups}.")
        self.n, self.width, self.summaries = n, width, summaries
        return self

    def save(self, path: str | Path) -> Path:
        """Write to `path` (.json) and a safetensors file beside it."""
        fields = {"accumulator": type(self).__name__, "config": self._config()}
        return store.save(path, "accumulator", fields, self.state_dict())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The accumulator stored at `path`."""
        fields, tensors = store.load(path, "accumulator")
        if fields["accumulator"] != cls.__name__:
            raise StoreError(f"{path} holds a {fields['accumulator']}, not a {cls.__name__}.")
        return cls._rebuild(fields["config"], tensors).load_state_dict(tensors)

    @classmethod
    def _rebuild(cls, config: dict[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """An empty accumulator of a stored configuration."""
        return cls(**config)
