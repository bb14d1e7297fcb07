"""The default: every later step is compared with one weighted stand-in for the data, not with the step before it.

When a task's data is here, a cross-fitted `Stack` learns log p/q_1 and the model's samples of that step become the
stand-in (see `stand_in`). At step t a stack, started at that of step t-1, learns stand-in against Q_t, and divergences
come from its held-out log-ratios on both. Errors do not pile up over t: two estimated ratios stand between p and q_t
however many steps lie between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.stand_in import StandIn, balance_to
from vestige.chains.strategy import Found, Strategy, scalar, under
from vestige.core import checks, rng
from vestige.ratios import Stack


@dataclass(frozen=True, eq=False)
class TaskState:
    """The stand-in of one task, the ratios that lead from p to it, and the newest fit."""

    stand_in: StandIn
    keys: tuple[Stack, ...]  # log p/q of the stand-in's own step is their sum; none where `newest` is log p/q_t itself
    newest: Stack | None

    @property
    def ratios(self) -> tuple[Stack, ...]:
        """Those whose sum is log p/q_t."""
        return self.keys if self.newest is None else (*self.keys, self.newest)


@dataclass(frozen=True)
class Anchored(Strategy[dict[int, TaskState]]):
    """Each task's first generated samples, weighted, stand for its data ever after."""

    name: ClassVar[str] = "anchored"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "fast": {"folds": 2, "epochs": 4, "warm_epochs": 1, "min_steps": 100, "decays": (0.5,)}
    }
    folds: int = 3
    epochs: int = 8
    warm_epochs: int = 4
    min_steps: int = 150  # of the networks, however few the rows
    decays: tuple[float, ...] = (0.01, 0.5)
    clip: float = 4.5  # of standardised coordinates, in the stack and in the balanced features
    rows_a_product: float = 100.0
    relu: int = 64  # random features whose means the stand-in takes over from the data
    balance_ridge: float = 1e-4
    moments: bool = True  # False: no average over real rows is kept, neither as coordinates nor in balanced weights

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        for name in ("folds", "epochs", "warm_epochs", "min_steps"):
            checks.whole(getattr(self, name), name, "Chain", low=2 if name == "folds" else 1)
        checks.whole(self.relu, "relu", "Chain", low=0)
        for name in ("clip", "rows_a_product", "balance_ridge"):
            checks.number(getattr(self, name), name, "Chain", low=0, open_low=True, open_high=True)
        if not self.decays:
            checks.refuse("decays", "Chain", "at least one", "none")

    def stack(self) -> Stack:
        """An unfitted ratio; the chain gives its own verdict on the gap."""
        return Stack(
            folds=self.folds,
            epochs=self.epochs,
            warm_epochs=self.warm_epochs,
            min_steps=self.min_steps,
            decays=self.decays,
            clip=self.clip,
            rows_a_product=self.rows_a_product,
            gap_warning=float("inf"),
            standardise="mixture" if self.moments else "model",
        )

    def step(
        self,
        state: dict[int, TaskState] | None,
        real: Mapping[int, Tensor],
        model: Mapping[int, Tensor],
        seed: int,
    ) -> tuple[dict[int, TaskState], dict[int, Found]]:
        """Tasks do not touch each other: each arrives or advances on its own."""
        known = state or {}
        after, found = {}, {}
        for task, q in model.items():
            own = rng.child_seed(seed, "task", task)
            after[task], found[task] = (
                self.arrive(real[task], q, own) if task in real else self.advance(known[task], q, own)
            )
        return after, found

    def arrive(self, p: Tensor, q: Tensor, seed: int) -> tuple[TaskState, Found]:
        """The data is here, for the only time: fit log p/q_1 and make the stand-in."""
        ratio = self.stack().fit(p, q, seed=seed)
        stand_in = self.reweighted(p, None, q, ratio.held_out_q_, inherited=1 / len(p), gap=ratio.gap_, seed=seed)
        # the data itself is averaged over; what the stand-in is worth is said already, for the steps to come
        found = Found(ratio.held_out_q_, ratio.held_out_p_, None, 0.0, 1, ratio.gap_, len(q), stand_in.ess)
        del ratio.held_out_p_  # a number for each real row; a stack that was loaded has none either
        return TaskState(stand_in, (), ratio), found

    def advance(self, state: TaskState, q: Tensor, seed: int) -> tuple[TaskState, Found]:
        """Stand-in against this step's samples."""
        s = state.stand_in
        assert state.newest is not None
        ratio = self.stack().fit_from(state.newest, s.samples, q, p_weights=s.weights, seed=seed)
        found = Found(
            ratio.held_out_q_, ratio.held_out_p_, s.weights, s.inherited, 2, ratio.gap_, len(s.weights), s.ess
        )
        return TaskState(s, (), ratio), found

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
    ) -> StandIn:
        """q's rows under weights that make them stand for p."""
        if p_weights is None and not self.moments:  # p is the data itself, whose means balanced weights would reveal
            return StandIn.weighted(q, torch.softmax(log_ratio, 0), log_ratio, inherited=inherited, gap=gap)
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
        return StandIn.weighted(q, balanced.log_weights.exp(), log_ratio, inherited=inherited, gap=gap)

    def log_ratio(self, state: dict[int, TaskState], task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The newest fit, after the ratios that lead to its stand-in where there are any."""
        own = state[task]
        total = torch.zeros(len(x), dtype=torch.float64)
        for ratio in own.ratios:
            total = total + ratio.log_ratio(x)
        return total

    def stand_in(self, state: dict[int, TaskState], task: int) -> tuple[Tensor, Tensor] | None:
        """Samples and weights."""
        return state[task].stand_in.samples, state[task].stand_in.weights

    def encoded_anew(self, state: dict[int, TaskState], samples: Mapping[int, Tensor]) -> dict[int, TaskState] | None:
        """Other samples under the same weights; the newest fit is where the next one starts and no more."""
        if any(own.keys for own in state.values()):
            return None
        return {
            task: replace(own, stand_in=replace(own.stand_in, samples=samples[task])) for task, own in state.items()
        }

    def pack(self, state: dict[int, TaskState]) -> dict[str, Tensor]:
        """Samples, weights and fits of every task."""
        packed: dict[str, Tensor] = {}
        for task, own in state.items():
            s = own.stand_in
            parts = {"samples": s.samples, "weights": s.weights, "log_ratio": s.log_ratio}
            parts |= {"inherited": scalar(s.inherited), "gap": scalar(s.gap)}
            parts |= {"keys": scalar(len(own.keys)), "ratios": scalar(len(own.ratios))}
            for i, ratio in enumerate(own.ratios):
                parts |= {f"ratio.{i}.{key}": value for key, value in ratio.state_dict().items()}
            packed |= {f"{task}.{key}": value for key, value in parts.items()}
        return packed

    def unpack(self, tensors: Mapping[str, Tensor]) -> dict[int, TaskState]:
        """The inverse of `pack`."""
        state = {}
        for task in sorted({int(key.split(".")[0]) for key in tensors}):
            own = under(f"{task}.", tensors)
            ratios = [self.stack().load_state_dict(under(f"ratio.{i}.", own)) for i in range(int(own["ratios"]))]
            numbers = float(own["inherited"]), float(own["gap"])
            stand_in = StandIn(own["samples"], own["weights"], own["log_ratio"], *numbers)
            keys = int(own["keys"])
            state[task] = TaskState(stand_in, tuple(ratios[:keys]), ratios[keys] if len(ratios) > keys else None)
        return state
