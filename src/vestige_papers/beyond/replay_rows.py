"""The rows of beyond-replay: weighted replay, its two parts, and everything else that could explain a gain.

All of them are DGR with a generator that is told the task and left to share it out among its classes, labels by the
solver of before. What differs is said by each class. A study may skew what the generator learns of a task (its last
class, one row in `skew`) while solver and chain see all of it: mass that weights can move back.

Rows that teach a generator the same thing share the fit (`shelf`): what comes out is the same, and a third of the cost.
The generator of the last task would never be asked, so it is not taught.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Spec
from vestige.continual.learners.generative_replay import (
    DGR,
    ConditionalReplay,
    DGRConfig,
    GeneratorReplay,
    Label,
    ReplayBatch,
    teach_all,
)
from vestige.continual.learners.vgr import VGR
from vestige.continual.learners.weighted_replay import (
    FollowedReplay,
    GeneratorFollower,
    WeightedReplay,
    WeightsReport,
)
from vestige.continual.memory import batched
from vestige.core import rng
from vestige.data.stream import Task
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


@dataclass(frozen=True)
class Teacher:
    """Stands between a learner and the teaching of its generator."""

    study: Study

    def __call__(self, replay: GeneratorReplay, task: Task, given: Mapping[int, Tensor] | None) -> None:
        """Learn from the skewed rows, or take from the shelf what another row has learnt from the same."""
        rows = skewed(task.y, task.info.outputs[-1], self.study.skew)
        task = Task(task.info, task.x[rows], task.y[rows], task.val_x, task.val_y)
        if replay.per_task:  # no other row has such generators
            teach_all(replay, task, given)
            return
        generator = replay.generators[0]
        before = generator.state_dict().values() if generator.known_ else ()
        samples = [t for c, x in sorted((given or {}).items()) for t in (torch.tensor(c), x)]
        key = digest(task.x, task.y, *before, *samples) + f"{given is None} {replay.seed}"
        if key in self.study.shelf:
            fresh = replay.fresh_generator(generator.conditions)
            replay.generators[0] = fresh.load_state_dict(self.study.shelf[key])
        else:
            teach_all(replay, task, given)
            self.study.shelf[key] = replay.generators[0].state_dict()


class PlainRow(DGR):
    """Generated replay as it comes."""

    study = Study()

    def end_task(self, task: Task) -> None:
        """Nobody will ask the generator of the last task."""
        if task.info.index < self.study.last:
            super().end_task(task)


class StudiedVGR(VGR):
    """VGR from the same rows. Its generators are told the class, so that a skew leaves them its shares."""

    study = Study()

    def end_task(self, task: Task) -> None:
        """Nobody will ask the generator of the last task."""
        if task.info.index < self.study.last:
            super().end_task(task)


class WeightedRow(WeightedReplay):
    """Weights by the chain, in the solver's loss, in the generator's next lesson, or both."""

    study = Study()

    def end_task(self, task: Task) -> None:
        """Nobody will ask the generator of the last task."""
        if task.info.index < self.study.last:
            super().end_task(task)


def studied(learner: PlainRow | WeightedRow | StudiedVGR, study: Study) -> PlainRow | WeightedRow | StudiedVGR:
    """The learner as a part of `study`."""
    learner.study, learner.replay_.teacher = study, Teacher(study)
    return learner


class ShuffledReplay(FollowedReplay):
    """Weights that belong to other samples."""

    def weigh(
        self, x: Float[Tensor, "m *shape"], condition: int, seed: int
    ) -> tuple[Float[Tensor, " m"], WeightsReport]:
        """The same weights in another order."""
        found, told = super().weigh(x, condition, seed)
        return found[torch.randperm(len(found), generator=rng.fork(seed, "shuffle", condition))], told


class ShuffledRow(WeightedRow):
    """The same weights, shuffled among the samples of a condition: noise of the same size, and no bias corrected."""

    replay_class = ShuffledReplay


class BlindFollower(GeneratorFollower):
    """Sees nothing, so that every weight is one."""

    def step(self, generator: Generator, data: Mapping[int, Tensor], *, seed: int) -> None:
        """Nothing is followed."""


class BlindReplay(FollowedReplay):
    """Equal weights."""

    follower_class = BlindFollower


class UniformRow(WeightedRow):
    """A pool of samples resampled with equal weights: what resampling does by itself."""

    replay_class = BlindReplay


class KeepingFollower(GeneratorFollower):
    """Keeps the data, and compares each generator with it directly."""

    data: Mapping[int, Tensor] = {}

    def step(self, generator: Generator, data: Mapping[int, Tensor], *, seed: int) -> None:
        """A chain of one step, from the data of all tasks."""
        self.data = {**self.data, **{c: x.clone() for c, x in data.items()}}
        self.begin()
        super().step(generator, self.data, seed=seed)


class KeepingReplay(FollowedReplay):
    """Weights by ratios to data that was kept."""

    follower_class = KeepingFollower


class OracleRow(WeightedRow):
    """Weights by ratios to data that was kept: the most that a chain could know."""

    oracle: ClassVar[bool] = True

    replay_class = KeepingReplay

    def bytes(self) -> dict[str, int]:
        """And the data that was kept."""
        assert isinstance(self.replay_.follower_, KeepingFollower)
        return with_memory(super().bytes(), self.replay_.follower_.data)


class NearestReplay(ConditionalReplay):
    """Old samples labelled by the solver of before, those of the task under way by their nearest rows of its data."""

    task: Task
    old: Sequence[int] = ()

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """As many of every class, those of the task under way among them."""
        assert self.generator is not None
        asked = self.asked(0, each)
        x = self.generator.sample_each(asked, seed=rng.child_seed(self.seed, "replay", *names))
        new, rows = asked == self.task.info.index, self.task.x.flatten(1)
        y = torch.empty(len(x), dtype=torch.int64)
        y[new] = self.task.y[torch.cdist(x[new].flatten(1), rows).argmin(1)]
        labels = self.label(x[~new], self.old) if self.old else None
        if labels is not None:
            y[~new] = labels
        return ReplayBatch(x, y)


class CurrentTooRow(PlainRow):
    """The current classes from the generator as well, which is taught before the solver: a control without ratios.

    Generated and real rows then do not tell old classes from new. Of the current task's samples each has the label of
    the nearest row of its data.
    """

    replay_: NearestReplay

    replay_class = NearestReplay

    def begin_task(self, task: Task) -> None:
        """The generator comes first."""
        super().begin_task(task)
        self.replay_.task, self.replay_.old = task, sorted(set(self.replay_.replayed()))
        self.replay_.teach(task)

    def end_task(self, task: Task) -> None:
        """All is learnt."""
        self.elder_ = {}


class KeptReplay(ConditionalReplay):
    """The data of earlier tasks in the place of samples."""

    def __init__(self, config: DGRConfig, spec: Spec, label: Label, *, owner: str, seed: int) -> None:
        super().__init__(config, spec, label, owner=owner, seed=seed)
        self.kept: dict[int, Tensor] = {}

    def teach(self, task: Task, given: Mapping[int, Tensor] | None = None) -> None:
        """Keep every row."""
        self.pool = None
        self.kept |= {c: task.x[task.y == c].clone() for c in task.y.unique().tolist()}

    def replayed(self) -> list[int]:
        """Every class so far."""
        return sorted(self.kept)

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """Rows of each class in turn."""
        rows = [x[batched(len(x), 0, each, self.seed, "real", c, *names)] for c, x in sorted(self.kept.items())]
        return ReplayBatch(torch.cat(rows), torch.tensor(self.replayed()).repeat_interleave(each))


class RealRow(PlainRow):
    """The data of earlier tasks themselves, all kept: what replay could reach."""

    oracle: ClassVar[bool] = True
    replay_: KeptReplay

    replay_class = KeptReplay

    def bytes(self) -> dict[str, int]:
        """And the data that was kept."""
        return with_memory(super().bytes(), self.replay_.kept)
