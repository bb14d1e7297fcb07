"""Images of one class, and sets of images that are to be compared with them: real, corrupted, and drawn by generators.

A *cell* is a class of a data set and one set of new images. Its path says what was done to them, its severity how much:

    real        other rows of the class: severity 0, the beginning of every path
    noise       normal noise of the severity as its deviation, cut to [0, 1]
    blur        a Gaussian filter of the severity as its deviation, in pixels
    confusion   the severity is the share of rows that are of the next class
    lost modes  the severity is how many of eight clusters of the class have no row any more
    vae, ...    samples of a generator of the library, taught on other rows; these have no severity

Every row is used once. Rows that taught the classifier (`cdre.generators.classifier_of`) teach the generators and the
clusters too; of the others some are kept, some serve the oracles, and some are what is corrupted.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor
from torch.nn import functional

from vestige import data, generators
from vestige.core import VestigeWarning, checks, rng

REAL, LOST = "real", "lost modes"
CLUSTERS = 8
# The severities of each path.
PATHS: dict[str, tuple[float, ...]] = {
    "noise": (0.1, 0.2, 0.4),
    "blur": (0.6, 1.0, 1.6),
    "confusion": (0.1, 0.25, 0.6),
    LOST: (1, 3, 5),
}
# A generator of the library for one class, and what sets it apart from its small preset.
GENERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vae": ("vae", {"steps": 600}),
    "wgan": ("wgan", {}),
    "wgan-gp": ("wgan_gp", {}),
    "f-gan": ("fgan", {"divergence": "js"}),
}


@dataclass(frozen=True, eq=False)
class ClassRows:
    """Images of one class, float32 in [0, 1]."""

    kept: Float[Tensor, "n h w"]
    more: Float[Tensor, "m h w"]  # that the oracles have besides
    spare: Float[Tensor, "s h w"]  # of which new images are made
    taught: Float[Tensor, "k h w"]  # that the classifier has seen


@dataclass(frozen=True, eq=False)
class ImageCell:
    """A set of new images, what was done to them and how much; the severity of generators is NaN."""

    path: str
    severity: float
    images: Float[Tensor, "n h w"]


@dataclass(frozen=True, eq=False)
class EveryRow:
    """A data set, its rows for training and for testing together."""

    images: Shaped[Tensor, "n h w"]
    labels: Int64[Tensor, " n"]
    taught: Bool[Tensor, " n"]  # whether the classifier has seen them
    floats: Callable[[Tensor], Tensor]

    def of(self, c: int, *, taught: bool) -> Int64[Tensor, " m"]:
        """Positions of rows of a class."""
        return ((self.labels == c) & (self.taught == taught)).nonzero()[:, 0]


@functools.lru_cache(maxsize=1)
def every_row(name: str, taught: int) -> EveryRow:
    """The data set, and the rows that `cdre.generators.classifier_of` takes."""
    found = data.load(name, progress=False)
    images, labels = torch.cat([found.train_x, found.test_x]), torch.cat([found.train_y, found.test_y])
    seen = torch.zeros(len(images), dtype=torch.bool)
    seen[torch.randperm(len(found.train_x), generator=rng.fork(0, "judge"))[:taught]] = True
    return EveryRow(images, labels, seen, found.floats)


def class_rows(name: str, c: int, *, n: int, times: int, taught: int, seed: int) -> ClassRows:
    """Rows of class `c`: `n` that are kept, so many for the oracles that they have `times` as many, and the rest."""
    every = every_row(name, taught)
    own = every.of(c, taught=False)
    if len(own) < n * (times + 1):
        checks.refuse("n", "class_rows", f"at most {len(own) // (times + 1)}, as class {c} has {len(own)} rows", n)
    own = own[torch.randperm(len(own), generator=rng.fork(seed, "class rows", name, c))]
    parts = [*own.split([n, n * (times - 1), len(own) - n * times]), every.of(c, taught=True)]
    return ClassRows(*(every.floats(every.images[rows]) for rows in parts))


def noisy(x: Float[Tensor, "n h w"], severity: float, generator: torch.Generator) -> Float[Tensor, "n h w"]:
    """Normal noise, cut to the range of pixels."""
    return (x + severity * torch.randn(x.shape, generator=generator)).clamp(0, 1)


def blurred(x: Float[Tensor, "n h w"], severity: float) -> Float[Tensor, "n h w"]:
    """A Gaussian filter, rows and columns one after the other; beyond the border there is nothing."""
    reach = math.ceil(3 * severity)
    steps = torch.arange(-reach, reach + 1, dtype=x.dtype)
    filter_ = torch.exp(-(steps**2) / (2 * severity**2))
    filter_ = filter_ / filter_.sum()
    across = functional.conv2d(x[:, None], filter_[None, None, None], padding=(0, reach))
    return functional.conv2d(across, filter_[None, None, :, None], padding=(reach, 0))[:, 0]


def confused(x: Float[Tensor, "n h w"], other: Float[Tensor, "m h w"], severity: float) -> Float[Tensor, "n h w"]:
    """The first rows are those of the other class."""
    replaced = round(severity * len(x))
    return torch.cat([other[:replaced], x[replaced:]])


def without_modes(
    x: Float[Tensor, "n h w"], taught: Float[Tensor, "k h w"], severity: float, seed: int
) -> Float[Tensor, "m h w"]:
    """The rows that are not of the lost clusters; those lost at a smaller severity are lost at a larger one too."""
    from sklearn.cluster import KMeans

    state = rng.child_seed(seed, "clusters") % 2**32
    found = KMeans(CLUSTERS, n_init=1, random_state=state).fit(taught.flatten(1).double().numpy())
    lost = torch.randperm(CLUSTERS, generator=rng.fork(seed, "lost"))[: int(severity)]
    own = torch.from_numpy(found.predict(x.flatten(1).double().numpy()).astype("int64"))
    return x[~torch.isin(own, lost)]


@functools.lru_cache(maxsize=64)  # the carried cells and the oracles of one process share them
def _drawn(
    name: str, data_name: str, c: int, n: int, taught: int, steps: int | None, seed: int
) -> Float[Tensor, "n h w"]:
    """Samples of a generator that was taught on the rows of a class that the classifier has seen."""
    every = every_row(data_name, taught)
    own = every.floats(every.images[every.of(c, taught=True)])
    kind, options = GENERATORS[name]
    options = options if steps is None else options | {"steps": steps}
    made = generators.build(kind, preset="small", shape=tuple(own.shape[1:]), conditions=1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VestigeWarning)  # a collapse is for the comparison to show
        made.fit(own, 0, seed=rng.child_seed(seed, name, c))
    return made.sample(n, 0, seed=rng.child_seed(seed, "sample", name, c))


def cells_of(
    name: str,
    c: int,
    *,
    n: int,
    times: int,
    taught: int,
    paths: dict[str, tuple[float, ...]],
    made: tuple[str, ...],
    steps: int | None = None,
    seed: int,
) -> tuple[ClassRows, list[Callable[[], ImageCell]]]:
    """The rows of class `c`, and how to make each of its cells, of at most `n` images."""
    rows = class_rows(name, c, n=n, times=times, taught=taught, seed=seed)
    classes = 1 + int(every_row(name, taught).labels.max())

    def corrupted(path: str, severity: float) -> ImageCell:
        x = rows.spare[:n]
        if path == "noise":
            x = noisy(x, severity, rng.fork(seed, "noise", c))
        elif path == "blur":
            x = blurred(x, severity)
        elif path == "confusion":
            other = class_rows(name, (c + 1) % classes, n=n, times=times, taught=taught, seed=seed).spare
            x = confused(x, other, severity)
        elif path == LOST:
            x = without_modes(rows.spare, rows.taught, severity, seed)[:n]
        return ImageCell(path, severity, x)

    def drawn(own: str) -> ImageCell:
        return ImageCell(own, math.nan, _drawn(own, name, c, n, taught, steps, seed))

    found: list[Callable[[], ImageCell]] = [functools.partial(corrupted, REAL, 0.0)]
    found += [functools.partial(corrupted, path, severity) for path in paths for severity in paths[path]]
    return rows, found + [functools.partial(drawn, own) for own in made]
