"""Rehearsal: samples of past tasks, chosen when a task ends or as the stream passes, and put into a learner's loss.

At the end of a task each of its classes is looked at through the network of that moment, and a sampler chooses which
samples to keep. Nothing else of the task stays. Where a stream tells no borders there is no such moment:
`fill="reservoir"` lets every batch into a reservoir of `total` samples once its own samples were drawn, so that the
memory is at all times a uniform draw of what came so far.

How the memory enters the loss is the field `replay`:
- "mixed": the memory is put together with the task's data. Each batch brings its share, so that one epoch over the
  task is one epoch over both, every sample as heavy as any other;
- "balanced": the same, with example weights by inverse class count (counted over task and memory together), so that
  every class is as heavy as any other. `balance="minimum"` scales the weights so that the lightest class has weight 1,
  `"mean"` so that their mean over all samples is 1. A batch's loss is the mean of weight times loss over its samples,
  which is unbiased for the weighted loss over all; dividing by the weights of the batch would not be. The gradient's
  scale against a penalty depends on the choice;
- "beside": a batch of the memory (`batch_size`; as large as the task's if None, at most the whole memory) beside each
  batch, each side with half of the weight;
- "finetune": the task trains without the memory; when it ends, and its own samples are in the memory, the memory alone
  trains for `finetune_epochs` in batches of `finetune_batch_size`, through the method's own `observe`, penalty and
  all.

RWalk does not say which. "balanced", "minimum" is what an early script of its authors computes, and the default.
"mixed" is a uniform draw from task and memory put together, so what it gives depends on how often each kept sample is
shown: one epoch shows it once among some 12 000 new ones. Split MNIST, `vanilla_s`, ten samples a class, batches of 64,
seed 0, average accuracy: 21.9 after one epoch a task, 53.8 after five; with `init="truncated_normal"` 35.8 after one
and 54.9 after three; with 500 samples a class, 32 epochs and that initialisation (the authors' script) 68.0.
One batch is one step of the optimiser in all of them. Fishers and paths are the method's own: the Fisher of EWC++ and
RWalk is that of the task's batch, as before; the path of PI and RWalk follows the gradient of the loss that is stepped
down, memory included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.memory.memory import Memory
from vestige.continual.memory.samplers import SAMPLERS, View
from vestige.core import rng
from vestige.core.checks import declared, option, refuse
from vestige.data.stream import Task
from vestige.nets import Classifier


@dataclass(frozen=True)
class Exemplars:
    """Which samples are kept: a budget for each class or in total or both (the smaller counts), who chooses, and when.

    With `fill="reservoir"` chance chooses, and the budget is `total` alone.
    """

    per_class: int | None = option(10, low=0)
    total: int | None = option(None, low=0)
    sampler: str = option("mean_of_features", among=SAMPLERS)
    fill: str = option("task_end", among=("task_end", "reservoir"))


@dataclass(frozen=True)
class Rehearsal(Exemplars):
    """Which samples are kept, and how they enter the loss: the argument `memory` of a learner.

    The default, ten samples a class by the mean of features, is that of RWalk Table 1 for MNIST.
    """

    replay: str = option("balanced", among=("mixed", "balanced", "beside", "finetune"))
    balance: str = option("minimum", among=("minimum", "mean"))
    batch_size: int | None = option(None, low=1)
    finetune_epochs: int = option(50, low=0)
    finetune_batch_size: int = option(64, low=1)


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


def class_weights(counts: Int64[Tensor, " k"], balance: str) -> Float[Tensor, " k"]:
    """Weights by inverse class count, the least of them 1 or their mean over samples 1; 1 where a class has none."""
    present = counts > 0
    heaviest = counts.max() if balance == "minimum" else counts.sum() / present.sum()
    return torch.where(present, heaviest / counts.clamp_min(1), 1.0)


def batched(n: int, start: int, stop: int, seed: int, *names: str | int) -> Int64[Tensor, " m"]:
    """Places start..stop of an endless sequence of shuffled rounds, each of which has every row of n once."""
    first = start // n
    rounds = [torch.randperm(n, generator=rng.fork(seed, *names, r)) for r in range(first, -(-stop // n))]
    return torch.cat([*rounds, torch.empty(0, dtype=torch.int64)])[start - first * n : stop - first * n]


class ExemplarMemory(Memory):
    """A memory that is filled when a task ends, or batch by batch; what it is for is the learner's to say."""

    task_index_: int = 0

    def __init__(self, config: Exemplars, *, owner: str, seed: int) -> None:
        owner = f"the memory of {owner}"
        declared(config, owner)
        if config.per_class is None and config.total is None:
            refuse("per_class", owner, "given where 'total' is not", "neither")
        if config.fill == "reservoir" and (config.total is None or config.per_class is not None):
            refuse("total", owner, "the only budget of a reservoir ('per_class' None)", "another")
        super().__init__(config.total, config.per_class)
        self.config, self.seed = config, seed

    def begin_task(self, task: Task) -> None:
        """From now on samples are of this task."""
        self.task_index_ = task.info.index

    def remember(self, task: Task, net: Classifier, outputs: tuple[int, ...]) -> None:
        """Choose from the task that is ending, within the budget; a task without data leaves no trace."""
        if len(task.y) == 0 or self.config.fill == "reservoir":
            return
        classes, sampler, chosen = task.y.unique(), SAMPLERS[self.config.sampler], []
        room = self.make_room(classes, task.info.index)
        for label in classes.tolist():
            rows = (task.y == label).nonzero()[:, 0]
            view = look_at(net, task.x[rows], task.y[rows], outputs)
            generator = rng.fork(self.seed, "sampler", task.info.index, label, device="cpu")
            chosen.append(rows[sampler(view, min(room[label], len(rows)), generator=generator)])
        kept = torch.cat(chosen)
        self.add(task.x[kept], task.y[kept], task.info.index)

    def pass_by(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> None:
        """Let the stream's batch into the reservoir, where there is one."""
        if self.config.fill == "reservoir":
            generator = rng.fork(self.seed, "reservoir", self.offered_, device="cpu")
            self.offer(x, y, self.task_index_, generator=generator)


class RehearsalMemory(ExemplarMemory):
    """A memory that joins a learner's batches."""

    config: Rehearsal
    class_weights_: Float[Tensor, " k"]
    task_rows_: int = 1
    seen_: int = 0  # rows of the task
    drawn_: int = 0  # samples of the memory

    def __init__(self, config: Rehearsal, n_outputs: int, *, owner: str, seed: int) -> None:
        super().__init__(config, owner=owner, seed=seed)
        if config.fill == "reservoir" and config.replay != "beside":
            must = "'beside' with a reservoir: no task ends that it could be shared out over"
            refuse("replay", f"the memory of {owner}", must, "another")
        self.class_weights_ = torch.ones(n_outputs)

    def begin_task(self, task: Task) -> None:
        """Count the classes of task and memory together; draw from the start."""
        super().begin_task(task)
        counts = torch.cat([task.y, self.y]).bincount(minlength=len(self.class_weights_))
        self.class_weights_ = class_weights(counts, self.config.balance)
        self.task_rows_, self.seen_, self.drawn_ = task.info.n, 0, 0

    def joined(
        self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]
    ) -> tuple[Float[Tensor, "m *shape"], Int64[Tensor, " m"], Float[Tensor, " m"] | None]:
        """The batch, the next samples of the memory, and the weights of both."""
        batch, new, replay = (x, y), len(y), self.config.replay
        old = self.draw(new)
        if len(old):
            x, y = torch.cat([x, self.x[old]]), torch.cat([y, self.y[old]])
        self.pass_by(*batch)
        if replay == "balanced":
            return x, y, self.class_weights_[y]
        if replay == "beside" and len(old):
            weights = torch.full((len(y),), len(y) / (2 * new))
            weights[new:] = len(y) / (2 * len(old))
            return x, y, weights
        return x, y, None

    def draw(self, n: int) -> Int64[Tensor, " m"]:
        """Which samples of the memory join a batch of n, each as often as any other."""
        size, start = len(self), self.drawn_
        self.seen_ += n
        if size == 0 or self.config.replay == "finetune":
            return torch.empty(0, dtype=torch.int64)
        if self.config.fill == "reservoir":  # whose samples change from batch to batch: any of those of now
            generator = rng.fork(self.seed, "replay", self.task_index_, self.seen_)
            return torch.randperm(size, generator=generator)[: self.config.batch_size or n]
        if self.config.replay == "beside":
            self.drawn_ += min(self.config.batch_size or n, size)
        else:
            self.drawn_ = size * self.seen_ // self.task_rows_
        return batched(size, start, self.drawn_, self.seed, "replay", self.task_index_)

    def finetuning(self) -> Iterator[tuple[Float[Tensor, "n *shape"], Int64[Tensor, " n"]]]:
        """The batches of the memory alone that train when a task ends: none unless they are asked for."""
        epochs = self.config.finetune_epochs if self.config.replay == "finetune" and len(self) else 0
        for epoch in range(epochs):
            order = batched(len(self), 0, len(self), self.seed, "finetune", self.task_index_, epoch)
            for rows in order.split(self.config.finetune_batch_size):
                yield self.x[rows], self.y[rows]
