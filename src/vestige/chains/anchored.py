"""The default: every later step is compared with one set of weighted anchor samples, not with the step before it.

When a task's data is here, a cross-fitted ratio learns log p/q_1 and the model's samples of that step become the
anchor samples (see `anchor_samples`). At step t a ratio, started at that of step t-1, learns anchors against Q_t, and
divergences come from its held-out log-ratios on both. Errors do not pile up over t: two estimated ratios stand between
p and q_t however many steps lie between them.

What learns a step's ratio is a choice (`estimator`), and far jumps are bridged: see `step_ratio`. With `moments=False`
the stack alone may learn a step, and nothing is bridged: the others keep averages over their rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.anchor_samples import AnchorSamples, balance_to
from vestige.chains.step_ratio import ESTIMATORS, FittedRatio, bridged, fit_step
from vestige.chains.strategy import Points, Strategy, TaskLogRatios
from vestige.core import checks, rng
from vestige.core.checks import declared, option
from vestige.ratios import Stack


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
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {"folds": 2, "epochs": 4, "warm_epochs": 1, "min_steps": 100, "decays": (0.5,)}
    }
    folds: int = option(3, low=2)
    epochs: int = option(8, low=1)
    warm_epochs: int = option(4, low=1)
    min_steps: int = option(150, low=1)  # of the networks, however few the rows
    decays: tuple[float, ...] = option((0.01, 0.5), least=1)
    clip: float = option(4.5, above=0, below=math.inf)  # of standardised coordinates, in the stack and when balancing
    rows_a_product: float = option(100.0, above=0, below=math.inf)
    relu: int = option(64, low=0)  # random features whose means the anchors take over from the data
    balance_ridge: float = option(1e-4, above=0, below=math.inf)
    moments: bool = option(True)  # False: no average over real rows is kept, neither as coordinates nor in weights
    estimator: str = option("stack", among=ESTIMATORS)
    bridge_above: float = option(10.0, above=0, below=math.inf)  # nats of held-out KL; see `step_ratio`
    waymarks: int = option(8, low=1)

    def __post_init__(self) -> None:
        owner = f"Chain('{self.name}')"
        declared(self, owner)
        if not self.moments and self.estimator != "stack":
            checks.refuse("estimator", owner, "'stack' where moments=False", repr(self.estimator))

    def stack(self) -> Stack:
        """An unfitted stack; the chain gives its own verdict on the gap."""
        return Stack(
            folds=self.folds,
            epochs=self.epochs,
            warm_epochs=self.warm_epochs,
            min_steps=self.min_steps,
            decays=self.decays,
            clip=self.clip,
            rows_a_product=self.rows_a_product,
            gap_warning=math.inf,
            standardise="mixture" if self.moments else "model",
        )

    def recipe(self) -> dict[str, Any]:
        """How `fit_step` is to learn a step's ratio."""
        above = self.bridge_above if self.moments else math.inf
        known = {"estimator": self.estimator, "waymarks": self.waymarks}
        return {"stack": self.stack(), "bridge_above": above, **known}

    def step(
        self,
        state: dict[int, TaskState] | None,
        real: Mapping[int, Tensor],
        model: Mapping[int, Tensor],
        seed: int,
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

    def arrive(self, p: Tensor, q: Tensor, seed: int) -> tuple[TaskState, TaskLogRatios]:
        """The data is here, for the only time: fit log p/q_1 and weight the anchor samples."""
        fit = fit_step(p, q, None, **self.recipe(), start=None, seed=seed)
        anchors = self.reweighted(p, None, q, fit.log_ratio_q, inherited=1 / len(p), gap=fit.gap, seed=seed)
        # the data itself is averaged over; what the anchors are worth is said already, for the steps to come
        points = Points(fit.log_ratio_p, None, None)
        found = TaskLogRatios(
            fit.log_ratio_q,
            fit.log_ratio_p,
            None,
            inherited=0.0,
            depth=1,
            gap=fit.gap,
            anchors=len(q),
            anchors_ess=anchors.ess,
            anchored=points,
            running=points,
            moved=True,
            bridged=bridged(fit.ratio),
        )
        return TaskState(anchors, (), fit.ratio), found

    def advance(self, state: TaskState, q: Tensor, seed: int) -> tuple[TaskState, TaskLogRatios]:
        """Anchor samples against this step's."""
        p, weights = state.anchors.samples, state.anchors.weights
        fit = fit_step(p, q, weights, **self.recipe(), start=state.newest, seed=seed)
        found = self.found(state.anchors, fit.log_ratio_q, fit.log_ratio_p, fit.gap, 2, bridged(fit.ratio))
        return TaskState(state.anchors, (), fit.ratio), found

    def found(
        self, anchors: AnchorSamples, on_q: Tensor, on_anchors: Tensor, gap: float, depth: int, bridged: bool
    ) -> TaskLogRatios:
        """Log-ratios of a step after arrival, with their terms averaged over the anchor samples."""
        points = Points(on_anchors, anchors.weights, anchors.log_ratio)
        return TaskLogRatios(
            on_q,
            on_anchors,
            anchors.weights,
            inherited=anchors.inherited,
            depth=depth,
            gap=gap,
            anchors=len(anchors.weights),
            anchors_ess=anchors.ess,
            anchored=points,
            running=points,
            bridged=bridged,
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
        """q's rows under weights with which they take the place of p."""
        if p_weights is None and not self.moments:  # p is the data itself, whose means balanced weights would reveal
            return AnchorSamples.weighted(q, torch.softmax(log_ratio, 0), log_ratio, inherited=inherited, gap=gap)
        balanced = balance_to(
            p,
            p_weights,
            q,
            log_ratio,
            clip=self.clip,
            rows_a_product=self.rows_a_product,
            relu=self.relu,
            ridge=self.balance_ridge,
            seed=seed,
        )
        return AnchorSamples.weighted(q, balanced.log_weights.exp(), log_ratio, inherited=inherited, gap=gap)

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
