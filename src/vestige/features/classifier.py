"""Classifier: the last hidden layer of a small convolutional network trained on labels. CDRE section 4 and App. A.1.

The paper trains it once, on real samples of all classes, and takes FID, KID and PRD in its features; then only `fit`
is called. When classes come one after another, `update` goes on from the weights of the step before with the labels of
the new samples and of the generated ones, and the head gets a row for each new class. Nothing ties its features
between steps: see `base` for what that asks of a chain.

App. A.1: batches of 100, Adam 1e-3, 100 epochs. Deviations: 10 epochs (`preset="paper"` brings 100 back); one dense
layer of 64 where the appendix can be read to ask for another of 6272 before it (`preset="literal"`; see
`nets.convolutional`). The appendix states L2 for the VAE alone, so here `weight_decay` is 0.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.core import checks
from vestige.core.checks import learnt, option
from vestige.features.base import FeatureMap
from vestige.features.rows import Layout, Rows
from vestige.features.training import train
from vestige.nets.convolutional import StridedConv


@dataclass(eq=False)
class ClassifierFeatures(FeatureMap):
    """Features that tell classes apart; `dims` of them, after the hidden layers of `dense` units."""

    name: ClassVar[str] = "classifier"
    consistent: ClassVar[bool] = False
    keeps: ClassVar[str] = "the weights of a network trained on the data and its labels"
    min_rows: ClassVar[int] = 2
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"epochs": 100},
        "literal": {"epochs": 100, "hidden": (6272,)},
    }

    dims: int = option(64, low=1)
    hidden: tuple[int, ...] = option((), low=1)  # dense layers between the convolutions and the features
    epochs: int = option(10, low=1)
    batch_size: int = option(100, low=2)
    learning_rate: float = option(1e-3, above=0, below=math.inf)
    weight_decay: float = option(0.0, low=0, below=math.inf)
    image: tuple[int, ...] | None = None  # the shape of a sample, where samples come as flat rows

    classes_: int = learnt(0)  # rows of the head
    net_: StridedConv = learnt()

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        return Layout.of(shape, self.image, "ClassifierFeatures.fit")

    def _net(self, shape: tuple[int, ...], n_classes: int, seed: int) -> StridedConv:
        at = self._layout(shape)
        size = (at.channels, at.height, at.width)
        return StridedConv(size, n_classes, dense=(*self.hidden, self.dims), seed=seed)

    def _width(self, shape: tuple[int, ...]) -> int:
        return self.dims

    def _fit(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        self._layout(shape)
        y = _labels(rows, "fit")
        return self._learn(self._net(shape, int(y.max()) + 1, seed), rows, y, shape, seed)

    def _update(self, rows: Rows, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        y = _labels(rows, "update")
        net = copy.deepcopy(self.net_)
        net.widen(int(y.max()) + 1, seed=seed)
        return self._learn(net, rows, y, shape, seed)

    def _learn(self, net: StridedConv, rows: Rows, y: Tensor, shape: tuple[int, ...], seed: int) -> dict[str, Any]:
        images = self._layout(shape)(rows.x)

        def loss(i: Tensor) -> Tensor:
            return functional.cross_entropy(net(images[i]), y[i], reduction="none")

        losses = train(
            net,
            loss,
            rows.weights,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            seed=seed,
            owner=type(self).__name__,
        )
        self.net_, self.classes_ = net, net.head.out_features
        return {"losses": losses, "classes": self.classes_}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return self.net_.features(self._layout(shape)(x))

    @torch.no_grad()
    def called(self, codes: Float[Tensor, "n f"]) -> Int64[Tensor, " n"]:
        """The class that the network gives to samples with these features."""
        return self.net_.head(codes).argmax(1)

    def _rebuild(self) -> None:
        if self.shape_ is not None:
            self.net_ = self._net(self.shape_, self.classes_, 0).eval()


def _labels(rows: Rows, call: str) -> Int64[Tensor, " n"]:
    if rows.y is None:
        checks.refuse("y", f"ClassifierFeatures.{call}", "given: a classifier learns from labels", "none")
    if call == "fit" and len(torch.unique(rows.y)) < 2:
        checks.refuse("y", "ClassifierFeatures.fit", "of at least 2 classes", "one class")
    return rows.y
