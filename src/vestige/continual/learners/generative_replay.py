"""Generative replay: a generator is taught when a task ends, and its samples join the batches of later tasks.

At the end of a task a generator learns the task's classes from its data; nothing else of the task stays. From then on
samples of it stand for the task. They are drawn in bulk: `samples_per_class` of each class of each earlier task (None:
as many as a class of the current task has on average), once a task (`fresh="task"`) or anew in each epoch ("epoch"),
and are batched over the epoch: each batch brings its share, so that one epoch over the task is one epoch over both,
and the number of batches stays what the task's data makes it. Batches grow with what is replayed.

`per_task` says whose generator it is. True: each task has one of its own, taught on that task alone and never touched
again (Farquhar and Gal, Algorithm 1). False: one generator learns task after task and replays its own samples to itself
(Shin et al. 2017). Generators occupy memory, which `bytes` counts under their name.

Classes of several tasks meet in each batch, so that they must compete in one loss: where a stream trains over the
"current" outputs, those of the classes that are replayed take part as well. A head a task is then only a way of
choosing among predictions (Farquhar and Gal C.6). Where a stream tells no borders no task ends, and nothing is learnt
that could be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige import generators
from vestige.continual.learners.base import Outputs, Spec
from vestige.continual.memory.rehearsal import batched
from vestige.core import rng
from vestige.core.checks import declared, option
from vestige.data.stream import Task, TaskInfo
from vestige.generators import Generator


@dataclass(frozen=True)
class GeneratedReplay:
    """Which generator, one of `vestige.generators.GENERATORS`, its preset and other options; how much is replayed.

    The argument `replay` of a learner.
    """

    generator: str = "gan_conv"
    preset: str | None = "small"
    options: Mapping[str, Any] = field(default_factory=dict)
    samples_per_class: int | None = option(None, low=1)
    fresh: str = option("task", among=("task", "epoch"))


class ReplayBatch(NamedTuple):
    """Rows and their classes."""

    x: Float[Tensor, "m *shape"]
    y: Int64[Tensor, " m"]


def teach_all(replay: GeneratorReplay, task: Task, given: Mapping[int, Tensor] | None) -> None:
    """Train the generator of this task, or of all tasks, on all of its rows."""
    key = replay.key_of(task.info)
    conditions = torch.searchsorted(torch.tensor(replay.classes_[key]), replay.conditions(task))
    seed = rng.child_seed(replay.seed, "generator", task.info.index)
    replay.generators[key].fit(task.x, conditions, given, seed=seed)


class GeneratorReplay:
    """Generators at work: taught when a task ends, and asked for the samples that join each batch."""

    classes_: dict[int, tuple[int, ...]]  # by task (0: of all tasks), the class behind each condition of its generator
    task_: int = 0
    rows_: int = 1  # of the task
    each_: int = 1  # samples of a class
    seen_: int = 0  # rows of the task so far
    drawn_: int = 0  # samples that joined so far
    batch_cap: int | None = None  # rows that one step of the learner takes at most
    # How a generator is taught; a study of what teaching does may put another in its place.
    teacher: Callable[[GeneratorReplay, Task, Mapping[int, Tensor] | None], None] = staticmethod(teach_all)

    def __init__(
        self, config: GeneratedReplay, spec: Spec, *, per_task: bool = False, owner: str = "replay", seed: int = 0
    ) -> None:
        declared(config, f"the replay of {owner}")
        self.config, self.spec, self.per_task, self.seed = config, spec, per_task, seed
        self.generator_fields = self.fresh_generator(1).config()  # refuses what cannot be built
        self.generators: dict[int, Generator] = {}
        self.classes_ = {}
        self.pool: ReplayBatch | None = None  # follows from generators and place, so it is no state
        self.turn = 0  # the epoch that the pool was drawn for

    @property
    def generators_(self) -> dict[int, dict[str, Tensor]]:
        """What each generator has learnt."""
        return {key: generator.state_dict() for key, generator in self.generators.items()}

    @generators_.setter
    def generators_(self, states: dict[int, dict[str, Tensor]]) -> None:
        built = {key: self.fresh_generator(len(self.classes_[key])) for key in states}
        self.generators = {key: generator.load_state_dict(states[key]) for key, generator in built.items()}
        self.pool = None

    def fresh_generator(self, conditions: int) -> Generator:
        """A generator that has learnt nothing."""
        own = {"shape": self.spec.input_shape, "conditions": conditions}
        return generators.build(self.config.generator, preset=self.config.preset, **(dict(self.config.options) | own))

    def described(self) -> dict[str, Any]:
        """Every field of the generator, whatever its preset says, for the learner's description."""
        own = {key: v for key, v in self.generator_fields.items() if key not in ("generator", "shape", "conditions")}
        return {"generator_fields": own}

    def begin_task(self, info: TaskInfo, outputs: Outputs) -> Outputs:
        """A task begins; the outputs that compete in it: those of the task, and of the classes that are replayed."""
        wanted = {*outputs.outputs, *self.replayed()}
        self.task_, self.rows_, self.seen_, self.drawn_ = info.index, max(info.n, 1), 0, 0
        self.each_ = self.config.samples_per_class or max(round(info.n / len(info.outputs)), 1)
        self.pool = None
        return Outputs(tuple(sorted(wanted)), outputs.n_outputs) if wanted > set(outputs.outputs) else outputs

    def key_of(self, info: TaskInfo) -> int:
        """Under which key the generator of a task is found."""
        return info.index if self.per_task else 0

    def conditions(self, task: Task) -> Int64[Tensor, " n"]:
        """Under what each row of a task is learnt: its class."""
        return task.y

    def teach(self, task: Task, given: Mapping[int, Tensor] | None = None) -> None:
        """The task's data teaches its generator, or that of all tasks, which keeps the earlier ones by `given`.

        `given` is {class: samples}; None lets the generator draw them itself.
        """
        self.pool = None
        if len(task.y) == 0:  # a stream that tells no borders shows no task whole
            return
        key = self.key_of(task.info)
        if self.per_task or key not in self.generators:
            classes = tuple(task.y.unique().tolist()) if self.per_task else tuple(range(self.spec.n_outputs))
            self.generators[key], self.classes_[key] = self.fresh_generator(len(classes)), classes
        self.teacher(self, task, given)

    def replayed(self) -> list[int]:
        """The class of each condition that some generator knows, task by task."""
        return [self.classes_[key][c] for key, generator in sorted(self.generators.items()) for c in generator.known_]

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """`each` samples of every class that a generator knows, in bulk; `names` say what for."""
        x, y = [torch.empty(0, *self.spec.input_shape)], [torch.empty(0, dtype=torch.int64)]
        for key, generator in sorted(self.generators.items()):
            conditions = torch.tensor(generator.known_).repeat_interleave(each)
            x.append(generator.sample_each(conditions, seed=rng.child_seed(self.seed, "replay", key, *names)))
            y.append(torch.tensor(self.classes_[key])[conditions])
        return ReplayBatch(torch.cat(x), torch.cat(y))

    def next_rows(self, n: int) -> Int64[Tensor, " m"]:
        """Which rows of the pool join a batch of `n` rows; the pool is drawn where it has to be."""
        start, size = self.drawn_, self.each_ * len(self.replayed())
        self.seen_ += n
        self.drawn_ = size * self.seen_ // self.rows_
        if self.drawn_ == start:
            return torch.empty(0, dtype=torch.int64)
        turn = start // size if self.config.fresh == "epoch" else 0
        if self.pool is None or turn != self.turn:
            self.pool, self.turn = self.draw(self.each_, self.task_, turn), turn
        return batched(size, start, self.drawn_, self.seed, "deal", self.task_)

    def beside(self, n: int) -> tuple[ReplayBatch, Float[Tensor, " m"]]:
        """The samples that join a batch of `n` rows, as large a share of the pool as the batch is of the task.

        And their weights, one each.
        """
        rows = self.next_rows(n)
        if self.pool is None or not len(rows):
            return ReplayBatch(torch.empty(0, *self.spec.input_shape), torch.empty(0, dtype=torch.int64)), torch.ones(0)
        return ReplayBatch(self.pool.x[rows], self.pool.y[rows]), self.weights_of(rows)

    def weights_of(self, rows: Int64[Tensor, " m"]) -> Float[Tensor, " m"]:
        """The weights of rows of the pool."""
        return torch.ones(len(rows))

    def joined(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> ReplayBatch:
        """The batch, and its share of the replay behind it."""
        old, _ = self.beside(len(y))
        return ReplayBatch(torch.cat([x, old.x.to(x)]), torch.cat([y, old.y])) if len(old.y) else ReplayBatch(x, y)

    def parts(
        self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]
    ) -> list[tuple[Float[Tensor, "m *shape"], Int64[Tensor, " m"]]]:
        """The batch and its share of the replay; more than `batch_cap` rows are mixed and cut into equal parts."""
        (x, y), cap = self.joined(x, y), self.batch_cap
        if cap is None or len(y) <= cap:
            return [(x, y)]
        order = torch.randperm(len(y), generator=rng.fork(self.seed, "mix", self.task_, self.seen_))
        return [(x[rows], y[rows]) for rows in order.tensor_split(-(-len(y) // cap))]

    def counted(self, held: dict[str, int]) -> dict[str, int]:
        """Bytes held, the generators apart from the rest of the method's state."""
        made = sum(generator.bytes() for generator in self.generators.values())
        return held | {"method": held["method"] - made, "generator": made}
