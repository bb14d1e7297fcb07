"""The rows of beyond-replay: weighted replay, its two parts, and everything else that could explain a gain.

All of them are DGR with a generator that is told the task and left to share it out among its classes, labels by the
solver of before. What differs is said by each class. A study may skew what the generator learns of a task (its last
class, one row in `skew`) while solver and chain see all of it: mass that weights can move back.

Rows that teach a generator the same thing share the fit (`shelf`): what comes out is the same, and a third of the cost.
The generator of the last task would never be asked, so it is not taught.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.dgr import DGR
from vestige.continual.learners.following import Follower, Told
from vestige.continual.learners.generated import Generating, Samples, Taught
from vestige.continual.learners.replay import dealt
from vestige.continual.learners.vgr import VGR
from vestige.continual.learners.weighted_replay import WeightedReplay
from vestige.core import rng
from vestige.data.task import Task
from vestige.generators import Generator


@dataclass(frozen=True)
class Study:
    """What is done to the generators of a unit's rows, and what they share."""

    skew: int = 1
    last: int = 2**31  # the index of the last task
    shelf: dict[str, dict[str, Tensor]] = field(default_factory=dict)


def skewed(y: Int64[Tensor, " n"], rare: int, skew: int) -> Int64[Tensor, " m"]:
    """The rows that are left when one in `skew` of class `rare` stays."""
    gone = (y == rare).nonzero()[:, 0]
    return torch.tensor(sorted(set(range(len(y))) - set(gone.tolist()) | set(gone[::skew].tolist())))


def digest(*tensors: Tensor) -> str:
    """Of the values, for the shelf."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        found.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().numpy().data.cast("B") if tensor.numel() else b"")
    return found.hexdigest()


def with_memory(held: dict[str, int], kept: Mapping[int, Tensor]) -> dict[str, int]:
    """Bytes held, `kept` among them as memory."""
    return held | {"memory": held["memory"] + sum(x.numel() * x.element_size() for x in kept.values())}


class Studied(Generating):
    """Stands between DGR and the teaching of its generator."""

    study: Study = Study()

    def begin_task(self, task: Task) -> None:
        """Which rows the generator will see."""
        super().begin_task(task)
        self.rows = skewed(task.y, task.info.outputs[-1], self.study.skew)

    def end_task(self, task: Task) -> None:
        """Nobody will ask the generator of the last task."""
        if task.info.index < self.study.last:
            super().end_task(task)

    def teach(self, task: Task, replay: Mapping[int, Tensor] | None = None) -> None:
        """Learn from the skewed rows, or take from the shelf what another row has learnt from the same."""
        task = Task(task.info, task.x[self.rows], task.y[self.rows], task.val_x, task.val_y)
        if self.per_task:  # no other row has such generators
            super().teach(task, replay)
            return
        before = self.taught[0].generator.state_dict().values() if self.taught else ()
        given = [t for c, x in sorted((replay or {}).items()) for t in (torch.tensor(c), x)]
        key = digest(task.x, task.y, *before, *given) + f"{replay is None} {self.seed}"
        if key in self.study.shelf:
            classes = tuple(range(self.spec.n_outputs))
            known = self.fresh_generator(len(classes)).load_state_dict(self.study.shelf[key])
            self.taught[0] = Taught(known, classes)
        else:
            super().teach(task, replay)
            self.study.shelf[key] = self.taught[0].generator.state_dict()


class PlainRow(DGR, Studied):
    """Generated replay as it comes."""


class StudiedVGR(VGR, Studied):
    """VGR from the same rows. Its generators are told the class, so that a skew leaves them its shares."""


class WeightedRow(WeightedReplay, Studied):
    """Weights by the chain, in the solver's loss, in the generator's next lesson, or both."""


class ShuffledRow(WeightedRow):
    """The same weights in another order among the samples of a condition: noise of the same size, no bias corrected."""

    def weigh(self, x: Float[Tensor, "m *shape"], condition: int, seed: int) -> tuple[Float[Tensor, " m"], Told]:
        """Weights that belong to other samples."""
        found, told = super().weigh(x, condition, seed)
        return found[torch.randperm(len(found), generator=rng.fork(seed, "shuffle", condition))], told


class BlindFollower(Follower):
    """Sees nothing, so that every weight is one."""

    def step(self, generator: Generator, data: Mapping[int, Tensor], *, seed: int) -> None:
        """Nothing is followed."""


class UniformRow(WeightedRow):
    """A pool of samples resampled with equal weights: what resampling does by itself."""

    def fresh_follower(self) -> Follower:
        """One that sees nothing."""
        c = self.config
        return BlindFollower(estimator=c.estimator, samples=c.chain_samples, min_rows=c.min_rows, blur=c.blur)


class KeepingFollower(Follower):
    """Keeps the data, and judges each generator by it directly."""

    data: Mapping[int, Tensor] = {}

    def step(self, generator: Generator, data: Mapping[int, Tensor], *, seed: int) -> None:
        """A chain of one step, from the data of all tasks."""
        self.data = {**self.data, **{c: x.clone() for c, x in data.items()}}
        fresh = Follower(
            estimator=self.chain.strategy.estimator,  # type: ignore[attr-defined]
            samples=self.samples,
            min_rows=self.min_rows,
            blur=self.blur,
        )
        self.chain, self.eyes, self.arrival, self.barred = fresh.chain, {}, {}, {}
        super().step(generator, self.data, seed=seed)


class OracleRow(WeightedRow):
    """Weights by ratios to data that was kept: the most that a chain could know."""

    oracle: ClassVar[bool] = True

    def fresh_follower(self) -> Follower:
        """One that keeps the data."""
        c = self.config
        return KeepingFollower(estimator=c.estimator, samples=c.chain_samples, min_rows=c.min_rows, blur=c.blur)

    def bytes(self) -> dict[str, int]:
        """And the data that was kept."""
        assert isinstance(self.follower, KeepingFollower)
        return with_memory(super().bytes(), self.follower.data)


class CurrentTooRow(PlainRow):
    """The current classes from the generator as well, which is taught before the solver: an alternative without ratios.

    Generated and real rows then do not tell old classes from new. Of the current task's samples each has the label of
    the nearest row of its data.
    """

    def begin_task(self, task: Task) -> None:
        """The generator comes first."""
        super().begin_task(task)
        self.task = task
        self.old = sorted(set(self.replayed()))
        self.teach(task)

    def end_task(self, task: Task) -> None:
        """All is learnt."""
        self.elder = None

    def draw(self, each: int, *names: str | int) -> Samples:
        """Old samples labelled by the solver of before, new ones by their nearest neighbours in the data."""
        asked = self.asked(each)
        seed = rng.child_seed(self.seed, "replay", *names)
        x = self.taught[0].generator.sample_each(asked, seed=seed)
        new, rows = asked == self.task.info.index, self.task.x.flatten(1)
        y = torch.empty(len(x), dtype=torch.int64)
        y[new] = self.task.y[torch.cdist(x[new].flatten(1), rows).argmin(1)]
        if self.elder is not None:
            y[~new] = self.named(x[~new], self.old)
        return Samples(x, y)


class RealRow(PlainRow):
    """The data of earlier tasks themselves, all kept: what replay could reach."""

    oracle: ClassVar[bool] = True

    def __init__(self, *args: object, **fields: object) -> None:
        super().__init__(*args, **fields)  # type: ignore[arg-type]
        self.kept: dict[int, Tensor] = {}

    def teach(self, task: Task, replay: Mapping[int, Tensor] | None = None) -> None:
        """Keep every row."""
        self.kept |= {c: task.x[task.y == c].clone() for c in task.y.unique().tolist()}

    def replayed(self) -> list[int]:
        """Every class so far."""
        return sorted(self.kept)

    def draw(self, each: int, *names: str | int) -> Samples:
        """Rows of each class in turn."""
        rows = [x[dealt(len(x), 0, each, self.seed, "real", c, *names)] for c, x in sorted(self.kept.items())]
        return Samples(torch.cat(rows), torch.tensor(self.replayed()).repeat_interleave(each))

    def bytes(self) -> dict[str, int]:
        """And the data that was kept."""
        return with_memory(super().bytes(), self.kept)
