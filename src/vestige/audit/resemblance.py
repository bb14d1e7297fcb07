"""Do the inputs of a task look like old classes to the model that is about to learn it? Measured, not declared.

Before a task trains, the model of the tasks before it looks at the task's inputs. An input counts when the model names
an old class with a probability of at least `sure`. A model may be sure of anything, so the same inputs are shown once
more with their coordinates shuffled, each input in an order of its own: they keep their brightness and lose their
shape. Resemblance is the share of counted inputs minus the share of counted shuffled ones. On Permuted MNIST, whose
tasks are shuffled inputs to begin with, the difference is noise: .02 on average over three tasks, .31 over the four of
Split MNIST (1000 a class, an MLP of 100, 3 epochs). It is a property of model and stream together: a network too small
or too sure of itself to tell shape from shade shows none where a better one does.

Farquhar and Gal (section 5) ask that inputs "at least sometimes result in confident predictions of old classes": here,
that on average over tasks the difference is at least a limit, and more than two standard errors over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import rng

Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Resemblance:
    """Shares on one task's inputs, before it trained, and on the same inputs shuffled."""

    task: int
    named_old: float
    named_old_shuffled: float
    n: int  # inputs that were looked at

    @property
    def difference(self) -> float:
        """What the shape of the inputs adds."""
        return self.named_old - self.named_old_shuffled


def share_named_old(log_p: Float[Tensor, "n k"], candidates: Sequence[int], old: Sequence[int], sure: float) -> float:
    """How often the likeliest of `candidates` is an old class, and has at least the probability `sure`."""
    among = log_p[:, list(candidates)].log_softmax(1)
    best, place = among.max(1)
    is_old = torch.isin(torch.tensor(list(candidates))[place], torch.tensor(list(old)))
    return float((is_old & (best.exp() >= sure)).double().mean())


@torch.no_grad()
def resemblance(
    predict: Scores,
    x: Float[Tensor, "n *shape"],
    *,
    task: int,
    candidates: Sequence[int],
    old: Sequence[int],
    seed: int,
    sure: float = 0.9,
    most: int = 1000,
) -> Resemblance:
    """Look at up to `most` inputs of a task that is about to begin, as they are and shuffled."""
    rows = torch.randperm(len(x), generator=rng.fork(seed, "audit rows", task))[:most]
    x = x[rows]
    flat = x.flatten(1)
    order = torch.rand(flat.shape, generator=rng.fork(seed, "audit order", task)).argsort(1)
    shuffled = flat.gather(1, order).reshape(x.shape)
    plain, scrambled = (share_named_old(predict(inputs), candidates, old, sure) for inputs in (x, shuffled))
    return Resemblance(task, plain, scrambled, len(x))


def summarised(found: Sequence[Resemblance]) -> dict[str, float]:
    """Means over tasks, and the standard error of the difference: over tasks, or over inputs where there is one."""
    per_task = torch.tensor([r.difference for r in found], dtype=torch.float64)
    shares = [(r.named_old, r.named_old_shuffled) for r in found]
    first, second = (sum(column) / len(found) for column in zip(*shares, strict=True))
    noise = math.sqrt((first * (1 - first) + second * (1 - second)) / found[0].n)
    se = float(per_task.std()) / math.sqrt(len(found)) if len(found) > 1 else noise
    return {"named_old": first, "named_old_shuffled": second, "difference": first - second, "se": se}
