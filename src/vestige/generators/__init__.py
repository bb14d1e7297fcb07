"""Generators: they learn condition after condition, and draw samples of each. One file a kind, a line in the dict."""

import dataclasses
from pathlib import Path
from typing import Any

from vestige.checks import one_of
from vestige.generators.base import Generator
from vestige.generators.fgan import FGAN
from vestige.generators.per_class import ConvGAN, DenseGAN
from vestige.generators.source import Source
from vestige.generators.vae import VAE
from vestige.generators.wgan import WGAN
from vestige.generators.wgan_gp import WGANGP

# Every generator by its name, one line each.
GENERATORS: dict[str, type[Generator]] = {
    "fgan": FGAN,
    "gan_conv": ConvGAN,
    "gan_dense": DenseGAN,
    "vae": VAE,
    "wgan": WGAN,
    "wgan_gp": WGANGP,
}


def build(name: str, *, preset: str | None = None, **options: Any) -> Generator:  # noqa: ANN401 - the generator's own
    """The generator called `name`; `options` are its fields, `preset` a named set of them."""
    kind = GENERATORS[one_of(name, GENERATORS, "name", "generators.build")]
    if preset is not None:
        options = kind.presets[one_of(preset, kind.presets, "preset", f"generators '{name}'")] | options
    fields = [f.name for f in dataclasses.fields(kind)]
    for option in options:
        one_of(option, fields, "options", f"generators '{name}'")
    # JSON and command lines have no tuples
    fields_given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    return kind(**fields_given)


def load(path: str | Path) -> Generator:
    """The generator stored at `path`."""
    return Generator.load(path)


__all__ = ["GENERATORS", "Generator", "Source", "build", "load"]
