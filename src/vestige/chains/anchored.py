"""Chains by anchor samples: the strategies `anchored`, the default, and `keyframe`.

`anchored` compares every later step with one set of weighted anchor samples, not with the step before it. When a task's
data is here, a cross-fitted ratio learns log p/q_1 and the model's samples of that step become the anchor samples (see
`anchor_samples`). At step t a ratio, started at that of step t-1, learns anchors against Q_t, and divergences come from
its held-out log-ratios on both. Errors do not pile up over t: two estimated ratios stand between p and q_t however many
steps lie between them.

`keyframe` lets the reference advance, but only when the model has moved far enough from it to be told apart:
log p/q_t = log p/q_key + log q_key/q_t, as in CDRE Eq. 5 with the last keyframe in place of the last step. Steps below
the noise are not chained, and no jump is longer than it must be. The second term is a ratio of generated samples of
both sides, unweighted. When its held-out KL(q_key || q_t) exceeds `threshold`, Q_t becomes the key: its rows get the
weights of log p/q_t and are balanced to the key before it, so that the terms of a divergence are averaged over anchor
samples for p here too, not by Eq. 4. A key is never moved over a bridge: samples that lie so far from p cannot take its
place, and the model may come back. Errors add up over keyframes; the anchors' variance and the gap say how far. Where
the model gets narrower than the data, as in CDRE Fig. 2, a key that moves along loses the tails of p and its weights
become heavy: kl is refused by t = 10, where the fixed anchors of `anchored` are within two per cent.

What learns a step's ratio is a choice (`estimator`): a stack, which starts at the one before it, or another estimator,
cross-fitted and calibrated (`ratios.cross_fit`), which starts anew. A classifier that separates two sets without error
cannot say how far apart they are. Where the held-out KL(p || q) of the first fit exceeds `bridge_above` nats, the step
is fitted again as a cross-fitted `Bridge` over waymarks, and the report says so. Each jump of the bridge is a small
network with a quadratic skip, not the quadratic that is `Bridge`'s default: a step need not be Gaussian. KL at
n = 10000, fresh rows: N(0, I) against N(1, 0.6^2 I), 10-d, 17.67 nats: stack 12.3, bridge of quadratics 18.2, of
networks 18.5; two modes against one between them, 2-d, 12.74 and 19.54 nats: stack 14.2 and 21.8, quadratics 21.2 and
36.3, networks 12.6 and 19.6. With `moments=False` the stack alone may learn a step, and nothing is bridged: the others
keep averages over their rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.anchor_samples import LEAST_WEIGHT, AnchorSamples
from vestige.chains.strategy import Points, Strategy, TaskLogRatios
from vestige.core import checks, rng
from vestige.core.checks import declared, option
from vestige.core.numerics import weighted_mean
from vestige.ratios import LSIF, ULSIF, Bridge, FGANRatio, KLIEPNet, Logistic, Ratio, Stack
from vestige.ratios.base import Sample
from vestige.ratios.coarse import with_rounded_coordinates
from vestige.ratios.cross_fit import CrossFit, HeldOutFit, calibrated, cross_fit, fold_by_fold, with_fewer_rows
from vestige.ratios.support import reach
from vestige.ratios.weights.balance import balance_to
from vestige.vestiges.reference import on_log_grid

FittedRatio = Stack | CrossFit

# What may learn a step, by name; None is the stack itself.
ESTIMATORS: dict[str, Ratio | None] = {
    "stack": None,
    "kliep": KLIEPNet(),
    "logistic": Logistic(),
    "quadratic": Logistic(kind="quadratic"),
    "lsif": LSIF(),
    "ulsif": ULSIF(),
    "fgan": FGANRatio(),
}
JUMP = Logistic(steps=300, skip="quadratic")


def _moved(fit: HeldOutFit) -> float:
    """The movement of the KL between the two fits, over the rows of p."""
    return 0.0 if fit.fewer is None else float((fit.log_ratio_p - fit.fewer[0]).square().mean()) / 2


def bridged(ratio: FittedRatio) -> bool:
    """Whether the ratio is a sum over waymarks."""
    return isinstance(ratio, CrossFit) and isinstance(ratio.fits[0], Bridge)


@dataclass(frozen=True, eq=False)
class TaskState:
    """The anchor samples of one task, the ratios that lead from p to them, and the newest fit."""

    anchors: AnchorSamples
    keys: tuple[FittedRatio, ...]  # log p/q of the anchors' own step is their sum; none where `newest` is log p/q_t
    newest: FittedRatio | None

    @property
    def ratios(self) -> tuple[FittedRatio, ...]:
        """Those whose sum is log p/q_t."""
        return self.keys if self.newest is None else (*self.keys, self.newest)


@dataclass(frozen=True)
class Anchored(Strategy[dict[int, TaskState]]):
    """Each task's first generated samples, weighted, take the place of its data ever after."""

    name: ClassVar[str] = "anchored"
    # 2: five folds, tame coordinates, a second fit; 3: what is kept of the data is rounded; 4: what is out of reach
    # 5: other ends of intervals, fewer "ok" (`ratios.divergences.learnt`); values are the same
    version: ClassVar[int] = 5
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {
            "folds": 2,
            "epochs": 4,
            "warm_epochs": 1,
            "min_steps": 100,
            "decays": (0.5,),
            "wide": 0,
            "rows_a_product": 100.0,
            "second": False,
        },
        "lean": {"folds": 3, "wide": 0, "rows_a_product": 100.0, "second": False},
    }
    folds: int = option(5, low=2)
    epochs: int = option(8, low=1)
    warm_epochs: int = option(4, low=1)
    min_steps: int = option(150, low=1)  # of the networks, however few the rows
    decays: tuple[float, ...] = option((0.01, 0.5), least=1)
    clip: float = option(4.5, above=0, below=math.inf)  # of standardised coordinates, in the stack and when balancing
    rows_a_product: float = option(20.0, above=0, below=math.inf)
    wide: int = option(64, low=0)  # units of the networks on tame coordinates, in each layer
    wide_epochs: int = option(30, low=1)
    second: bool = option(True)  # fit once more on fewer rows, to tell what is not learnt yet
    relu: int = option(64, low=0)  # random features whose means the anchors take over from the data
    balance_ridge: float = option(1e-4, above=0, below=math.inf)
    moments: bool = option(True)  # False: no average over real rows is kept, neither as coordinates nor in weights
    estimator: str = option("stack", among=ESTIMATORS)
    bridge_above: float = option(10.0, above=0, below=math.inf)  # nats of held-out KL
    waymarks: int = option(8, low=1)

    def __post_init__(self) -> None:
        owner = f"Chain('{self.name}')"
        declared(self, owner)
        if not self.moments and self.estimator != "stack":
            checks.refuse("estimator", owner, "'stack' where moments=False", repr(self.estimator))

    def step(
        self, state: dict[int, TaskState] | None, real: Mapping[int, Tensor], model: Mapping[int, Tensor], seed: int
    ) -> tuple[dict[int, TaskState], dict[int, TaskLogRatios]]:
        """Tasks do not touch each other: each arrives or advances on its own."""
        known = state or {}
        after, found = {}, {}
        for task, q in model.items():
            own = rng.child_seed(seed, "task", task)
            after[task], found[task] = (
                self.arrive(real[task], q, own) if task in real else self.advance(known[task], q, own)
            )
        return after, found

    def fit_step(
        self,
        p: Float[Tensor, "n_p d"],
        q: Float[Tensor, "n_q d"],
        p_weights: Float[Tensor, " n_p"] | None,
        start: FittedRatio | None,
        seed: int,
    ) -> HeldOutFit:
        """log p/q by a stack or another estimator, and by a bridge if that finds them far apart.

        No value for a single row of p stays in the ratio.
        """
        weights = checks.weights(p_weights, len(p), "p_weights", "Chain.step")
        sample, other = Sample(p, q, weights), ESTIMATORS[self.estimator]
        if other is not None:
            found = cross_fit(other, sample, folds=self.folds, calibrated=True, seed=seed)
        else:
            stack = self._stack()
            if isinstance(start, Stack):
                stack.fit_from(start, p, q, p_weights=p_weights, seed=seed)
            else:
                stack.fit(p, q, p_weights=p_weights, seed=seed)
            fewer = None
            if self.second:
                second = fold_by_fold(*with_fewer_rows(stack, sample), seed=rng.child_seed(seed, "fewer"))
                fewer = calibrated(second, sample)
            found = HeldOutFit(stack, stack.held_out_p_, stack.held_out_q_, stack.gap_, fewer)
            del stack.held_out_p_, stack.held_out_q_
        if self.moments and float(weighted_mean(found.log_ratio_p, weights)) > self.bridge_above:
            found = cross_fit(Bridge(JUMP, self.waymarks), sample, folds=self.folds, calibrated=False, seed=seed)
        return found._replace(ratio=with_rounded_coordinates(found.ratio, len(p)))

    def _stack(self) -> Stack:
        return Stack(
            folds=self.folds,
            epochs=self.epochs,
            warm_epochs=self.warm_epochs,
            min_steps=self.min_steps,
            decays=self.decays,
            clip=self.clip,
            rows_a_product=self.rows_a_product,
            wide=self.wide,
            wide_epochs=self.wide_epochs,
            gap_warning=math.inf,  # the chain gives its own verdict on the gap
            standardise="mixture" if self.moments else "model",
        )

    def arrive(self, p: Tensor, q: Tensor, seed: int) -> tuple[TaskState, TaskLogRatios]:
        """The data is here, for the only time: fit log p/q_1 and weight the anchor samples."""
        fit = self.fit_step(p, q, None, None, seed)
        anchors = self.reweighted(p, None, q, fit.log_ratio_q, inherited=1 / len(p), gap=fit.gap, seed=seed)
        anchors = replace(anchors, unlearnt=_moved(fit))
        # the data itself is averaged over; what the anchors are worth is said already, for the steps to come
        found = self.found(anchors, Points(fit.log_ratio_p, None, None), fit.log_ratio_q, fit, (p, q), seed)
        return TaskState(anchors, (), fit.ratio), replace(found, inherited=0.0, unlearnt=0.0, moved=True)

    def advance(self, state: TaskState, q: Tensor, seed: int) -> tuple[TaskState, TaskLogRatios]:
        """Anchor samples against this step's."""
        anchors = state.anchors
        fit = self.fit_step(anchors.samples, q, anchors.weights, state.newest, seed)
        points = Points(fit.log_ratio_p, anchors.weights, anchors.log_ratio)
        found = self.found(anchors, points, fit.log_ratio_q, fit, (anchors.samples, q), seed)
        return TaskState(anchors, (), fit.ratio), replace(found, depth=2)

    def found(
        self,
        anchors: AnchorSamples,
        points: Points,
        log_ratio_q: Tensor,
        fit: HeldOutFit,
        rows: tuple[Tensor, Tensor],
        seed: int,
    ) -> TaskLogRatios:
        """Log-ratios of a step, with their terms averaged over `points`, which are the first of the `rows`."""
        sides = points.log_ratio, log_ratio_q
        reached = reach(*rows, *sides, p_weights=points.weights, seed=seed) if self.second else None
        return TaskLogRatios(
            log_ratio_q,
            points.log_ratio,
            points.weights,
            inherited=anchors.inherited,
            gap=fit.gap,
            anchors=len(anchors.weights),
            anchors_ess=anchors.ess,
            anchored=points,
            running=points,
            bridged=bridged(fit.ratio),
            fewer=fit.fewer,
            unlearnt=anchors.unlearnt,
            reach=reached,
        )

    def reweighted(
        self,
        p: Tensor,
        p_weights: Tensor | None,
        q: Tensor,
        log_ratio: Tensor,
        *,
        inherited: float,
        gap: float,
        seed: int,
    ) -> AnchorSamples:
        """q's rows under weights with which they take the place of p; their logarithms lie on a grid."""
        weights = torch.softmax(log_ratio, 0)
        if self.moments or p_weights is not None:  # balanced to the data itself, weights would reveal its means
            weights = balance_to(
                p,
                p_weights,
                q,
                log_ratio,
                clip=self.clip,
                rows_a_product=self.rows_a_product,
                relu=self.relu,
                ridge=self.balance_ridge,
                seed=seed,
            ).exp()
            weights = on_log_grid(weights)
        return AnchorSamples(q.clone(), weights.clamp_min(LEAST_WEIGHT), log_ratio.clone(), inherited, gap)

    def log_ratio(self, state: dict[int, TaskState], task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The newest fit, after the ratios that lead to its anchor samples where there are any."""
        total = torch.zeros(len(x), dtype=torch.float64)
        for ratio in state[task].ratios:
            total = total + ratio.log_ratio(x)
        return total

    def anchor_samples(self, state: dict[int, TaskState], task: int) -> tuple[Tensor, Tensor]:
        """Samples and weights."""
        return state[task].anchors.samples, state[task].anchors.weights

    def encoded_anew(self, state: dict[int, TaskState], samples: Mapping[int, Tensor]) -> dict[int, TaskState] | None:
        """Other samples under the same weights; the newest fit is where the next one starts and no more."""
        if any(own.keys for own in state.values()):
            return None
        return {task: replace(own, anchors=replace(own.anchors, samples=samples[task])) for task, own in state.items()}


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
        fit = self.fit_step(key.samples, q, None, state.newest, seed)
        log_ratio_q = torch.stack([step.log_ratio(q) for step in state.keys]).sum(0) + fit.log_ratio_q
        points = Points(key.log_ratio + fit.log_ratio_p, key.weights, key.log_ratio)
        found = self.found(key, points, log_ratio_q, fit, (key.samples, q), seed)
        fewer = (
            None if fit.fewer is None else (key.log_ratio + fit.fewer[0], log_ratio_q + fit.fewer[1] - fit.log_ratio_q)
        )
        found = replace(found, gap=key.gap + fit.gap, depth=len(state.keys) + 1, fewer=fewer)
        if found.bridged or float(fit.log_ratio_p.mean()) <= self.threshold:
            return TaskState(key, state.keys, fit.ratio), found
        inherited = key.inherited + 1 / key.ess
        moved = self.reweighted(key.samples, key.weights, q, log_ratio_q, inherited=inherited, gap=found.gap, seed=seed)
        moved = replace(moved, unlearnt=key.unlearnt + _moved(fit))
        return TaskState(moved, (*state.keys, fit.ratio), None), replace(found, moved=True)
