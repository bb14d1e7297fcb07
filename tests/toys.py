"""Small data that tests of several rooms share."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from vestige.core.checks import learnt
from vestige.data.dataset import DataSet
from vestige.generators.base import Generator


def blobs(n_classes=6, per_class=40, side=6, seed=0, name="blobs"):
    """Images of separable classes: each class has a bright square of its own, under noise."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n_classes).repeat(per_class)
    test_y = torch.arange(n_classes).repeat(20)

    def images(labels):
        x = torch.rand(len(labels), side, side, generator=g) * 60
        flat = x.flatten(1)
        for shift in range(3):
            flat[torch.arange(len(labels)), (labels * 5 + shift) % side**2] += 180
        return flat.reshape(x.shape).to(torch.uint8)

    names = tuple(f"class {c}" for c in range(n_classes))
    return DataSet(name, images(y), y, images(test_y), test_y, names, "none", "made up")


@dataclass(eq=False)
class Means(Generator):
    """Draws the mean of each condition's rows, under a little noise: what is drawn tells whose it is."""

    name: ClassVar[str] = "means"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"small": {}}

    net_: nn.Module = learnt()

    def _build(self, seed: int) -> None:
        self.net_ = nn.Embedding(self.conditions, torch.Size(self.shape).numel())
        nn.init.zeros_(self.net_.weight)

    def _fit(self, source, seed, on_progress):
        for c, rows in source.real.items():
            self.net_.weight.data[c] = rows.mean(0)
        return {"steps": 1, "curves": {}}

    def _draw(self, conditions, noise):
        mean = self.net_(conditions)
        return mean + 1e-3 * torch.randn(mean.shape, generator=noise)


def at_second_task(learner, stream):
    """`learner` after one batch of the first task, about to train on the second; that task, and those to come."""
    passing = iter(stream)
    first = next(passing)
    learner.begin_task(first)
    learner.observe(first.x, first.y)
    learner.end_task(first)
    second = next(passing)
    learner.begin_task(second)
    return learner, second, passing
