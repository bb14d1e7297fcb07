"""VAE: a conditional variational auto-encoder, trained condition after condition on its own samples of earlier ones.

Loss of one row: -E_q(z|x) log p(x|z, c) + KL(q(z|x) || N(0, I)), one draw of z by reparametrisation (Kingma and
Welling 2014; CDRE App. A.1 uses the like for features). The decoder hears of the condition by gates, see
`nets.vae`; the encoder does not, so `encode` needs none.

`likelihood`: "bernoulli" for pixels in [0, 1], whose grey values stand for probabilities, as is the custom: a sample
is the decoder's mean, not a draw of black and white. "gaussian" for tables and whatever has no bounds: columns are
centred and scaled by the first data seen, a constant one by 1, and the noise has one variance a column, learnt and
never below `least` of its scale; a sample includes the noise.

Each fit goes on from the weights of the one before with a fresh Adam whose rate falls to zero along a cosine.

Of the rows that the generator draws for its own replay the codes are known. With `pairs` these rows need no inference,
and their loss is -log p(x|z, c) - log q(z|x) at the very code: the decoder is held to what it drew from it (replay
alignment, Wu et al. 2018), the encoder to find it again (the sleep phase of Hinton et al. 1995). Without, or where
replay is given as samples, they are inferred like real ones, and each round of that blurs them a little more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import rng
from vestige.core.checks import ArrayLike, learnt, option
from vestige.generators.base import STRETCHES, Draw, Generator, Progress, ReplaySource, curves, must_be_finite
from vestige.nets.training import adam, train
from vestige.nets.vae import GatedVAENet, gaussian_kl, gaussian_nll


class Scale(nn.Module):
    """Columns as the network sees them, and the variance of the noise there."""

    def __init__(self, n_columns: int, noise: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_columns))
        self.register_buffer("deviation", torch.ones(n_columns))
        self.log_variance = nn.Parameter(torch.full((n_columns,), math.log(noise)))

    def learn(self, x: Float[Tensor, "n d"]) -> None:
        """Centre and deviation of every column; a constant one keeps its own unit."""
        deviation, mean = torch.std_mean(x.cpu().double(), 0, correction=0)
        self.get_buffer("mean").copy_(mean)
        self.get_buffer("deviation").copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Centred and scaled."""
        return (x - self.get_buffer("mean")) / self.get_buffer("deviation")

    def back(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The columns' own units again."""
        return z * self.get_buffer("deviation") + self.get_buffer("mean")


@dataclass(eq=False)
class VAE(Generator):
    """Codes from N(0, I), decoded by the units of the condition asked for."""

    name: ClassVar[str] = "vae"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {},
        # the widths of CDRE App. A.1, the decoder wider as half of it is switched off
        "paper": {"codes": 64, "encoder": (512, 256), "decoder": (512, 512), "steps": 10_000, "learning_rate": 1e-3},
    }

    likelihood: str = option("bernoulli", among=("bernoulli", "gaussian"))
    codes: int = option(16, low=1)
    encoder: tuple[int, ...] = option((256,), low=1, least=1)
    decoder: tuple[int, ...] = option((256, 256), low=1, least=1)
    pairs: bool = True  # whether its own replay comes with the codes that it was drawn from
    # share of real rows beside replayed ones; None: each condition has the same
    fresh: float | None = option(0.5, above=0, below=1)
    keep: float = option(0.5, above=0, high=1)  # share of the decoder's units that work for a condition
    steps: int = option(1200, low=1)  # of each fit
    batch_size: int = option(64, low=1)
    learning_rate: float = option(5e-3, above=0, below=math.inf)
    # variance that the noise begins with, in units of a column's own; more, and no code is learnt
    noise: float = option(0.1, above=0, below=math.inf)
    least: float = option(1e-3, above=0, below=math.inf)  # smallest variance of the noise, in units of a column's own

    net_: GatedVAENet = learnt()
    scale_: Scale = learnt()

    def encode(self, x: ArrayLike) -> Float[Tensor, "n f"]:
        """The mean of the code of each sample, whatever its condition."""
        with torch.no_grad():
            return self.net_.encode(self.scale_(self._rows(x, "x", "VAE.encode")))[0]

    def _build(self, seed: int) -> None:
        columns = math.prod(self.shape)
        widths = (self.encoder, self.decoder)
        self.net_ = GatedVAENet(columns, self.codes, self.conditions, *widths, keep=self.keep, seed=seed)
        self.scale_ = Scale(columns, self.noise)

    def _variance(self) -> Float[Tensor, " d"]:
        return self.least + self.scale_.log_variance.exp()

    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        return self._decode(torch.randn(len(conditions), self.codes, generator=noise), conditions, noise)

    def _decode(self, z: Float[Tensor, "n f"], conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        """Samples from codes."""
        decoded = self.net_.decode(z, conditions)
        if self.likelihood == "bernoulli":
            return decoded.sigmoid()
        return self.scale_.back(decoded + self._variance().sqrt() * torch.randn(decoded.shape, generator=noise))

    def _terms(
        self,
        x: Float[Tensor, "n d"],
        conditions: Int64[Tensor, " n"],
        codes: Float[Tensor, "n f"],
        noise: Float[Tensor, "n f"],
    ) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """-log p(x|z, c) of each row and, in nats, what its code costs.

        That is KL(q(z|x) || N(0, I)), z drawn from q with `noise`, where `codes` are NaN; -log q(z|x) where they are z.
        """
        x, known = self.scale_(x), codes[:, 0].isfinite()
        mean, log_var = self.net_.encode(x)
        z = torch.where(known[:, None], codes, mean + noise * torch.exp(0.5 * log_var))
        nothing = torch.zeros_like(mean)
        inferred = gaussian_kl(mean, log_var, nothing, nothing).sum(1)
        cost = torch.where(known, gaussian_nll(z.detach(), mean, log_var.exp()), inferred)
        decoded = self.net_.decode(z, conditions)
        if self.likelihood == "bernoulli":
            return functional.binary_cross_entropy_with_logits(decoded, x, reduction="none").sum(1), cost
        return gaussian_nll(x, decoded, self._variance()), cost

    def _paired(self, source: ReplaySource) -> ReplaySource:
        """The source with codes behind the columns of each row: NaN where nobody knows them."""
        old = self.copy()

        @torch.no_grad()
        def draw(conditions: Tensor, noise: Noise) -> Tensor:
            z = torch.randn(len(conditions), self.codes, generator=noise)
            rows = old._decode(z, conditions, noise)
            return torch.cat([rows, z], 1) if self.pairs else unknown(rows)

        def unknown(rows: Tensor) -> Tensor:
            return functional.pad(rows, (0, self.codes), value=math.nan)

        replay: Draw | Mapping[int, Tensor] = draw
        if isinstance(source.replay, Mapping):
            replay = {c: unknown(rows) for c, rows in source.replay.items()}
        conditions = torch.cat([torch.full((len(rows),), c) for c, rows in source.real.items()])
        return ReplaySource(
            unknown(torch.cat(list(source.real.values()))), conditions, source.earlier, replay, self.fresh
        )

    def _fit(self, source: ReplaySource, seed: int, on_progress: Progress) -> dict[str, Any]:
        if self.likelihood == "bernoulli":
            source.must_be_pixels("VAE.fit")
        elif not self.known_:
            self.scale_.learn(torch.cat(list(source.real.values())))
        trained = [*self.net_.parameters(), *self.scale_.parameters()]
        noise, columns = rng.fork(seed, "codes"), math.prod(self.shape)
        losses: list[Tensor] = []
        batches = iter(self._paired(source).batches(self.batch_size, self.steps, rng.fork(seed, "batches")))

        def loss(step: int) -> Tensor:
            if step % STRETCHES == 0:
                on_progress(step / self.steps, f"step {step} of {self.steps}")
            rows, conditions = next(batches)
            x, codes = rows[:, :columns], rows[:, columns:]
            nll, cost = self._terms(x, conditions, codes, torch.randn(codes.shape, generator=noise))
            losses.append(torch.stack([nll.detach().mean(), cost.detach().mean()]))
            return (nll + cost).mean()

        train(adam(trained, loss, self.learning_rate, cosine=self.steps), self.steps)
        terms = torch.stack(losses)
        must_be_finite(terms, self.name, f"A smaller 'learning_rate' than {self.learning_rate:g} helps.")
        return {"steps": self.steps, "curves": curves(terms, ["nll", "code"])}
