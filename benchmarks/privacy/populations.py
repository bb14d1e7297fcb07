"""Public data of each kind of which a vestige may be kept, to draw members and others from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

ROWS = 60_000  # of a population that has more
GAUSSIAN_COLUMNS = 16


def _table(name: str) -> Any:
    import numpy as np

    from vestige_papers.beyond import drifting_tables

    rng = np.random.default_rng(20)
    if name == "electricity":  # all of its months: a window has too few rows
        return drifting_tables.as_table(name, drifting_tables.all_rows(name))
    return drifting_tables.as_table(name, drifting_tables.TABLES[name]().rows(rng, ROWS))


def _mnist() -> Any:
    from vestige import data

    return data.load("mnist", progress=False).train_x[:ROWS].float() / 255


def _gaussian() -> Any:
    import torch

    generator = torch.Generator().manual_seed(20)
    return torch.randn(ROWS, GAUSSIAN_COLUMNS, generator=generator, dtype=torch.float64)


# By name: of what kind of data it is an example, and its rows.
POPULATIONS: dict[str, tuple[str, Callable[[], Any]]] = {
    "covertype": ("table", functools.partial(_table, "covertype")),
    "electricity": ("numbers", functools.partial(_table, "electricity")),
    "mixed": ("table", functools.partial(_table, "mixed")),
    "mnist": ("images", _mnist),
    "gaussian": ("array", _gaussian),
}
