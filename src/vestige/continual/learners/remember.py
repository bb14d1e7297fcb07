"""What every method with a memory shares: filling it when a task ends, and the loss of samples of several tasks.

At the end of a task each of its classes is looked at through the network of that moment, and a sampler chooses which
samples to keep; see `memory`. Nothing else of the task stays. Where a stream tells no borders there is no such
moment: `fill="reservoir"` lets every batch into a reservoir of `memory_total` samples after the step that it trained,
so that the memory is at all times a uniform draw of what came so far.

Samples of several tasks meet in one loss. Where the stream trains over "seen" or "all" outputs they all compete there;
where it trains over "current" ones, a sample competes among the outputs of the task that its class last came in.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.continual.learners.base import Info, Outputs, Spec, TrainConfig
from vestige.continual.learners.vanilla import Vanilla
from vestige.continual.memory import SAMPLERS, Memory, View
from vestige.core import rng
from vestige.core.checks import one_of, refuse, whole
from vestige.data.task import Task, TaskInfo
from vestige.nets import Classifier

FILLS = ("task_end", "reservoir")


@dataclass(frozen=True)
class MemoryConfig(TrainConfig):
    """A budget for each class or in total or both (the smaller counts), who chooses, and when.

    With `fill="reservoir"` chance chooses, and the budget is `memory_total` alone.
    """

    memory_per_class: int | None = 10
    memory_total: int | None = None
    sampler: str = "mean_of_features"
    fill: str = "task_end"


class Rivals(Outputs):
    """Outputs by class: row c of `table` says among which outputs a sample of class c competes."""

    def __init__(self, table: Bool[Tensor, "k k"], outputs: tuple[int, ...]) -> None:
        super().__init__(outputs, len(table))
        self.table = table

    def loss(
        self, logits: Float[Tensor, "n k"], y: Int64[Tensor, " n"], weights: Float[Tensor, " n"] | None = None
    ) -> Float[Tensor, ""]:
        """Mean over samples of weight times cross-entropy. The sum of the weights is not divided by."""
        rivals = logits.masked_fill(~self.table[y], -torch.inf)
        if weights is None:
            return functional.cross_entropy(rivals, y)
        return (weights * functional.cross_entropy(rivals, y, reduction="none")).mean()


def rivals_after(table: Bool[Tensor, "k k"], info: TaskInfo) -> Bool[Tensor, "k k"]:
    """The table once the task of `info` has begun: its classes, or with "seen" and "all" every class, compete anew."""
    table = table.clone()
    row = torch.zeros(len(table), dtype=torch.bool)
    row[list(info.train_outputs)] = True
    table[list(info.outputs) if info.train_logits == "current" else slice(None)] = row
    return table


@torch.no_grad()
def features_of(net: Classifier, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n f"]:
    """What the last layer sees, in evaluation mode: the network is a `body` and a linear `head`."""
    training = net.training
    net.eval()
    try:
        return torch.cat([net.body(part) for part in x.split(net.rows_at_once)])
    finally:
        net.train(training)


@torch.no_grad()
def look_at(net: Classifier, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"], outputs: tuple[int, ...]) -> View:
    """What the network makes of samples, for a sampler."""
    features = features_of(net, x)
    log_p = net.answer(features)[:, list(outputs)].log_softmax(1)
    return View(features, (features * net.weights_of(y)).sum(1), log_p)


class Remembering(Vanilla):
    """Keeps a few samples of each class; what for is its children's to say."""

    config: MemoryConfig

    def __init__(self, spec: Spec, config: MemoryConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner, settings = type(self).__name__, self.config
        one_of(settings.sampler, SAMPLERS, "sampler", owner)
        for name in ("memory_per_class", "memory_total"):
            if getattr(settings, name) is not None:
                whole(getattr(settings, name), name, owner, low=0)
        if settings.memory_per_class is None and settings.memory_total is None:
            refuse("memory_per_class", owner, "given where 'memory_total' is not", "neither")
        if one_of(settings.fill, FILLS, "fill", owner) == "reservoir" and (
            settings.memory_total is None or settings.memory_per_class is not None
        ):
            refuse("memory_total", owner, "the only budget of a reservoir ('memory_per_class' None)", "another")
        self.task_index = 0
        self.memory: Memory = Memory(settings.memory_total, settings.memory_per_class)
        self.outputs: Rivals = Rivals(
            torch.ones(spec.n_outputs, spec.n_outputs, dtype=torch.bool), self.outputs.outputs
        )

    @classmethod
    def default_config(cls) -> MemoryConfig:
        """Ten samples a class, by the mean of features, as for MNIST in RWalk Table 1."""
        return MemoryConfig()

    def begin_task(self, task: Task) -> None:
        """Take the task's outputs, and leave those of the classes in memory known."""
        table = self.outputs.table
        super().begin_task(task)
        self.outputs = Rivals(rivals_after(table, task.info), task.info.train_outputs)
        self.task_index = task.info.index

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """The method's own step; then the batch may enter the reservoir, where there is one."""
        info = super().observe(x, y)
        self.offer(x, y)
        return info

    def offer(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> None:
        """Let the stream's batch into the reservoir."""
        if self.config.fill == "reservoir":
            generator = rng.fork(self.seed, "reservoir", self.memory.offered, device="cpu")
            self.memory.offer(x, y, self.task_index, generator=generator)

    def remember(self, task: Task) -> None:
        """Choose from the task that is ending, within the budget; a task without data leaves no trace."""
        if len(task.y) == 0 or self.config.fill == "reservoir":
            return
        classes, sampler, chosen = task.y.unique(), SAMPLERS[self.config.sampler], []
        room = self.memory.make_room(classes, task.info.index)
        for label in classes.tolist():
            rows = (task.y == label).nonzero()[:, 0]
            view = look_at(self.net, task.x[rows], task.y[rows], self.outputs.outputs)
            generator = rng.fork(self.seed, "sampler", task.info.index, label, device="cpu")
            chosen.append(rows[sampler(view, min(room[label], len(rows)), generator=generator)])
        kept = torch.cat(chosen)
        self.memory.add(task.x[kept], task.y[kept], task.info.index)

    def end_task(self, task: Task) -> None:
        """Fill the memory."""
        self.remember(task)
        super().end_task(task)

    def method_state(self) -> dict[str, Tensor]:
        """And who competes with whom, and which task this is."""
        return super().method_state() | {"rivals": self.outputs.table, "task_index": torch.tensor(self.task_index)}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        super().load_method_state(state)
        self.outputs = Rivals(state["rivals"].clone(), self.outputs.outputs)
        self.task_index = int(state["task_index"])
