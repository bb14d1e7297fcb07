"""Monitors whose steps take milliseconds, for tests of everything but the numbers."""

import torch

from vestige.store import encode

CHAIN = {
    "strategy": "every-step",
    "names": ("kl", "js"),
    "first_epochs": 2,
    "epochs": 1,
    "hidden": (4,),
    "min_samples": 20,
}


def normal(n, seed, shift=0.0, scale=1.0, d=2):
    return shift + scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def samples(t, n=40):
    """The real and the model samples of step t: task "a" from step 1, task 7 from step 2."""
    real = {"a": normal(n, 0)} if t == 1 else {7: normal(n, 1, 3.0)} if t == 2 else {}
    model = {"a": normal(n, 10 + t, 0.1 * t)} | ({7: normal(n, 20 + t, 3 + 0.1 * t)} if t > 1 else {})
    return real, model


def walk(monitor, steps):
    for _ in range(steps):
        t = monitor.steps + 1
        monitor.step(*samples(t), seed=t)
    return monitor


def contents(folder):
    """Every file of a folder and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def essence(monitor):
    """What a monitor knows, but for the hour."""
    tensors = {key: x.tolist() for key, x in monitor.chain.state()[1].items()}
    return [encode(step)[0] | {"when": None} for step in monitor.history], tensors
