"""Generative replay: a generator is taught when a task ends, and its samples join the batches of later tasks.

At the end of a task a generator learns the task's classes from its data; nothing else of the task stays. From then on
samples of it stand for the task. They are drawn in bulk: `samples_per_class` of each class of each earlier task (None:
as many as a class of the current task has on average), once a task (`fresh="task"`) or anew in each epoch ("epoch"),
and are batched over the epoch: each batch brings its share, so that one epoch over the task is one epoch over both,
and the number of batches stays what the task's data makes it. Batches grow with what is replayed.

Everything that was learnt is replayed, whether or not its classes are here again. A class that comes back, in another
domain say, is a condition of its own for the generator: conditions are numbered as they come, one for each class of
each task, and the generator is widened when there are more than it has. So the earlier domains of a class stay beside
its newest one.

`per_task` says whose generator it is. True: each task has one of its own, taught on that task alone and never touched
again (Farquhar and Gal, Algorithm 1). False: one generator learns task after task and replays its own samples to itself
(Shin et al. 2017). Generators occupy memory, which `bytes` counts under their name.

Classes of several tasks meet in each batch, so that they must compete in one loss: where a stream trains over the
"current" outputs, those of the classes that are replayed take part as well. A head a task is then only a way of
choosing among predictions (Farquhar and Gal C.6). Where a stream tells no borders no task ends, and nothing is learnt
that could be replayed.

**DGR**: a generator and a solver (Shin, Lee, Kim and Kim 2017, "Continual learning with deep generative replay").

When a task ends the generator learns it, and keeps the earlier ones by its own samples. While a task trains, the solver
S sees its data and what the generator of before, G, draws of the earlier ones (their Eq. 1):

    L = r E_task[L(S(x), y)] + (1 - r) E_G[L(S(x'), y')]

`labels` says where y' is from: "solver", as in the paper, is what the solver of before the task makes of x', the
likeliest of the outputs that are replayed; "condition" is the class that the generator was asked for. `condition` says
what that is: "class", or "task": then the generator is left to find how the classes of a task share its samples, as
the paper's unconditional one is, and only the solver can label them. `share` is r; None counts every row the same,
real or generated, so that every class is as heavy as any other.

Deviations: a conditional generator, so that each condition has its share of the samples whatever the generator would
draw unasked; of the paper's soft or hard answers of the solver the hard ones. The paper's WGAN-GP is one of the
generators; the default is the gated VAE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige import generators
from vestige.continual.learners.base import Info, Learner, Outputs, Spec, TrainConfig
from vestige.continual.memory import batched
from vestige.core import rng
from vestige.core.checks import option, refuse
from vestige.data.stream import Inputs, Labels, Task, TaskInfo
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
    seed = rng.child_seed(replay.seed, "generator", task.info.index)
    replay.generators[replay.key_of(task.info)].fit(task.x, replay.conditions(task), given, seed=seed)


class GeneratorReplay:
    """Generators at work: taught when a task ends, and asked for the samples that join each batch."""

    # By task (0: of all tasks), the classes behind each condition of its generator.
    classes_: dict[int, tuple[tuple[int, ...], ...]]
    task_: int = 0
    rows_: int = 1  # of the task
    each_: int = 1  # samples of a class
    seen_: int = 0  # rows of the task so far
    drawn_: int = 0  # samples that joined so far
    batch_cap: int | None = None  # rows that one step of the learner takes at most
    # How a generator is taught; a study of what teaching does may put another in its place.
    teacher: Callable[[GeneratorReplay, Task, Mapping[int, Tensor] | None], None] = staticmethod(teach_all)

    def __init__(
        self,
        config: GeneratedReplay,
        spec: Spec,
        *,
        per_task: bool = False,
        by_class: bool = True,
        owner: str = "replay",
        seed: int = 0,
    ) -> None:
        """`by_class`: each class of a task is a condition; if not, the task is."""
        self.config, self.spec, self.per_task, self.by_class, self.seed = config, spec, per_task, by_class, seed
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
        built = {key: self.fresh_generator(self.width(key)) for key in states}
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

    def width(self, key: int) -> int:
        """How many conditions its generator has: of one for all tasks, at least as many as there are outputs."""
        return max(len(self.classes_[key]), 0 if self.per_task else self.spec.n_outputs)

    def conditions(self, task: Task) -> Labels:
        """The number under which its generator learns each row of a task: new ones, behind those that it knows."""
        generator = self.generators.get(self.key_of(task.info))
        first = 0 if generator is None else len(generator.known_)
        place = torch.searchsorted(task.y.unique(), task.y) if self.by_class else torch.zeros_like(task.y)
        return first + place

    def teach(self, task: Task, given: Mapping[int, Tensor] | None = None) -> None:
        """The task's data teaches its generator, or that of all tasks, which keeps the earlier ones by `given`.

        `given` is {condition: samples}; None lets the generator draw them itself.
        """
        self.pool = None
        if len(task.y) == 0:  # a stream that tells no borders shows no task whole
            return
        key = self.key_of(task.info)
        new = tuple((c,) for c in task.y.unique().tolist()) if self.by_class else (task.info.outputs,)
        self.classes_[key] = self.classes_.get(key, ()) + new
        if key not in self.generators:
            self.generators[key] = self.fresh_generator(self.width(key))
        elif self.width(key) > self.generators[key].conditions:
            self.generators[key] = self.generators[key].widened(self.width(key), seed=self.seed)
        self.teacher(self, task, given)

    def replayed(self) -> list[int]:
        """The classes behind each condition that some generator knows, task by task."""
        known = [(key, c) for key, generator in sorted(self.generators.items()) for c in generator.known_]
        return [each for key, c in known for each in self.classes_[key][c]]

    def asked(self, key: int, each: int) -> Int64[Tensor, " m"]:
        """The conditions of `each` samples for every class behind what a generator knows."""
        known = self.generators[key].known_
        return torch.tensor(known).repeat_interleave(each * torch.tensor([len(self.classes_[key][c]) for c in known]))

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """`each` samples of every class that a generator knows, in bulk; `names` say what for."""
        x, y = [torch.empty(0, *self.spec.input_shape)], [torch.empty(0, dtype=torch.int64)]
        for key, generator in sorted(self.generators.items()):
            conditions = self.asked(key, each)
            x.append(generator.sample_each(conditions, seed=rng.child_seed(self.seed, "replay", key, *names)))
            y.append(torch.tensor([classes[0] for classes in self.classes_[key]])[conditions])
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

    def joined(self, x: Inputs, y: Labels) -> ReplayBatch:
        """The batch, and its share of the replay behind it."""
        old, _ = self.beside(len(y))
        return ReplayBatch(torch.cat([x, old.x.to(x)]), torch.cat([y, old.y])) if len(old.y) else ReplayBatch(x, y)

    def parts(self, x: Inputs, y: Labels) -> list[tuple[Float[Tensor, "m *shape"], Int64[Tensor, " m"]]]:
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


Label = Callable[[Tensor, Sequence[int]], Tensor | None]


@dataclass(frozen=True)
class DGRConfig(TrainConfig):
    """Who labels what is replayed, what the generator is conditional on, and r of Eq. 1."""

    replay: GeneratedReplay = GeneratedReplay("vae")
    labels: str = option("solver", among=("condition", "solver"))
    condition: str = option("class", among=("class", "task"))
    share: float | None = option(None, low=0, high=1)


def mixed(
    new: Float[Tensor, " n"], old: Float[Tensor, " m"], weights: Float[Tensor, " m"], share: float | None
) -> Float[Tensor, ""]:
    """Eq. 1 over the losses of a batch: r is `share`, or that of `new` among all rows; `old` has weights."""
    r = len(new) / (len(new) + len(old)) if share is None else share
    return r * new.mean() + (1 - r) * (weights * old).mean()


class ConditionalReplay(GeneratorReplay):
    """One generator of classes, or of tasks whose classes it is left to share out.

    `label` says which class a sample is of; where it does not know, it is the one behind the condition.
    """

    def __init__(self, config: DGRConfig, spec: Spec, label: Label, *, owner: str, seed: int) -> None:
        super().__init__(config.replay, spec, by_class=config.condition == "class", owner=owner, seed=seed)
        self.label = label

    @property
    def generator(self) -> Generator | None:
        """The one that learns all tasks, once it has learnt one."""
        return self.generators.get(0)

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """`each` samples for every class that is replayed, in order of conditions, under their labels."""
        if self.generator is None:
            return super().draw(each, *names)
        conditions = self.asked(0, each)
        x = self.generator.sample_each(conditions, seed=rng.child_seed(self.seed, "replay", *names))
        y = self.label(x, sorted(set(self.replayed())))
        return ReplayBatch(x, torch.tensor([c[0] for c in self.classes_[0]])[conditions] if y is None else y)


class DGR(Learner):
    """Generated samples of earlier tasks beside the data of the current one."""

    version: ClassVar[int] = 2  # 2: a class that returns is a condition of its own
    replay_class: ClassVar[type[ConditionalReplay]] = ConditionalReplay
    config: DGRConfig
    replay_: ConditionalReplay
    elder_: dict[str, Tensor]  # the solver of before the task; empty where it labels nothing

    def set_up(self) -> None:
        """A generator that has learnt nothing."""
        owner = type(self).__name__
        if self.config.condition == "task" and self.config.labels == "condition":
            must = "'solver' where the generator is told the task alone"
            refuse("labels", owner, must, "'condition'")
        self.replay_ = self.replay_class(self.config, self.spec, self.named, owner=owner, seed=self.seed)

    def begin_task(self, task: Task) -> None:
        """The solver so far is put aside, to label what is replayed."""
        super().begin_task(task)
        self.outputs_ = self.replay_.begin_task(task.info, self.outputs_)
        labels = self.config.labels == "solver" and self.replay_.generator is not None
        self.elder_ = {name: value.clone() for name, value in self.net.state_dict().items()} if labels else {}

    def observe(self, x: Inputs, y: Labels) -> Info:
        """One step."""
        return self.step(self.loss(x, y))

    def loss(self, x: Inputs, y: Labels) -> Float[Tensor, ""]:
        """Eq. 1 for a batch and its share of the replay."""
        old, weights = self.replay_.beside(len(y))
        if len(old.y) == 0:
            return self.outputs_.loss(self.net(x), y)
        logits = self.net(torch.cat([x, old.x.to(x)]))
        each = self.outputs_.losses(logits, torch.cat([y, old.y]))
        return mixed(each[: len(y)], each[len(y) :], weights.to(each), self.config.share)

    def end_task(self, task: Task) -> None:
        """The generator learns the task; the solver of before it has done its work."""
        self.replay_.teach(task)
        self.elder_ = {}

    def named(self, x: Float[Tensor, "m *shape"], among: Sequence[int]) -> Int64[Tensor, " m"] | None:
        """What the solver of before takes `x` for, among some classes; None where there is none."""
        if not self.elder_:
            return None
        outputs = torch.tensor(among)
        parts = x.to(self.net.head.weight.dtype).split(self.net.rows_at_once)
        return outputs[torch.cat([self.answer_of(self.elder_, part)[:, outputs] for part in parts]).argmax(1)]

    def describe(self) -> dict[str, Any]:
        """With every field of the generator."""
        return super().describe() | self.replay_.described()

    def bytes(self) -> dict[str, int]:
        """And of the method's state what the generator holds."""
        return self.replay_.counted(super().bytes())
