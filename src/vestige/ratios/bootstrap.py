"""Bootstrap ensembles of any estimator (LFIW App. A): a ratio with intervals.

Data is resampled with replacement (empirical bootstrap); a model that can be sampled anew gives fresh draws for every
member (parametric bootstrap), which takes its own sampling noise into account instead of that of one sample.

A resample is a set of counts, handed to the estimator as sample weights: the rows stay as they are, so that the copies
of a row never stand on both sides of a split into training and held-out rows. Rows that come with weights are
resampled as pairs (row, weight): counts times weights. Networks train as one batched network, a block of members at a
time; other estimators are fitted in a loop.

`log_ratio` is the mean of the members' log-ratios, not the log of their mean: exchanging p and q then changes its
sign and nothing else, its squared error is at most the members' average, and one member that runs away in a tail
moves it by 1/n of its log-ratio rather than taking it over. The mean ratio under q is then a little below one.
`interval` holds the quantiles of the members' log-ratios at a point (the percentile interval). It measures what
resampling moves; it knows nothing of a bias that all members share.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike, Kind, option
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.nets import NetRatio

# (n, seed) -> n fresh samples of q.
Sampler = Callable[[int, int], ArrayLike]


def counts(n: int, generator: torch.Generator) -> Float[Tensor, " n"]:
    """How often each of `n` rows is drawn in `n` draws with replacement."""
    drawn = torch.randint(n, (n,), generator=generator)
    return torch.bincount(drawn, minlength=n).to(torch.float64)


def resample(weights: Float[Tensor, " n"], generator: torch.Generator) -> Float[Tensor, " n"]:
    """Weights of one resample of weighted rows; they sum to one."""
    drawn = counts(len(weights), generator) * weights
    while not bool(drawn.sum() > 0):  # only rows of weight zero were drawn: that resample holds no data
        drawn = counts(len(weights), generator) * weights
    return drawn / drawn.sum()


@dataclass(eq=False)
class Bootstrap(Ratio):
    """`n` fits of `base` to resamples. Built by `bootstrap`, or as an estimator like any other."""

    base: Ratio
    n: int = option(100, low=2)

    # One batched estimator, or n single ones.
    members_: list[Ratio] = field(init=False, repr=False, default_factory=list)

    def fit(
        self,
        p: ArrayLike,
        q: ArrayLike,
        *,
        p_weights: ArrayLike | None = None,
        q_weights: ArrayLike | None = None,
        seed: int = 0,
        q_sampler: Sampler | None = None,
    ) -> Self:
        """Fit every member. With `q_sampler` q's rows say only how many to draw; they then take no weights."""
        if q_sampler is not None and q_weights is not None:
            checks.refuse("q_weights", "Bootstrap.fit", "None where 'q_sampler' draws q afresh", "weights")
        sample, seed = self._opened((p, q), (p_weights, q_weights), seed)
        self._fit(sample, seed, sampler=q_sampler)
        self.width_ = sample.p.shape[1]
        return self

    def _fit(self, sample: Sample, seed: int, *, sampler: Sampler | None = None) -> None:
        owner, p, q = "Bootstrap.fit", sample.p, sample.q

        def draw(i: int) -> Sample:
            w_p = resample(sample.w_p, rng.fork(seed, "resample", "p", i))
            if sampler is None:
                return Sample(p, q, w_p, resample(sample.w_q, rng.fork(seed, "resample", "q", i)))
            drawn = sampler(len(q), rng.child_seed(seed, "draw", i))
            fresh = checks.samples(drawn, "q_sampler", owner, width=p.shape[1])
            if len(fresh) != len(q):
                checks.refuse("q_sampler", owner, f"a function that returns {len(q)} samples", len(fresh))
            return Sample(p, fresh, w_p)

        seeds = [rng.child_seed(seed, "member", i) for i in range(self.n)]
        reports: list[dict[str, Any]] = []
        if is_batched(self.base):
            ensemble = copy.deepcopy(self.base)
            assert isinstance(ensemble, NetRatio)
            reports = ensemble.fit_members(draw, seeds)
            ensemble.width_ = p.shape[1]
            self.members_ = [ensemble]
        else:
            self.members_ = []
            for i, member_seed in enumerate(seeds):
                s, member = draw(i), copy.deepcopy(self.base)
                member.fit(s.p, s.q, p_weights=s.p_weights, q_weights=s.q_weights, seed=member_seed)
                self.members_.append(member)
                reports.append(member.report_)
        losses = [r["held_out_loss"] for r in reports if r.get("held_out_loss") is not None]
        texts = sorted({text for r in reports for text in r.get("warnings", [])})
        self.report_ |= {
            "members": self.n,
            "q": "resampled" if sampler is None else "drawn afresh",
            "converged": all(r.get("converged", True) for r in reports),
            "converged_members": sum(bool(r.get("converged", True)) for r in reports),
            "held_out_loss": sum(losses) / len(losses) if losses else None,
            "kept_of_p": reports[0].get("kept_of_p"),
            "warnings": texts,
        }

    def _members(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "m n"]:
        first = self.members_[0]
        if isinstance(first, NetRatio) and is_batched(first):
            return first.member_log_ratios(x)
        return torch.stack([member._log_ratio(x) for member in self.members_])

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return self._members(x).mean(0)

    def members(self, x: ArrayLike) -> Any:  # noqa: ANN401 - the kind that came in
        """log-ratio of every member, (n, members): one row a row of `x`."""
        return Kind.of(x).give(self._members(self._rows(x, "members")).mT.contiguous())

    def interval(self, x: ArrayLike, level: float = 0.95) -> tuple[Any, Any]:
        """(low, high) log-ratios between which the middle `level` of the members lies, at each row of `x`."""
        level = checks.number(level, "level", "Bootstrap.interval", low=0, high=1, open_low=True, open_high=True)
        tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
        low, high = torch.quantile(self._members(self._rows(x, "interval")), tails, dim=0)
        return Kind.of(x).give(low), Kind.of(x).give(high)


def is_batched(estimator: Ratio) -> bool:
    """Whether many fits of `estimator` train as one network."""
    return isinstance(estimator, NetRatio) and getattr(estimator, "kind", "net") == "net"


def bootstrap(
    estimator: Ratio,
    p: ArrayLike,
    q: ArrayLike,
    n: int = 100,
    *,
    q_sampler: Sampler | None = None,
    seed: int = 0,
    p_weights: ArrayLike | None = None,
    q_weights: ArrayLike | None = None,
) -> Bootstrap:
    """`n` fits of `estimator`: p is resampled, and so is q unless `q_sampler(n, seed)` draws fresh samples of it."""
    ensemble = Bootstrap(copy.deepcopy(estimator), n)
    return ensemble.fit(p, q, p_weights=p_weights, q_weights=q_weights, seed=seed, q_sampler=q_sampler)
