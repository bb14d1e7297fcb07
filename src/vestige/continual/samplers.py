"""Which samples of a class to keep when its task ends: RWalk section 4.2, iCaRL's herding, k-center.

A sampler is given a `View` of one class's samples, all of them from the task that is ending, and says which `m` to
keep, best first. It never sees the memory or another task.

- `uniform`: any m.
- `plane_distance`: q(x) proportional to 1 / d(x), d(x) = phi(x)' w^y. The paper's d may be zero or negative, for which
  its q is undefined: here d is taken as |d|, and not below `floor`.
- `entropy`: q(x) proportional to the entropy of the softmax over the outputs that train.
- `mean_of_features`: greedy; the mean of the first k chosen is as near as can be to the mean of the class, for each
  k in turn (iCaRL, Alg. 4). One product of the features with a vector for each choice: O(n f m).
- `herding`: the same on features of unit length, as iCaRL has it; `mean_of_features` takes them as they are.
- `k_center`: greedy; each next sample is the one farthest from those chosen. It starts at a sample drawn by the seed
  (the authors of VCL start at the first row).

The choice is made on the CPU, in float64, which not every device has, so that one view is judged alike everywhere: a
view comes from any device, a generator from the CPU.

A name with `_top` takes the m largest of q where the other draws by it. Draws are without replacement, one after the
other by weight: the m largest of log q plus Gumbel noise are exactly that, and a weight of zero needs no special case.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor


class View(NamedTuple):
    """What the network makes of n samples of one class."""

    features: Float[Tensor, "n f"]  # what the last layer sees
    distance: Float[Tensor, " n"]  # features times the weights of the sample's own class, without the bias
    log_p: Float[Tensor, "n k"]  # over the outputs that train

    def near(self) -> View:
        """The same in float64 on the CPU."""
        return View(*(part.cpu().double() for part in self))


class Sampler(Protocol):
    """Says which m samples of a view to keep, best first."""

    def __call__(self, view: View, m: int, *, generator: Generator) -> Tensor:
        """Places in the view."""
        ...


def draw(log_weights: Float[Tensor, " n"], m: int, *, generator: Generator) -> Int64[Tensor, " m"]:
    """m draws without replacement, each by weight among those that are left."""
    exponential = torch.empty(len(log_weights), dtype=torch.float64, device="cpu").exponential_(generator=generator)
    return _largest(log_weights.cpu().double() - exponential.log(), m)


def _largest(values: Float[Tensor, " n"], m: int) -> Int64[Tensor, " m"]:
    """Places of the m largest, largest first, equals in their order."""
    return values.sort(descending=True, stable=True).indices[:m]


def uniform(view: View, m: int, *, generator: Generator) -> Int64[Tensor, " m"]:
    """Any m."""
    return torch.randperm(len(view.features), generator=generator, device="cpu")[:m]


def plane_distance(
    view: View, m: int, *, generator: Generator, top: bool = False, floor: float = 1e-3
) -> Int64[Tensor, " m"]:
    """Near the decision boundary: q = 1 / max(|d|, floor)."""
    log_q = -view.near().distance.abs().clamp_min(floor).log()
    return _largest(log_q, m) if top else draw(log_q, m, generator=generator)


def entropy(view: View, m: int, *, generator: Generator, top: bool = False) -> Int64[Tensor, " m"]:
    """Uncertain ones: q = the entropy of the prediction."""
    log_p = view.near().log_p
    # An output that cannot be (log p = -inf) adds nothing; its 0 * -inf would add NaN.
    q = -(log_p.exp() * log_p.nan_to_num(neginf=0.0)).sum(1)
    return _largest(q, m) if top else draw(q.clamp_min(0).log(), m, generator=generator)


def unit_length(features: Float[Tensor, "n f"], floor: float = 1e-12) -> Float[Tensor, "n f"]:
    """Rows of length one; a row shorter than `floor` (a dead ReLU) stays as good as zero."""
    return features / features.norm(dim=1, keepdim=True).clamp_min(floor)


def mean_of_features(view: View, m: int, *, generator: Generator, unit: bool = False) -> Int64[Tensor, " m"]:
    """Greedy: choice k brings the mean of the chosen as near as it can to the mean of all."""
    features = view.near().features
    features = unit_length(features) if unit else features
    m = min(m, len(features))
    mean, squares = features.mean(0), features.square().sum(1)
    chosen = torch.empty(m, dtype=torch.int64, device="cpu")
    left = torch.zeros_like(mean)  # k * mean - sum of the chosen
    for k in range(m):
        left += mean
        # |k mean - sum - phi|^2 up to a constant. A chosen one is not chosen again.
        cost = squares - 2 * (features @ left)
        cost[chosen[:k]] = torch.inf
        chosen[k] = cost.argmin()
        left -= features[chosen[k]]
    return chosen


def herding(view: View, m: int, *, generator: Generator) -> Int64[Tensor, " m"]:
    """`mean_of_features` on features of unit length."""
    return mean_of_features(view, m, generator=generator, unit=True)


def k_center(view: View, m: int, *, generator: Generator) -> Int64[Tensor, " m"]:
    """Greedy: each next one is the farthest from all chosen before."""
    features = view.near().features
    m = min(m, len(features))
    chosen = torch.empty(m, dtype=torch.int64, device="cpu")
    squares = features.square().sum(1)
    distance = torch.full_like(squares, torch.inf)
    start = torch.randint(len(features), (), generator=generator, device="cpu")
    for k in range(m):
        chosen[k] = start if k == 0 else distance.argmax()
        here = features[chosen[k]]
        distance = torch.minimum(distance, squares - 2 * (features @ here) + here.square().sum())
        distance[chosen[k]] = -torch.inf  # a double of a chosen one may still come, the chosen one may not
    return chosen


SAMPLERS: dict[str, Sampler] = {
    "entropy": entropy,
    "entropy_top": partial(entropy, top=True),
    "herding": herding,
    "k_center": k_center,
    "mean_of_features": mean_of_features,
    "plane_distance": plane_distance,
    "plane_distance_top": partial(plane_distance, top=True),
    "uniform": uniform,
}
