"""The paper's own chain, CDRE Eq. 5 to 12: a ratio of neighbouring steps at every step, by log-linear KLIEP.

psi_t (see `log_linear`) starts at psi_{t-1}, with a new output for each new task, and is trained on Eq. 12: each known
task's last generated samples against those of this step. For a new task the data stands in the place of the last
samples, and psi_{t-1} and the penalty are zero (Eq. 2, 3). r_t = exp(psi_t) / Psi_t (Eq. 7); divergences are Eq. 4.
Kept between steps: the network, the last generated samples, and of the data mean and deviation of its even mixture
with the samples of its step.

Deviations: the penalty of Eq. 10 is subtracted; Psi_t is taken over all samples of the step and stored; inputs are
standardised per task, without which half of the KL of many tasks is lost. The default is a smaller network with a
larger rate and no early stopping, a hundredth of the cost and no worse; `preset="paper"` has the settings of Appendix
A.2, to which its Fig. 2 adds a lambda_c of choice. lambda_c grows with the number of tasks (A.2) and is 0 by default:
larger values have not lowered the bias here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import checks, rng
from vestige.chains.log_linear import Rows, Schedule, grown, psi, train
from vestige.chains.strategy import Found, Strategy, scalar, under
from vestige.numerics import log_mean_exp
from vestige.ratios.stack_features import mixture_standardiser
from vestige.ratios.standardise import Standardiser


@dataclass(frozen=True, eq=False)
class TaskSide:
    """What belongs to one task: coordinates, the last generated samples, log Psi_t, and the ratios chained so far."""

    standardise: Standardiser
    samples: Float[Tensor, "n d"]
    log_normaliser: float
    depth: int


@dataclass(frozen=True, eq=False)
class NetState:
    """psi_t and the tasks that it knows."""

    layers: tuple[Tensor, ...]
    tasks: tuple[TaskSide, ...]


def inputs(standardise: Standardiser, x: Float[Tensor, "n d"], task: int) -> Float[Tensor, "n d1"]:
    """A standardised sample and its task's number, from 1."""
    return torch.cat([standardise(x), x.new_full((len(x), 1), task + 1)], 1)


@dataclass(frozen=True)
class EveryStep(Strategy[NetState]):
    """Eq. 5 to 12."""

    name: ClassVar[str] = "every-step"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {
            "hidden": (256, 256),
            "lr": 2e-5,
            "cosine": False,
            "batch": 2000,
            "first_epochs": 1000,
            "epochs": 2000,
            "held_out": 0.2,
        }
    }
    hidden: tuple[int, ...] = (32, 32)
    lr: float = 1e-2
    cosine: bool = True
    batch: int = 500
    first_epochs: int = 20
    epochs: int = 10
    held_out: float = 0.0
    patience: int = 10
    lambda_c: float = 0.0

    def check(self) -> None:
        """Refuse settings that cannot be used."""
        for name in ("batch", "first_epochs", "epochs", "patience"):
            checks.whole(getattr(self, name), name, "Chain", low=1)
        if not self.hidden:
            checks.refuse("hidden", "Chain", "at least one width", "none")
        for width in self.hidden:
            checks.whole(width, "hidden", "Chain", low=1)
        checks.number(self.lr, "lr", "Chain", low=0, open_low=True)
        checks.number(self.held_out, "held_out", "Chain", low=0, high=0.5)
        checks.number(self.lambda_c, "lambda_c", "Chain", low=0)

    def step(
        self, state: NetState | None, real: Mapping[int, Tensor], model: Mapping[int, Tensor], seed: int
    ) -> tuple[NetState, dict[int, Found]]:
        """One network for all tasks."""
        old_layers, known = ((), ()) if state is None else (state.layers, state.tasks)
        p: list[Rows] = []
        q: list[Rows] = []
        standardise, log_before = [], []
        exact = [x.double() for x in old_layers]
        for i in sorted(model):
            new = i >= len(known)
            standardise.append(_coordinates(real[i], model[i]) if new else known[i].standardise)
            log_before.append(0.0 if new else known[i].log_normaliser)
            for side, x in ((p, real[i] if new else known[i].samples), (q, model[i])):
                seen = inputs(standardise[i], x, i)
                before = torch.zeros(len(x)) if new else psi(exact, seen, i).float()
                side.append(Rows(seen.float(), before))
        sizes = [model[0].shape[1] + 1, *self.hidden]
        layers = grown(old_layers, sizes, len(model), generator=rng.fork(seed, "init"))
        epochs = self.first_epochs if state is None else self.epochs
        schedule = Schedule(self.lr, self.cosine, self.batch, epochs, self.held_out, self.patience)
        strengths = [self.lambda_c * len(model) * (i < len(known)) for i in sorted(model)]  # A.2: grows with t
        layers = train(layers, p, q, log_before, strengths, schedule, seed=seed)
        exact, sides, found = [x.double() for x in layers], [], {}
        for i in sorted(model):
            out = psi(exact, inputs(standardise[i], model[i], i), i)
            log_normaliser = float(log_mean_exp(out))
            depth = known[i].depth + 1 if i < len(known) else 1
            sides.append(TaskSide(standardise[i], model[i].clone(), log_normaliser, depth))
            found[i] = Found(out - log_normaliser, None, None, 0.0, depth, 0.0, 0, 0.0)
        return NetState(tuple(layers), tuple(sides)), found

    def log_ratio(self, state: NetState, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Eq. 7: psi_t - log Psi_t."""
        side = state.tasks[task]
        out = psi([w.double() for w in state.layers], inputs(side.standardise, x, task), task)
        return out - side.log_normaliser

    def stand_in(self, state: NetState, task: int) -> tuple[Tensor, Tensor] | None:
        """The last generated samples under r_t."""
        samples = state.tasks[task].samples
        return samples, torch.softmax(self.log_ratio(state, task, samples), 0)

    def pack(self, state: NetState) -> dict[str, Tensor]:
        """Layers and what belongs to each task."""
        packed = {f"layer.{i}": x for i, x in enumerate(state.layers)}
        for i, side in enumerate(state.tasks):
            parts = side.standardise.state() | {"samples": side.samples, "log_normaliser": scalar(side.log_normaliser)}
            packed |= {f"task.{i}.{key}": value for key, value in parts.items()}
            packed[f"task.{i}.depth"] = scalar(side.depth)
        return packed

    def unpack(self, tensors: Mapping[str, Tensor]) -> NetState:
        """The inverse of `pack`."""
        layers = under("layer.", tensors)
        sides = []
        for i in range(len(layers[str(len(layers) - 1)])):
            own = under(f"task.{i}.", tensors)
            numbers = float(own["log_normaliser"]), int(own["depth"])
            sides.append(TaskSide(Standardiser.from_state(own), own["samples"], *numbers))
        return NetState(tuple(layers[str(i)] for i in range(len(layers))), tuple(sides))


def _coordinates(p: Tensor, q: Tensor) -> Standardiser:
    even = [x.new_full((len(x),), 1 / len(x)) for x in (p, q)]
    return mixture_standardiser(p, q, *even)
