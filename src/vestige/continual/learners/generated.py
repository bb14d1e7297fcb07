"""What every method with generated replay shares: a generator taught when a task ends, and its samples beside batches.

At the end of a task a generator learns the task's classes from its data; nothing else of the task stays. From then on
samples of it stand for the task. They are drawn in bulk: `samples_per_class` of each class of each earlier task (None:
as many as a class of the current task has on average), once a task (`fresh="task"`) or anew in each epoch ("epoch"),
and are dealt out over the epoch: each batch brings its share, so that one epoch over the task is one epoch over both,
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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige import generators
from vestige.continual.learners.base import Learner, Outputs, Spec, TrainConfig
from vestige.continual.learners.replay import dealt
from vestige.core import rng
from vestige.core.checks import one_of, whole
from vestige.data.task import Task
from vestige.generators import Generator

FRESH = ("task", "epoch")


@dataclass(frozen=True)
class GeneratedConfig(TrainConfig):
    """Which generator, one of `vestige.generators.GENERATORS`, its preset and other fields; how much is replayed."""

    generator: str = "gan_conv"
    generator_preset: str | None = "small"
    generator_options: Mapping[str, Any] = field(default_factory=dict)
    samples_per_class: int | None = None
    fresh: str = "task"


class Taught(NamedTuple):
    """A generator, and the class behind each of its conditions."""

    generator: Generator
    classes: tuple[int, ...]


class Samples(NamedTuple):
    """Generated rows and their classes."""

    x: Float[Tensor, "m *shape"]
    y: Int64[Tensor, " m"]


class Place(NamedTuple):
    """Where a task stands: its number, its rows, samples of each class, rows seen so far and samples dealt."""

    task: int = 0
    rows: int = 1
    each: int = 1
    seen: int = 0
    dealt: int = 0


class Generating(Learner):
    """Teaches generators and deals out what they draw; what for is its children's to say."""

    per_task: ClassVar[bool] = False

    config: GeneratedConfig
    outputs: Outputs

    def __init__(self, spec: Spec, config: GeneratedConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner, c = type(self).__name__, self.config
        one_of(c.fresh, FRESH, "fresh", owner)
        if c.samples_per_class is not None:
            whole(c.samples_per_class, "samples_per_class", owner, low=1)
        self.generator_fields = self.fresh_generator(1).config()  # refuses what cannot be built
        self.taught: dict[int, Taught] = {}  # by task; 0: of all tasks
        self.place = Place()
        self.pool: Samples | None = None  # follows from generators and place, so it is no state
        self.turn = 0  # the epoch that the pool was drawn for

    def fresh_generator(self, conditions: int) -> Generator:
        """A generator that has learnt nothing."""
        c = self.config
        own = {"shape": self.spec.input_shape, "conditions": conditions}
        return generators.build(c.generator, preset=c.generator_preset, **(dict(c.generator_options) | own))

    def describe(self) -> dict[str, Any]:
        """With every field of the generator, whatever its preset says."""
        own = {key: v for key, v in self.generator_fields.items() if key not in ("generator", "shape", "conditions")}
        return super().describe() | {"generator_fields": own}

    def begin_task(self, task: Task) -> None:
        """As the method does; classes that will be replayed take part in the loss."""
        super().begin_task(task)  # type: ignore[safe-super]  # of the method that this is mixed with
        info = task.info
        wanted = {*self.outputs.outputs, *self.replayed()}
        if wanted > set(self.outputs.outputs):
            self.outputs = Outputs(sorted(wanted), self.spec.n_outputs)
        each = self.config.samples_per_class or max(round(info.n / len(info.outputs)), 1)
        self.place, self.pool = Place(info.index, max(info.n, 1), each), None

    def end_task(self, task: Task) -> None:
        """As the method does; then the task's data teaches the generator, for the last time that it is there."""
        self.pool = None
        super().end_task(task)  # type: ignore[safe-super]
        self.teach(task)

    def teach(self, task: Task, replay: Mapping[int, Tensor] | None = None) -> None:
        """Train the generator of this task, or of all tasks; the latter keeps the earlier ones by `replay`.

        `replay` is {class: samples}; None lets the generator draw them itself.
        """
        if len(task.y) == 0:  # a stream that tells no borders shows no task whole
            return
        classes = tuple(task.y.unique().tolist()) if self.per_task else tuple(range(self.spec.n_outputs))
        key = task.info.index if self.per_task else 0
        if self.per_task or key not in self.taught:
            self.taught[key] = Taught(self.fresh_generator(len(classes)), classes)
        conditions = torch.searchsorted(torch.tensor(classes), task.y)
        seed = rng.child_seed(self.seed, "generator", task.info.index)
        self.taught[key].generator.fit(task.x, conditions, replay, seed=seed)

    def replayed(self) -> list[int]:
        """The class of each condition that some generator knows, task by task."""
        return [t.classes[c] for _, t in sorted(self.taught.items()) for c in t.generator.known_]

    def draw(self, each: int, *names: str | int) -> Samples:
        """`each` samples of every class that a generator knows, in bulk; `names` say what for."""
        x, y = [torch.empty(0, *self.spec.input_shape)], [torch.empty(0, dtype=torch.int64)]
        for key, (generator, classes) in sorted(self.taught.items()):
            conditions = torch.tensor(generator.known_).repeat_interleave(each)
            x.append(generator.sample_each(conditions, seed=rng.child_seed(self.seed, "replay", key, *names)))
            y.append(torch.tensor(classes)[conditions])
        return Samples(torch.cat(x), torch.cat(y))

    def beside(self, n: int) -> Samples:
        """The samples that join a batch of `n` rows: as large a share of the pool as the batch is of the task."""
        rows = self.deal(n)
        if self.pool is None or not len(rows):
            return Samples(torch.empty(0, *self.spec.input_shape), torch.empty(0, dtype=torch.int64))
        return Samples(self.pool.x[rows], self.pool.y[rows])

    def deal(self, n: int) -> Int64[Tensor, " m"]:
        """Which rows of the pool join a batch of `n` rows; the pool is drawn where it has to be."""
        at = self.place
        size = at.each * len(self.replayed())
        until = size * (at.seen + n) // at.rows
        self.place = at._replace(seen=at.seen + n, dealt=until)
        if until == at.dealt:
            return torch.empty(0, dtype=torch.int64)
        turn = at.dealt // size if self.config.fresh == "epoch" else 0
        if self.pool is None or turn != self.turn:
            self.pool, self.turn = self.draw(at.each, at.task, turn), turn
        return dealt(size, at.dealt, until, self.seed, "deal", at.task)

    def joined(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Samples:
        """The batch, and its share of the replay behind it."""
        old = self.beside(len(y))
        return Samples(torch.cat([x, old.x.to(x)]), torch.cat([y, old.y])) if len(old.y) else Samples(x, y)

    def method_state(self) -> dict[str, Tensor]:
        """And the generators, their classes, and where in the task we are."""
        state = super().method_state() | {"replay_place": torch.tensor(self.place)}
        for key, (generator, classes) in self.taught.items():
            state[f"generated_classes.{key}"] = torch.tensor(classes)
            state |= {f"generator.{key}.{name}": value for name, value in generator.state_dict().items()}
        return state

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        own = ("replay_place", "generated_classes.", "generator.")
        super().load_method_state({k: v for k, v in state.items() if not k.startswith(own)})
        self.place, self.pool, self.taught = Place(*state["replay_place"].tolist()), None, {}
        for name, classes in state.items():
            if name.startswith("generated_classes."):
                key = name.removeprefix("generated_classes.")
                prefix = f"generator.{key}."
                found = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
                generator = self.fresh_generator(len(classes)).load_state_dict(found)
                self.taught[int(key)] = Taught(generator, tuple(classes.tolist()))

    def bytes(self) -> dict[str, int]:
        """And of the method's state what the generators hold."""
        held, made = super().bytes(), sum(t.generator.bytes() for t in self.taught.values())
        return held | {"method": held["method"] - made, "generator": made}
