"""A training step of the convolutional networks, forward and backward, with the channels of a pixel beside each other.

The peer is the same network with the same weights on images as they come, one plane a channel, which is PyTorch's
default. Losses of both agree to rounding. 16 x 16 pixels, as the experiments on CIFAR-100 have at `laptop`, and 28 x 28
for Farquhar and Gal's C.8.1. Under the masks of Monte Carlo dropout the peer draws one number for each that is masked.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.timing import Row, paired
from vestige.core import rng
from vestige.nets import build_net
from vestige.nets.bayesian import MCDropoutNet
from vestige.nets.convolutional import Images

CLASSES, STEPS, ROUNDS, MASKS = 100, 5, 9, 10
# Name -> the shape of an input, a batch, the target. Images of one channel gain in a prediction, not in a step.
NETS: dict[str, tuple[tuple[int, ...], int, float | None]] = {
    "table4": ((3, 16, 16), 64, 0.9),
    "resnet18_reduced": ((3, 16, 16), 64, 0.9),
    "conv": ((28, 28), 100, None),
}


class ByNumber(MCDropoutNet):
    """A draw for each number, in a layout of its own."""

    def mask(self, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Zero with probability p, else 1 / (1 - p)."""
        return torch.empty(like.shape, dtype=like.dtype).bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)


def _steps(net: nn.Module, x: torch.Tensor, y: torch.Tensor, *given: object) -> Callable[[], object]:
    """Steps of a network that is called with the images and what else is given."""

    def loss() -> torch.Tensor:
        return cross_entropy(net(x, *given).flatten(0, -2), y)

    parameters = list(net.parameters())
    return lambda: [torch.autograd.grad(loss(), parameters) for _ in range(STEPS)][-1]


def in_planes(net: nn.Module) -> nn.Module:
    """The same network on images as they come."""
    for module in net.modules():
        if isinstance(module, Images):
            module.memory_format = torch.preserve_format
    return net


def row(name: str, shape: tuple[int, ...], batch: int, at_most: float | None) -> Row:
    """Both layouts in turns."""
    x = torch.rand(batch, *shape, generator=rng.fork(0, "pixels"))
    y = torch.arange(batch) % CLASSES
    ours, plain = build_net(name, shape, CLASSES), in_planes(build_net(name, shape, CLASSES))
    apart = (ours.eval()(x) - plain.eval()(x)).abs().max().item()
    times = paired({"ours": _steps(ours.train(), x, y), "plain": _steps(plain.train(), x, y)}, "plain", rounds=ROUNDS)
    note = f"logits at most {apart:.1g} apart"
    return Row(f"{name}, {STEPS} steps of {batch}", times["ours"], "planes", times["plain"], at_most=at_most, note=note)


def masked_rows(shape: tuple[int, ...], batch: int) -> list[Row]:
    """A step and a prediction under the masks of dropout."""
    x = torch.rand(batch, *shape, generator=rng.fork(0, "pixels"))
    y = torch.arange(batch) % CLASSES
    ours = MCDropoutNet(build_net("conv", shape, CLASSES), 0.5)
    plain = ByNumber(in_planes(build_net("conv", shape, CLASSES)), 0.5)
    found = []
    for what, make in (
        (f"{STEPS} steps of {batch}", lambda net: _steps(net, x, y, 1, rng.fork(0, "masks"))),
        (f"{MASKS} masks of {batch}", lambda net: lambda: list(net.draw(x, MASKS, rng.fork(0, "masks")))),
    ):
        times = paired({"ours": make(ours), "plain": make(plain)}, "plain", rounds=ROUNDS)
        found.append(Row(f"conv under dropout, {what}", times["ours"], "a draw a number", times["plain"], at_most=0.9))
    return found


def rows() -> list[Row]:
    """Every network, and the one that has been trained under masks."""
    torch.set_num_threads(1)
    return [*(row(name, *sizes) for name, sizes in NETS.items()), *masked_rows(*NETS["conv"][:2])]
