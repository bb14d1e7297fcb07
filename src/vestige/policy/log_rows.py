"""Rows of logs: put in the order of time, numbered by episode, and checked to follow each other."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.core.errors import VestigeWarning

WHOLE = 2**53  # from here on two whole numbers may be one float
# How far s' and the next row's s may lie apart, as a share of the column's largest value: rounding.
CHAIN_TOLERANCE = 1e-5
CHAINED, UNCHAINED = 0.5, 0.01  # shares of rows that chain: fewer than the first warn, than the second are refused


def whole_numbers(value: ArrayLike, name: str, owner: str, length: int) -> Int64[Tensor, " m"]:
    """Ids or steps, exactly; those that came as floats too large to tell neighbours apart are refused."""
    if isinstance(value, pd.Series) and value.dtype.kind in "iu":
        value = value.to_numpy()  # the door would make floats of it
    found = checks.labels(value, name, owner, length=length)
    floating = value.is_floating_point() if isinstance(value, Tensor) else np.asarray(value).dtype.kind == "f"
    if floating and len(found) and int(found.max()) >= WHOLE:
        checks.refuse(name, owner, "integers or texts where they reach 2**53", f"the float {float(found.max()):.17g}")
    return found


def in_order(columns: dict[str, Tensor], steps: Tensor, owner: str) -> dict[str, Tensor]:
    """Rows sorted by episode and step; steps must follow each other within an episode."""
    order = torch.argsort(steps, stable=True)
    order = order[torch.argsort(columns["episodes"][order], stable=True)]
    episodes, steps = columns["episodes"][order], steps[order]
    gap = (episodes[1:] == episodes[:-1]) & (steps[1:] != steps[:-1] + 1)
    if bool(gap.any()):
        at = int(gap.nonzero()[0])
        told = f"{int(steps[at + 1])} after {int(steps[at])} in episode {int(episodes[at])}"
        checks.refuse("steps", owner, "consecutive within an episode", told)
    return {name: column[order] for name, column in columns.items()}


def numbered(episodes: Tensor, owner: str) -> Tensor:
    """Episodes as 0, 1, 2 ...; rows of one that stand in two places are refused."""
    values, numbers = torch.unique_consecutive(episodes, return_inverse=True)
    if len(torch.unique(values)) < len(values):
        checks.refuse("episodes", owner, "in one block of rows each, or come with 'steps'", "one in several")
    return numbers


def require_ends(columns: dict[str, Tensor], owner: str) -> None:
    """Refuse a terminal row that is not the last of its episode: nothing follows a terminal state."""
    if "terminated" in columns:
        early = columns["terminated"][:-1] & (columns["episodes"][1:] == columns["episodes"][:-1])
        if bool(early.any()):
            told = f"true in row {int(early.nonzero()[0])} (from 0), with more of its episode after it"
            checks.refuse("terminated", owner, "true in the last row of an episode alone", told)


def with_next(columns: dict[str, Tensor], owner: str) -> dict[str, Tensor]:
    """s' from the row that follows in the same episode; the last row of each has none and is dropped."""
    if "terminated" in columns and bool(columns["terminated"].any()):
        checks.refuse("next_observations", owner, "given where an episode ends in a terminal state", "none")
    rows = (columns["episodes"][1:] == columns["episodes"][:-1]).nonzero().squeeze(1)
    if len(rows) == 0:
        checks.refuse("next_observations", owner, "given where episodes have a single row", "none")
    following = columns["observations"][rows + 1]
    kept = {name: column[rows] for name, column in columns.items()} | {"next_observations": following}
    return kept | {"episodes": torch.unique_consecutive(kept["episodes"], return_inverse=True)[1]}


def require_chain(columns: dict[str, Tensor], owner: str, *, ordered: bool) -> None:
    """Refuse rows of which nearly none goes on where the one before ended, unless `steps` put them in order.

    Where fewer than half do, it is a warning: the rows may be a sample of those that there were.
    """
    rows = (columns["episodes"][1:] == columns["episodes"][:-1]).nonzero().squeeze(1)
    if len(rows) == 0:
        return
    s, after = columns["observations"], columns["next_observations"]
    slack = CHAIN_TOLERANCE * torch.maximum(s.abs().amax(0), after.abs().amax(0))
    chained = int(((after[rows] - s[rows + 1]).abs() <= slack).all(1).sum())
    told = f"{chained} of {len(rows)} that are"
    if chained < UNCHAINED * len(rows) and not ordered:
        must = "the 'observations' of the row that follows in its episode, or come with 'steps' that order the rows"
        checks.refuse("next_observations", owner, must, told)
    if chained < CHAINED * len(rows):
        warnings.warn(
            f"The 'next_observations' of {owner} should be the 'observations' of the row that follows in its episode; "
            f"there are {told}. If rows were left out, returns and horizons are of those that remain.",
            VestigeWarning,
            stacklevel=4,
        )
