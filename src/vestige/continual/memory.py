"""What a learner may keep of past data: counted, bounded, and nowhere else; and how it is used, by rehearsal.

Everything a learner keeps of past data lives here, so that an audit can say how much that is. It stores inputs, labels
and the index of the task each came from.

The budget is a number of samples in total, or for each class, or both. `make_room` divides it: evenly among the
classes, the remainder to those that came first, so that nothing is wasted and nothing rounds up past the budget; within
a class evenly among the tasks that it came from. The samples of one class and task are kept in the order in which
they were chosen, and what must go goes from the end of that order (iCaRL, Alg. 5), so the best chosen stay.

Where nobody says when a task ends, a memory is filled by `offer` instead, batch by batch: reservoir sampling (Vitter
1985, algorithm R). After any number of samples each of them is in the memory with the same probability, and any set of
them as likely as any other of its size.

Rehearsal puts samples of past tasks, chosen when a task ends or as the stream passes, into a learner's loss.

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

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.continual.samplers import SAMPLERS, View
from vestige.core import InputError, StoreError, rng
from vestige.core.checks import option, refuse
from vestige.data.stream import Inputs, Labels, Task
from vestige.nets import Classifier
from vestige.store import restore_tensors, to_tensors

__all__ = ["SAMPLERS", "ExemplarMemory", "Exemplars", "Memory", "Rehearsal", "RehearsalMemory"]

SAMPLES = ("x", "y", "task")


def shares(n: int, parts: int) -> list[int]:
    """`n` divided among `parts`, the first of them getting one more where it does not divide. They sum to n."""
    return [n // parts + (j < n % parts) for j in range(parts)]


class Memory:
    """Samples of past tasks.

    `budget` is the largest number of them, `per_class` the largest number of one class. With neither the memory keeps
    everything, which an audit will say.
    """

    offered_: int = 0  # samples that `offer` has seen

    def __init__(self, budget: int | None, per_class: int | None = None) -> None:
        for name, value in (("budget", budget), ("per_class", per_class)):
            if value is not None and value < 0:
                raise InputError(f"The '{name}' of Memory must be at least 0. Got {value} instead.")
        self.budget, self.per_class = budget, per_class
        self.x: Tensor = torch.empty(0)
        self.y: Tensor = torch.empty(0, dtype=torch.int64)
        self.task: Tensor = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def bytes(self) -> int:
        """Size of all that is kept."""
        return sum(t.numel() * t.element_size() for t in (self.x, self.y, self.task))

    def make_room(self, classes: Int64[Tensor, " c"], task: int) -> dict[int, int]:
        """Drop what must go so that `classes` of `task` can come in; how many of each may."""
        kept = list(zip(self.y.tolist(), self.task.tolist(), strict=True))
        groups = list(dict.fromkeys([*kept, *((label, task) for label in classes.tolist())]))
        labels = list(dict.fromkeys(label for label, _ in groups))  # in the order in which they first came
        portions = [sys.maxsize] * len(labels) if self.budget is None else shares(self.budget, len(labels))
        room: dict[tuple[int, int], int] = {}
        for label, share in zip(labels, portions, strict=True):
            mine = [group for group in groups if group[0] == label]
            share = share if self.per_class is None else min(share, self.per_class)
            room |= dict(zip(mine, shares(share, len(mine)), strict=True))
        taken = dict.fromkeys(groups, 0)
        stays = []
        for i, group in enumerate(kept):
            if taken[group] < room[group]:
                stays.append(i)
            taken[group] += 1
        rows = torch.tensor(stays, dtype=torch.int64)
        self.x, self.y, self.task = self.x[rows], self.y[rows], self.task[rows]
        return {label: room[label, task] for label in classes.tolist()}

    def add(self, x: Inputs, y: Labels, task: int) -> None:
        """Copy samples of one task into the memory; more than the budget allows is refused, not dropped."""
        if self.budget is not None and len(self) + len(y) > self.budget:
            raise InputError(
                f"The 'x' of Memory.add must be at most {self.budget - len(self)} samples, what the budget of "
                f"{self.budget} leaves. Got {len(y)} instead."
            )
        together = torch.cat([self.y, y])
        if self.per_class is not None and len(y) and int(together.bincount().max()) > self.per_class:
            raise InputError(
                f"The 'y' of Memory.add must leave at most {self.per_class} samples in a class. "
                f"Got {int(together.bincount().max())} of class {int(together.bincount().argmax())} instead."
            )
        self.x = torch.cat([self.x, x]) if len(self) else x.clone()
        self.y = together
        self.task = torch.cat([self.task, torch.full((len(y),), task, dtype=torch.int64)])

    def offer(
        self, x: Inputs, y: Labels, task: int, *, generator: torch.Generator
    ) -> tuple[int, Int64[Tensor, " m"], Int64[Tensor, " m"]]:
        """Let a batch of the stream into the reservoir: sample i of the stream takes a place with chance budget / i.

        Returns how many of its first rows came in behind the others, and which places were taken by which other rows.
        """
        if self.budget is None or self.per_class is not None:
            refuse("budget", "Memory.offer", "given, and 'per_class' not: a reservoir has one size", self.budget)
        free = min(self.budget - len(self), len(y))
        if free:
            self.add(x[:free], y[:free], task)
        # Chance works in float64 on the CPU, as in `samplers`: not every device has it.
        count = torch.arange(self.offered_ + free + 1, self.offered_ + len(y) + 1, dtype=torch.float64, device="cpu")
        place = (torch.rand(count.shape, generator=generator, dtype=count.dtype, device="cpu") * count).long()  # 0..i-1
        mine = (place < self.budget).nonzero()[:, 0]
        # Where two of a batch take one place, the later stays, as if they had come one after the other.
        last = torch.full((self.budget,), -1, device="cpu").scatter_reduce_(0, place[mine], mine, "amax")
        taken = (last >= 0).nonzero()[:, 0]
        rows = free + last[taken]
        if len(taken):
            self.x[taken], self.y[taken], self.task[taken] = x[rows], y[rows], task
        self.offered_ += len(y)
        return free, taken, rows

    def state_dict(self) -> dict[str, Tensor]:
        """The samples, and what the memory has learnt besides."""
        return {"x": self.x, "y": self.y, "task": self.task} | to_tensors(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state_dict`. More than the budget allows is refused here too."""
        y = state["y"]
        in_class = int(y.bincount().max()) if len(y) else 0
        for name, budget, held in (("budget", self.budget, len(y)), ("per_class", self.per_class, in_class)):
            if budget is not None and held > budget:
                raise StoreError(f"The stored Memory holds {held} samples; the {name} of this one is {budget}.")
        state = {key: value.clone() for key, value in state.items()}
        self.x, self.y, self.task = state["x"], state["y"], state["task"]
        restore_tensors(self, {key: value for key, value in state.items() if key not in SAMPLES})


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


@contextmanager
def testing(net: nn.Module) -> Iterator[None]:
    """Within it the network is in evaluation mode."""
    training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(training)


@torch.no_grad()
def features_of(net: Classifier, x: Inputs) -> Float[Tensor, "n f"]:
    """What the last layer sees, in evaluation mode: the network is a `body` and a linear `head`."""
    with testing(net):
        return torch.cat([net.body(part) for part in x.split(net.rows_at_once)])


@torch.no_grad()
def look_at(net: Classifier, x: Inputs, y: Labels, outputs: tuple[int, ...]) -> View:
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

    def pass_by(self, x: Inputs, y: Labels) -> None:
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
        self, x: Inputs, y: Labels
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

    def finetuning(self) -> Iterator[tuple[Inputs, Labels]]:
        """The batches of the memory alone that train when a task ends: none unless they are asked for."""
        epochs = self.config.finetune_epochs if self.config.replay == "finetune" and len(self) else 0
        for epoch in range(epochs):
            order = batched(len(self), 0, len(self), self.seed, "finetune", self.task_index_, epoch)
            for rows in order.split(self.config.finetune_batch_size):
                yield self.x[rows], self.y[rows]
