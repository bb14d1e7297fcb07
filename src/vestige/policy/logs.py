"""Logged experience of a behaviour policy: flat transitions (s, a, r, s'), the rows of an episode one after the other.

`Logs.of` takes arrays of any kind and checks them, once; `Logs.read` does it for a file (see `log_files` for the
layout). Actions are those that were carried out: where a policy's draw was cut at the bounds of the space, the cut
one, and `log_probs` is the behaviour's log density of that action (of its point mass at a bound), as
`GaussianPolicy.log_prob` gives it.

An episode that ends without `terminated` was cut off; what would have followed is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from vestige.core import checks
from vestige.core.checks import ArrayLike
from vestige.policy.bounds import bounds_of
from vestige.policy.log_rows import in_order, numbered, require_chain, require_ends, whole_numbers, with_next


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
        refused or warned of, see `log_rows.require_chain`.
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
        """The logs in an .npz, .parquet or .csv file."""
        from vestige.policy.log_files import read  # it builds Logs

        return read(path)

    def write(self, path: str | Path) -> Path:
        """Write to an .npz, .parquet or .csv file, whole or not at all. Tables do not hold the action bounds."""
        from vestige.policy.log_files import write

        return write(self, path)

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
