"""How real is a simulated transition? log w(s, a, s') = log P(s' | s, a) / P_theta(s' | s, a) (LFIW Eq. 10).

Classifiers tell real triples from generated ones that share (s, a) and differ in s' alone. Several, with seeds of
their own and generated states of their own, are trained as one batched network, each calibrated (Platt) on rows that it
has not seen.

`within` cuts log-ratios to what the middle of the real rows have. A policy that goes where the logs have not been asks
the classifier for what it has never seen, and its answers there, in sums of a hundred, would decide everything. For a
policy that stays among the logs it also cuts what is right: of the exact ratio of a wrong linear model half is left.

Deviations from LFIW App. C.5. The classifier sees (s, a, z) instead of (s, a, s'), where z = (s' - mean) / deviation of
the member that simulates: for a fixed (s, a) that is an invertible map of s', so the ratio is the same, and the misfit
of the dynamics stands before it in units of its own noise, which in coordinates of s' would first have to be learnt
(`sees="state"` is the paper's way, with s' - s for s'). Each member has a ratio of its own, as trajectories have a
member of their own. Real rows meet the member that has *not* learnt from them: on rows that it has, its errors look
smaller than they are. Layers of 64-64 with squares of the features beside them instead of 500-500-500.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import NotFitted, VestigeWarning, rng
from vestige.core.checks import declared, learnt, option
from vestige.core.numerics import log_mean_exp
from vestige.policy.dynamics import Actions, Dynamics, Members, States
from vestige.policy.logs import Logs
from vestige.ratios import Logistic
from vestige.ratios.base import Sample

SEES = ("residual", "state")


@dataclass(eq=False)
class TransitionRatio:
    """`classifiers` estimates of log P/P_theta on triples, one batched network."""

    classifiers: int = option(5, low=1)
    _: KW_ONLY
    sees: str = option("residual", among=SEES)
    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 10
    rows: int = option(50_000, low=10)  # fitted on at most so many
    cut: float = option(0.01, low=0, below=0.5)
    dynamics_: Dynamics | None = learnt(None)
    limits_: Float[Tensor, "2 c"] | None = learnt(None)  # of the log-ratio, by classifier
    report_: dict[str, Any] = learnt(factory=dict)

    def __post_init__(self) -> None:
        declared(self)
        self.ratio = Logistic(
            hidden=self.hidden, skip="quadratic", calibration="platt", learning_rate=3e-3, epochs=self.epochs
        )

    def fit(self, dynamics: Dynamics, logs: Logs, folds: Members, *, seed: int = 0) -> TransitionRatio:
        """Learn from the rows of `logs` whose fold is that of a member, each beside the member that left it aside."""
        rows = (folds < dynamics.members).nonzero().squeeze(1)
        rows = rows[torch.randperm(len(rows), generator=rng.fork(seed, "rows"))[: self.rows]]
        s, a, after, members = logs.observations[rows], logs.actions[rows], logs.next_observations[rows], folds[rows]
        self.dynamics_ = dynamics
        real = self.features(s, a, after, members).to(torch.float64)
        weights = torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)

        def draw(i: int) -> Sample:
            fake = self._generated(s, a, members, rng.fork(seed, "generated", i)).to(torch.float64)
            return Sample(real, fake, weights, weights)

        seeds = [rng.child_seed(seed, "classifier", i) for i in range(self.classifiers)]
        with warnings.catch_warnings():  # what did not converge is in the report, and calibrated all the same
            warnings.simplefilter("ignore", VestigeWarning)
            told = self.ratio.fit_members(draw, seeds)
        # A plain sort: torch's quantile takes no more than 16 million numbers.
        seen = self.ratio.member_log_ratios(real).sort(1).values
        last = len(rows) - 1
        self.limits_ = torch.stack([seen[:, round(self.cut * last)], seen[:, round((1 - self.cut) * last)]])
        mean = torch.stack([log_mean_exp(row) for row in self.ratio.member_log_ratios(draw(0).q)])
        self.report_ = {name: [r["held_out"][name] for r in told] for name in ("accuracy", "log_loss", "ece")} | {
            "slope": [r["calibration"]["slope"] for r in told],
            "converged": [r["converged"] for r in told],
            "clipped": [r["clips"]["features"] for r in told],
            "mean_weight": mean.exp().tolist(),  # of a generated transition; 1 if the ratio is right
            "rows": len(rows),
            "sees": self.sees,
            "limits": self.limits_.T.tolist(),
        }
        return self

    def features(self, s: States, a: Actions, after: States, members: Members) -> Float[Tensor, "n f"]:
        """What the classifier sees of a triple."""
        if self.dynamics_ is None:
            raise NotFitted("TransitionRatio was used before fit.")
        if self.sees == "state":
            return torch.cat([s, a, after - s], 1).float()
        return torch.cat([s.float(), a.float(), self.dynamics_.residuals(s, a, after, members)], 1)

    def _generated(self, s: Tensor, a: Tensor, members: Tensor, generator: torch.Generator) -> Tensor:
        """Features of generated triples that share (s, a): s' drawn anew by each row's member."""
        assert self.dynamics_ is not None
        if self.sees == "residual":  # a draw is mean + deviation * noise: its residual is the noise
            noise = torch.randn(len(s), len(self.dynamics_.change().varying), generator=generator)
            return torch.cat([s.float(), a.float(), noise], 1)
        return torch.cat([s, a, self.dynamics_.draw(s, a, members, generator=generator) - s], 1).float()

    def log_ratio(self, s: States, a: Actions, after: States, members: Members) -> Float[Tensor, "c n"]:
        """log w of each triple by each classifier."""
        return self.ratio.member_log_ratios(self.features(s, a, after, members).to(torch.float64))

    def within(self, log_ratio: Float[Tensor, "c *n"]) -> Float[Tensor, "c *n"]:
        """Log-ratios cut to the range of the middle 1 - 2 `cut` of the real rows."""
        if self.limits_ is None:
            raise NotFitted("TransitionRatio was used before fit.")
        low, high = (end.reshape(-1, *(1,) * (log_ratio.ndim - 1)) for end in self.limits_)
        return log_ratio.clamp(low, high)
