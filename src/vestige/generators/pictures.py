"""Sample grids and training curves of a generator, as figures; and images small enough to lie in a Record."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike, as_tensor
from vestige.generators.base import Generator
from vestige.show import curves, images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 16  # of grey that a packed image has


def sample_grid(
    generator: Generator, conditions: Sequence[int] | None = None, *, columns: int = 10, seed: int = 0
) -> Figure:
    """`columns` samples of each condition, a row each; by default of every one that has been learnt."""
    columns = checks.whole(columns, "columns", "sample_grid", low=1)
    asked = list(generator.known_ if conditions is None else conditions)
    if not asked:
        checks.refuse("conditions", "sample_grid", "at least one", "none")
    drawn = generator.sample_each([c for c in asked for _ in range(columns)], seed=seed)
    return grid(drawn, columns=columns, rows=[str(c) for c in asked], title=f"Samples of {generator.name}")


def grid(x: ArrayLike, *, columns: int, rows: Sequence[str], title: str) -> Figure:
    """Images row by row. What lies beyond 0 and 1 widens the range of greys, which is then the data's own."""
    pixels = as_tensor(x, "x", "grid")
    pixels = pixels.movedim(1, -1) if pixels.ndim == 4 and pixels.shape[1] in (1, 3) else pixels
    low, high = min(float(pixels.min()), 0.0), max(float(pixels.max()), 1.0)
    return images(pixels, title=title, columns=columns, rows=rows, limits=(low, high))


def training_curves(report: Mapping[str, Any], *, title: str = "") -> Figure:
    """The curves in the report of a fit, over its steps."""
    series = report.get("curves")
    if not series:
        checks.refuse("report", "training_curves", "that of a generator after fit, with curves", "none")
    points = len(next(iter(series.values())))
    steps = [report["steps"] * (i + 1) / points for i in range(points)]
    words = title or f"Training of {report['generator']}, condition {', '.join(map(str, report['learnt']))}"
    return curves(series, steps, title=words, x_label="step", y_label="mean over the steps before")


def pack(x: Float[Tensor, "n *shape"]) -> dict[str, Any]:
    """Images as a few kilobytes of plain JSON: 16 greys, what lies beyond 0 and 1 black and white; compressed."""
    grey = (x.clamp(0, 1) * (LEVELS - 1)).round().to(torch.uint8).flatten()
    grey = torch.nn.functional.pad(grey, (0, len(grey) % 2))
    packed = zlib.compress((grey[::2] * LEVELS + grey[1::2]).numpy().tobytes(), 9)
    return {"shape": list(x.shape), "packed": base64.b64encode(packed).decode("ascii")}


def unpack(packed: Mapping[str, Any]) -> Float[Tensor, "n *shape"]:
    """The inverse of `pack`, to half a level."""
    pairs = torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(packed["packed"]))), dtype=torch.uint8)
    grey = torch.stack([pairs // LEVELS, pairs % LEVELS], 1).flatten()
    return grey[: math.prod(packed["shape"])].reshape(packed["shape"]).float() / (LEVELS - 1)
