"""The contract of every generator: it learns one condition (a task or a class) after another, and draws from any.

A generator is a dataclass: its fields are its configuration, `fit` learns, what was learnt ends in `_`. A subclass
writes `_build`, `_fit` and `_draw`; checks, replay, the watch for collapse, saving and loading are done here. Networks
are attributes that end in `_`, or dicts of them.

Trained continually (CDRE Fig. 1): what `fit` sees of the new conditions is real, of the earlier ones it is what the
generator drew before the call. Two numbers per condition are all that stays of the data besides the weights: whether
it was seen, and how widely its pixels spread, against which a collapse is told.

Samples are rows of pixels in [0, 1], or whatever range the data has where a generator says so.

It computes, and draws, on the device that tensors are made on. What comes in may lie on any; it is looked at, and how
widely it spreads is reckoned, on the CPU and in float64, which not every device has.

`ReplaySource` is what a generator is trained on: real rows of new conditions, replayed rows of earlier ones, in
batches. Every condition, new or old, has the same share of the rows, whatever its number of real samples. Replay is
drawn in bulk, once an epoch; an epoch is as many rows as all conditions would have if each had as many as the largest
new one. Deviation from CDRE Fig. 1, which does not say how much is replayed: equal shares, unless a generator asks for
a share of its own for what is new.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator as Noise
from torch import Tensor, nn

from vestige.core import NotEstimable, NotFitted, StoreError, VestigeWarning, checks, rng
from vestige.core.checks import ArrayLike, declared, learnt, option
from vestige.features.rows import admit, numbers
from vestige.nets.training import evaluating
from vestige.store.stored import Stored

ROWS = 2048  # drawn in one pass; bounds memory
WATCHED = 256  # samples of a condition by which a collapse is told
STRETCHES = 50  # points of a training curve
# How far a fit is (0 to 1), and in words.
Progress = Callable[[float, str], None]
# Conditions and noise in, one row for each out.
Draw = Callable[[Tensor, Noise], Tensor]


class ReplaySource:
    """Gives batches of rows and their conditions."""

    def __init__(
        self,
        x: Float[Tensor, "n d"],
        conditions: Int64[Tensor, " n"],
        earlier: Sequence[int],
        replay: Draw | Mapping[int, Tensor],
        fresh: float | None = None,
    ) -> None:
        """`fresh` is the share of rows that are real where others are replayed; None: as many of each condition."""
        self.real = {c: x[conditions == c] for c in sorted(set(conditions.tolist()))}
        self.earlier, self.replay = list(earlier), replay
        self.fresh = fresh if self.earlier else None
        self.conditions = sorted([*self.real, *self.earlier])
        self.size = max(map(len, self.real.values()))  # rows of each condition in one epoch

    def must_be_pixels(self, owner: str) -> None:
        """Refuse rows beyond [0, 1], real or given as samples, where a generator can draw nothing beyond."""
        given = self.replay.values() if isinstance(self.replay, Mapping) else ()
        for rows in (*self.real.values(), *given):
            low, high = float(rows.min()), float(rows.max())
            if low < 0 or high > 1:
                checks.refuse("x", owner, "in [0, 1], as its samples are", f"values from {low:.4g} to {high:.4g}")

    def steps(self, epochs: int, batch: int) -> int:
        """Batches in so many epochs."""
        return epochs * max(self.size * len(self.conditions) // batch, 1)

    def batches(
        self, batch: int, steps: int, generator: Noise
    ) -> Iterator[tuple[Float[Tensor, "b d"], Int64[Tensor, " b"]]]:
        """`steps` batches, each condition as often as any other within an epoch, or as `fresh` says."""
        left = steps
        while left > 0:
            now = min(left, max(self.size * len(self.conditions) // batch, 1))
            x, conditions = self.epoch(now * batch, generator)
            order = torch.randperm(len(x), generator=generator)[: now * batch]
            x, conditions = x[order], conditions[order]
            yield from zip(x.split(batch), conditions.split(batch), strict=True)
            left -= now

    def epoch(self, rows: int, generator: Noise) -> tuple[Float[Tensor, "m d"], Int64[Tensor, " m"]]:
        """At least `rows` rows, as many of each condition as of any other among the new, and among the earlier."""
        each = old = -(-rows // len(self.conditions))
        if self.fresh is not None:
            each = math.ceil(rows * self.fresh / len(self.real))
            old = math.ceil(rows * (1 - self.fresh) / len(self.earlier))
        parts = [(held[_shuffled(len(held), each, generator)], torch.full((each,), c)) for c, held in self.real.items()]
        if isinstance(self.replay, Mapping):
            held_old = [(c, self.replay[c]) for c in self.earlier]
            parts += [(held[_shuffled(len(held), old, generator)], torch.full((old,), c)) for c, held in held_old]
        elif self.earlier:
            asked = torch.tensor(self.earlier).repeat_interleave(old)
            parts.append((self.replay(asked, generator), asked))
        return torch.cat([x for x, _ in parts]), torch.cat([c for _, c in parts])


def _shuffled(n: int, count: int, generator: Noise) -> Int64[Tensor, " m"]:
    """`count` row numbers below n: every number once, shuffled, and again until there are enough."""
    rounds = [torch.randperm(n, generator=generator) for _ in range(-(-count // n))]
    return torch.cat(rounds)[:count]


@dataclass(eq=False)
class Generator(Stored, ABC):
    """Draws samples of conditions 0 .. conditions - 1, once it has learnt them."""

    stored_as: ClassVar[str] = "generator"
    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when its results change: a part of the ids of Records
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    shape: tuple[int, ...] = option((28, 28), low=1)
    conditions: int = option(10, low=1)
    # A condition whose samples spread less than this share of its data's spread has collapsed.
    collapse: float = option(0.1, low=0, high=1)

    known_: tuple[int, ...] = learnt(())
    spread_: Float64[Tensor, " k"] = learnt()  # of each condition; 0: not learnt yet
    report_: dict[str, Any] = learnt(factory=dict)

    def __post_init__(self) -> None:
        self.shape = tuple(self.shape)
        declared(self)
        self.check()
        self.spread_ = torch.zeros(self.conditions, dtype=torch.float64, device="cpu")
        self._build(0)

    def check(self) -> None:
        """Refuse options that do not go together, or that `option` cannot say."""

    @abstractmethod
    def _build(self, seed: int) -> None:
        """Networks as they begin."""

    @abstractmethod
    def _fit(self, source: ReplaySource, seed: int, on_progress: Progress) -> dict[str, Any]:
        """Train on batches of `source`; returns what happened. Raises NotEstimable if it diverged.

        The report holds "steps" and "curves": {name: means over equal stretches of training}, equally long.
        """

    @abstractmethod
    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        """One sample for each of `conditions`."""

    def fit(
        self,
        x: ArrayLike,
        task: int | ArrayLike,
        replay: Mapping[int, ArrayLike] | None = None,
        *,
        seed: int = 0,
        on_progress: Progress | None = None,
    ) -> Self:
        """Learn the conditions of `task` from their data `x`; keep the earlier ones by `replay`.

        `task` is one condition for all rows or one for each. `replay` is None for samples of the generator as it is
        before the call, drawn anew in every epoch; or {condition: samples} to take instead, of conditions that it may
        never have seen itself; {} lets it forget. If training diverges the generator stays as it was.
        """
        owner = f"{type(self).__name__}.fit"
        seed = checks.whole(seed, "seed", owner)
        rows = self._rows(x, "x", owner, min_rows=2)
        labels = self._conditions(task, len(rows), owner)
        new = sorted(set(labels.tolist()))
        held: dict[int, Tensor] | None = None
        if replay is not None:
            held = {}
            for key, samples in replay.items():
                old = checks.whole(key, "replay", owner, low=0, high=self.conditions - 1)
                if old in new:
                    checks.refuse("replay", owner, "of conditions other than those of 'task'", old)
                held[old] = self._rows(samples, f"replay[{old}]", owner, min_rows=2)
        trained, before = self.copy(), self.copy()
        if not self.known_:
            trained._build(rng.child_seed(seed, "init"))
        earlier = [c for c in self.known_ if c not in new] if held is None else list(held)
        source = ReplaySource(rows, labels, earlier, held if held is not None else before.draw)
        report = trained._fit(source, seed, on_progress or (lambda share, words: None))
        taught = {c: rows[labels == c] for c in new}
        taught |= {c: x for c, x in (held or {}).items() if c not in self.known_}  # all that is known of them
        trained.known_ = tuple(sorted({*self.known_, *taught}))
        for c, own in taught.items():
            trained.spread_[c] = spread(own)
        trained.report_ = {"generator": self.name, "learnt": new, "replayed": earlier, **report}
        trained._watch(seed)
        self.__dict__.update(trained.__dict__)
        return self

    def sample(self, n: int, task: int | None = None, *, seed: int = 0) -> Float[Tensor, "n *shape"]:
        """`n` samples of condition `task`, or of all that were learnt in turn; the same seed gives the same samples."""
        owner = f"{type(self).__name__}.sample"
        n = checks.whole(n, "n", owner, low=1)
        if task is not None:
            return self.sample_each(torch.full((n,), self._known(task, owner)), seed=seed)
        if not self.known_:
            raise NotFitted(f"{owner} was called before fit.")
        return self.sample_each(torch.tensor(self.known_).repeat(-(-n // len(self.known_)))[:n], seed=seed)

    def sample_each(self, tasks: ArrayLike, *, seed: int = 0) -> Float[Tensor, "n *shape"]:
        """One sample for each entry of `tasks`."""
        owner = f"{type(self).__name__}.sample"
        labels = self._conditions(tasks, None, owner)
        for c in labels.unique().tolist():
            self._known(c, owner)
        drawn = self.draw(labels, rng.fork(checks.whole(seed, "seed", owner), "sample"))
        return drawn.unflatten(1, self.shape)

    @torch.no_grad()
    def draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        """Flat samples, one for each of `conditions`, with every network in its testing mode."""
        with evaluating(self._nets()):
            return torch.cat([self._draw(part, noise) for part in conditions.split(ROWS)])

    def widened(self, conditions: int, *, seed: int = 0) -> Self:
        """One of more conditions that draws of those learnt so far what this one draws.

        Its networks are new ones in which what was learnt stands first along every axis: a generator of your own whose
        networks have their conditions last on an axis can be widened too.
        """
        owner = f"{type(self).__name__}.widened"
        conditions = checks.whole(conditions, "conditions", owner, low=self.conditions)
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        wide = type(self)(**fields | {"conditions": conditions})
        wide._build(rng.child_seed(checks.whole(seed, "seed", owner), "widened", conditions))
        new = {name: value for name, value in vars(wide).items() if isinstance(value, nn.Module)}
        wide.__dict__.update({name: value for name, value in vars(self.copy()).items() if name.endswith("_")} | new)
        for name, net in new.items():
            learnt_of = getattr(self, name).state_dict()
            for key, value in net.state_dict().items():
                value[tuple(slice(n) for n in learnt_of[key].shape)] = learnt_of[key]
        wide.spread_ = nn.functional.pad(self.spread_, (0, conditions - self.conditions))
        return wide

    def config(self) -> dict[str, Any]:
        """The configuration as plain JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return {"generator": self.name, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}

    def _nets(self) -> list[nn.Module]:
        """Every network that it holds."""
        held = [v for name, v in vars(self).items() if name.endswith("_")]
        flat = [net for value in held for net in (value.values() if isinstance(value, dict) else [value])]
        return [net for net in flat if isinstance(net, nn.Module)]

    def _rebuild(self) -> None:
        """Networks for the conditions that a stored generator knows; called before they take their weights."""
        if list(self.known_) != sorted({c for c in self.known_ if 0 <= c < self.conditions}):
            raise StoreError(f"The stored {self.name} knows conditions {self.known_}; there are {self.conditions}.")

    def _rows(self, x: ArrayLike, name: str, owner: str, *, min_rows: int = 1) -> Float[Tensor, "n d"]:
        """`x` as flat rows, looked at on the CPU, for networks on the device that tensors are made on."""
        rows = numbers(admit(x, name, owner, self.shape, min_rows=min_rows), torch.float32)
        return rows.to(torch.get_default_device())

    def _conditions(self, task: int | ArrayLike, n: int | None, owner: str) -> Int64[Tensor, " _"]:
        """`task` as one condition a row."""
        if isinstance(task, int) and n is not None:
            return torch.full((n,), checks.whole(task, "task", owner, low=0, high=self.conditions - 1))
        labels = checks.labels(task, "task", owner, length=n).to(torch.get_default_device())
        if int(labels.max()) >= self.conditions:
            checks.refuse("task", owner, f"among the conditions 0 .. {self.conditions - 1}", int(labels.max()))
        return labels

    def _known(self, task: int, owner: str) -> int:
        c = checks.whole(task, "task", owner, low=0, high=self.conditions - 1)
        if c not in self.known_:
            raise NotFitted(f"{owner} was asked for condition {c}, which has not been learnt.")
        return c

    def _watch(self, seed: int) -> None:
        """Refuse samples that are no numbers; say which conditions have collapsed to a point."""
        fallen = []
        for c in self.known_:
            drawn = self.draw(torch.full((WATCHED,), c), rng.fork(seed, "watch", c))
            if not bool(torch.isfinite(drawn).all()):
                raise NotEstimable(f"The training of {self.name} diverged: samples of condition {c} are not finite.")
            if spread(drawn) < self.collapse * float(self.spread_[c]):
                fallen.append(c)
        self.report_["collapsed"] = fallen
        if fallen:
            words = ", ".join(map(str, fallen))
            warnings.warn(
                f"{self.name} has collapsed: its samples of condition {words} hardly differ.",
                VestigeWarning,
                stacklevel=3,
            )


def spread(rows: Float[Tensor, "n d"]) -> float:
    """Root mean square distance of rows from their mean, a pixel."""
    return float(rows.cpu().double().var(0, correction=0).mean().sqrt())


def curves(losses: Float[Tensor, "steps k"], names: Sequence[str], points: int = STRETCHES) -> dict[str, list[float]]:
    """Means of each column over at most `points` equal stretches of training."""
    parts = losses.cpu().double().tensor_split(min(points, len(losses)))
    return dict(zip(names, torch.stack([part.mean(0) for part in parts]).T.tolist(), strict=True))


def must_be_finite(losses: Float[Tensor, "steps k"], name: str, advice: str) -> None:
    """Refuse a training that has diverged."""
    bad = (~losses.isfinite().all(1)).nonzero()
    if len(bad):
        raise NotEstimable(f"The training of {name} diverged at step {int(bad[0]) + 1}. {advice}")
