"""First part: half of the digits are kept as a vestige and deleted, and three sets of new digits are held against it.

Of each image the first principal components are handed over, as a team would hand over features. The other half of the
images makes three sets that share no image: one is like the first half, one lacks some of the digits, and one was
written with a thicker pen (the square root of every grey level). What the vestige says is compared with what the demo
did.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from vestige.core import rng
from vestige.data import DataSet
from vestige.features import PCA
from vestige.ratios import Stack
from vestige.vestiges import Comparison, compare, keep

LIKE, LACKING, THICKER = "like the kept ones", "without 0, 1 and 2", "with a thicker pen"
SIDES = ("the kept digits", "the new digits")  # for sentences
LOST = 3  # digits that the second set lacks


@dataclass(frozen=True)
class KeptConfig:
    """How much the vestige sees."""

    dims: int = 8


@dataclass(frozen=True)
class KeptDigits:
    """Rows that were kept, bytes of the rows and of the file, and what was found of each set of new digits."""

    rows: int
    row_bytes: int
    file_bytes: int
    found: dict[str, Comparison]


def keep_and_compare(
    data: DataSet, config: KeptConfig, *, seed: int, on_step: Callable[[int], None] = lambda _: None
) -> KeptDigits:
    """Keep, delete, compare; `on_step` hears how many of the four steps are done."""
    x = data.floats(torch.cat([data.train_x, data.test_x])).flatten(1)
    y = torch.cat([data.train_y, data.test_y])
    order = torch.randperm(len(x), generator=rng.fork(seed, "kept digits"))
    half, *rest = order.tensor_split([len(x) // 2, 2 * len(x) // 3, 5 * len(x) // 6])
    seen = PCA(dims=config.dims).fit(x[half])
    real = seen.codes(x[half]).double()
    kept = keep(real, density="mixture", seed=seed)
    on_step(1)
    with tempfile.TemporaryDirectory() as folder:
        file_bytes = kept.save(Path(folder) / "digits.vestige").stat().st_size
    new = {LIKE: x[rest[0]], LACKING: x[rest[1]][y[rest[1]] >= LOST], THICKER: x[rest[2]].sqrt()}
    found = {}
    for name, images in new.items():
        estimator = Stack(**Stack.presets["fast"])
        found[name] = compare(kept, seen.codes(images).double(), estimator=estimator, names=SIDES, seed=seed)
        on_step(1 + len(found))
    return KeptDigits(len(half), x[half].numel() * x.element_size(), file_bytes, found)
