"""The generators of variational generative replay: a GAN for each condition, trained on it alone and kept for ever.

Farquhar and Gal C.1: "we train a GAN to produce pairs for each class in each dataset as it arrives. After that dataset
is used, the data are discarded and the generator is kept." So nothing is replayed into it, and what was learnt of a
condition never changes unless that condition comes again, which is then learnt anew. `gan_dense` has the networks of
C.4, `gan_conv` those of C.5 (see `nets.gan` for what is not printed); both are trained by Adam with rate 2e-4
and beta1 0.5, the first for 200 epochs on each digit and the second for 50: the preset "paper". Loss (Goodfellow et al.
2014, in the form that does not saturate, as everyone trains it), a step of each in turn:

    judge:  softplus(-D(x)) + softplus(D(G(z))),        maker:  softplus(-D(G(z))).

Deviations. The batch is not printed: 64. Each judge goes when its condition is learnt; the makers alone are kept. The
preset "small" has narrower networks, a faster rate and fewer epochs, and keeps a running mean of the maker's weights
and moments (`average`, 0 in print), which spares short training the swings of its last steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor, nn
from torch.nn.functional import softplus

from vestige.core import checks, rng
from vestige.core.errors import NotEstimable, StoreError
from vestige.generators.base import Generator
from vestige.generators.source import Source, Tell
from vestige.nets.convolutional import image_shape
from vestige.nets.gan import CODES, ConvClassGenerator, ConvDiscriminator, DenseClassGenerator, DenseDiscriminator

OUTPUTS = ("sigmoid", "linear")
STRETCHES = 20  # points of the curves in the report


def judge_loss(real: Float[Tensor, " n"], drawn: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """-log sigmoid of the logits of real rows, -log(1 - sigmoid) of those of drawn ones; the mean of each."""
    return softplus(-real).mean() + softplus(drawn).mean()


def maker_loss(drawn: Float[Tensor, " m"]) -> Float[Tensor, ""]:
    """-log sigmoid of the logits of drawn rows."""
    return softplus(-drawn).mean()


@dataclass(eq=False)
class PerClassGAN(Generator):
    """A maker for each condition that was learnt; a child says of which networks."""

    epochs: int = 50
    batch: int = 64
    lr: float = 2e-4
    beta1: float = 0.5
    average: float = 0.0
    output: str = "sigmoid"

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        owner = type(self).__name__
        checks.whole(self.epochs, "epochs", owner, low=1)
        checks.whole(self.batch, "batch", owner, low=2)  # batch normalisation
        checks.number(self.lr, "lr", owner, low=0, open_low=True)
        checks.number(self.beta1, "beta1", owner, low=0, high=1, open_high=True)
        checks.number(self.average, "average", owner, low=0, high=1, open_high=True)
        checks.one_of(self.output, OUTPUTS, "output", owner)

    @abstractmethod
    def _pair(self) -> tuple[nn.Module, nn.Module]:
        """A maker and its judge, as they begin."""

    def _build(self, seed: int) -> None:
        self.makers_: dict[int, nn.Module] = {}

    def _nets(self) -> dict[str, nn.Module]:
        return {f"maker{c}": maker for c, maker in sorted(self.makers_.items())}

    def _fit(self, source: Source, seed: int, tell: Tell) -> dict[str, Any]:
        if self.output == "sigmoid":
            source.must_be_pixels(f"{type(self).__name__}.fit")
        # Samples that are given of a condition without a maker are all there is to learn it from.
        given = source.replay if isinstance(source.replay, Mapping) else {}
        learnt = source.real | {c: x for c, x in given.items() if c not in self.makers_}
        found: dict[int, Tensor] = {}
        for i, (c, rows) in enumerate(learnt.items()):
            tell(i / len(learnt), f"condition {c}")
            with rng.guard(seed, "init", c):
                maker, judge = self._pair()
            found[c] = self._train(maker, judge, rows, rng.fork(seed, "train", c))
            if not all(bool(torch.isfinite(p).all()) for p in maker.parameters()):
                raise NotEstimable(f"The training of {self.name} diverged on condition {c}: weights are not finite.")
            self.makers_[c] = maker
        stretches = min(STRETCHES, *map(len, found.values()))
        curves = {
            f"{name} {c}": [float(part.mean()) for part in losses.tensor_split(stretches)]
            for c, both in found.items()
            for name, losses in zip(("judge", "maker"), both.T, strict=True)
        }
        return {"steps": sum(map(len, found.values())), "curves": curves, "replayed": []}

    def _train(
        self, maker: nn.Module, judge: nn.Module, x: Float[Tensor, "n d"], noise: Noise
    ) -> Float[Tensor, "steps 2"]:
        """Alternate steps of judge and maker; returns the losses of both."""
        betas = (self.beta1, 0.999)
        makes, judges = (torch.optim.Adam(net.parameters(), self.lr, betas, fused=True) for net in (maker, judge))
        # What is kept: a running mean of weights and running moments, or with `average` 0 the last of them.
        now = [value for value in maker.state_dict().values() if value.is_floating_point()]
        mean = [value.clone() for value in now]
        batch = min(self.batch, len(x))
        steps = len(x) // batch
        losses: list[Tensor] = []
        for _ in range(self.epochs):
            order = torch.randperm(len(x), generator=noise)[: steps * batch]
            codes = torch.randn(steps, self.batch, CODES, generator=noise)
            for real, z in zip(x[order].split(batch), codes, strict=True):
                drawn = maker(z)
                logits = judge(torch.cat([real, drawn.detach()]))
                judged = judge_loss(logits[: len(real)], logits[len(real) :])
                judges.zero_grad()
                judged.backward()
                judges.step()
                judge.requires_grad_(False)
                made = maker_loss(judge(drawn))
                makes.zero_grad()
                made.backward()
                makes.step()
                judge.requires_grad_(True)
                # The mean of all so far until the running mean is longer: the first weights are worth nothing.
                torch._foreach_lerp_(mean, now, 1 - min(self.average, len(losses) / (len(losses) + 1)))
                losses.append(torch.stack([judged.detach(), made.detach()]))
        torch._foreach_copy_(now, mean)
        return torch.stack(losses)

    def _draw(self, conditions: Int64[Tensor, " n"], noise: Noise) -> Float[Tensor, "n d"]:
        codes = torch.randn(len(conditions), CODES, generator=noise)
        drawn = None
        for c in conditions.unique().tolist():
            rows = conditions == c
            found = self.makers_[c](codes[rows])
            drawn = found.new_empty(len(conditions), found.shape[1]) if drawn is None else drawn
            drawn[rows] = found
        assert drawn is not None, "no sample is asked of nothing"
        return drawn

    def load_state_dict(self, state: dict[str, Tensor]) -> Self:
        """Take over what another of the same configuration has learnt; a mismatch names the key."""
        before = self.makers_
        with rng.guard(0, "init"):
            self.makers_ = {int(c): self._pair()[0] for c in state.get("known", torch.empty(0))}
        try:
            return super().load_state_dict(state)
        except StoreError:
            self.makers_ = before
            raise


@dataclass(eq=False)
class DenseGAN(PerClassGAN):
    """C.4: fully connected."""

    name: ClassVar[str] = "gan_dense"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": {
            "widths": (128, 256),
            "judge_widths": (256, 128),
            "epochs": 15,
            "batch": 32,
            "lr": 5e-4,
            "average": 0.98,
        },
    }

    epochs: int = 200
    widths: tuple[int, ...] = (256, 512, 1024)
    judge_widths: tuple[int, ...] = (512, 256)

    def check(self) -> None:
        """And no layer is empty."""
        super().check()
        for name in ("widths", "judge_widths"):
            if not getattr(self, name):
                checks.refuse(name, type(self).__name__, "one layer at least", "none")
            for width in getattr(self, name):
                checks.whole(width, name, type(self).__name__, low=1)

    def _pair(self) -> tuple[nn.Module, nn.Module]:
        columns = torch.Size(self.shape).numel()
        return DenseClassGenerator(self.widths, columns, self.output), DenseDiscriminator(self.judge_widths, columns)


@dataclass(eq=False)
class ConvGAN(PerClassGAN):
    """C.5: convolutional, for images."""

    name: ClassVar[str] = "gan_conv"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "small": {
            "filters": (16, 8),
            "judge_filters": (16, 32),
            "epochs": 15,
            "batch": 32,
            "lr": 1e-3,
            "average": 0.98,
        },
    }

    filters: tuple[int, ...] = (128, 64)  # from the coarse maps to the fine ones
    judge_filters: tuple[int, ...] = (64, 128)  # and back

    def check(self) -> None:
        """And the shape is that of an image."""
        super().check()
        owner = type(self).__name__
        image_shape(self.shape, owner)
        for name in ("filters", "judge_filters"):
            if len(getattr(self, name)) != 2:
                checks.refuse(name, owner, "two widths", getattr(self, name))
            for width in getattr(self, name):
                checks.whole(width, name, owner, low=1)

    def _pair(self) -> tuple[nn.Module, nn.Module]:
        return ConvClassGenerator(self.shape, self.filters, self.output), ConvDiscriminator(
            self.shape, self.judge_filters
        )
