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
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator as Noise
from torch import Tensor, nn

from vestige import store
from vestige.core import NotEstimable, NotFitted, StoreError, VestigeWarning, checks, rng
from vestige.core.checks import ArrayLike, declared, learnt, option
from vestige.features.rows import admit, numbers
from vestige.generators.source import Progress, ReplaySource

ROWS = 2048  # drawn in one pass; bounds memory
WATCHED = 256  # samples of a condition by which a collapse is told


@dataclass(eq=False)
class Generator(ABC):
    """Draws samples of conditions 0 .. conditions - 1, once it has learnt them."""

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

    def check(self) -> None:  # noqa: B027 - most have no rule across several options
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

    def sample(self, n: int, task: int, *, seed: int = 0) -> Float[Tensor, "n *shape"]:
        """`n` samples of condition `task`; the same seed gives the same samples."""
        owner = f"{type(self).__name__}.sample"
        n = checks.whole(n, "n", owner, low=1)
        return self.sample_each(torch.full((n,), self._known(task, owner)), seed=seed)

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
        nets = self._nets()
        modes = [net.training for net in nets]
        for net in nets:
            net.eval()
        try:
            return torch.cat([self._draw(part, noise) for part in conditions.split(ROWS)])
        finally:
            for net, mode in zip(nets, modes, strict=True):
                net.train(mode)

    def copy(self) -> Self:
        """A generator of its own that stays as this one is now."""
        return copy.deepcopy(self)

    def config(self) -> dict[str, Any]:
        """The configuration as plain JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return {"generator": self.name, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}

    def _nets(self) -> list[nn.Module]:
        """Every network that it holds."""
        held = [v for name, v in vars(self).items() if name.endswith("_")]
        flat = [net for value in held for net in (value.values() if isinstance(value, dict) else [value])]
        return [net for net in flat if isinstance(net, nn.Module)]

    def state_dict(self) -> dict[str, Tensor]:
        """All that was learnt, as flat tensors, copied."""
        return {key: value.clone() for key, value in store.to_tensors(self).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Self:
        """Take over what another generator of the same configuration has learnt; a mismatch names the key."""
        taken = self.copy()
        store.restore_tensors(taken, state)
        self.__dict__.update(taken.__dict__)
        return self

    def _rebuild(self) -> None:
        """Networks for the conditions that a stored generator knows; called before they take their weights."""
        if list(self.known_) != sorted({c for c in self.known_ if 0 <= c < self.conditions}):
            raise StoreError(f"The stored {self.name} knows conditions {self.known_}; there are {self.conditions}.")

    def bytes(self) -> int:
        """What the learnt state occupies."""
        return sum(value.numel() * value.element_size() for value in store.encode(self)[1].values())

    def save(self, path: str | Path) -> Path:
        """Write configuration, report and state to `path` (.json) and a safetensors file beside it."""
        return store.save_object(path, "generator", self)

    @classmethod
    def load(cls, path: str | Path, classes: Mapping[str, type] | None = None) -> Self:
        """The generator stored at `path`, of this class or one of `classes`."""
        return store.load_object(cls, path, "generator", classes)

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
