"""What a method costs above vanilla: Split MNIST's shape, MLP 256-256, Adam 1e-3, batch 64, one epoch, five tasks.

Each runs through the same task loop; the work at the end of a task (EWC's pass for the Fisher) is included.

Beside them EWC as others have it, on a tenth of the samples (the ratio is the same and a loop over samples is slow):
- "per-sample loop": our task loop, with the Fisher as Mammoth writes it: a forward and a backward pass for each sample,
  its squared gradient weighted by p(y | x). That weight makes it another quantity; the time is what is compared;
- Avalanche's `Naive` and `EWC` with their own task loop and data loaders. Its Fisher squares batch means, which is
  another quantity too, and cheaper than the exact one.
"""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType

import torch
from torch.nn import functional

from benchmarks import peers
from benchmarks.protocol import BATCH, made_up_mnist
from benchmarks.timing import Row, race
from vestige.continual import protocol
from vestige.continual.learners import EWC, Spec, build
from vestige.data.stream import Stream, Task
from vestige.data.streams import split

# The most that each may cost, in units of vanilla.
TARGETS = {"ewc": 1.45, "pi": 1.35, "ewc_pp": 1.2, "rwalk": 1.45, "er": 2.1}
TENTH = 600  # samples a class


class PerSampleEWC(EWC):
    """EWC whose Fisher is a loop over samples."""

    def fisher_of(self, task: Task) -> dict[str, torch.Tensor]:
        """The mean of p(y | x) times the squared gradient."""
        total = {name: torch.zeros_like(p) for name, p in self.net.named_parameters()}
        for x, y in zip(task.x, task.y, strict=True):
            self.net.zero_grad()
            loss = functional.cross_entropy(self.net(x.unsqueeze(0)), y.unsqueeze(0))
            loss.backward()
            p = (-loss.detach()).exp()
            for name, parameter in self.net.named_parameters():
                total[name] += p * parameter.grad.square()
        return {name: value / len(task) for name, value in total.items()}


def rows() -> list[Row]:
    """One row a method, each against vanilla; then EWC against others' EWC."""
    torch.set_num_threads(1)
    stream = split(made_up_mnist(), 2, train_logits="all")

    def run(name: str) -> object:
        return protocol.run(stream, build(name, stream), batch_size=BATCH)

    names = ["vanilla", *TARGETS]
    times = race({name: lambda name=name: run(name) for name in names}, repeats=3, seconds=150)
    vanilla = times["vanilla"]
    costs = [Row(f"{name}, 5 tasks", times[name], "vanilla", vanilla, vanilla, most) for name, most in TARGETS.items()]
    return costs + _others(split(made_up_mnist(), 2, train_logits="all", per_class=TENTH))


def _others(stream: Stream) -> list[Row]:
    def ours(name: str) -> object:
        return protocol.run(stream, build(name, stream), batch_size=BATCH)

    def looped() -> object:
        return protocol.run(stream, PerSampleEWC(Spec(stream.input_shape, stream.n_outputs)), batch_size=BATCH)

    contenders: dict[str, Callable[[], object]] = {
        "vanilla": lambda: ours("vanilla"),
        "ewc": lambda: ours("ewc"),
        "per-sample loop": looped,
    }
    found = _find_avalanche()
    if found:
        contenders |= {
            "avalanche Naive": lambda: _avalanche(stream, "Naive"),
            "avalanche EWC": lambda: _avalanche(stream, "EWC"),
        }
    times = race(contenders, repeats=3, seconds=120)
    note = "" if found else peers.why_not("avalanche")
    return [
        Row("ewc, a tenth of the data", times["ewc"], "per-sample loop", times["per-sample loop"], times["vanilla"]),
        Row("ewc, a tenth of the data", times["ewc"], "avalanche EWC", times.get("avalanche EWC"), note=note),
        Row(
            "vanilla, a tenth of the data", times["vanilla"], "avalanche Naive", times.get("avalanche Naive"), note=note
        ),
    ]


def _find_avalanche() -> bool:
    """Whether it is here. It imports torchvision, whose wheel beside a CPU build of torch lacks compiled operators that
    nothing here uses; without their registration, which would fail, it imports."""
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, ModuleType(name))
    return peers.get("avalanche") is not None


def _avalanche(stream: Stream, name: str) -> object:
    """The same tasks, network and optimiser through Avalanche's own loop; no evaluation, no logger."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        from avalanche.benchmarks import benchmark_from_datasets
        from avalanche.benchmarks.utils import as_classification_dataset
        from avalanche.training import supervised
        from avalanche.training.plugins import EvaluationPlugin
        from torch.utils.data import TensorDataset

        data = []
        for task in stream:
            plain = TensorDataset(task.x.clone(), task.y.clone())
            plain.targets = task.y.tolist()
            data.append(as_classification_dataset(plain))
        net = build("vanilla", stream).net
        settings = {
            "model": net,
            "optimizer": torch.optim.Adam(net.parameters(), lr=1e-3),
            "criterion": torch.nn.CrossEntropyLoss(),
            "train_mb_size": BATCH,
            "train_epochs": 1,
            "device": "cpu",
            "evaluator": EvaluationPlugin(loggers=[]),
        }
        extra = {"ewc_lambda": 100.0} if name == "EWC" else {}
        strategy = getattr(supervised, name)(**settings, **extra)
        for experience in benchmark_from_datasets(train=data).train_stream:
            strategy.train(experience)
        return net
