"""What uncertainty costs: VCL on Split MNIST's shape, 256-256, 10 samples of the posterior, batch 256.

- An epoch of one task against the same network without uncertainty (vanilla), and against VCL with a loop over samples
  in place of one batched pass. A floor: the products that local reparameterisation cannot do without, two forward and
  four backward for each layer of each sample (the first layer's are shared by the samples, and its input needs none).
- 2000 predictions of 100 samples against the training pass without gradients, 1000 rows at a time: what a prediction
  cost before it drew weights in later layers and kept to the cache.
- Mutual information of 10 000 inputs with 100 samples, against holding all (100, 10 000, 10) log-probabilities in
  float64; by how much each raises the peak of memory of a fresh process is in the note.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import torch

from benchmarks.protocol import made_up_mnist
from benchmarks.timing import Row, race
from vestige.continual.learners import VCL, Learner, Spec, build
from vestige.core import rng
from vestige.core.machine import PeakMemory
from vestige.data.streams import split
from vestige.metrics.uncertainty import Uncertainty

BATCH, SAMPLES, TEST_SAMPLES = 256, 10, 100
PREDICTED, JUDGED = 2000, 10_000


class Looped(VCL):
    """VCL whose expected loss is a loop over samples."""

    def likelihood_loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean over samples, one forward pass each."""
        generator, samples = self.noise(), self.config.train_samples
        return sum(self.outputs_.loss(self.net(x, 1, generator)[0], y) for _ in range(samples)) / samples


def rows() -> list[Row]:
    """An epoch, predictions, mutual information."""
    torch.set_num_threads(1)
    stream = split(made_up_mnist(), 2, train_logits="all")
    task = next(iter(stream))
    settings = {"train_samples": SAMPLES, "test_samples": TEST_SAMPLES, "fit_steps": 0}
    vcl, plain = build("vcl", stream, **settings), build("vanilla", stream)
    assert isinstance(vcl, VCL)
    looped = Looped(vcl.spec, vcl.config)
    for learner in (vcl, plain, looped):
        learner.begin_task(task)

    def epoch(learner: Learner) -> None:
        for x, y in zip(task.x.split(BATCH), task.y.split(BATCH), strict=True):
            learner.observe(x, y)

    contenders: dict[str, Callable[[], object]] = {
        "vcl": lambda: epoch(vcl),
        "vanilla": lambda: epoch(plain),
        "loop": lambda: epoch(looped),
        "floor": lambda: _products(len(task.y) // BATCH),
    }
    times = race(contenders, repeats=3, seconds=90)
    name, floor = f"vcl, an epoch, {SAMPLES} samples", times["floor"]
    found = [
        Row(name, times["vcl"], "no uncertainty", times["vanilla"], floor),
        Row(name, times["vcl"], "a loop over samples", times["loop"], floor, 1.0),
    ]
    return [*found, _predictions(vcl, task.x[:PREDICTED]), _mutual_information(vcl, task.x[:JUDGED])]


def _products(batches: int) -> None:
    sizes = [(784, 256, BATCH), (256, 256, BATCH * SAMPLES), (256, 10, BATCH * SAMPLES)]
    parts = [(torch.rand(n, a), torch.rand(a, b), torch.rand(n, b)) for a, b, n in sizes]
    for _ in range(batches):
        for i, (x, w, g) in enumerate(parts):
            for _ in ("mean", "variance"):
                _, _, _ = x @ w, x.T @ g, g @ w.T if i else None


def _predictions(vcl: VCL, x: torch.Tensor) -> Row:
    @torch.no_grad()
    def passed() -> None:
        for part in x.split(1000):
            vcl.net(part, TEST_SAMPLES, rng.fork(0, "predict")).log_softmax(-1).logsumexp(0)

    times = race({"ours": lambda: vcl.predict(x), "pass": passed}, repeats=3)
    return Row(f"vcl, {len(x)} predictions, {TEST_SAMPLES} samples", times["ours"], "training pass", times["pass"])


def _judged(vcl: VCL, x: torch.Tensor, *, whole: bool) -> dict[str, torch.Tensor]:
    if whole:
        return Uncertainty().update(vcl.posterior_log_p(x).double()).compute()
    return vcl.uncertainty(x).compute()


def _mutual_information(vcl: VCL, x: torch.Tensor) -> Row:
    ways = {"ours": False, "whole": True}
    times = race({name: lambda whole=whole: _judged(vcl, x, whole=whole) for name, whole in ways.items()}, repeats=2)
    peaks = {name: int(_fresh_process(name)) for name in ways}
    note = ", ".join(f"{name} {peak / 2**20:.0f} MB" for name, peak in peaks.items())
    name = f"mutual information, {len(x)} inputs, {TEST_SAMPLES} samples"
    return Row(name, times["ours"], "held whole, float64", times["whole"], note=f"memory on top: {note}")


def _fresh_process(name: str) -> str:
    return subprocess.run([sys.executable, "-m", __name__, name], capture_output=True, text=True, check=True).stdout


def main() -> None:
    """`python -m benchmarks.vcl ours|whole`: bytes by which the peak of a fresh process rises."""
    torch.set_num_threads(1)
    x, vcl = torch.rand(JUDGED, 28, 28), VCL(Spec((28, 28), 10))
    memory = PeakMemory()  # where the high-water mark cannot be reset, a fresh process has none above what it holds
    before = memory.peak() or 0
    _judged(vcl, x, whole=sys.argv[1] == "whole")
    print((memory.peak() or 0) - before)


if __name__ == "__main__":
    main()
