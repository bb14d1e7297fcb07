"""What is done on the CPU, wherever a run computes: rows are chosen and data sets held, the same on every machine.

So is what needs float64, which not every device has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def on_cpu(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, making its tensors on the CPU."""

    @functools.wraps(function)
    def near(*args: P.args, **kwargs: P.kwargs) -> T:
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return near
