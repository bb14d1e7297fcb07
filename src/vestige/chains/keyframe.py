"""Keyframes: the reference advances only when the model has moved far enough from it to be told apart.

log p/q_t = log p/q_key + log q_key/q_t, as in CDRE Eq. 5 with the last keyframe in place of the last step: steps
below the noise are not chained, and no jump is longer than it must be. The second term is a stack on generated samples
of both sides, unweighted. When its held-out KL(q_key || q_t) exceeds `threshold`, Q_t becomes the key: its rows get the
weights of log p/q_t and are balanced to the key before it, so that the terms of a divergence are averaged over anchor
samples for p here too, not by Eq. 4. A key is never moved over a bridge: samples that lie so far from p cannot take its
place, and the model may come back. Errors add up over keyframes; the anchors' variance and the gap say how far.

Where the model gets narrower than the data, as in CDRE Fig. 2, a key that moves along loses the tails of p and its
weights become heavy: kl is refused by t = 10, where the fixed anchors of `anchored` are within two per cent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from vestige.chains.anchored import Anchored, TaskState
from vestige.chains.step_ratio import bridged, fit_step
from vestige.chains.strategy import TaskLogRatios
from vestige.core.checks import option


@dataclass(frozen=True)
class Keyframe(Anchored):
    """Like `Anchored`, with anchor samples that move along."""

    name: ClassVar[str] = "keyframe"
    threshold: float = option(0.3, above=0)  # nats

    def arrive(self, p: Tensor, q: Tensor, seed: int) -> tuple[TaskState, TaskLogRatios]:
        """The first samples are the first key."""
        state, found = super().arrive(p, q, seed)
        return TaskState(state.anchors, state.ratios, None), found

    def advance(self, state: TaskState, q: Tensor, seed: int) -> tuple[TaskState, TaskLogRatios]:
        """Key against this step's samples; they become the key if they are far from it."""
        key = state.anchors
        fit = fit_step(key.samples, q, None, **self.recipe(), start=state.newest, seed=seed)
        to_key = torch.stack([step.log_ratio(q) for step in state.keys]).sum(0)
        log_ratio_q, log_ratio_p = to_key + fit.log_ratio_q, key.log_ratio + fit.log_ratio_p
        gap, far = key.gap + fit.gap, bridged(fit.ratio)
        found = self.found(key, log_ratio_q, log_ratio_p, gap, len(state.keys) + 1, far)
        if far or float(fit.log_ratio_p.mean()) <= self.threshold:
            return TaskState(key, state.keys, fit.ratio), found
        inherited = key.inherited + 1 / key.ess
        moved = self.reweighted(key.samples, key.weights, q, log_ratio_q, inherited=inherited, gap=gap, seed=seed)
        return TaskState(moved, (*state.keys, fit.ratio), None), replace(found, moved=True)
