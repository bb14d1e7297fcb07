"""DGR: a generator and a solver (Shin, Lee, Kim and Kim 2017, "Continual learning with deep generative replay").

When a task ends the generator learns it, and keeps the earlier ones by its own samples. While a task trains, the solver
S sees its data and what the generator of before, G, draws of the earlier ones (their Eq. 1):

    L = r E_task[L(S(x), y)] + (1 - r) E_G[L(S(x'), y')]

`labels` says where y' is from: "solver", as in the paper, is what the solver of before the task makes of x', the
likeliest of the outputs that are replayed; "condition" is the class that the generator was asked for. `condition` says
what that is: "class", or "task": then the generator is left to find how the classes of a task share its samples, as
the paper's unconditional one is, and only the solver can label them. `share` is r; None counts every row the same,
real or generated, so that every class is as heavy as any other.

Deviations: a conditional generator, so that each condition has its share of the samples whatever the generator would
draw unasked; of the paper's soft or hard answers of the solver the hard ones; a class (or task) that comes again is
learnt anew, from its newest data. The paper's WGAN-GP is one of the generators; the default is the gated VAE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, Spec, TrainConfig
from vestige.continual.learners.generative_replay import GeneratedReplay, GeneratorReplay, ReplayBatch
from vestige.core import rng
from vestige.core.checks import option, refuse
from vestige.data.stream import Task
from vestige.generators import Generator

Label = Callable[[Tensor, Sequence[int]], Tensor | None]


@dataclass(frozen=True)
class DGRConfig(TrainConfig):
    """Who labels what is replayed, what the generator is conditional on, and r of Eq. 1."""

    replay: GeneratedReplay = GeneratedReplay("vae")  # noqa: RUF009 - it is frozen
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

    `label` says which class a sample is of; where it does not know, the condition is the class.
    """

    outputs_of_: dict[int, tuple[int, ...]]  # by task, where that is the condition

    def __init__(self, config: DGRConfig, spec: Spec, label: Label, *, owner: str, seed: int) -> None:
        super().__init__(config.replay, spec, owner=owner, seed=seed)
        self.by_class, self.label, self.outputs_of_ = config.condition == "class", label, {}

    @property
    def generator(self) -> Generator | None:
        """The one that learns all tasks, once it has learnt one."""
        return self.generators.get(0)

    def conditions(self, task: Task) -> Int64[Tensor, " n"]:
        """Under what the generator learns each row of a task."""
        return task.y if self.by_class else torch.full_like(task.y, task.info.index)

    def teach(self, task: Task, given: Mapping[int, Tensor] | None = None) -> None:
        """And the classes behind the task, where that is the condition."""
        if not self.by_class and len(task.y):
            self.outputs_of_[task.info.index] = task.info.outputs
        super().teach(task, given)

    def replayed(self) -> list[int]:
        """The classes behind each condition that the generator knows."""
        if self.by_class:
            return super().replayed()
        return [c for _, outputs in sorted(self.outputs_of_.items()) for c in outputs]

    def asked(self, each: int) -> Int64[Tensor, " m"]:
        """The conditions of `each` samples for every class that is replayed."""
        assert self.generator is not None
        known = torch.tensor(self.generator.known_)
        classes = [len(self.outputs_of_.get(c, (c,))) for c in known.tolist()]
        return known.repeat_interleave(each * torch.tensor(classes))

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """`each` samples for every class that is replayed, in order of conditions, under their labels."""
        if self.generator is None:
            return super().draw(each, *names)
        conditions = self.asked(each)
        x = self.generator.sample_each(conditions, seed=rng.child_seed(self.seed, "replay", *names))
        y = self.label(x, sorted(set(self.replayed())))
        return ReplayBatch(x, conditions if y is None else y)


class DGR(Learner):
    """Generated samples of earlier tasks beside the data of the current one."""

    replay_class: ClassVar[type[ConditionalReplay]] = ConditionalReplay
    config: DGRConfig
    replay_: ConditionalReplay
    elder_: dict[str, Tensor]  # the solver of before the task; empty where it labels nothing

    def __init__(self, spec: Spec, config: DGRConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        if self.config.condition == "task" and self.config.labels == "condition":
            must = "'solver' where the generator is told the task alone"
            refuse("labels", type(self).__name__, must, "'condition'")
        self.net = self.fresh_net()
        self.replay_ = self.replay_class(self.config, spec, self.named, owner=type(self).__name__, seed=seed)
        self.elder_ = {}

    def begin_task(self, task: Task) -> None:
        """The solver so far is put aside, to label what is replayed."""
        super().begin_task(task)
        if self.config.condition == "task" and task.info.index >= self.spec.n_outputs:
            refuse("condition", type(self).__name__, f"'class' from task {self.spec.n_outputs} on", "'task'")
        self.outputs_ = self.replay_.begin_task(task.info, self.outputs_)
        labels = self.config.labels == "solver" and self.replay_.generator is not None
        self.elder_ = {name: value.clone() for name, value in self.net.state_dict().items()} if labels else {}

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step."""
        return self.step(self.loss(x, y))

    def loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
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
