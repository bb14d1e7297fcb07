"""Generators: they learn condition after condition, and draw samples of each. Each kind has a line in the dict.

For a generator of your own: `Player`, `gradient_penalty`, `follow` and `settle` train a GAN, `curves` and `spread` say
how it went.
"""

from pathlib import Path
from typing import Any

from vestige.core import checks
from vestige.generators.adversarial import FGAN, WGAN, WGANGP, Player, follow, gradient_penalty, settle
from vestige.generators.base import Generator, Progress, ReplaySource, curves, spread
from vestige.generators.per_class import ConvGAN, DenseGAN
from vestige.generators.tabular import CopulaGenerator, MixtureGenerator, TreesGenerator
from vestige.generators.vae import VAE

# Every generator by its name, one line each.
GENERATORS: dict[str, type[Generator]] = {
    "copula": CopulaGenerator,
    "fgan": FGAN,
    "gan_conv": ConvGAN,
    "gan_dense": DenseGAN,
    "mixture": MixtureGenerator,
    "trees": TreesGenerator,
    "vae": VAE,
    "wgan": WGAN,
    "wgan_gp": WGANGP,
}


def build(name: str, /, *, preset: str | None = None, **options: Any) -> Generator:  # noqa: ANN401 - the generator's own
    """The generator called `name`; `options` are its fields, `preset` a named set of them."""
    kind = GENERATORS[checks.one_of(name, GENERATORS, "name", "generators.build")]
    return kind(**checks.options(kind, preset, options, f"generators '{name}'"))


def load(path: str | Path) -> Generator:
    """The generator stored at `path`."""
    return Generator.load(path, {kind.__name__: kind for kind in GENERATORS.values()})


__all__ = [
    "GENERATORS",
    "Generator",
    "Player",
    "Progress",
    "ReplaySource",
    "build",
    "curves",
    "follow",
    "gradient_penalty",
    "load",
    "settle",
    "spread",
]
