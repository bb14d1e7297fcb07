"""The contract of the sample metrics: a pure function on (features, weights), and an accumulator that merges.

An accumulator is the summary of ONE set of samples: `update` takes rows, `merge` takes another accumulator, and
`real.compute(fake)` compares two of them, so a set larger than memory is read in chunks, workers merge what they saw,
and the real data may be gone when the model's samples arrive. `p` is the real data, `q` the model's samples.

Rows go in turn to `groups` sub-summaries; the whole is their merge and does not depend on their order. Leaving out one
group at a time gives the delete-a-group jackknife standard error; both sides lose their g-th group together: they are
independent, so the variances of the two sides add up in one sweep.

Weights of chunks are raw: only their ratios matter, but across all chunks of a set. Rows of weight zero are dropped.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from scipy.special import ndtri
from torch import Tensor

from vestige import store
from vestige.core import Estimate, NotEstimable, StoreError, checks
from vestige.core.checks import ArrayLike

# Above this the square of a weight times the number of rows overflows; weights may be rescaled freely.
MAX_RAW_WEIGHT = 1e140
# Weights whose effective sample size exceeds 1 by less than this are those of one row: no covariance, no pair.
ONE_ROW = 1e-12
Z = float(ndtri(0.975))
# Rows in a block: a block of a matrix of all pairs is 8 MB, and nothing larger is held.
BLOCK = 1024


@runtime_checkable
class Summary(Protocol):
    """What a group keeps; `merge` is pure."""

    def merge(self, other: Self) -> Self:
        """The summary of both sets together."""
        ...


S = TypeVar("S", bound=Summary)


@dataclass(frozen=True)
class Sums:
    """A summary whose parts simply add up, the weights and their squares among them."""

    parts: dict[str, Tensor]

    @classmethod
    def of(cls, weights: Float[Tensor, " n"], **parts: Tensor) -> Sums:
        """The sums of one batch with these weights."""
        return cls({**parts, "weight": weights.sum(), "weight_sq": weights.square().sum()})

    def merge(self, other: Sums) -> Sums:
        """The sums over both sets."""
        return Sums({name: part + other.parts[name] for name, part in self.parts.items()})

    def __getitem__(self, name: str) -> Tensor:
        return self.parts[name]

    @property
    def ess(self) -> float:
        """Kish's effective sample size."""
        return float(self["weight"].square() / self["weight_sq"])


@dataclass(frozen=True)
class WeightedRows:
    """The rows themselves, where no smaller summary gives the same numbers."""

    x: Float[Tensor, "n d"]
    weights: Float[Tensor, " n"]

    def merge(self, other: WeightedRows) -> WeightedRows:
        """Both sets together."""
        return WeightedRows(torch.cat([self.x, other.x]), torch.cat([self.weights, other.weights]))

    @property
    def ess(self) -> float:
        """Kish's effective sample size."""
        return ess(len(self.x), self.weights)


def merged(summaries: Iterable[S]) -> S:
    """One summary of all."""
    return reduce(lambda one, other: one.merge(other), summaries)


def leave_one_out(summaries: list[S]) -> Iterator[S]:
    """For each summary in turn, the merge of all others: about 3 merges each, by running merges from both ends."""
    after = list(accumulate(reversed(summaries[1:]), lambda late, early: early.merge(late)))
    yield after.pop()
    for before in accumulate(summaries[:-1], lambda early, late: early.merge(late)):
        yield before.merge(after.pop()) if after else before


def jackknife(p: list[S], q: list[S], value: Callable[[S, S], float]) -> float:
    """Delete-a-group standard error of `value` over two independent sets in equally many groups."""
    left_out = [value(a, b) for a, b in zip(leave_one_out(p), leave_one_out(q), strict=True)]
    spread = torch.tensor(left_out, dtype=torch.float64).var(correction=0)
    return float(((len(p) - 1) * spread).sqrt())


def measured(
    name: str, value: float, std_error: float | None, details: dict[str, Any], *, biased: bool = False
) -> Estimate:
    """The metric with its normal interval, which one that is `biased` does not have; refused unless finite."""
    if not math.isfinite(value):
        raise NotEstimable("The metric is not finite: its features are too large, or one row has all the weight.")
    error = math.nan if std_error is None else std_error
    reach = math.nan if biased else Z * error
    return Estimate(value, value - reach, value + reach, std_error=error, name=name, details=details)


def positive_rows(
    x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None, name: str, owner: str
) -> tuple[Float[Tensor, "m d"], Float[Tensor, " m"] | None]:
    """Rows of weight zero left out, since they must not count; two rows must remain."""
    if weights is None:
        return x, None
    kept = weights > 0
    if int(kept.sum()) < 2:
        checks.refuse(f"{name}_weights", owner, "positive for at least 2 samples", f"{int(kept.sum())}")
    if float(weights.square().sum() / weights.sum() ** 2) > 1 - ONE_ROW:
        checks.refuse(f"{name}_weights", owner, "spread over more than one sample", "all weight on one")
    return (x, weights) if bool(kept.all()) else (x[kept], weights[kept])


def two_sets(
    p: object,
    q: object,
    p_weights: object | None,
    q_weights: object | None,
    owner: str,
    dtype: torch.dtype | None = torch.float64,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Both sets at the door: equal widths, two or more rows of positive weight, weights that sum to one."""
    p_, q_ = checks.pair(p, q, owner, dtype=dtype)
    p_, p_w = positive_rows(p_, checks.weights(p_weights, len(p_), "p_weights", owner), "p", owner)
    q_, q_w = positive_rows(q_, checks.weights(q_weights, len(q_), "q_weights", owner), "q", owner)
    return p_, q_, p_w, q_w


def ess(n: int, weights: Float[Tensor, " n"] | None) -> float:
    """Kish's effective sample size."""
    return float(n) if weights is None else float(weights.sum() ** 2 / weights.square().sum())


def uniform(x: Float[Tensor, "n d"], weights: Float[Tensor, " n"] | None) -> Float[Tensor, " n"]:
    """Weights of the rows of `x` that sum to one."""
    return x.new_full((len(x),), 1 / len(x)) if weights is None else weights / weights.sum()


def sizes(p: Tensor, q: Tensor, p_w: Tensor | None, q_w: Tensor | None) -> dict[str, Any]:
    """Sample sizes and effective sample sizes, for `Estimate.details`."""
    return {"n_p": len(p), "n_q": len(q), "ess_p": ess(len(p), p_w), "ess_q": ess(len(q), q_w)}


class Accumulator(ABC, Generic[S]):
    """Summaries of one set of samples, which go in turn to `groups` of them; the fields of a subclass are its settings.

    A subclass is a dataclass of what must agree between two sets, and annotates `summaries_`.
    """

    groups: int = 1
    n_: int
    width_: int | None
    summaries_: list[S | None]

    def __post_init__(self) -> None:
        checks.declared(self)
        self.n_, self.width_, self.summaries_ = 0, None, [None] * self.groups

    @property
    def n(self) -> int:
        """How many rows were seen."""
        return self.n_

    def update(self, features: ArrayLike, weights: ArrayLike | None = None) -> Self:
        """Take in rows; a chunk may be of any length from one row on."""
        owner = f"{type(self).__name__}.update"
        x = self._checked(checks.samples(features, "features", owner, width=self.width_), owner)
        w = x.new_ones(len(x)) if weights is None else checks.vector(weights, "weights", owner, length=len(x))
        if not bool(((w >= 0) & (w <= MAX_RAW_WEIGHT)).all()):
            got = f"{float(w.min()):.4g} to {float(w.max()):.4g}"
            checks.refuse("weights", owner, f"in [0, {MAX_RAW_WEIGHT:g}]", got)
        self.width_ = x.shape[1]
        x, w = x[w > 0], w[w > 0]
        for g in range(self.groups):
            turns = slice((g - self.n_) % self.groups, None, self.groups)  # they go on where the last chunk ended
            if len(x[turns]):
                self._take(g, self._summary(x[turns], w[turns]))
        self.n_ += len(x)
        return self

    def merge(self, other: Self) -> Self:
        """Take in all that `other` has seen."""
        self._must_match(other, "merge")
        for g, summary in enumerate(other.summaries_):
            if summary is not None:
                self._take(g, summary)
        self.n_ += other.n_
        self.width_ = self.width_ or other.width_
        return self

    def _take(self, g: int, summary: S) -> None:
        mine = self.summaries_[g]
        self.summaries_[g] = summary if mine is None else mine.merge(summary)

    def _checked(self, x: Float[Tensor, "n d"], owner: str) -> Float[Tensor, "n d"]:
        """Further demands of a metric on its rows."""
        return x

    @abstractmethod
    def _summary(self, x: Float[Tensor, "n d"], weights: Float[Tensor, " n"]) -> S:
        """What is kept of rows of positive weight."""

    def settings(self) -> dict[str, Any]:
        """What must agree between accumulators that are merged or compared."""
        made = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]
        return {k: store.content_id(v.flatten().tolist()) if isinstance(v, Tensor) else v for k, v in made.items()}

    def _filled(self, *, need: int = 1) -> list[S]:
        """The summaries of the groups that hold rows."""
        filled = [s for s in self.summaries_ if s is not None]
        if self.n_ < 2 or len(filled) < need:
            must = f"at least 2, in {need} group{'s' * (need > 1)} or more"
            checks.refuse("samples", f"{type(self).__name__}.compute", must, f"{self.n_} in {self.groups}")
        return filled

    def _error_rests_on_enough(self, *others: Self) -> bool:
        """Whether a jackknife has groups enough: a group of one row, or two groups, leave no spread to judge by."""
        return self.groups >= 4 and all(side.n_ >= 2 * self.groups for side in (self, *others))

    def _must_match(self, other: Self, verb: str) -> None:
        """Refuse an accumulator of another kind, configuration or width; one that saw nothing has no width yet."""
        owner = f"{type(self).__name__}.{verb}"
        if type(other) is not type(self):
            checks.refuse("other", owner, f"a {type(self).__name__}", type(other).__name__)
        widths = {side.width_ for side in (self, other)} - {None}
        if other.settings() != self.settings() or len(widths) > 1:
            mine, theirs = ({**side.settings(), "width": side.width_} for side in (self, other))
            checks.refuse("other", owner, f"an accumulator with {mine}", theirs)

    def save(self, path: str | Path) -> Path:
        """Write to `path` (.json) and a safetensors file beside it."""
        return store.save_object(path, "accumulator", self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The accumulator stored at `path`."""
        loaded = store.load_object(cls, path, "accumulator")
        if len(loaded.summaries_) != loaded.groups:
            raise StoreError(f"{path} holds {len(loaded.summaries_)} groups, not {loaded.groups}.")
        return loaded
