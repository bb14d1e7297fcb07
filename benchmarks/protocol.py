"""`protocol.run` against a bare loop: Split MNIST's shape, MLP 256-256, Adam 1e-3, batch 64, one epoch of
a third of the rows, five tasks.

The peer is what one writes without a library: rows picked per batch, cross-entropy, Adam as `torch.optim` gives it by
default (and once more fused, as ours is, which leaves the cost of the loop itself), the same network, the same order of
batches, no test in between. Both sides train on the same made-up images; what they show does not change the time.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.timing import Row, paired
from vestige.continual import protocol
from vestige.continual.learners import build
from vestige.core import rng
from vestige.data import DataSet
from vestige.data.streams import split

TRAIN, TEST, BATCH = 60_000, 100, 64
A_THIRD, ROUNDS = 2000, 15  # training rows a class, so that turns are short, and how many there are of them


def made_up_mnist(test: int = TEST) -> DataSet:
    """60 000 images of MNIST's shape; a test set so small that testing costs nothing."""
    g = rng.fork(0, "benchmark")
    x = torch.randint(256, (TRAIN + test, 28, 28), generator=g, dtype=torch.uint8)
    y = torch.arange(TRAIN + test) % 10
    names = tuple(str(c) for c in range(10))
    return DataSet("made-up mnist", x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:], names, "none", "made up")


def rows() -> list[Row]:
    """One row: the whole run."""
    torch.set_num_threads(1)
    stream = split(made_up_mnist(), 2, train_logits="all", per_class=A_THIRD)

    def ours() -> object:
        return protocol.run(stream, build("vanilla", stream), batch_size=BATCH)

    def bare(**options: bool) -> object:
        net = build("vanilla", stream).net
        for k, task in enumerate(stream):
            x, y = task.x, task.y
            optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, **options)
            for rows in torch.randperm(len(y), generator=rng.fork(0, "shuffle", k, 0)).split(BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(net(x[rows]), y[rows]).backward()
                optimizer.step()
        return net

    def products() -> object:
        """Forward and backward products of the three layers alone."""
        sizes = [(784, 256), (256, 256), (256, 10)]
        weights = [torch.rand(a, b) for a, b in sizes]
        inputs = [torch.rand(BATCH, a) for a, _ in sizes]
        outputs = [torch.rand(BATCH, b) for _, b in sizes]
        for _ in range(10 * A_THIRD // BATCH):
            for i, (w, a, g) in enumerate(zip(weights, inputs, outputs, strict=True)):
                _, _, _ = a @ w, a.T @ g, g @ w.T if i else None
        return weights

    peers = {"bare loop": bare, "bare loop, fused Adam": lambda: bare(fused=True)}
    times = paired({"ours": ours, **peers, "floor": products}, "bare loop, fused Adam", rounds=ROUNDS)
    return [Row("vanilla, 5 tasks", times["ours"], peer, times[peer], times["floor"], 1.03) for peer in peers]
