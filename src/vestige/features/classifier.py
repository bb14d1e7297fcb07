"""Classifier: the last hidden layer of a small convolutional network trained on labels. CDRE section 4 and App. A.1.

The paper trains it once, on real samples of all classes, and takes FID, KID and PRD in its features; then only `fit`
is called. When classes come one after another, `update` goes on from the weights of the step before with the labels of
the new samples and of the generated ones, and the head gets a row for each new class. Nothing ties its features
between steps: see `base` for what that asks of a chain.

App. A.1: batches of 100, Adam 1e-3, 100 epochs. Deviations: 10 epochs (`preset="paper"` brings 100 back); one dense
layer of 64 where the appendix can be read to ask for another of 6272 before it (`preset="literal"`; see
`nets.convolutional`). The appendix states L2 for the VAE alone, so here it is 0.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.core import checks
from vestige.core.errors import StoreError
from vestige.features.base import FeatureMap
from vestige.features.images import Layout
from vestige.features.rows import Rows
from vestige.features.training import Schedule, train
from vestige.nets.convolutional import StridedConv
from vestige.store import load_into


@dataclass(eq=False)
class Classifier(FeatureMap):
    """Features that tell classes apart; `dims` of them, after the hidden layers of `dense` units."""

    name: ClassVar[str] = "classifier"
    consistent: ClassVar[bool] = False
    keeps: ClassVar[str] = "the weights of a network trained on the data and its labels"
    min_rows: ClassVar[int] = 2
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"epochs": 100},
        "literal": {"epochs": 100, "hidden": (6272,)},
    }

    dims: int = 64
    hidden: tuple[int, ...] = ()  # dense layers between the convolutions and the features
    epochs: int = 10
    batch_size: int = 100
    lr: float = 1e-3
    l2: float = 0.0
    image: tuple[int, ...] | None = None  # the shape of a sample, where samples come as flat rows

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        for width in (*self.hidden, self.dims):
            checks.whole(width, "dims" if width == self.dims else "hidden", "Classifier", low=1)
        self._schedule().check("Classifier")

    def _schedule(self) -> Schedule:
        return Schedule(self.epochs, self.batch_size, self.lr, self.l2)

    def _layout(self, shape: tuple[int, ...]) -> Layout:
        return Layout.of(shape, self.image, "Classifier.fit")

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

        losses = train(net, loss, rows.weights, self._schedule(), seed, "Classifier")
        self.net_ = net
        return {"losses": losses, "classes": net.head.out_features}

    def _codes(self, x: Float[Tensor, "n d"], shape: tuple[int, ...]) -> Float[Tensor, "n f"]:
        return self.net_.features(self._layout(shape)(x))

    @torch.no_grad()
    def called(self, codes: Float[Tensor, "n f"]) -> Int64[Tensor, " n"]:
        """The class that the network gives to samples with these features."""
        return self.net_.head(codes).argmax(1)

    def _state(self) -> dict[str, Tensor]:
        return self.net_.state_dict()

    def _load_state(self, state: dict[str, Tensor], shape: tuple[int, ...]) -> None:
        if "head.bias" not in state:
            raise StoreError("The stored Classifier lacks the key 'head.bias'.")
        net = self._net(shape, state["head.bias"].numel(), 0)
        net.load_state_dict(load_into(net.state_dict(), state, "Classifier"))
        self.net_ = net.eval()


def _labels(rows: Rows, call: str) -> Int64[Tensor, " n"]:
    if rows.y is None:
        checks.refuse("y", f"Classifier.{call}", "given: a classifier learns from labels", "none")
    if call == "fit" and len(torch.unique(rows.y)) < 2:
        checks.refuse("y", "Classifier.fit", "of at least 2 classes", "one class")
    return rows.y
