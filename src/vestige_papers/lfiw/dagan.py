"""DAGAN: from an example and noise, another image of the example's class (Antoniou et al. 2017; LFIW 3.2, App. C.4).

**Pairs.** C.4: the critic tells (x_i, G(x_i, z)) from (x_i, x_j), where x_i and x_j have the same label. It leaves the
loss to Antoniou et al.: Wasserstein with gradient penalty (Gulrajani et al. 2017, Eq. 3). As both pairs begin with the
same example a, the points of the penalty lie between their second members; with c drawn evenly from the line between
G(z, a) and another image b of a's class, the critic minimises

    E[D(G(z, a), a)] - E[D(b, a)] + penalty E[(|grad_c D(c, a)| - 1)^2]

and the generator minimises -E[D(G(z, a), a)].

**Networks.** `PixelGenerator` (`output` "pixels") is theirs in kind, a U-net. 3 x 3 convolutions of stride 2 carry an
example down, noise joins it at the coarsest maps, and upsampling with 3 x 3 convolutions brings both up again beside
the maps of the way down, to logits of pixels. The example is added to the logits: the network begins near a copy.
`PixelMover` (`output` "moves") is ours, for little data and short training: from the same coarse maps one convolution
reads how far each part of the example is shifted, at most `REACH` of the image either way; bilinear interpolation makes
that a smooth field and moves the pixels. What it draws is a drawing from the first step on; what it cannot do is add or
remove a stroke. `PairCritic`: two images as channels of one, 3 x 3 convolutions of stride 2, one linear layer, and no
batch normalisation, as its gradient is penalised row by row. Images go in and out as flat rows; sides may be of any
length, halves are rounded up.

**No conditions.** What it draws is decided by an example, whose class may be one that it never saw. So it is no
`Generator` with `fit(x, task)` and `sample(n, task)`; that would take examples of each class, kept, and those are data.
It keeps none: whoever wants samples brings the examples, and counts them. The rest of that contract holds: same seed,
same bits; a report with curves; a watch for collapse; states, saving and loading without pickle. Its own way to fail is
to ignore the noise: `report_["spread"]` is how widely samples of one example differ, as a share of how widely images of
one class do; below `collapse` it warns.

**Deviations.** Classes have equal shares whatever their number of images. Antoniou et al. have four residual blocks of
four convolutions each way and a DenseNet with layer normalisation as critic; here a level of the U-net has `layers`
convolutions, those after the first with a residual connection, the last upsampling is a shuffle of pixels, and the
critic is plain. LFIW prints neither network. The generator that a fit leaves is a running mean over its steps. The
preset "paper" has four levels of four convolutions, batches of 32, five steps of the critic for each of the
generator's and Adam with 1e-4 and (0, 0.9), as Antoniou et al. have; their 500 epochs are here a number of steps. The
presets "small" and "small_pixels" are ours. With one step of the critic for each of the generator's, pixels become
checkerboards after some thousand steps; those that are only moved do not.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int64
from torch import Generator as Noise
from torch import Tensor, nn
from torch.nn import functional

from vestige.core import NotEstimable, NotFitted, VestigeWarning, checks, rng
from vestige.core.checks import ArrayLike, declared, learnt, option
from vestige.features.rows import admit, numbers
from vestige.generators import Player, Progress, curves, follow, gradient_penalty, settle, spread
from vestige.nets.convolutional import image_shape
from vestige.store.stored import Stored

ROWS = 2048  # drawn in one pass; bounds memory
STRETCHES = 50  # points of a training curve
SLOPE = 0.2  # of the leaky ReLU below zero
NOISE_MAPS = 16  # coarsest maps that the noise makes
COPY = 6.0  # logits between white and black in the copy that the U-net begins near
REACH = 0.1  # of the image's side
WATCHED, DRAWN = 32, 16  # examples by which a collapse is told, and samples of each


def halves(image: tuple[int, int, int], times: int) -> list[tuple[int, int]]:
    """Height and width after 0 .. `times` halvings, rounded up."""
    _, h, w = image
    return [(-(-h // 2**i), -(-w // 2**i)) for i in range(times + 1)]


class Level(nn.Module):
    """`layers` 3 x 3 convolutions, each with batch normalisation and a leaky ReLU; from the second on residual."""

    def __init__(self, channels_in: int, channels: int, layers: int, *, stride: int = 1) -> None:
        super().__init__()
        convs = [nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)]
        convs += [nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(layers - 1)]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in convs)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n k h2 w2"]:
        """Maps of the same or, with a stride of 2, half the size."""
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            out = functional.leaky_relu(norm(conv(x)), SLOPE)
            x = x + out if i else out
        return x


class PairGenerator(nn.Module):
    """The way down, and the coarse maps of example and noise; what becomes of them is a child's to say."""

    def __init__(
        self, n_codes: int, image: tuple[int, int, int], filters: Sequence[int], layers: int, *, seed: int
    ) -> None:
        super().__init__()
        self.image, self.sizes = image, halves(image, len(filters))
        h, w = self.sizes[-1]
        self.noise_map = (NOISE_MAPS, h, w)
        with rng.guard(seed, "init"):
            self.down = nn.ModuleList(Level(a, b, layers, stride=2) for a, b in pairwise([image[0], *filters]))
            self.noise = nn.Linear(n_codes, NOISE_MAPS * h * w)
            self.middle = Level(filters[-1] + NOISE_MAPS, filters[-1], layers)

    def coarse(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> tuple[Tensor, list[Tensor]]:
        """Maps of example and noise together, and those of the example at every size, its own first."""
        h = examples.unflatten(1, self.image).contiguous(memory_format=torch.channels_last)
        seen = [h]
        for level in self.down:
            h = level(h)
            seen.append(h)
        return self.middle(torch.cat([h, self.noise(z).unflatten(1, self.noise_map)], 1)), seen


class PixelGenerator(PairGenerator):
    """A U-net whose output are the pixels of an image."""

    def __init__(
        self, n_codes: int, image: tuple[int, int, int], filters: Sequence[int], layers: int, *, seed: int
    ) -> None:
        super().__init__(n_codes, image, filters, layers, seed=seed)
        with rng.guard(seed, "up"):
            # A level of the way up reads what comes from below and the maps of its own size on the way down.
            self.up = nn.ModuleList(Level(a + b, b, layers) for a, b in pairwise(reversed(filters)))
            self.last = nn.Conv2d(filters[0], 4 * image[0], 3, padding=1)
        self.copy = nn.Parameter(torch.tensor(COPY))

    def forward(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """One image for each row of noise."""
        h, seen = self.coarse(z, examples)
        for i, level in enumerate(self.up, start=2):
            h = level(torch.cat([functional.interpolate(h, self.sizes[-i]), seen[-i]], 1))
        height, width = self.sizes[0]
        fine = functional.pixel_shuffle(self.last(h), 2)[..., :height, :width]
        return (fine + self.copy * (seen[0] - 0.5)).flatten(1).sigmoid()


class PixelMover(PairGenerator):
    """Moves the pixels of the example along a smooth field."""

    still: Tensor

    def __init__(
        self, n_codes: int, image: tuple[int, int, int], filters: Sequence[int], layers: int, *, seed: int
    ) -> None:
        super().__init__(n_codes, image, filters, layers, seed=seed)
        with rng.guard(seed, "shift"):
            self.shift = nn.Conv2d(filters[-1], 2, 3, padding=1)
        # Where each pixel reads if nothing moves: centres of pixels, the image being (-1, 1) each way.
        identity = torch.eye(2, 3)[None]
        still = functional.affine_grid(identity, [1, *image], align_corners=False)
        self.register_buffer("still", still, persistent=False)

    def field(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> Float[Tensor, "n h w 2"]:
        """How far each pixel of the image reads from its own place, right and down, in halves of the image's side."""
        maps, _ = self.coarse(z, examples)
        shifts = 2 * REACH * self.shift(maps).tanh()
        return functional.interpolate(shifts, self.sizes[0], mode="bilinear").movedim(1, -1)

    def forward(self, z: Float[Tensor, "n z"], examples: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """One image for each row of noise."""
        places = self.still + self.field(z, examples)
        return functional.grid_sample(examples.unflatten(1, self.image), places, align_corners=False).flatten(1)


class PairCritic(nn.Module):
    """Images and the examples that they stand beside, both as flat rows, to one number for each pair."""

    def __init__(self, image: tuple[int, int, int], filters: Sequence[int], *, seed: int) -> None:
        super().__init__()
        self.image = image
        h, w = halves(image, len(filters))[-1]
        with rng.guard(seed, "init"):
            layers: list[nn.Module] = []
            for a, b in pairwise([2 * image[0], *filters]):
                layers += [nn.Conv2d(a, b, 3, 2, padding=1), nn.LeakyReLU(SLOPE)]
            self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(filters[-1] * h * w, 1))

    def forward(self, x: Float[Tensor, "n d"], examples: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """How much x and its example look like two images of one class."""
        pair = torch.cat([examples.unflatten(1, self.image), x.unflatten(1, self.image)], 1)
        found: Tensor = self.layers(pair.contiguous(memory_format=torch.channels_last))
        return found.squeeze(1)


OUTPUTS: dict[str, type[PairGenerator]] = {"moves": PixelMover, "pixels": PixelGenerator}


@dataclass(frozen=True)
class Classes:
    """Rows of one class after another: where each class begins, and how many rows it has, two at least."""

    first: Int64[Tensor, " k"]
    count: Int64[Tensor, " k"]

    def pairs(self, n: int, noise: Noise) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
        """Places of n examples and of another row of the class of each; every class has the same chance."""
        c = torch.randint(len(self.count), (n,), generator=noise)
        count, u = self.count[c], torch.rand(2, n, dtype=torch.float64, generator=noise)
        one = (u[0] * count).long()
        apart = 1 + (u[1] * (count - 1)).long()  # 1 .. count - 1: never the example itself
        return self.first[c] + one, self.first[c] + (one + apart) % count


def critic_terms(
    critic: nn.Module,
    others: Float[Tensor, "n d"],
    made: Float[Tensor, "n d"],
    examples: Float[Tensor, "n d"],
    penalty: float,
    noise: Noise,
) -> dict[str, Float[Tensor, ""]]:
    """What the critic minimises, and its two parts."""
    values = critic(torch.cat([others, made]), examples.repeat(2, 1))
    distance = values[: len(others)].mean() - values[len(others) :].mean()
    between = torch.lerp(made, others, torch.rand(len(made), 1, generator=noise))
    slope = gradient_penalty(critic, between, examples)
    return {"critic": penalty * slope - distance, "distance": distance, "penalty": slope}


@dataclass(eq=False)
class DAGAN(Stored):
    """Learns what varies within a class, and varies examples accordingly. Images are pixels in [0, 1]."""

    stored_as: ClassVar[str] = "dagan"
    name: ClassVar[str] = "dagan"
    version: ClassVar[int] = 2  # raised when its results change: a part of the ids of Records
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {},
        "small_pixels": {"output": "pixels", "steps": 2000, "critic_steps": 5},
        "paper": {
            "output": "pixels",
            "filters": (64, 64, 128, 128),
            "layers": 4,
            "critic_filters": (64, 64, 128, 128),
            "codes": 100,
            "steps": 100_000,
            "critic_steps": 5,
            "learning_rate": 1e-4,
            "critic_learning_rate": 1e-4,
            "average": 0.0,
        },
    }

    shape: tuple[int, ...] = option((28, 28), low=1, least=1)
    output: str = option("moves", among=OUTPUTS)
    filters: tuple[int, ...] = option((16, 32, 32), low=1, least=1)  # of the generator, level by level down
    layers: int = option(1, low=1)  # convolutions of a level
    critic_filters: tuple[int, ...] = option((16, 32, 64), low=1, least=1)
    codes: int = option(32, low=1)  # normal numbers beside an example
    batch_size: int = option(32, low=2)
    steps: int = option(1000, low=1)  # of the generator
    critic_steps: int = option(1, low=1)  # for each of the generator's
    learning_rate: float = option(2e-4, above=0, below=math.inf)
    critic_learning_rate: float = option(1e-3, above=0, below=math.inf)
    betas: tuple[float, ...] = option((0.0, 0.9), low=0, below=1, least=2)
    penalty: float = option(10.0, low=0, below=math.inf)
    # what the running mean of the generator's weights keeps in a step; 0 leaves the last
    average: float = option(0.99, low=0, below=1)
    collapse: float = option(0.1, low=0, high=1)

    report_: dict[str, Any] = learnt(factory=dict)
    generator_: nn.Module = learnt()
    critic_: PairCritic = learnt()

    def __post_init__(self) -> None:
        for name in ("shape", "filters", "critic_filters", "betas"):
            setattr(self, name, tuple(getattr(self, name)))
        declared(self)
        if len(self.betas) != 2:
            checks.refuse("betas", "DAGAN", "two numbers", f"{len(self.betas)}")
        self._image = image_shape(self.shape, "DAGAN")
        self._build(0)

    def fit(self, x: ArrayLike, y: ArrayLike, *, seed: int = 0, on_progress: Progress | None = None) -> Self:
        """Learn from images `x` and their classes `y`, two of each at least; begins anew. Nothing of `x` is kept."""
        owner = "DAGAN.fit"
        seed = checks.whole(seed, "seed", owner)
        rows = self._pixels(x, "x", owner)
        labels = checks.labels(y, "y", owner, length=len(rows)).cpu()
        order = torch.argsort(labels, stable=True)
        names, count = labels.unique(return_counts=True)
        if int(count.min()) < 2:
            checks.refuse("y", owner, "two images of each class at least", f"one of class {int(names[count < 2][0])}")
        trained, told = self.copy(), on_progress or (lambda share, words: None)
        trained._build(rng.child_seed(seed, "init"))
        trained._train(rows[order], Classes(count.cumsum(0) - count, count), seed, told)
        self.__dict__.update(trained.__dict__)  # at the end, so that what diverged leaves no trace
        if self.report_["collapsed"]:
            warnings.warn(
                f"dagan has collapsed: samples of one example differ {self.report_['spread']:.2g} times as much as "
                "images of one class do.",
                VestigeWarning,
                stacklevel=2,
            )
        return self

    def sample_from(self, examples: ArrayLike, *, each: int = 1, seed: int = 0) -> Float[Tensor, "m *shape"]:
        """`each` images of the class of every example, those of the first example first; same seed, same images."""
        owner = "DAGAN.sample_from"
        each, seed = checks.whole(each, "each", owner, low=1), checks.whole(seed, "seed", owner)
        if not self.report_:
            raise NotFitted(f"{owner} was called before fit.")
        rows = self._pixels(examples, "examples", owner).repeat_interleave(each, 0)
        return self._made(rows, rng.fork(seed, "sample")).unflatten(1, self.shape)

    def _build(self, seed: int) -> None:
        first, second = rng.child_seed(seed, "generator"), rng.child_seed(seed, "critic")
        kind = OUTPUTS[self.output]
        self.generator_ = kind(self.codes, self._image, self.filters, self.layers, seed=first).eval()
        self.critic_ = PairCritic(self._image, self.critic_filters, seed=second)

    def _pixels(self, x: ArrayLike, name: str, owner: str) -> Float[Tensor, "n d"]:
        rows = numbers(admit(x, name, owner, self.shape), torch.float32)
        low, high = float(rows.min()), float(rows.max())
        if low < 0 or high > 1:
            checks.refuse(name, owner, "in [0, 1], as its samples are", f"values from {low:.4g} to {high:.4g}")
        return rows

    def _codes(self, n: int, noise: Noise) -> Float[Tensor, "n z"]:
        return torch.randn(n, self.codes, generator=noise)

    @torch.no_grad()
    def _made(self, examples: Float[Tensor, "n d"], noise: Noise) -> Float[Tensor, "n d"]:
        return torch.cat([self.generator_(self._codes(len(part), noise), part) for part in examples.split(ROWS)])

    def _train(self, rows: Float[Tensor, "n d"], classes: Classes, seed: int, on_progress: Progress) -> None:
        order, noise, averaged = rng.fork(seed, "pairs"), rng.fork(seed, "codes"), copy.deepcopy(self.generator_)
        generator = Player(self.generator_.train(), self.learning_rate, self.betas)
        critic = Player(self.critic_, self.critic_learning_rate, self.betas)
        losses: list[Tensor] = []
        for step in range(self.steps):
            for _ in range(self.critic_steps):
                examples, others = (rows[places] for places in classes.pairs(self.batch_size, order))
                made = self.generator_(self._codes(self.batch_size, noise), examples)
                terms = critic_terms(self.critic_, others, made.detach(), examples, self.penalty, noise)
                critic.descend(terms["critic"], None)
            loss = -self.critic_(made, examples).mean()
            generator.descend(loss, None)
            follow(averaged, self.generator_, min(self.average, step / (step + 1)))
            losses.append(torch.stack([loss, *terms.values()]).detach().double())
            if step % max(self.steps // STRETCHES, 1) == 0 or step == self.steps - 1:
                if not bool(torch.stack(losses).isfinite().all()):
                    words = f"The training of dagan diverged by step {step + 1}."
                    raise NotEstimable(f"{words} Smaller rates than {self.learning_rate:g} help.")
                on_progress(step / self.steps, f"step {step} of {self.steps}")
        places, _ = classes.pairs(ROWS, order)
        settle(averaged, self._codes(ROWS, noise), rows[places])
        self.generator_ = averaged.eval()
        self.report_ = {"generator": self.name, "learnt": len(classes.count), "steps": self.steps}
        self.report_["curves"] = curves(torch.stack(losses), ["generator", *terms])
        self._watch(rows, classes, seed)

    def _watch(self, rows: Float[Tensor, "n d"], classes: Classes, seed: int) -> None:
        """How widely samples of one example differ, beside images of one class."""
        noise = rng.fork(seed, "watch")
        places, _ = classes.pairs(WATCHED, noise)
        made = self._made(rows[places].repeat_interleave(DRAWN, 0), noise).unflatten(0, (WATCHED, DRAWN))
        if not bool(torch.isfinite(made).all()):
            raise NotEstimable("The training of dagan diverged: its samples are not finite.")
        drawn = torch.tensor([spread(part) for part in made]).square().mean().sqrt()
        groups = rows.split(classes.count.tolist())
        real = torch.tensor([spread(part) for part in groups]).square().mean().sqrt()
        self.report_["spread"] = float(drawn / real) if float(real) > 0 else 1.0
        self.report_["collapsed"] = self.report_["spread"] < self.collapse
