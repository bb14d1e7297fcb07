"""GDumb (Prabhu, Torr and Dokania 2020): a greedily balanced memory, and a network trained on it when asked.

The sampler (their Alg. 1) lets a sample in while its class has fewer than its share, the budget over the classes seen;
where the memory is full a sample of the largest class makes room, drawn by the seed. Nothing trains while the stream
passes; a prediction is that of a fresh network trained on the memory alone, kept until the memory changes. What it
reaches is a floor for every method that keeps as much.

Deviations: the authors train by SGD with warm restarts, a decaying rate and CutMix; here `epochs` rounds of the
learner's own optimiser. The first weights are the same at each training.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.continual.learners.base import Info, Learner, Outputs, TrainConfig
from vestige.continual.memory import Memory, batched, testing
from vestige.core import rng
from vestige.core.checks import option
from vestige.data.stream import Inputs, Labels, Task, TaskInfo
from vestige.nets import Classifier


class BalancedMemory(Memory):
    """Alg. 1: greedy and balanced."""

    def take(self, x: Inputs, y: Labels, task: int, *, generator: torch.Generator) -> None:
        """Let a batch in, sample by sample."""
        assert self.budget is not None, "its share is that of a budget"
        labels = self.y.tolist()
        counts, room = Counter(labels), list[int]()  # `room`: rows of the batch that come in behind the others
        for i, label in enumerate(y.tolist()):
            counts[label] += 0
            if counts[label] >= self.budget / len(counts):
                continue
            counts[label] += 1
            if len(labels) < self.budget:
                labels.append(label)
                room.append(i)
                continue
            largest = max(sorted(counts), key=counts.__getitem__)
            places = [place for place, held in enumerate(labels) if held == largest]
            place = places[int(torch.randint(len(places), (), generator=generator, device="cpu"))]
            counts[largest] -= 1
            labels[place] = label
            self._put(place, i, x, y, task, room)
        if room:
            self.add(x[room], y[room], task)

    def _put(self, place: int, i: int, x: Inputs, y: Labels, task: int, room: list[int]) -> None:
        """Row i of the batch in the place of a sample, of the memory or of those that are about to come in."""
        if place >= len(self):
            room[place - len(self)] = i
        else:
            self.x[place], self.y[place], self.task[place] = x[i], y[i], task


@dataclass(frozen=True)
class GDumbConfig(TrainConfig):
    """`total` samples are kept; a network is trained on them for `epochs` rounds in batches of `batch_size`."""

    total: int = option(200, low=1)
    epochs: int = option(30, low=1)
    batch_size: int = option(16, low=1)


class GDumb(Learner):
    """Keeps while the stream passes, learns when it is asked."""

    config: GDumbConfig
    memory: BalancedMemory
    task_: int = 0
    batches_: int = 0

    def fresh_memory(self) -> BalancedMemory:
        """Samples of several tasks meet in the loss."""
        self.outputs_ = Outputs.every(self.spec.n_outputs, by_class=True)
        return BalancedMemory(self.config.total)

    def set_up(self) -> None:
        """No network has been trained."""
        self.trained: tuple[int, Classifier] | None = None  # follows from the memory, so it is no state

    def begin_task(self, task: Task) -> None:
        """Its outputs."""
        super().begin_task(task)
        self.task_ = task.info.index

    def observe(self, x: Inputs, y: Labels) -> Info:
        """Keep what is to be kept."""
        self.memory.take(x, y, self.task_, generator=rng.fork(self.seed, "balance", self.batches_, device="cpu"))
        self.batches_ += 1
        return Info(torch.zeros(()))

    def learnt(self) -> Classifier:
        """A network trained on the memory as it is."""
        if self.trained is not None and self.trained[0] == self.batches_:
            return self.trained[1]
        net, c, held = self.whole_net(), self.config, self.memory
        if self.net.outputs is not None:
            mine = self.net.outputs
            net.hold(mine.tolist(), net.head.weight[mine], net.head.bias[mine])
        kind = torch.optim.SGD if c.optimizer == "sgd" else torch.optim.Adam
        optimizer = kind(net.parameters(), lr=c.learning_rate, fused=True)
        with torch.enable_grad():
            for epoch in range(c.epochs if len(held) else 0):
                for rows in batched(len(held), 0, len(held), self.seed, "gdumb", epoch).split(c.batch_size):
                    optimizer.zero_grad()
                    self.outputs_.loss(net(held.x[rows]), held.y[rows]).backward()
                    optimizer.step()
        self.trained = (self.batches_, net)
        return net

    def predict(self, x: Inputs, task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Scores of the network that the memory makes."""
        net = self.learnt()
        with torch.no_grad(), testing(net):
            scores: Tensor = net(x)
        return scores

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """And what was trained is of another memory."""
        super().load_state_dict(state)
        self.trained = None
