"""What a method costs above vanilla: Split MNIST's shape, MLP 256-256, Adam 1e-3, batch 64, one epoch of a third of the
rows, five tasks.

Each runs through the same task loop; the work at the end of a task (EWC's pass for the Fisher) is included.

The floor of a penalty is `Traffic`: vanilla, and after each step plain kernels over flat vectors of as many numbers as
the network has, which read and write what the definition must, and nothing besides. In vectors that pass through memory
(1.08 MB each; an update by Adam is 7): the penalty's gradient 7 (theta - anchor, then its product with the weights onto
the gradient), a path integral 9 (a copy of theta, the change, its product with the gradient). At a border of EWC, and
every tenth step of EWC++ and RWalk, the products of the squares.

Testing while training (`every=20`) is set beside the same run without it.

Beside them EWC as others have it, on a tenth of the samples (the ratio is the same and a loop over samples is slow):
- "per-sample loop": our task loop, with the Fisher as Mammoth writes it: a forward and a backward pass for each sample,
  its squared gradient weighted by p(y | x). That weight makes it another quantity; the time is what is compared;
- Avalanche's `Naive` and `EWC` with their own task loop and data loaders. Its Fisher squares batch means, which is
  another quantity too, and cheaper than the exact one.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

import torch
from torch.nn import functional

from benchmarks import peers
from benchmarks.protocol import A_THIRD, BATCH, ROUNDS, made_up_mnist
from benchmarks.timing import Row, paired, race
from vestige.continual import protocol
from vestige.continual.learners import EWC, Spec, Vanilla, build
from vestige.continual.learners.base import Info
from vestige.data.stream import Stream, Task
from vestige.data.streams import split

# The most that each may cost, in units of vanilla.
TARGETS = {"ewc": 1.45, "pi": 1.35, "ewc_pp": 1.2, "rwalk": 1.45, "er": 2.1}
EVERY, EVERY_AT_MOST, EVERY_TESTS = 20, 1.1, 600
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


class Traffic(Vanilla):
    """Vanilla, and what a penalty cannot do without: `pull` from the second task on, `path` always, squares."""

    pull, path, squares, every = False, False, False, 0

    def set_up(self) -> None:
        """Vectors of as many numbers as the network has."""
        n = sum(p.numel() for p in self.net.parameters())
        self.flat = [torch.rand(n) for _ in range(6)]
        self.layers = [m for m in self.net.modules() if isinstance(m, torch.nn.Linear)]
        self.made: dict[tuple[int, int], torch.Tensor] = {}
        self.seen = self.steps = 0

    def some(self, rows: int, columns: int) -> torch.Tensor:
        """Numbers, drawn once."""
        if (rows, columns) not in self.made:
            self.made[rows, columns] = torch.rand(rows, columns)
        return self.made[rows, columns]

    def observe(self, x: torch.Tensor, y: torch.Tensor) -> Info:
        """A step and the kernels."""
        info = super().observe(x, y)
        theta, anchor, weight, gradient, path, before = self.flat
        self.steps += 1
        with torch.no_grad():
            if self.pull and self.seen:
                torch.sub(theta, anchor, out=before)
                gradient.addcmul_(weight, before, value=1e-9)
            if self.path:
                before.copy_(theta)
                before.sub_(theta)
                path.addcmul_(gradient, before)
            if self.every and self.steps % self.every == 0:
                self.products(x.flatten(1))
        return info

    def products(self, x: torch.Tensor) -> None:
        """(g^2)' (a^2) of every layer."""
        for layer in self.layers:
            a = x if layer.in_features == x.shape[1] else self.some(len(x), layer.in_features)
            self.some(len(x), layer.out_features).square().mT @ a.square()

    def end_task(self, task: Task) -> None:
        """A forward pass, a backward pass to the outputs of layers, and the squares, 1024 rows at a time."""
        self.seen += 1
        if self.squares:
            with torch.no_grad():
                for x in task.x.split(1024):
                    self.net(x)
                    for layer in self.layers[1:]:
                        self.some(len(x), layer.out_features) @ layer.weight
                    self.products(x.flatten(1))


FLOORS = {
    "ewc": {"pull": True, "squares": True},
    "pi": {"pull": True, "path": True},
    "ewc_pp": {"pull": True, "every": 10},
    "rwalk": {"pull": True, "path": True, "every": 10},
}


def rows() -> list[Row]:
    """One row a method, each against vanilla; tests while training; then EWC against others' EWC."""
    torch.set_num_threads(1)
    stream = split(made_up_mnist(), 2, train_logits="all", per_class=A_THIRD)
    tested = split(made_up_mnist(EVERY_TESTS), 2, train_logits="all", per_class=A_THIRD)

    def run(name: str) -> object:
        return protocol.run(stream, build(name, stream), batch_size=BATCH)

    def floor(name: str) -> object:
        learner = type(f"{name} floor", (Traffic,), FLOORS[name])(Spec(stream.input_shape, stream.n_outputs))
        return protocol.run(stream, learner, batch_size=BATCH)

    def with_tests(every: int | None) -> object:
        return protocol.run(tested, build("vanilla", tested), batch_size=BATCH, every=every)

    contenders: dict[str, Callable[[], object]] = {name: lambda name=name: run(name) for name in ("vanilla", *TARGETS)}
    contenders |= {f"{name} floor": lambda name=name: floor(name) for name in FLOORS}
    contenders |= {"at borders": lambda: with_tests(None), "while training": lambda: with_tests(EVERY)}
    times = paired(contenders, "vanilla", rounds=ROUNDS)
    vanilla = times["vanilla"]
    costs = [
        Row(f"{name}, 5 tasks", times[name], "vanilla", vanilla, times.get(f"{name} floor", vanilla), most)
        for name, most in TARGETS.items()
    ]
    tests = Row(
        f"vanilla, every={EVERY}", times["while training"], "every=None", times["at borders"], vanilla, EVERY_AT_MOST
    )
    return [*costs, tests, *_others(split(made_up_mnist(), 2, train_logits="all", per_class=TENTH))]


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
    found = peers.get("avalanche") is not None
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
