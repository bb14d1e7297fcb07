"""What it costs to keep a vestige and to ask it, and how small it is.

`keep` of 100 000 x 64 numbers and of a mixed table, the size of the file beside that of the rows, and `compare` of
5000 new rows with it. The floor of `keep` is one pass for mean and covariance of all rows. Targets: at most 20 CPU
seconds for each, at most 2 MB; the note says whether they were met. There is no peer: packages that judge the drift of
whole rows keep the rows. Growth with rows and columns follows. Each row is run once: these take minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import vestige as vs
from benchmarks.timing import Row, cpu_seconds
from vestige.core.numerics import Moments

SECONDS, BYTES = 20.0, 2e6
SIZES = ((100_000, 64), (10_000, 64), (10_000, 10), (1000, 10))
NEW = 5000


def numbers(n: int, d: int, seed: int) -> torch.Tensor:
    """Skewed columns that depend on each other."""
    draw, mixing = np.random.default_rng(seed), np.random.default_rng(0)
    z = draw.normal(size=(n, d)) @ (mixing.normal(size=(d, d)) / d**0.5)
    return torch.from_numpy(np.where(z > 0, np.expm1(z / 2), z))


def table(n: int, seed: int) -> pd.DataFrame:
    """Numbers, text and missing values: 12 columns."""
    draw = np.random.default_rng(seed)
    x = numbers(n, 10, seed).numpy()
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(10)])
    frame["kind"] = np.array(["a", "b", "c", "d"])[np.clip(x[:, 0] + draw.normal(size=n) + 1.5, 0, 3).astype(int)]
    frame["place"] = draw.choice([f"p{i}" for i in range(12)], n)
    return frame.mask(draw.random(frame.shape) < 0.02)


def _rows(name: str, rows: object, new: object, floor: Callable[[], object] | None) -> list[Row]:
    kept: list[vs.Vestige] = []
    seconds = cpu_seconds(lambda: kept.append(vs.keep(rows)))
    with tempfile.TemporaryDirectory() as folder:
        size = kept[0].save(Path(folder) / "x.vestige").stat().st_size
    met = "met" if seconds <= SECONDS and size <= BYTES else "NOT met"
    own = f"own error of JS at most {kept[0].errors.limit('js'):.2g}"
    note = f"file {size / 1e3:.0f} kB; {own}; at most {SECONDS:g} s and {BYTES / 1e6:g} MB: {met}"
    first = Row(f"keep {name}", seconds, "none", None, None if floor is None else cpu_seconds(floor), note=note)
    seconds = cpu_seconds(lambda: vs.compare(kept[0], new))
    met = "met" if seconds <= SECONDS else "NOT met"
    return [first, Row(f"compare {NEW} rows, {name}", seconds, "none", None, note=f"at most {SECONDS:g} s: {met}")]


def rows() -> list[Row]:
    """Numbers of several sizes, and a table."""
    found: list[Row] = []
    for n, d in SIZES:
        x = numbers(n, d, 1)
        found += _rows(f"{n} x {d}", x, numbers(NEW, d, 2), lambda x=x: Moments.of(x))
    return found + _rows("10000 x 12, mixed", table(10_000, 1), table(NEW, 2), None)
