"""Second part: a generator learns digit after digit, the data is deleted, and a monitor follows without it.

The generator is a variational auto-encoder (`nets.vae`) whose prior is N(m_c, I) for digit c, with m_c learnt: a sample
of c is the decoder's answer to a draw from there, plus the Gaussian noise of the likelihood. At each digit it is
trained on that digit's data and on samples that it draws of the digits before, generative replay. Samples of samples
wander off, which is what a monitor is there to see.

The monitor sees each digit's data once and works on a few principal components of the first digit. Beside its
divergences stands the *truth that only the demo kept*: the same estimator on the same samples, with the data at hand at
every step. That is the best that any monitor of this kind could say; the true divergence of handwriting nobody knows.
Where a digit is new both have its data and differ by the draw of folds alone, so they are compared at later steps.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains import Chain
from vestige.core import VestigeWarning, rng
from vestige.data import DataSet
from vestige.features import PCA
from vestige.monitor import Monitor
from vestige.nets.training import adam, train
from vestige.nets.vae import VAENet, gaussian_kl, gaussian_nll


@dataclass(frozen=True)
class GeneratorConfig:
    """The network, its likelihood, and how long it trains on each digit."""

    codes: int = 8
    hidden: int = 128
    variance: float = 0.05  # of a pixel about the decoder's mean; pixels run from 0 to 1
    steps: int = 600
    batch_size: int = 128
    learning_rate: float = 5e-3
    replay: int = 150  # samples of each older digit


class DigitGenerator:
    """Draws digits that it has learnt."""

    def __init__(self, config: GeneratorConfig, *, n_pixels: int, n_digits: int, seed: int) -> None:
        self.config, self.seed, self.known = config, seed, 0
        widths = (config.hidden,)
        self.net = VAENet(n_pixels, config.codes, widths, widths, seed=rng.child_seed(seed, "generator"))
        self.prior_mean = torch.randn(n_digits, config.codes, generator=rng.fork(seed, "prior")).requires_grad_()

    def learn(self, x: Float[Tensor, "n d"]) -> None:
        """The next digit from its data `x`, older ones from samples of them."""
        new, n = self.known, self.config.replay
        remembered = [self.sample(n, digit, seed=rng.child_seed(self.seed, "replay", new)) for digit in range(new)]
        x = torch.cat([*remembered, x])
        digits = torch.cat([torch.arange(new).repeat_interleave(n), torch.full((len(x) - new * n,), new)])
        c, generator = self.config, rng.fork(self.seed, "train", new)

        def loss(_: int) -> Tensor:
            rows = torch.randint(len(x), (c.batch_size,), generator=generator)
            noise = torch.randn(c.batch_size, c.codes, generator=generator)
            decoded, mean, log_var = self.net(x[rows], noise)
            prior = self.prior_mean[digits[rows]]
            divergence = gaussian_kl(mean, log_var, prior, torch.zeros_like(prior)).sum(1)
            return (gaussian_nll(x[rows], decoded, c.variance) + divergence).mean()  # the negative ELBO

        train(adam([*self.net.parameters(), self.prior_mean], loss, c.learning_rate, cosine=c.steps), c.steps)
        self.known += 1

    @torch.no_grad()
    def sample(self, n: int, digit: int, *, seed: int, noise: bool = True) -> Float[Tensor, "n d"]:
        """`n` images of `digit`; without `noise` the decoder's means, which are nicer to look at."""
        generator = rng.fork(seed, "sample", digit)
        mean = self.net.decode(self.prior_mean[digit] + torch.randn(n, self.config.codes, generator=generator))
        return mean + self.config.variance**0.5 * torch.randn(mean.shape, generator=generator) * noise


DIVERGENCE = "js"


@dataclass(frozen=True)
class DriftConfig:
    """How many digits come, and what the monitor looks at."""

    digits: int = 10
    samples: int = 400  # of each digit, handed to the monitor at each step
    dims: int = 4
    estimator: str = "quadratic"  # cheap, and made for a few components; see `vestige.chains`
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)


@dataclass(frozen=True)
class DigitDrift:
    """D[t, j]: Jensen-Shannon divergence of digit j after the t-th digit, in nats; NaN before j was learnt."""

    monitor: Float[Tensor, "t t"]
    low: Float[Tensor, "t t"]
    high: Float[Tensor, "t t"]
    truth: Float[Tensor, "t t"]
    verdicts: dict[str, int]  # how often each was given
    pictures: Float[Tensor, "3 t d"]  # real, when learnt, at the end: one of each digit

    @property
    def gone(self) -> Float[Tensor, " m"]:
        """|monitor - truth| wherever the data was gone and both have a value."""
        older = torch.ones_like(self.truth, dtype=torch.bool).tril(-1)
        gap = (self.monitor - self.truth).abs()[older]
        return gap[gap.isfinite()]

    @property
    def risen(self) -> tuple[float, float]:
        """How far the mean over all digits but the last rose after each was learnt: by the monitor, in truth."""
        monitor, truth = ((d[-1] - d.diagonal())[:-1].nanmean() for d in (self.monitor, self.truth))
        return float(monitor), float(truth)


def by_digit(data: DataSet, digits: int) -> list[Float[Tensor, "n d"]]:
    """Every row of each digit, training and test rows alike: this part has no test set."""
    x, y = torch.cat([data.train_x, data.test_x]), torch.cat([data.train_y, data.test_y])
    return [data.floats(x[y == digit]).flatten(1) for digit in range(digits)]


def follow(
    data: DataSet, config: DriftConfig, *, seed: int, on_step: Callable[[int], None] = lambda _: None
) -> DigitDrift:
    """Learn, delete, compare; `on_step` hears how many digits are done."""
    kept = by_digit(data, config.digits)  # for the truth: the generator and the monitor see each of these once
    n = config.digits
    generator = DigitGenerator(config.generator, n_pixels=kept[0].shape[1], n_digits=n, seed=seed)
    value, low, high, truth = torch.full((4, n, n), torch.nan, dtype=torch.float64)
    seen = PCA(dims=config.dims).fit(kept[0])  # as the monitor does at its first step
    verdicts: dict[str, int] = {}
    fresh: list[Tensor] = []
    options: dict[str, Any] = {"strategy": "anchored", "names": (DIVERGENCE,), "estimator": config.estimator}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)  # what they say is counted as verdicts
        monitor = Monitor.create(Path(folder) / "monitor", features=PCA(dims=config.dims), chain=options)
        for t in range(n):
            generator.learn(kept[t])
            fresh.append(_one(generator, t, seed))
            drawn = rng.child_seed(seed, "monitor", t)
            samples: dict[str | int, Any] = {j: generator.sample(config.samples, j, seed=drawn) for j in range(t + 1)}
            step = monitor.step(real={t: kept[t]}, model=samples, seed=seed)
            for own in step.report.tasks:
                found, j = own.estimates[DIVERGENCE], int(own.task)
                value[t, j], low[t, j], high[t, j] = found.value, found.low, found.high
                verdicts[found.verdict] = verdicts.get(found.verdict, 0) + 1
            known = Chain(**options).step(
                real={j: seen.codes(kept[j]).double() for j in range(t + 1)},
                model={j: seen.codes(x).double() for j, x in samples.items()},
                seed=seed,
            )
            for own in known.tasks:
                truth[t, int(own.task)] = own.estimates[DIVERGENCE].value
            on_step(t + 1)
    last = [_one(generator, j, seed) for j in range(n)]
    pictures = torch.stack([torch.stack(row) for row in ([x[0] for x in kept], fresh, last)])
    return DigitDrift(value, low, high, truth, verdicts, pictures)


def _one(generator: DigitGenerator, digit: int, seed: int) -> Float[Tensor, " d"]:
    """One image to look at: pixels beyond black and white are drawn black and white."""
    return generator.sample(1, digit, seed=rng.child_seed(seed, "look"), noise=False)[0].clamp(0, 1)
