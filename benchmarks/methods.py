"""What a method costs above vanilla: Split MNIST's shape, MLP 256-256, Adam 1e-3, batch 64, one epoch, five tasks.

Each runs through the same task loop; the work at the end of a task (EWC's pass for the Fisher) is included.
"""

from __future__ import annotations

import torch

from benchmarks.protocol import BATCH, made_up_mnist
from benchmarks.timing import Row, race
from vestige import protocol
from vestige.data.split import split
from vestige.methods import build

# The most that each may cost, in units of vanilla.
TARGETS = {"ewc": 1.5, "pi": 1.5, "ewc_pp": 1.6, "rwalk": 2.0}


def rows() -> list[Row]:
    """One row a method, each against vanilla."""
    torch.set_num_threads(1)
    stream = split(made_up_mnist(), 2, train_logits="all")

    def run(name: str) -> object:
        return protocol.run(stream, build(name, stream), batch_size=BATCH)

    names = ["vanilla", *TARGETS]
    times = race({name: lambda name=name: run(name) for name in names}, repeats=3, seconds=150)
    vanilla = times["vanilla"]
    return [Row(f"{name}, 5 tasks", times[name], "vanilla", vanilla, vanilla, most) for name, most in TARGETS.items()]
