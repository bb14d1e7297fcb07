"""What learners on frozen features share: a feature map, and statistics of its features class by class.

The map is one of `vestige.features`: "identity" (the inputs as they are, the default), "pretrained" (EfficientNet-
Lite0, where its package is installed), or any other, which is fitted on the first rows that come (the first task's
where borders are told) and never again. Features are taken in float64. A learner keeps means and products of them and
no row: `merge_rows` adds a batch to a mean and a scatter matrix exactly (Chan, Golub and LeVeque 1983), so that what is
kept is what one pass over all rows would give, in whatever order and batches they came.

There is no network to train, so that settings of one (`hidden`, `learning_rate`, `net` ...) are refused. The network
that every learner has is one number wide here and does nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from vestige import features
from vestige.continual.learners.base import Info, Learner, TrainConfig
from vestige.core import rng
from vestige.core.checks import option, refuse
from vestige.data.stream import Inputs, Labels, Task, TaskInfo
from vestige.features import FEATURES, FeatureMap
from vestige.nets import Classifier


@dataclass(frozen=True)
class FrozenConfig(TrainConfig):
    """Which features: a map of `vestige.features.FEATURES`, and its options."""

    features: str = option("identity", among=FEATURES)
    options: Mapping[str, Any] = field(default_factory=dict)


def merge_rows(
    count: float, mean: Float64[Tensor, " f"], x: Float64[Tensor, "n f"]
) -> tuple[float, Float64[Tensor, " f"], Float64[Tensor, "f f"]]:
    """Count and mean with the rows `x`, and what they add to the scatter about the mean."""
    own = x.mean(0)
    left, gap = x - own, own - mean
    total = count + len(x)
    return total, mean + gap * (len(x) / total), left.mT @ left + torch.outer(gap, gap) * (count * len(x) / total)


class FrozenFeatures(Learner):
    """Statistics of frozen features; a child says which, and how they classify."""

    probabilities = False  # distances
    own_layers = "it has no network to train"
    config: FrozenConfig
    map: FeatureMap
    counts_: Int64[Tensor, " k"]  # rows of each class
    means_: Float64[Tensor, "k f"]

    def set_up(self) -> None:
        """A map that has seen nothing."""
        plain = TrainConfig()
        for each in fields(TrainConfig):
            if getattr(self.config, each.name) != getattr(plain, each.name):
                refuse(each.name, type(self).__name__, "left out: it has no network to train", "another")
        self.map = features.build(self.config.features, **self.config.options)
        self.counts_ = torch.zeros(self.spec.n_outputs, dtype=torch.int64)
        self.means_ = torch.zeros(self.spec.n_outputs, 0, dtype=torch.float64, device="cpu")

    @property
    def map_(self) -> dict[str, Tensor]:
        """What the map has learnt; nothing before the first rows."""
        return {} if self.map.shape_ is None else self.map.state_dict()

    @map_.setter
    def map_(self, state: dict[str, Tensor]) -> None:
        self.map = features.build(self.config.features, **self.config.options)
        if state:
            self.map.load_state_dict(state)

    def whole_net(self) -> Classifier:
        """One number wide: nothing of it is used."""
        with rng.guard(self.seed, "init"):
            return Classifier(nn.Flatten(), nn.Linear(1, self.spec.n_outputs))

    def features_of(self, x: Inputs) -> Float64[Tensor, "n f"]:
        """Features of rows, in float64 on the CPU."""
        return self.map.codes(x.flatten(1)).to("cpu", torch.float64)

    def begin_task(self, task: Task) -> None:
        """The outputs of the task; the first one that has rows fits the map."""
        super().begin_task(task)
        if len(task.y):
            self.begin_map(task.x, task.y)

    def begin_map(self, x: Inputs, y: Labels) -> None:
        """Fit the map, unless that is done."""
        if self.map.shape_ is None:
            with torch.device("cpu"):  # a map is fitted to rows that it takes there
                self.map.fit(x, y, seed=self.seed)
            self.means_ = torch.zeros(self.spec.n_outputs, self.map.width, dtype=torch.float64, device="cpu")
            self.begin_statistics(self.map.width)

    def begin_statistics(self, width: int) -> None:
        """Statistics besides the means, of nothing."""

    def observe(self, x: Inputs, y: Labels) -> Info:
        """Add the rows to the statistics of their classes."""
        self.begin_map(x, y)
        found = self.features_of(x)
        for label in y.unique().tolist():
            mine = found[(y == label).cpu()]
            total, mean, scatter = merge_rows(float(self.counts_[label]), self.means_[label], mine)
            self.counts_[label], self.means_[label] = int(total), mean
            self.add(label, scatter)
        return Info(torch.zeros(()))

    def add(self, label: int, scatter: Float64[Tensor, "f f"]) -> None:
        """What the rows of a class add to its scatter."""

    @torch.no_grad()
    def predict(self, x: Inputs, task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Scores of the classes that were seen; a class that was not cannot be answered: its score is -inf."""
        if not bool(self.counts_.any()):
            return torch.full((len(x), self.spec.n_outputs), -torch.inf)
        scores = self.scores(self.features_of(x)).to(x.device, torch.float32)
        return scores.masked_fill(self.counts_ == 0, -torch.inf)

    @abstractmethod
    def scores(self, found: Float64[Tensor, "n f"]) -> Float64[Tensor, "n k"]:
        """Of every class, higher is likelier; those without rows are left out afterwards."""
