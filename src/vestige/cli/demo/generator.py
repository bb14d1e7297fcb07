"""A small generator that learns digit after digit and remembers older ones by its own samples alone.

A variational auto-encoder (`nets.vae`) whose prior is N(m_c, I) for digit c, with m_c learnt: a sample of c is the
decoder's answer to a draw from there, plus the Gaussian noise of the likelihood. At each digit it is trained on that
digit's data and on samples that it draws of the digits before, generative replay. Samples of samples wander off, which
is what a monitor is there to see.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vestige.core import rng
from vestige.nets.vae import VAENet, gaussian_kl, gaussian_nll


@dataclass(frozen=True)
class GeneratorConfig:
    """The network, its likelihood, and how long it trains on each digit."""

    codes: int = 8
    hidden: int = 128
    variance: float = 0.05  # of a pixel about the decoder's mean; pixels run from 0 to 1
    steps: int = 600
    batch: int = 128
    lr: float = 5e-3
    replay: int = 150  # samples of each older digit


class Generator:
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
        inputs = torch.cat([*remembered, x])
        digits = torch.cat([torch.arange(new).repeat_interleave(n), torch.full((len(x),), new)])
        self._train(inputs, digits, rng.fork(self.seed, "train", new))
        self.known += 1

    def _train(self, x: Float[Tensor, "n d"], digits: Int64[Tensor, " n"], generator: torch.Generator) -> None:
        c = self.config
        optimizer = torch.optim.Adam([*self.net.parameters(), self.prior_mean], lr=c.lr, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, c.steps)
        for _ in range(c.steps):
            rows = torch.randint(len(x), (c.batch,), generator=generator)
            noise = torch.randn(c.batch, c.codes, generator=generator)
            decoded, mean, log_var = self.net(x[rows], noise)
            prior = self.prior_mean[digits[rows]]
            divergence = gaussian_kl(mean, log_var, prior, torch.zeros_like(prior))
            optimizer.zero_grad()
            (gaussian_nll(x[rows], decoded, c.variance) + divergence).mean().backward()  # the negative ELBO
            optimizer.step()
            schedule.step()

    @torch.no_grad()
    def sample(self, n: int, digit: int, *, seed: int, noise: bool = True) -> Float[Tensor, "n d"]:
        """`n` images of `digit`; without `noise` the decoder's means, which are nicer to look at."""
        generator = rng.fork(seed, "sample", digit)
        mean = self.net.decode(self.prior_mean[digit] + torch.randn(n, self.config.codes, generator=generator))
        return mean + self.config.variance**0.5 * torch.randn(mean.shape, generator=generator) * noise
