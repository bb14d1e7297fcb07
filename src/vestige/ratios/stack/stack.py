"""The cross-fitted stack: several models of log p/q, each judged on rows that it has not seen, joined by a logistic.

Every model minimises the logistic loss with p and q at half of the mass each, so its logit is log p/q for any sizes
and weights. They are (1) a ridge logistic on phi = [1, z, products of z]; (2) the same with a constant and a slope of
its own around each k-means centre of q; (3, 4) phi . a + MLP(z), lightly and strongly decayed; and, where rows are too
few for all products, (5, 6) a Gaussian and a mixture of Gaussians for either side (`stack_mixture`). Each fails
somewhere: a quadratic on two modes, local slopes and light decay in many dimensions, networks on tails that a quadratic
fits, mixtures on what is no mixture. Each is fitted on every choice of all folds but one; the held-out log-ratios are
stacked by a logistic with coefficients in [0, stack_top] and a ridge towards their mean (a coefficient sum below one
shrinks what none of them could confirm: with p = q nothing is left). A new x gets the average over folds.

`held_out_p_` and `held_out_q_` are the held-out log-ratios of the training rows; divergences are estimated from these.
`gap_`, the KL of rows seen in training minus the held-out KL, tells of memorising; beyond `gap_warning` nats the fit
warns, because bias then rules the error. Neither is saved. Of p, means and deviations over many rows are kept.

`fit_from(previous, ...)` starts at a fitted stack: its coordinates, centres, folds and parameters, and `warm_epochs`.
Rows of p keep their fold if their number and order stay, so that a fixed, weighted stand-in for p stays held out. The
networks start midway between old and fresh (`keep`; Ash and Adams 2020): wholly warm, they carry early curvature far
into tails where no sample corrects it. What all this measures is in docs/chains.md.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.core import checks, rng
from vestige.core.checks import ArrayLike
from vestige.core.errors import NotFitted, VestigeWarning
from vestige.core.numerics import weighted_mean
from vestige.ratios.base import Ratio
from vestige.ratios.newton import Design, NewtonFit, logistic_loss, newton_logistic
from vestige.ratios.stack.features import StackFeatures
from vestige.ratios.stack.mixture import Pairs
from vestige.ratios.stack.nets import JointNets, Schedule, train
from vestige.ratios.stack.stacking import assign_folds, combine, held_out_of

KEPT_OF_P = {
    "mixture": "mean and deviation, of the even mixture with q or of many rows",
    "model": "nothing but the fitted models",
}


@dataclass(eq=False)
class Stack(Ratio):
    """Cross-fitted models, stacked. The fields are the recipe; the defaults are measured."""

    folds: int = 3
    clip: float = 4.5  # of standardised coordinates
    centres: int = 16  # at most; and at most centre_budget / d, and one for each 20 rows
    centre_budget: int = 1024
    rows_a_product: float = 100.0  # all products z_i z_j where each has so many rows, else squares alone
    ridge: float = 0.15  # in pseudo-rows for each column of phi: the more columns, the less each may say
    hidden: int = 32
    decays: tuple[float, ...] = (0.01, 0.5)
    rate: float = 3e-2
    warm_up: float = 0.1
    average: float = 0.98
    batch: int = 125  # of p, and as many of q
    epochs: int = 8
    warm_epochs: int = 4
    min_steps: int = 150
    max_steps: int = 4000
    keep: float = 0.5  # of the previous networks at a warm start; the rest of each parameter is fresh
    stack_ridge: float = 1e-4
    stack_top: float = 2.0
    gap_warning: float = 0.1
    standardise: str = "mixture"  # of p and q; "model": by q alone, and no average over p is kept

    def __post_init__(self) -> None:
        super().__post_init__()
        self.decays = tuple(self.decays)  # JSON knows lists alone
        self._previous: Stack | None = None
        self._features: StackFeatures
        self._plain: Tensor  # folds m
        self._local: Tensor  # folds m
        self._blocks: Tensor  # folds k 1+d
        self._nets: JointNets
        self._pairs: Pairs | None
        self._coefficients: Tensor
        self._fold_seed: int

    def fit_from(
        self,
        previous: Stack,
        p: ArrayLike,
        q: ArrayLike,
        *,
        p_weights: ArrayLike | None = None,
        q_weights: ArrayLike | None = None,
        seed: int = 0,
    ) -> Self:
        """`fit`, started at what `previous`, a stack of the same configuration, has learnt. It may be `self`."""
        if previous.width_ is None:
            raise NotFitted("Stack.fit_from was called with a stack that is not fitted.")
        if previous.config() != self.config():
            checks.refuse("previous", "Stack.fit_from", "a Stack of the same configuration", previous.config())
        self._previous = Stack(**{k: v for k, v in previous.config().items() if k != "estimator"})
        self._previous.load_state_dict(previous.state_dict())
        try:
            return self.fit(p, q, p_weights=p_weights, q_weights=q_weights, seed=seed)
        finally:
            self._previous = None

    def _check(self) -> None:
        for name in ("folds", "hidden", "batch", "epochs", "warm_epochs", "min_steps", "max_steps"):
            checks.whole(getattr(self, name), name, "Stack", low=2 if name == "folds" else 1)
        for name in ("clip", "ridge", "rate", "rows_a_product", "stack_top"):
            checks.number(getattr(self, name), name, "Stack", low=0, open_low=True)
        for name in ("warm_up", "average", "keep"):
            checks.number(getattr(self, name), name, "Stack", low=0, high=1, open_high=name != "keep")
        checks.number(self.stack_ridge, "stack_ridge", "Stack", low=0)
        checks.one_of(self.standardise, KEPT_OF_P, "standardise", "Stack")
        for decay in self.decays:
            checks.number(decay, "decays", "Stack", low=0)

    def _fit(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        q_weights: Float[Tensor, " n_q"] | None,
        seed: int,
    ) -> None:
        self._check()
        previous, n_p, d = self._previous, len(p), p.shape[1]
        if previous is not None and previous.width_ != d:
            checks.refuse("p", "Stack.fit_from", f"{previous.width_} features wide", d)
        w_p = p.new_full((n_p,), 1 / n_p) if p_weights is None else p_weights
        w_q = q.new_full((len(q),), 1 / len(q)) if q_weights is None else q_weights
        folds = min(self.folds, int((w_p > 0).sum()), int((w_q > 0).sum()))
        if folds < 2:
            checks.refuse("weights", "Stack.fit", "positive on at least two rows of each side", "one row")
        if previous is not None and folds != len(previous._plain):
            checks.refuse("p", "Stack.fit_from", f"enough for {len(previous._plain)} folds", f"{folds} rows that count")
        self._fold_seed = previous._fold_seed if previous else rng.child_seed(seed, "folds")
        assigned = [assign_folds(w, folds, generator=rng.fork(self._fold_seed, i)) for i, w in enumerate((w_p, w_q))]
        ess = min(1 / float(w.square().sum()) for w in (w_p, w_q))
        self._features = previous._features if previous else self._look(p, q, w_p, w_q, ess, seed)
        design = self._features(torch.cat([p, q]))
        fold, weights = torch.cat(assigned), torch.cat([w_p, w_q])
        sign = torch.cat([torch.ones_like(w_p), -torch.ones_like(w_q)])
        trained = torch.stack([torch.where(fold == f, 0.0, weights) for f in range(folds)])
        for side in (slice(0, n_p), slice(n_p, None)):  # both sides weigh as much as the smaller has rows
            trained[:, side] *= ess * (folds - 1) / folds / trained[:, side].sum(1, keepdim=True)
        newton = self._fit_newton(design, sign, trained, previous)
        steps = self._fit_nets(design.phi, n_p, trained, previous, seed)
        self._pairs = None
        if not self._features.full and self.standardise == "mixture":
            before = getattr(previous, "_pairs", None)
            self._pairs = Pairs.fit(design.phi[:, 1 : 1 + d], n_p, trained, self._features.centres, before)
        every = self._models(design)
        held_out = held_out_of(every, fold)
        self._coefficients = combine(held_out, sign, weights, ridge=self.stack_ridge, top=self.stack_top)
        outside = held_out @ self._coefficients
        inside = (torch.einsum("fmn,m->n", every, self._coefficients) - outside) / (folds - 1)
        self.held_out_p_, self.held_out_q_ = outside[:n_p], outside[n_p:]
        kl = float(weighted_mean(outside[:n_p], w_p))
        self.gap_ = float(weighted_mean(inside[:n_p], w_p)) - kl
        self.report_ |= {
            "folds": folds,
            "quadratic": "full" if self._features.full else "diagonal",
            "centres": len(self._features.centres),
            "clipped_p": self._features.clipped(p),
            "clipped_q": self._features.clipped(q),
            "newton_iterations": [fit.iterations for fit in newton],
            "converged": all(fit.converged for fit in newton),
            "steps": steps,
            "held_out_loss": float(logistic_loss(outside, sign, weights / 2)),
            "held_out_loss_of_models": [float(logistic_loss(f, sign, weights / 2)) for f in held_out.mT],
            "coefficients": self._coefficients.tolist(),
            "held_out_kl": kl,
            "gap": self.gap_,
            "kept_of_p": KEPT_OF_P[self.standardise],
        }
        self._warn()

    def _look(self, p: Tensor, q: Tensor, w_p: Tensor, w_q: Tensor, ess: float, seed: int) -> StackFeatures:
        full = (d := p.shape[1]) * (d + 1) / 2 <= ess / self.rows_a_product
        centres = min(self.centres, self.centre_budget // d, int(ess) // 20)
        options: dict[str, Any] = {"clip": self.clip, "centres": centres, "full": full, "by": self.standardise}
        return StackFeatures.of(p, q, w_p, w_q, generator=rng.fork(seed, "centres"), **options)

    def _fit_newton(self, design: Design, sign: Tensor, trained: Tensor, previous: Stack | None) -> list[NewtonFit]:
        """Models 1 and 2 of every fold; without centres there is no model 2."""
        plain, local, ridge = [], [], self.ridge * design.phi.shape[1]
        for f, weights in enumerate(trained):
            rows = weights.nonzero()[:, 0]
            s, w, phi = sign[rows], weights[rows], design.phi[rows]
            start = (previous._plain[f], phi.new_zeros(1, 0)) if previous else None
            plain.append(newton_logistic(phi, s, w, ridge=ridge, start=start))
            if design.local.shape[1]:
                blocks = phi.new_zeros(design.groups, design.local.shape[1])
                start = (previous._local[f], previous._blocks[f]) if previous else (plain[-1].head, blocks)
                local.append(newton_logistic(design.rows(rows), s, w, ridge=ridge, start=start))
        self._plain = torch.stack([fit.head for fit in plain])
        self._local = torch.stack([fit.head for fit in local]) if local else self._plain[:0]
        self._blocks = torch.stack([fit.blocks for fit in local]) if local else self._plain.new_zeros(0, 0, 0)
        return [*plain, *local]

    def _fit_nets(self, phi: Tensor, n_p: int, trained: Tensor, previous: Stack | None, seed: int) -> int:
        """Models 3 and 4 of every fold; returns the number of steps."""
        folds, d = len(trained), self._features.centres.shape[1]
        sizes, members = [d, self.hidden, self.hidden, 1], folds * len(self.decays)
        per_epoch = math.ceil(max(n_p, len(phi) - n_p) * (folds - 1) / folds / self.batch)
        steps = (self.warm_epochs if previous else self.epochs) * per_epoch
        steps = min(max(steps, self.min_steps), self.max_steps)
        schedule = Schedule(steps, self.batch, self.rate, self.warm_up, self.average, self.decays)
        self._nets = JointNets.zero(members, phi.shape[1], sizes, generator=rng.fork(seed, "init"))
        if previous is not None:
            self._nets.pull_towards(previous._nets, self.keep)
        train(self._nets, phi, n_p, trained, schedule, generator=rng.fork(seed, "batches"))
        return steps

    def _models(self, design: Design) -> Float[Tensor, "folds models n"]:
        models = [self._plain @ design.phi.mT]
        if len(self._local):
            models.append(torch.stack([design.logit(*fit) for fit in zip(self._local, self._blocks, strict=True)]))
        nets = self._nets.predict(design.phi)
        z = design.phi[:, 1 : 1 + self._features.centres.shape[1]]
        generative = [] if self._pairs is None else self._pairs.log_ratio(z)
        return torch.stack([*models, *nets.unflatten(0, (-1, len(self._plain))), *generative], 1)

    def _warn(self) -> None:
        if self.gap_ > self.gap_warning:
            gap = f"The KL of rows seen in training is {self.gap_:.2g} nats above that of held-out rows"
            warnings.warn(f"{gap}: expect bias.", VestigeWarning, stacklevel=4)
        if not self.report_["converged"]:
            warnings.warn("Newton's method of Stack did not converge; raise 'ridge'.", VestigeWarning, stacklevel=4)

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return self._coefficients @ self._models(self._features(x)).mean(0)

    def _state(self) -> dict[str, Tensor]:
        newton = {"plain": self._plain, "local": self._local, "blocks": self._blocks}
        rest = {"coefficients": self._coefficients, "fold_seed": torch.tensor(self._fold_seed)}
        generative = self._pairs.state() if self._pairs else {}
        return self._features.state() | newton | self._nets.state() | rest | generative

    def _load_state(self, state: dict[str, Tensor]) -> None:
        self._features = StackFeatures.from_state(state, self.clip)
        self._plain, self._local, self._blocks = state["plain"], state["local"], state["blocks"]
        self._nets, self._pairs = JointNets.from_state(state), Pairs.from_state(state)
        self._coefficients, self._fold_seed = state["coefficients"], int(state["fold_seed"])
