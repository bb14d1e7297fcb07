"""A memory in the loss of any method; `rehearsed.py` has the methods so made, the `-S` rows of RWalk Table 1.

How the memory enters the loss is the field `replay`:
- "mixed": the memory is put together with the task's data. Each batch brings its share, so that one epoch over the
  task is one epoch over both, every sample as heavy as any other;
- "balanced": the same, with example weights by inverse class count (counted over task and memory together), so that
  every class is as heavy as any other. `balance="minimum"` scales the weights so that the lightest class has weight 1,
  `"mean"` so that their mean over all samples is 1. A batch's loss is the mean of weight times loss over its samples,
  which is unbiased for the weighted loss over all; dividing by the weights of the batch would not be. The gradient's
  scale against a pull depends on the choice;
- "beside": a batch of the memory (`memory_batch`; as large as the task's if None, at most the whole memory) beside
  each batch, each side with half of the weight;
- "finetune": the task trains without the memory; when it ends, and its own samples are in the memory, the memory alone
  trains for `finetune_epochs` in batches of `finetune_batch`, through the method's own `observe`, pull included.

The paper does not say which. "balanced", "minimum" is what an early script of its authors computes, and the default.
"mixed" is a uniform draw from task and memory put together, so what it gives depends on how often each kept sample is
shown: one epoch shows it once among some 12 000 new ones. Split MNIST, `vanilla_s`, ten samples a class, batches of 64,
seed 0, average accuracy: 21.9 after one epoch a task, 53.8 after five; with `init="truncated_normal"` 35.8 after one
and 54.9 after three; with 500 samples a class, 32 epochs and that initialisation (the authors' script) 68.0.
One batch is one step of the optimiser in all of them. Fishers and paths are the method's own: the Fisher of EWC++ and
RWalk is that of the task's batch, as before; the path of PI and RWalk follows the gradient of the loss that is stepped
down, memory included.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.continual.learners.base import Spec
from vestige.continual.learners.remember import MemoryConfig, Remembering
from vestige.core import rng
from vestige.core.checks import one_of, refuse, whole
from vestige.data.task import Task

REPLAYS = ("mixed", "balanced", "beside", "finetune")
BALANCES = ("minimum", "mean")


@dataclass(frozen=True)
class ReplayConfig(MemoryConfig):
    """How the memory enters the loss."""

    replay: str = "balanced"
    balance: str = "minimum"
    memory_batch: int | None = None
    finetune_epochs: int = 50
    finetune_batch: int = 64


def class_weights(counts: Int64[Tensor, " k"], balance: str) -> Float[Tensor, " k"]:
    """Weights by inverse class count, the least of them 1 or their mean over samples 1; 1 where a class has none."""
    present = counts > 0
    heaviest = counts.max() if balance == "minimum" else counts.sum() / present.sum()
    return torch.where(present, heaviest / counts.clamp_min(1), 1.0)


def dealt(n: int, start: int, stop: int, seed: int, *names: str | int) -> Int64[Tensor, " m"]:
    """Cards start..stop of an endless deal from a deck of n that is shuffled anew whenever it is used up."""
    first = start // n
    decks = [torch.randperm(n, generator=rng.fork(seed, *names, r)) for r in range(first, -(-stop // n))]
    return torch.cat([*decks, torch.empty(0, dtype=torch.int64)])[start - first * n : stop - first * n]


class Rehearsal(Remembering):
    """Adds the memory to the loss of the method that it is mixed with, which keeps its own `observe`."""

    config: ReplayConfig

    def __init__(self, spec: Spec, config: ReplayConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner, settings = type(self).__name__, self.config
        one_of(settings.replay, REPLAYS, "replay", owner)
        one_of(settings.balance, BALANCES, "balance", owner)
        if settings.memory_batch is not None:
            whole(settings.memory_batch, "memory_batch", owner, low=1)
        whole(settings.finetune_epochs, "finetune_epochs", owner, low=0)
        whole(settings.finetune_batch, "finetune_batch", owner, low=1)
        if settings.fill == "reservoir" and settings.replay != "beside":
            refuse(
                "replay", owner, "'beside' with a reservoir: no task ends that it could be shared out over", "another"
            )
        self.class_weights = torch.ones(spec.n_outputs)
        self.n, self.seen, self.drawn = 1, 0, 0

    @classmethod
    def default_config(cls) -> ReplayConfig:
        """Ten samples a class, class-balanced."""
        return ReplayConfig()

    def begin_task(self, task: Task) -> None:
        """Count the classes of task and memory together; deal from the start."""
        super().begin_task(task)
        counts = torch.cat([task.y, self.memory.y]).bincount(minlength=self.spec.n_outputs)
        self.class_weights = class_weights(counts, self.config.balance)
        self.n, self.seen, self.drawn = task.info.n, 0, 0

    def loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """The loss of the batch and of what the memory adds to it."""
        x, y, weights = self.with_memory(x, y)
        return self.outputs.loss(self.net(x), y, weights)

    def with_memory(
        self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]
    ) -> tuple[Float[Tensor, "m *shape"], Int64[Tensor, " m"], Float[Tensor, " m"] | None]:
        """The batch, the next samples of the memory, and the weights of both."""
        new, replay = len(y), self.config.replay
        old = self.draw(new)
        if len(old):
            x, y = torch.cat([x, self.memory.x[old]]), torch.cat([y, self.memory.y[old]])
        if replay == "balanced":
            return x, y, self.class_weights[y]
        if replay == "beside" and len(old):
            weights = torch.full((len(y),), len(y) / (2 * new))
            weights[new:] = len(y) / (2 * len(old))
            return x, y, weights
        return x, y, None

    def draw(self, n: int) -> Int64[Tensor, " m"]:
        """Which samples of the memory join a batch of n, each as often as any other."""
        size, start = len(self.memory), self.drawn
        self.seen += n
        if size == 0 or self.config.replay == "finetune":
            return torch.empty(0, dtype=torch.int64)
        if self.config.fill == "reservoir":  # whose samples change from batch to batch: any of those of now
            generator = rng.fork(self.seed, "replay", self.task_index, self.seen)
            return torch.randperm(size, generator=generator)[: self.config.memory_batch or n]
        if self.config.replay == "beside":
            self.drawn += min(self.config.memory_batch or n, size)
        else:
            self.drawn = size * self.seen // self.n
        return dealt(size, start, self.drawn, self.seed, "replay", self.task_index)

    def remember(self, task: Task) -> None:
        """Fill the memory and, if asked to, train on it before the method takes its anchor and its Fisher."""
        super().remember(task)
        if self.config.replay == "finetune":
            self.finetune()

    def finetune(self) -> None:
        """Train on the memory alone."""
        size, batch = len(self.memory), self.config.finetune_batch
        for epoch in range(self.config.finetune_epochs if size else 0):
            order = dealt(size, 0, size, self.seed, "finetune", self.task_index, epoch)
            for rows in order.split(batch):
                self.observe(self.memory.x[rows], self.memory.y[rows])

    def method_state(self) -> dict[str, Tensor]:
        """And where in the deal we are."""
        place = torch.tensor([self.n, self.seen, self.drawn])
        return super().method_state() | {"class_weights": self.class_weights, "place": place}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        super().load_method_state(state)
        self.class_weights = state["class_weights"].clone()
        self.n, self.seen, self.drawn = state["place"].tolist()
