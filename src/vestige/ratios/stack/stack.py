"""The cross-fitted stack: several models of log p/q, each judged on rows that it has not seen, joined by a logistic.

Every model minimises the logistic loss with p and q at half of the mass each, so its logit is log p/q for any sizes and
weights. They are (1) a ridge logistic on phi = [1, z, products of z]; (2) the same with a constant and a slope of its
own around each k-means centre of q; (3, 4) phi . a + MLP(z), lightly and strongly decayed; where rows are too few for
all products, (5, 6) a Gaussian and a mixture of Gaussians for either side (`mixture`); and on tame coordinates
(`marginals`) (7, 8) two wide networks (`wide`), one smooth, one deep and quick that finds fine structure, (9, 10)
additive logistics with screened products and (11, 12) Gaussians with full covariances (`curves`). Each fails somewhere:
a quadratic on two modes, local slopes and light decay in many dimensions, networks on tails that a quadratic fits,
mixtures on what is no mixture. Each is fitted on every choice of all folds but one; the held-out log-ratios are stacked
by a logistic with coefficients in [0, stack_top] and a ridge towards their mean (Wolpert 1992; Breiman 1996; a
coefficient sum below one shrinks what none of them could confirm: with p = q nothing is left). A new x gets the average
over folds.

Coordinates are standardised by the even mixture of p and q and clamped: where q is narrower than p, q's own scale
would put a good part of p beyond the clip (4 % of each coordinate of N(0, 1) seen from N(0.5, 0.5^2)). Of p this
keeps the mixture's mean and deviation (`mixture` keeps more), and `standardise="model"` standardises by q alone for
those who may not keep even that. Centres are k-means centres of q alone, so no row of p can be among them.

`held_out_p_` and `held_out_q_` are the held-out log-ratios of the training rows; divergences are estimated from these.
`fold_p_` and `fold_q_` are the folds of these rows, for `without`.
`gap_`, the KL of rows seen in training minus the held-out KL, tells of memorising; beyond `gap_warning` nats the fit
warns, because bias then rules the error. None of these is saved. Of p, means and deviations over many rows are kept.

`fit_from(previous, ...)` starts at a fitted stack: its coordinates, centres, folds and parameters, and `warm_epochs`.
Rows of p keep their fold if their number and order stay, so that fixed, weighted anchor samples stay held out. The
networks start midway between old and fresh (`keep`; Ash and Adams 2020): wholly warm, they carry early curvature far
into tails where no sample corrects it. What all this measures is in docs/chains.md.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import minimize
from torch import Tensor

from vestige.core import NotFitted, VestigeWarning, checks, rng
from vestige.core.checks import ArrayLike, option
from vestige.core.numerics import weighted_mean
from vestige.ratios.base import Ratio, Sample
from vestige.ratios.newton import Design, NewtonFit, logistic_loss, newton_logistic
from vestige.ratios.stack.curves import MOST_KNOTS, Additive, Quadratics, additive_logistic, gaussian_pairs
from vestige.ratios.stack.marginals import Marginals, Tame
from vestige.ratios.stack.mixture import Pairs, k_means, nearest
from vestige.ratios.stack.nets import JointNets, StackSchedule, train
from vestige.ratios.stack.wide import WideNets, WideSchedule, train_wide
from vestige.ratios.standardise import Standardiser, design, mixture_standardiser, quadratic_form

# Rows that each centre asks for, a coordinate. Centres are means of rows of q, held-out ones too, and betray them where
# these are few: with p = q, 500 rows in 50 dimensions, the held-out KL was .37 to .60, and is .000 to .006.
ROWS_A_COORDINATE = 8
KEPT_OF_P = {
    "mixture": "mean and deviation, of the even mixture with q or of many rows",
    "model": "nothing but the fitted models",
}


def assign_folds(weights: Float[Tensor, " n"], folds: int, *, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Random folds of equal size up to one, for rows that count and for rows of weight zero alike."""
    order = torch.randperm(len(weights), generator=generator)
    order = order[torch.argsort((weights[order] == 0).to(torch.int8), stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(weights)) % folds
    return fold


def combine(
    held_out: Float[Tensor, "n models"],
    sign: Float[Tensor, " n"],
    weights: Float[Tensor, " n"],
    *,
    ridge: float,
    top: float,
) -> Float[Tensor, " models"]:
    """Coefficients in [0, top] of the logistic on held-out log-ratios, with a ridge towards 1 / models."""
    k = held_out.shape[1]
    target, weights = (sign > 0).to(weights.dtype), weights / weights.sum()

    def objective(c: Any) -> tuple[float, Any]:  # noqa: ANN401 - numpy's side of scipy
        c_ = torch.from_numpy(c)
        f = held_out @ c_
        value = logistic_loss(f, sign, weights) + ridge * (c_ - 1 / k).square().sum() / 2
        slope = held_out.mT @ (weights * (torch.sigmoid(f) - target)) + ridge * (c_ - 1 / k)
        return float(value), slope.numpy()

    options: dict[str, Any] = {"method": "L-BFGS-B", "options": {"ftol": 1e-13, "gtol": 1e-9}}
    found = minimize(objective, np.full(k, 1 / k), jac=True, bounds=[(0.0, top)] * k, **options)
    return torch.from_numpy(found.x)


def held_out_of(every: Float[Tensor, "folds models n"], fold: Int[Tensor, " n"]) -> Float[Tensor, "n models"]:
    """Of all folds' predictions, each row's from the models that were fitted without it."""
    return every.gather(0, fold.expand(1, every.shape[1], -1))[0].mT


@dataclass(frozen=True)
class StackFeatures:
    """The fixed map from samples to what the models see."""

    standardise: Standardiser
    centres: Float[Tensor, "k d"]
    full: bool
    marginals: Marginals | None  # None: no model sees tame coordinates

    @classmethod
    def of(
        cls,
        sample: Sample,
        *,
        clip: float,
        centres: int,
        full: bool,
        tame: bool,
        generator: torch.Generator,
        by: str = "mixture",
    ) -> StackFeatures:
        """Learn shift, scale and centres, and the maps of the columns where models want them `tame`."""
        p_share = 0.0 if by == "model" else 0.5
        standardise = mixture_standardiser(sample, p_share=p_share, clip=clip)
        z = standardise(sample.q)
        found = k_means(z, sample.w_q, centres, generator=generator) if centres > 1 else z[:0]
        return cls(standardise, found.clone(), full, Marginals.of(sample, p_share=p_share) if tame else None)

    def __call__(self, x: Float[Tensor, "n d"]) -> Design:
        """phi, the nearest centre of each row and, where there are centres, [1, z - centre]."""
        z = self.standardise(x)
        phi = design(z, "full" if self.full else "diagonal")
        if not len(self.centres):
            return Design.dense(phi)
        group = nearest(z, self.centres)
        local = torch.cat([z.new_ones(len(z), 1), z - self.centres[group]], 1)
        return Design(phi, group, local, len(self.centres))


@dataclass(frozen=True, eq=False)
class TameModels:
    """The models on tame coordinates: wide networks, additive logistics and Gaussians, all folds of each."""

    wide: tuple[WideNets, ...]
    additive: tuple[Additive, ...]
    gaussians: tuple[Quadratics, ...]

    @classmethod
    def fit(
        cls,
        tame: Tame,
        n_p: int,
        trained: Float[Tensor, "folds n"],
        schedules: tuple[WideSchedule, ...],
        *,
        ridge: float,
        generative: bool,
        seed: int,
    ) -> TameModels:
        """Each fold's models under its own weights; Gaussians of p, which keep its moments, only if `generative`."""
        wide = tuple(
            train_wide(torch.cat(tame, 1), n_p, trained, schedule, generator=rng.fork(seed, "wide", i))
            for i, schedule in enumerate(schedules)
        )
        with_distance = torch.cat([tame.rank, tame.distance], 1)
        additive = (
            additive_logistic(tame.rank, n_p, trained, knots=0, ridge=ridge),
            additive_logistic(with_distance, n_p, trained, knots=MOST_KNOTS, ridge=ridge),
        )
        coordinates = (tame.rank, tame.arcsinh) if generative else ()
        return cls(wide, additive, tuple(gaussian_pairs(u, n_p, trained) for u in coordinates))

    def log_ratio(self, tame: Tame) -> list[Float[Tensor, "folds n"]]:
        """log p/q by each model, in every fold."""
        gaussians = [pair(u) for pair, u in zip(self.gaussians, tame, strict=False)]
        every, with_distance = torch.cat(tame, 1), torch.cat([tame.rank, tame.distance], 1)
        additive = [model(u) for model, u in zip(self.additive, (tame.rank, with_distance), strict=True)]
        return [*(nets.predict(every) for nets in self.wide), *additive, *gaussians]


@dataclass(eq=False)
class Stack(Ratio):
    """Cross-fitted models, stacked. The fields are the recipe; the defaults are measured."""

    # 2: fewer centres where rows are few for their number of features; 3: models on tame coordinates, five folds
    version: ClassVar[int] = 3
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fast": {"folds": 3, "wide": 0, "rows_a_product": 100.0}}

    folds: int = option(5, low=2)
    clip: float = option(4.5, above=0)  # of standardised coordinates
    centres: int = option(16, low=0)  # at most; at most centre_budget / d; one for each 20 rows, and 8 a coordinate
    centre_budget: int = option(1024, low=0)
    rows_a_product: float = option(20.0, above=0)  # all products z_i z_j where each has so many rows, else squares
    ridge: float = option(0.15, above=0)  # in pseudo-rows for each column of phi: the more columns, the less each says
    hidden: int = option(32, low=1)
    decays: tuple[float, ...] = option((0.01, 0.5), low=0)
    learning_rate: float = option(3e-2, above=0)
    warm_up: float = option(0.1, low=0, below=1)
    average: float = option(0.98, low=0, below=1)
    batch_size: int = option(125, low=1)  # of p, and as many of q
    epochs: int = option(8, low=1)
    warm_epochs: int = option(4, low=1)
    min_steps: int = option(150, low=1)
    max_steps: int = option(4000, low=1)
    keep: float = option(0.5, low=0, high=1)  # of the previous networks at a warm start; the rest is fresh
    wide: int = option(64, low=0)  # units in either layer of the networks on tame coordinates; 0: no models there
    wide_epochs: int = option(30, low=1)
    stack_ridge: float = option(1e-4, low=0)
    stack_top: float = option(2.0, above=0)
    gap_warning: float = 0.1
    standardise: str = option("mixture", among=KEPT_OF_P)  # "model": by q alone, and no average over p is kept

    features_: StackFeatures = field(init=False, repr=False)
    plain_: Tensor = field(init=False, repr=False)  # folds m
    local_: Tensor = field(init=False, repr=False)  # folds m
    blocks_: Tensor = field(init=False, repr=False)  # folds k 1+d
    nets_: JointNets = field(init=False, repr=False)
    pairs_: Pairs | None = field(init=False, repr=False)
    tame_: TameModels | None = field(init=False, repr=False)
    coefficients_: Tensor = field(init=False, repr=False)
    fold_seed_: int = field(init=False, repr=False)

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
        other = {f.name for f in fields(self) if f.init and getattr(previous, f.name) != getattr(self, f.name)}
        if other:
            checks.refuse("previous", "Stack.fit_from", "a Stack of the same configuration", f"another {min(other)}")
        before = copy.copy(previous)  # it may be `self`; a fit replaces what it learns, and changes none of it
        sample, seed = self._opened((p, q), (p_weights, q_weights), seed)
        self._fit(sample, seed, previous=before)
        self.width_ = sample.p.shape[1]
        return self

    def _fit(self, sample: Sample, seed: int, *, previous: Stack | None = None) -> None:
        n_p, d, w_p, w_q = len(sample.p), sample.p.shape[1], sample.w_p, sample.w_q
        if previous is not None and previous.width_ != d:
            checks.refuse("p", "Stack.fit_from", f"{previous.width_} features wide", d)
        folds = min(self.folds, int((w_p > 0).sum()), int((w_q > 0).sum()))
        if folds < 2:
            checks.refuse("weights", "Stack.fit", "positive on at least two rows of each side", "one row")
        if previous is not None and folds != len(previous.plain_):
            checks.refuse("p", "Stack.fit_from", f"enough for {len(previous.plain_)} folds", f"{folds} rows that count")
        self.fold_seed_ = previous.fold_seed_ if previous else rng.child_seed(seed, "folds")
        assigned = [assign_folds(w, folds, generator=rng.fork(self.fold_seed_, i)) for i, w in enumerate((w_p, w_q))]
        ess = min(1 / float(w.square().sum()) for w in (w_p, w_q))
        if previous:
            self.features_ = previous.features_
        else:
            self.features_ = StackFeatures.of(sample, generator=rng.fork(seed, "centres"), **self._sizes(d, ess))
        x = torch.cat([sample.p, sample.q])
        seen = self.features_(x)
        fold, weights = torch.cat(assigned), torch.cat([w_p, w_q])
        sign = torch.cat([torch.ones_like(w_p), -torch.ones_like(w_q)])
        trained = torch.stack([torch.where(fold == f, 0.0, weights) for f in range(folds)])
        for side in (slice(0, n_p), slice(n_p, None)):  # both sides weigh as much as the smaller has rows
            trained[:, side] *= ess * (folds - 1) / folds / trained[:, side].sum(1, keepdim=True)
        newton = self._fit_newton(seen, sign, trained, previous)
        steps = self._fit_nets(seen.phi, n_p, trained, previous, seed)
        self.pairs_ = None
        if not self.features_.full and self.standardise == "mixture":
            before = previous.pairs_ if previous else None
            self.pairs_ = Pairs.fit(seen.phi[:, 1 : 1 + d], n_p, trained, self.features_.centres, before)
        self.tame_ = None
        if self.features_.marginals is not None:
            options: dict[str, Any] = {"ridge": self.ridge, "generative": self.standardise == "mixture", "seed": seed}
            tame = self.features_.marginals(x)
            self.tame_ = TameModels.fit(tame, n_p, trained, self._schedules(), **options)
        every = self._models(seen, x)
        held_out = held_out_of(every, fold)
        self.fold_p_, self.fold_q_ = assigned
        self.coefficients_ = combine(held_out, sign, weights, ridge=self.stack_ridge, top=self.stack_top)
        outside = held_out @ self.coefficients_
        inside = (torch.einsum("fmn,m->n", every, self.coefficients_) - outside) / (folds - 1)
        self.held_out_p_, self.held_out_q_ = outside[:n_p], outside[n_p:]
        kl = float(weighted_mean(outside[:n_p], w_p))
        self.gap_ = float(weighted_mean(inside[:n_p], w_p)) - kl
        self.report_ |= {
            "folds": folds,
            "quadratic": "full" if self.features_.full else "diagonal",
            "centres": len(self.features_.centres),
            "clipped_p": self.features_.standardise.clipped(sample.p),
            "clipped_q": self.features_.standardise.clipped(sample.q),
            "newton_iterations": [fit.iterations for fit in newton],
            "converged": all(fit.converged for fit in newton),
            "steps": steps,
            "held_out_loss": float(logistic_loss(outside, sign, weights / 2)),
            "held_out_loss_of_models": [float(logistic_loss(f, sign, weights / 2)) for f in held_out.mT],
            "coefficients": self.coefficients_.tolist(),
            "held_out_kl": kl,
            "gap": self.gap_,
            "kept_of_p": KEPT_OF_P[self.standardise],
        }
        self._warn()

    def _sizes(self, d: int, ess: float) -> dict[str, Any]:
        """What `StackFeatures.of` is to learn from rows worth `ess` of `d` features."""
        full = quadratic_form(d, ess, self.rows_a_product) == "full"
        centres = min(self.centres, self.centre_budget // d, int(ess) // max(20, ROWS_A_COORDINATE * d))
        return {"clip": self.clip, "centres": centres, "full": full, "tame": self.wide > 0, "by": self.standardise}

    def _fit_newton(self, seen: Design, sign: Tensor, trained: Tensor, previous: Stack | None) -> list[NewtonFit]:
        """Models 1 and 2 of every fold; without centres there is no model 2."""
        plain, local, ridge = [], [], self.ridge * seen.phi.shape[1]
        for f, weights in enumerate(trained):
            rows = weights.nonzero()[:, 0]
            s, w, phi = sign[rows], weights[rows], seen.phi[rows]
            start = (previous.plain_[f], phi.new_zeros(1, 0)) if previous else None
            plain.append(newton_logistic(phi, s, w, ridge=ridge, start=start))
            if seen.local.shape[1]:
                blocks = phi.new_zeros(seen.groups, seen.local.shape[1])
                start = (previous.local_[f], previous.blocks_[f]) if previous else (plain[-1].head, blocks)
                local.append(newton_logistic(seen.rows(rows), s, w, ridge=ridge, start=start))
        self.plain_ = torch.stack([fit.head for fit in plain])
        self.local_ = torch.stack([fit.head for fit in local]) if local else self.plain_[:0]
        self.blocks_ = torch.stack([fit.blocks for fit in local]) if local else self.plain_.new_zeros(0, 0, 0)
        return [*plain, *local]

    def _fit_nets(self, phi: Tensor, n_p: int, trained: Tensor, previous: Stack | None, seed: int) -> int:
        """Models 3 and 4 of every fold; returns the number of steps."""
        folds, d = len(trained), self.features_.centres.shape[1]
        sizes, members = [d, self.hidden, self.hidden, 1], folds * len(self.decays)
        per_epoch = math.ceil(max(n_p, len(phi) - n_p) * (folds - 1) / folds / self.batch_size)
        steps = (self.warm_epochs if previous else self.epochs) * per_epoch
        steps = min(max(steps, self.min_steps), self.max_steps)
        schedule = StackSchedule(steps, self.batch_size, self.learning_rate, self.warm_up, self.average, self.decays)
        self.nets_ = JointNets.zero(members, phi.shape[1], sizes, generator=rng.fork(seed, "init"))
        if previous is not None:
            self.nets_.pull_towards(previous.nets_, self.keep)
        train(self.nets_, phi, n_p, trained, schedule, generator=rng.fork(seed, "batches"))
        return steps

    def _schedules(self) -> tuple[WideSchedule, ...]:
        """Of the wide networks: one that is smooth, and one that is deep and quick."""
        return (
            WideSchedule((self.wide, self.wide), 3e-3, 1.0, self.wide_epochs),
            WideSchedule((self.wide, self.wide, self.wide), 1e-2, 3.0, 2 * self.wide_epochs),
        )

    def _models(self, seen: Design, x: Float[Tensor, "n d"]) -> Float[Tensor, "folds models n"]:
        models = [self.plain_ @ seen.phi.mT]
        if len(self.local_):
            models.append(torch.stack([seen.logit(*fit) for fit in zip(self.local_, self.blocks_, strict=True)]))
        nets = self.nets_.predict(seen.phi)
        z = seen.phi[:, 1 : 1 + self.features_.centres.shape[1]]
        generative = [] if self.pairs_ is None else self.pairs_.log_ratio(z)
        models += [*nets.unflatten(0, (-1, len(self.plain_))), *generative]
        if self.tame_ is not None and self.features_.marginals is not None:
            models += self.tame_.log_ratio(self.features_.marginals(x))
        return torch.stack(models, 1)

    def without(self, x: Float[Tensor, "n d"], fold: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """log p/q of each row of `x` by the models that were fitted without its `fold`."""
        return held_out_of(self._models(self.features_(x), x), fold) @ self.coefficients_

    def _warn(self) -> None:
        if self.gap_ > self.gap_warning:
            gap = f"The KL of rows seen in training is {self.gap_:.2g} nats above that of held-out rows"
            warnings.warn(f"{gap}: expect bias.", VestigeWarning, stacklevel=4)
        if not self.report_["converged"]:
            warnings.warn("Newton's method of Stack did not converge; raise 'ridge'.", VestigeWarning, stacklevel=4)

    def _log_ratio(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        return self.coefficients_ @ self._models(self.features_(x), x).mean(0)
