"""Third part: a sample set with too many small digits is weighted back to the whole (LFIW section 2).

Half of the digits stand for the data. Of the other half digit c stays with probability skew^c, which is the biased set
that somebody was given. The weights are a ratio of the two sets in a few principal components: they see no label. The
labels, which the demo kept, then tell how far the shares of the digits came back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import rng
from vestige.data import DataSet
from vestige.features import PCA
from vestige.ratios import Stack, weights
from vestige.vestiges import Weighing, weigh

RATIO = Stack()


@dataclass(frozen=True)
class ReweightedConfig:
    """How biased the set is, and what the ratio looks at."""

    skew: float = 0.8
    dims: int = 16


@dataclass(frozen=True)
class Reweighted:
    """Shares of the digits: in the data, in the biased set, and there by weight; and what the weights are worth."""

    target: Float[Tensor, " k"]
    biased: Float[Tensor, " k"]
    weighted: Float[Tensor, " k"]
    error: Float[Tensor, " k"]  # standard error of `weighted`, the weights taken as given
    weighing: Weighing

    @property
    def mean_digit(self) -> tuple[float, float, float]:
        """The average digit of the data, of the biased set, and of that by weight."""
        data, biased, weighted = (
            float(shares @ torch.arange(len(shares), dtype=torch.float64))
            for shares in (self.target, self.biased, self.weighted)
        )
        return data, biased, weighted

    @property
    def misplaced(self) -> tuple[float, float]:
        """The share of samples that stand at the wrong digit (total variation), before and after weighting."""
        before, after = (0.5 * float((s - self.target).abs().sum()) for s in (self.biased, self.weighted))
        return before, after


def sets(
    data: DataSet, skew: float, seed: int
) -> tuple[tuple[Float[Tensor, "n d"], Tensor], tuple[Float[Tensor, "m d"], Tensor]]:
    """Images and labels of the data and of the biased set, which share no image."""
    x = data.floats(torch.cat([data.train_x, data.test_x])).flatten(1)
    y = torch.cat([data.train_y, data.test_y])
    generator = rng.fork(seed, "biased set")
    order = torch.randperm(len(y), generator=generator)
    half = order[: len(y) // 2]
    rest = order[len(y) // 2 :]
    stays = torch.rand(len(rest), generator=generator) < skew ** y[rest].float()
    return (x[half], y[half]), (x[rest[stays]], y[rest[stays]])


def reweight(data: DataSet, config: ReweightedConfig, *, seed: int) -> Reweighted:
    """Weigh the biased set, and look where its digits stand."""
    (p, p_digits), (q, q_digits) = sets(data, config.skew, seed)
    seen = PCA(dims=config.dims).fit(p)
    found = weigh(seen.codes(p).double(), seen.codes(q).double(), estimator=RATIO, seed=seed)
    k = len(data.names)
    is_digit = torch.nn.functional.one_hot(q_digits, k).double()
    shares = weights.expectation(is_digit, found.weights.log())
    target = torch.bincount(p_digits, minlength=k).double() / len(p_digits)
    return Reweighted(target, is_digit.mean(0), shares.value, shares.std_error, found)
