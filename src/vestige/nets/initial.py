"""How the weights of a network begin.

"torch": what torch.nn's layers draw by themselves. "truncated_normal": that of RWalk's authors: weights from a normal
of deviation 0.1 cut at two deviations, biases 0.1, in linear layers and convolutions alike; batch norm as it is.
"""

from __future__ import annotations

from torch import nn

from vestige.core import rng

INITS = ("torch", "truncated_normal")


def truncated_normal(net: nn.Module, *, seed: int, deviation: float = 0.1, cut: float = 2.0, bias: float = 0.1) -> None:
    """Draw every linear and convolutional layer of `net` anew, in place; `cut` is in deviations."""
    generator, edge = rng.fork(seed, "truncated normal"), cut * deviation
    for module in net.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(module.weight, 0.0, deviation, -edge, edge, generator=generator)
            if module.bias is not None:
                nn.init.constant_(module.bias, bias)
