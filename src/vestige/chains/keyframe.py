"""Keyframes: the reference advances only when the model has moved far enough from it to be told apart.

log p/q_t = log p/q_key + log q_key/q_t, as in CDRE Eq. 5 with the last keyframe in place of the last step: steps
below the noise are not chained, and no jump is longer than it must be. The second term is a stack on generated samples
of both sides, unweighted. When its held-out KL(q_key || q_t) exceeds `threshold`, Q_t becomes the key: its rows get the
weights of log p/q_t and are balanced to the key before it, so that the terms of a divergence are averaged over a
stand-in for p here too, not by Eq. 4. A key is never moved over a bridge: samples that lie so far from p cannot stand
for it, and the model may come back. Errors add up over keyframes; the stand-in's variance and the gap say how far.

Where the model gets narrower than the data, as in CDRE Fig. 2, a key that moves along loses the tails of p and its
weights become heavy: kl is refused by t = 10, where the fixed stand-in of `anchored` is within two per cent.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from vestige.chains.anchored import TaskState
from vestige.chains.estimated import Estimated, seen_from
from vestige.chains.strategy import Found
from vestige.core import checks


@dataclass(frozen=True)
class Keyframe(Estimated):
    """Like `Anchored`, with a stand-in that moves along."""

    name: ClassVar[str] = "keyframe"
    threshold: float = 0.3  # nats

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        super().check()
        checks.number(self.threshold, "threshold", "Chain", low=0, open_low=True)

    def arrive(self, p: Tensor, q: Tensor, seed: int) -> tuple[TaskState, Found]:
        """The first samples are the first key."""
        state, found = super().arrive(p, q, seed)
        return TaskState(state.stand_in, state.ratios, None), found

    def advance(self, state: TaskState, q: Tensor, seed: int) -> tuple[TaskState, Found]:
        """Key against this step's samples; they become the key if they are far from it."""
        key, ratio = state.stand_in, self.stack()
        if state.newest is None:
            ratio.fit(key.samples, q, seed=seed)
        else:
            ratio.fit_from(state.newest, key.samples, q, seed=seed)
        to_key = torch.stack([step.log_ratio(q) for step in state.keys]).sum(0)
        log_ratio_q, log_ratio_p = to_key + ratio.held_out_q_, key.log_ratio + ratio.held_out_p_
        gap = key.gap + ratio.gap_
        depth = len(state.keys) + 1
        found = Found(log_ratio_q, log_ratio_p, key.weights, key.inherited, depth, gap, len(key.weights), key.ess)
        found = seen_from(state, found, ratio.bridged_)
        if ratio.bridged_ or float(ratio.held_out_p_.mean()) <= self.threshold:
            return TaskState(key, state.keys, ratio), found
        inherited = key.inherited + 1 / key.ess
        moved = self.reweighted(key.samples, key.weights, q, log_ratio_q, inherited=inherited, gap=gap, seed=seed)
        return TaskState(moved, (*state.keys, ratio), None), dataclasses.replace(found, moved=True)
