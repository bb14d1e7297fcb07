"""A training step of the convolutional networks, forward and backward, with the channels of a pixel beside each other.

The peer is the same network with the same weights on images as they come, one plane a channel, which is PyTorch's
default. Losses of both agree to rounding. 16 x 16 pixels, as the experiments on CIFAR-100 have at `laptop`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.timing import Row, paired
from vestige.core import rng
from vestige.nets import build_net
from vestige.nets.convolutional import Images

SHAPE, CLASSES, STEPS, ROUNDS = (3, 16, 16), 100, 5, 9
NETS = {"table4": 64, "resnet18_reduced": 64}  # name -> batch


def _steps(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    parameters = list(net.parameters())
    return lambda: [torch.autograd.grad(cross_entropy(net(x), y), parameters) for _ in range(STEPS)][-1]


def row(name: str, batch: int) -> Row:
    """Both layouts in turns."""
    x = torch.rand(batch, *SHAPE, generator=rng.fork(0, "pixels"))
    y = torch.arange(batch) % CLASSES
    ours, plain = (build_net(name, SHAPE, CLASSES) for _ in range(2))
    for module in plain.modules():
        if isinstance(module, Images):
            module.memory_format = torch.preserve_format
    apart = (ours.eval()(x) - plain.eval()(x)).abs().max().item()
    times = paired({"ours": _steps(ours.train(), x, y), "plain": _steps(plain.train(), x, y)}, "plain", rounds=ROUNDS)
    note = f"logits at most {apart:.1g} apart"
    return Row(f"{name}, {STEPS} steps of {batch}", times["ours"], "planes", times["plain"], at_most=0.9, note=note)


def rows() -> list[Row]:
    """Every network that has more than one channel."""
    torch.set_num_threads(1)
    return [row(name, batch) for name, batch in NETS.items()]
