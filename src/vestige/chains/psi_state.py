"""What the paper's chain keeps: psi_t of every member, and of each task its coordinates, samples and normalisers.

log r_t of a member is psi_t - log Psi_t (CDRE Eq. 7), Psi_t being the mean of exp(psi_t) over all samples of the step;
that of several is the mean of theirs, less the logarithm of what its exponential averages to (`level`), so that Eq. 6
holds for the mean as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.log_linear import psi
from vestige.chains.strategy import scalar, under
from vestige.core.numerics import log_mean_exp
from vestige.ratios.standardise import Standardiser


def inputs(standardise: Standardiser, x: Float[Tensor, "n d"], task: int) -> Float[Tensor, "n d1"]:
    """A standardised sample and its task's number, from 1."""
    return torch.cat([standardise(x), x.new_full((len(x), 1), task + 1)], 1)


def outputs(
    layers: Sequence[Tensor], standardise: Standardiser, x: Float[Tensor, "n d"], task: int
) -> Float[Tensor, "m n"]:
    """psi of every member in float64."""
    seen = inputs(standardise, x, task)
    return psi([w.double() for w in layers], seen.expand(len(layers[0]), -1, -1), task)


@dataclass(frozen=True, eq=False)
class TaskSide:
    """What belongs to one task."""

    standardise: Standardiser
    samples: Float[Tensor, "n d"]  # of this step
    anchor: Float[Tensor, "k d"]  # of the step at which the data was here, weighted by r of that step
    anchor_weights: Float[Tensor, " k"]
    log_normaliser: Float[Tensor, " m"]  # log Psi_t of each member
    level: float
    depth: int  # ratios chained so far

    @classmethod
    def of(
        cls,
        layers: Sequence[Tensor],
        standardise: Standardiser,
        q: Float[Tensor, "n d"],
        task: int,
        old: TaskSide | None,
    ) -> TaskSide:
        """After a step that ended in `layers`; `old` is the side before it, None for a new task."""
        out = outputs(layers, standardise, q, task)
        log_normaliser = torch.logsumexp(out, 1) - math.log(len(q))
        mean = (out - log_normaliser[:, None]).mean(0)
        level = float(log_mean_exp(mean)) if len(out) > 1 else 0.0
        if old is None:
            return cls(standardise, q.clone(), q.clone(), torch.softmax(mean, 0), log_normaliser, level, 1)
        return cls(standardise, q.clone(), old.anchor, old.anchor_weights, log_normaliser, level, old.depth + 1)


@dataclass(frozen=True, eq=False)
class NetState:
    """psi_t and the tasks that it knows."""

    layers: tuple[Tensor, ...]
    tasks: tuple[TaskSide, ...]

    def member_log_ratios(self, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, "m n"]:
        """log r_t of every member."""
        side = self.tasks[task]
        return outputs(self.layers, side.standardise, x, task) - side.log_normaliser[:, None]

    def log_ratio(self, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """log r_t of all members together."""
        return self.member_log_ratios(task, x).mean(0) - self.tasks[task].level

    def pack(self) -> dict[str, Tensor]:
        """As tensors by name."""
        packed = {f"layer.{i}": x for i, x in enumerate(self.layers)}
        for i, side in enumerate(self.tasks):
            parts = side.standardise.state() | {
                "samples": side.samples,
                "anchor": side.anchor,
                "anchor_weights": side.anchor_weights,
                "log_normaliser": side.log_normaliser,
                "level": scalar(side.level),
                "depth": scalar(side.depth),
            }
            packed |= {f"task.{i}.{key}": value for key, value in parts.items()}
        return packed

    @classmethod
    def unpack(cls, tensors: Mapping[str, Tensor]) -> NetState:
        """The inverse of `pack`."""
        layers = under("layer.", tensors)
        ordered = tuple(layers[str(i)] for i in range(len(layers)))
        sides = []
        for i in range(ordered[-1].shape[2]):
            own = under(f"task.{i}.", tensors)
            kept = own["samples"], own["anchor"], own["anchor_weights"], own["log_normaliser"]
            sides.append(TaskSide(Standardiser.from_state(own), *kept, float(own["level"]), int(own["depth"])))
        return cls(ordered, tuple(sides))
