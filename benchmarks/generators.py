"""What a step of WGAN-GP costs above its passes, and what samples cost.

A step, small preset and batch 64, is one update of the critic and one of the generator. Beside it stand the passes that
the definition asks for, forward and backward, each measured by itself in the same run and added up:

- the generator without a graph; the critic on 64 real and 64 generated rows, forward and backward to its weights;
- the critic on 64 rows between them, its gradient with respect to the rows, and backward through that to its weights;
- generator and critic on 64 fresh samples, forward, and backward to the generator's weights alone.

What is left is Adam, twice, the running average of the generator's weights, noise, batches and curves. Sampling draws
10 000 images of ten conditions; its floor is the matrix products of the generator's layers.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import Row, race
from vestige.core import rng
from vestige.generators import build
from vestige.generators.adversarial import WGANGP, gradient_penalty

BATCH, STEPS, CONDITIONS, IMAGES = 64, 50, 10, 10_000


def _passes(generator: WGANGP) -> dict[str, Callable[[], object]]:
    """STEPS times each pass of a step, nothing else."""
    maker, critic = generator.generator_.train(), generator.critic_.train()
    noise = rng.fork(0, "passes")
    real, codes = torch.rand(BATCH, 784, generator=noise), torch.randn(BATCH, generator.codes, generator=noise)
    conditions = torch.arange(BATCH) % CONDITIONS
    with torch.no_grad():
        fake = maker(codes, conditions)
    both, twice = torch.cat([real, fake]), torch.cat([conditions, conditions])
    own, others = list(maker.parameters()), list(critic.parameters())

    def draw() -> None:
        with torch.no_grad():
            maker(codes, conditions)

    def judge() -> tuple[Tensor, ...]:
        return torch.autograd.grad(critic(both, twice).mean(), others)

    def penalise() -> tuple[Tensor, ...]:
        # the bias of the last layer has no part in the slope
        return torch.autograd.grad(gradient_penalty(critic, real, conditions), others, allow_unused=True)

    def make() -> tuple[Tensor, ...]:
        return torch.autograd.grad(critic(maker(codes, conditions), conditions).mean(), own)

    def repeated(call: Callable[[], object]) -> Callable[[], object]:
        return lambda: [call() for _ in range(STEPS)][-1]

    return {call.__name__: repeated(call) for call in (draw, judge, penalise, make)}


def rows() -> list[Row]:
    """A step against its passes; 10 000 samples against their matrix products."""
    torch.set_num_threads(1)
    x = torch.rand(CONDITIONS * BATCH, 28, 28, generator=rng.fork(0, "pixels"))
    labels = torch.arange(len(x)) % CONDITIONS
    generator = build("wgan_gp", preset="small", batch_size=BATCH, steps=STEPS)
    assert isinstance(generator, WGANGP)
    one = build("wgan_gp", preset="small", batch_size=BATCH, steps=1)
    passes = _passes(generator.copy())
    # what a fit does once, whatever its length: copies, statistics, the watch
    contenders = {"fit": lambda: generator.copy().fit(x, labels), "once": lambda: one.copy().fit(x, labels)}
    times = race(contenders | passes, repeats=5, seconds=120)
    step = (times["fit"] - times["once"]) / (STEPS - 1)
    each = {name: times[name] / STEPS for name in passes}
    note = ", ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in each.items())
    return [
        Row("wgan_gp step, small, batch 64", step, "sum of its passes", sum(each.values()), note=note),
        _sampling(generator.copy().fit(x, labels)),
    ]


def _sampling(generator: WGANGP) -> Row:
    asked = torch.arange(IMAGES) % CONDITIONS
    layers = [*generator.generator_.hidden, generator.generator_.last]
    inputs = [torch.rand(IMAGES, layer.in_features) for layer in layers]
    weights = [layer.weight.detach().T for layer in layers]

    def products() -> object:
        return [a @ b for a, b in zip(inputs, weights, strict=True)][-1]

    times = race({"ours": lambda: generator.sample_each(asked), "products": products}, repeats=9, seconds=30)
    return Row("10 000 samples, small preset", times["ours"], "-", None, times["products"])
