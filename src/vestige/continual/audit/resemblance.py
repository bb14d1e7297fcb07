"""Do the inputs of a task look like old classes to the model that is about to learn it? Measured, not declared.

Before a task trains, the model of the tasks before it looks at the task's inputs. An input counts when the model names
an old class with a probability of at least `sure`. A model may be sure of anything, so the same inputs are shown again
with their coordinates in another order, one order for all inputs as in Permuted MNIST, and that for many orders: they
keep their brightness and lose their shape. Resemblance is the share of counted inputs minus the mean share under other
orders.

Chance is excluded by rank: the p-value is how often, among its own and the other orders, the mean share over tasks is
at least that of the inputs as they are. Where a task is the same inputs in a random order its own is one of many, so
the p-value of the second task of Permuted MNIST is uniform whatever the model, and nothing is assumed of how shares are
spread. Over more tasks that is near the truth but not exact: the model that looks at a later task was trained on the
orders of those before it. Either way one stream of permutations in twenty passes; where a stream declares that its
inputs are the same, an audit goes by that (see `answers`).

It is a property of model and stream together: a network too small, too sure of itself or hardly trained shows no
resemblance where a better one does. Farquhar and Gal (section 5) ask that inputs "at least sometimes result in
confident predictions of old classes"; that the model must not find as many in noise is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import rng

Scores = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Resemblance:
    """Shares on one task's inputs, before it trained, and on the same inputs under each other order."""

    task: int
    named_old: float
    other_orders: tuple[float, ...]
    n: int  # inputs that were looked at
    sure_of_any: float  # the share of them of which the model was sure, whatever it named: without that, none is named

    @property
    def difference(self) -> float:
        """What the shape of the inputs adds."""
        return self.named_old - fmean(self.other_orders)


def share_named_old(log_p: Float[Tensor, "n k"], candidates: Sequence[int], old: Sequence[int], sure: float) -> float:
    """How often the likeliest of `candidates` is an old class, and has at least the probability `sure`."""
    among = log_p[:, list(candidates)].log_softmax(1)
    best, place = among.max(1)
    is_old = torch.isin(torch.tensor(list(candidates))[place], torch.tensor(list(old)))
    return float((is_old & (best.exp() >= sure)).double().mean())


def share_sure(log_p: Float[Tensor, "n k"], candidates: Sequence[int], sure: float) -> float:
    """How often the likeliest of `candidates`, old or new, has at least the probability `sure`."""
    best = log_p[:, list(candidates)].log_softmax(1).max(1).values
    return float((best.exp() >= sure).double().mean())


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
    most: int = 250,
    orders: int = 39,
) -> Resemblance:
    """Look at up to `most` inputs of a task that is about to begin, as they are and in `orders` other orders."""
    rows = torch.randperm(len(x), generator=rng.fork(seed, "audit rows", task))[:most]
    x = x[rows]
    flat, generator = x.flatten(1), rng.fork(seed, "audit orders", task)

    def share(inputs: Tensor) -> float:
        return share_named_old(predict(inputs.reshape(x.shape)), candidates, old, sure)

    others = [share(flat[:, torch.randperm(flat.shape[1], generator=generator)]) for _ in range(orders)]
    own = predict(x)
    named, any_class = share_named_old(own, candidates, old, sure), share_sure(own, candidates, sure)
    return Resemblance(task, named, tuple(others), len(x), any_class)


def summarised(found: Sequence[Resemblance]) -> dict[str, float]:
    """Means over tasks of the shares and of the difference from other orders, and the p-value of the mean share."""
    own = fmean(r.named_old for r in found)
    others = [fmean(shares) for shares in zip(*(r.other_orders for r in found), strict=True)]
    p, sure = (1 + sum(other >= own for other in others)) / (1 + len(others)), fmean(r.sure_of_any for r in found)
    difference = own - fmean(others)
    return {"named_old": own, "other_orders": fmean(others), "difference": difference, "p": p, "sure_of_any": sure}
