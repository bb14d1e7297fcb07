"""Logged experience of a behaviour policy: flat transitions (s, a, r, s'), the rows of an episode one after the other.

`Logs.of` takes arrays of any kind and checks them, once; `Logs.read` does it for a file (see below for the
layout). Actions are those that were carried out: where a policy's draw was cut at the bounds of the space, the cut
one, and `log_probs` is the behaviour's log density of that action (of its point mass at a bound), as
`GaussianPolicy.log_prob` gives it.

An episode that ends without `terminated` was cut off; what would have followed is not known.

Rows are put in the order of time, numbered by episode, and checked to follow each other.

Logs on disk, in formats that every language writes: .npz, .parquet, .csv. Nothing in a file is ever executed.

An .npz holds the arrays `observations`, `actions`, `rewards`, `episodes` and, where they are known,
`next_observations`, `steps`, `terminated`, `log_probs`, `action_low`, `action_high`. A table has a row a transition
with the columns `observation_0` ..., `action_0` ..., `reward`, `episode` and, where they are known,
`next_observation_0` ..., `step`, `terminated`, `log_prob`. Other arrays and columns are left alone.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import torch
from jaxtyping import Bool, Float, Float64, Int64
from numpy.typing import NDArray
from torch import Tensor

from vestige import store
from vestige.core import VestigeWarning, checks
from vestige.core.checks import ArrayLike
from vestige.data.formats import open_npz
from vestige.data.readers.address import Address, locate, refuse_file
from vestige.data.readers.columns import floats, kind_of, plain
from vestige.data.readers.tables import read_table
from vestige.policy.policies import bounds_of

NEEDED = ("observations", "actions", "rewards", "episodes")
OPTIONAL = ("next_observations", "steps", "terminated", "log_probs", "action_low", "action_high")
WIDE = ("observations", "actions", "next_observations")  # several columns of a table each
EXACT = ("episode", "step")  # no float holds every integer
ENDINGS = (".npz", ".parquet", ".csv")


@dataclass(frozen=True, eq=False)
class Logs:
    """Transitions of at least two episodes, each in one block of rows in the order of time. Built by `of` or `read`."""

    observations: Float[Tensor, "m s"]
    actions: Float[Tensor, "m a"]
    rewards: Float64[Tensor, " m"]
    next_observations: Float[Tensor, "m s"]
    episodes: Int64[Tensor, " m"]  # 0, 1, 2 ... in the order of the rows
    terminated: Bool[Tensor, " m"] | None = None  # s' is a terminal state
    log_probs: Float64[Tensor, " m"] | None = None  # log density of the action under the behaviour policy
    action_low: Float64[Tensor, " a"] | None = None
    action_high: Float64[Tensor, " a"] | None = None

    @classmethod
    def of(
        cls,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        next_observations: ArrayLike | None,
        episodes: ArrayLike,
        *,
        terminated: ArrayLike | None = None,
        log_probs: ArrayLike | None = None,
        action_low: ArrayLike | None = None,
        action_high: ArrayLike | None = None,
        steps: ArrayLike | None = None,
        owner: str = "Logs",
    ) -> Logs:
        """Checked logs. float32 stays float32; rewards and log densities become float64.

        `steps` puts the rows of each episode in order; without it they must be in order already. Without
        `next_observations` they are taken from the row that follows, and the last row of each episode is dropped; an
        episode that ends in a terminal state is refused then. Rows that do not go on where the one before ended are
        refused or warned of, see `require_chain`.
        """
        s = checks.samples(observations, "observations", owner, dtype=None)
        m = len(s)
        a = checks.samples(actions, "actions", owner, dtype=None)
        columns: dict[str, Tensor] = {"observations": s, "actions": a}
        if next_observations is not None:
            following = checks.samples(next_observations, "next_observations", owner, width=s.shape[1], dtype=None)
            columns["next_observations"] = following.to(s.dtype)
        for name, column in columns.items():
            if len(column) != m:
                checks.refuse(name, owner, f"as many rows as 'observations' ({m})", len(column))
        columns["rewards"] = checks.vector(rewards, "rewards", owner, length=m)
        if log_probs is not None:
            columns["log_probs"] = checks.vector(log_probs, "log_probs", owner, length=m)
        if terminated is not None:
            flags = checks.labels(terminated, "terminated", owner, length=m)
            if int(flags.max()) > 1:
                checks.refuse("terminated", owner, "true or false (1 or 0)", int(flags.max()))
            columns["terminated"] = flags.bool()
        columns["episodes"] = whole_numbers(episodes, "episodes", owner, m)
        if steps is not None:
            columns = in_order(columns, whole_numbers(steps, "steps", owner, m), owner)
        columns["episodes"] = numbered(columns["episodes"], owner)
        require_ends(columns, owner)
        if next_observations is None:
            columns = with_next(columns, owner)
        else:
            require_chain(columns, owner, ordered=steps is not None)
        if int(columns["episodes"][-1]) < 1:
            checks.refuse("episodes", owner, "two or more, to tell one from another", "a single one")
        bounds = bounds_of(a, action_low, action_high, owner)
        return cls(**columns, **bounds)

    @classmethod
    def read(cls, path: str | Path) -> Logs:
        """The logs in an .npz, .parquet or .csv file; a missing array or column is named."""
        path = Path(path)
        if path.is_dir() or path.suffix.lower() not in ENDINGS:
            told = "a folder" if path.is_dir() else f"the ending '{path.suffix}'"
            refuse_file(path, f"logs that end in {', '.join(ENDINGS)}", told)
        at = locate(path)
        arrays = _read_npz(at) if at.suffix == ".npz" else _read_table(at)
        return cls.of(**({"next_observations": None} | arrays), owner=at.path.name)

    def write(self, path: str | Path) -> Path:
        """Write to an .npz, .parquet or .csv file, whole or not at all. Tables do not hold the action bounds."""
        path = Path(path)
        if path.suffix not in ENDINGS:
            checks.refuse("path", "Logs.write", f"a name that ends in {', '.join(ENDINGS)}", path.name)
        held = {key: getattr(self, key) for key in (*NEEDED, *OPTIONAL)}
        arrays = {key: value.cpu().numpy() for key, value in held.items() if value is not None}
        buffer = io.BytesIO()
        if path.suffix == ".npz":
            np.savez_compressed(buffer, allow_pickle=False, **arrays)
        elif path.suffix == ".csv":
            pa_csv.write_csv(_table(arrays), buffer)
        else:
            pa_parquet.write_table(_table(arrays), buffer)
        store.write_bytes(path, buffer.getvalue())
        return path

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def lengths(self) -> Int64[Tensor, " e"]:
        """Rows of each episode."""
        return torch.bincount(self.episodes)

    @cached_property
    def starts(self) -> Int64[Tensor, " e"]:
        """The first row of each episode."""
        return self.lengths.cumsum(0) - self.lengths

    @property
    def steps(self) -> Int64[Tensor, " m"]:
        """The position of each row in its episode, from 0."""
        return torch.arange(len(self)) - self.starts[self.episodes]

    @property
    def initial(self) -> Float[Tensor, "e s"]:
        """The first observation of each episode: the sample of eta in LFIW Eq. 9."""
        return self.observations[self.starts]

    @property
    def ended(self) -> Bool[Tensor, " e"]:
        """Whether the last row of each episode was terminal, rather than cut off."""
        last = self.starts + self.lengths - 1
        return torch.zeros(len(last), dtype=torch.bool) if self.terminated is None else self.terminated[last]

    def first(self, horizon: int) -> tuple[Int64[Tensor, "e h"], Bool[Tensor, "e h"]]:
        """Rows of the first `horizon` steps of every episode that has them or ended before; False beyond its end."""
        whole = (self.lengths >= horizon) | self.ended
        starts, lengths = self.starts[whole, None], self.lengths[whole, None]
        step = torch.arange(horizon)
        return starts + torch.minimum(step, lengths - 1), step < lengths


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


def _read_npz(at: Address) -> dict[str, Any]:
    with open_npz(at.path) as file:
        return {key: file.array(key) for key in (*NEEDED, *(key for key in OPTIONAL if key in file))}


def _read_table(at: Address) -> dict[str, Any]:
    table, _ = read_table(at, with_index=True)  # episodes and steps may well have been one
    found: dict[str, Any] = {}
    known = dict.fromkeys(table.column_names)
    for key in (*NEEDED, *OPTIONAL):
        names = _wide(key, known, at) if key in WIDE else [key.removesuffix("s")]
        if key in NEEDED or all(name in known for name in names):
            for name in names:
                _require(name, known, at)
            columns = [_column(table, name, at) for name in names]
            found[key] = np.stack(columns, 1) if key in WIDE else columns[0]
    return found


def _wide(key: str, names: Mapping[str, object], at: Address) -> list[str]:
    """`observation_0`, `observation_1`, ... as far as they go; one that is left out in between is named."""
    stem = key.removesuffix("s")
    numbered = [name for name in names if re.fullmatch(rf"{stem}_\d+", name)]
    # As many as there are: a number beyond that leaves a gap before it, however large it is.
    columns = [f"{stem}_{i}" for i in range(max(len(numbered), 1))]
    for column in columns if numbered else ():
        _require(column, names, at)
    return columns


def _require(column: str, names: Mapping[str, object], at: Address) -> None:
    if column not in names:
        shown = ", ".join(list(names)[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        checks.refuse(column, at.path.name, "a column of the table", f"only {shown}")


def _column(table: pa.Table, name: str, at: Address) -> NDArray[Any]:
    """A column as numbers; episodes may be named by texts, which become 0, 1, 2 ... Ids and steps stay integers."""
    column = plain(table.column(name), name, at.path.name)
    if kind_of(column) == "text":
        if name != "episode":
            checks.refuse(name, at.path.name, "numbers", f"text such as '{column.drop_null()[0]}'")
        column = column.dictionary_encode().indices
    if name in EXACT and pa.types.is_integer(column.type) and not column.null_count:
        whole = column.to_numpy(zero_copy_only=False)
        return np.unique(whole, return_inverse=True)[1] if name == "episode" else whole
    return floats(column, name, at.path.name)


def _table(arrays: dict[str, NDArray[Any]]) -> pa.Table:
    columns: dict[str, NDArray[Any]] = {}
    for key, array in arrays.items():
        stem = key.removesuffix("s")
        if key in WIDE:
            columns |= {f"{stem}_{i}": np.ascontiguousarray(array[:, i]) for i in range(array.shape[1])}
        elif not key.startswith("action_"):
            columns[stem] = array
    return pa.table(columns)
