"""The paper's own chain, CDRE Eq. 5 to 12: a ratio of neighbouring steps at every step, by a log-linear network.

psi_t (see `log_linear`) starts at psi_{t-1}, with a new output for each new task, and is trained on Eq. 12: each known
task's last generated samples against those of this step, by KLIEP (Eq. 10) or another of `step_losses`. For a new task
the data stands in the place of the last samples, and log r_{t-1} and the penalty are zero (Eq. 2, 3). r_t is
exp(psi_t) / Psi_t (Eq. 7); divergences are Eq. 4. Kept between steps: the networks, of each task the generated samples
of the last step and, with their weights, of the first (for the column `anchored`), and of the data mean and deviation
of its even mixture with the samples of its step.

`members` networks, each a chain of its own from its own initialisation and, with `resample`, on its own bootstrap of
the rows (drawn anew at each step), train as one; log r is the mean of theirs, normalised again, and their spread is
reported beside the interval, not in it: it does not know of the bias that they share. `step_many` trains the networks
of several chains as one too.

Deviations: the penalty of Eq. 10 is subtracted; Psi_t is taken over all samples of the step and stored; inputs are
standardised per task, without which half of the KL of many tasks is lost. The default is a smaller network with a
larger rate and no early stopping, a hundredth of the cost and no worse. `preset="paper"` has the settings of Appendix
A.2 for synthetic data, "paper-images" those for images; lambda_c of the former is to be chosen, as in Fig. 2. A.2 does
not say how many synthetic rows validate (a fifth, here) nor for how long their loss may rise (`patience` epochs); of
images as many validate as train. lambda_c is multiplied by the number of tasks (A.2) and is 0 by default: larger values
have not lowered the bias here: `vestige run cdre-fig2a` gives Eq. 4 at t = 10 (kl 2.614) as 1.56, 1.43, 1.40 and 1.31
for lambda_c 0, 0.1, 1 and 10. preset="paper" gave 1.21 there, on one data set, measured once by hand (127 CPU s).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige.chains.log_linear import (
    LogLinearSchedule,
    LogLinearState,
    LogLinearTask,
    TaskRows,
    fresh,
    grown,
    inputs,
    train,
)
from vestige.chains.step_losses import ESTIMATORS, OUTPUT_OF, step_value
from vestige.chains.strategy import Job, Points, Strategy, TaskLogRatios
from vestige.core import rng
from vestige.core.checks import declared, option
from vestige.ratios.stack.features import mixture_standardiser
from vestige.ratios.standardise import Standardiser

A2: dict[str, Any] = {
    "hidden": (256, 256),
    "cosine": False,
    "batch_size": 2000,
    "first_epochs": 1000,  # "for DRE"
    "epochs": 2000,  # "for CDRE"
}


@dataclass(frozen=True, eq=False)
class StepInputs:
    """Everything that one chain's step trains on."""

    layers: list[Tensor]
    p: list[TaskRows]
    q: list[TaskRows]
    standardise: list[Standardiser]
    known: int  # tasks that are not new
    seeds: list[int]

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be the same in chains that are trained together."""
        return self.known, [x.shape[1:] for x in self.layers], [rows.x.shape[1:] for rows in (*self.p, *self.q)]


@dataclass(frozen=True)
class EveryStep(Strategy[LogLinearState]):
    """Eq. 5 to 12. `critic` is the f of estimator "fgan"."""

    name: ClassVar[str] = "every-step"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": A2 | {"learning_rate": 2e-5, "held_out": 0.2},
        "paper-images": A2 | {"learning_rate": 1e-5, "held_out": 0.5, "lambda_c": 1.0},
    }
    estimator: str = option("kliep", among=ESTIMATORS)
    critic: str = option("kl", among=OUTPUT_OF)
    hidden: tuple[int, ...] = option((32, 32), low=1, least=1)
    learning_rate: float = option(1e-2, above=0)
    cosine: bool = True
    batch_size: int = option(500, low=1)
    first_epochs: int = option(20, low=1)
    epochs: int = option(10, low=1)
    held_out: float = option(0.0, low=0, high=0.5)
    patience: int = option(10, low=1)
    lambda_c: float = option(0.0, low=0)
    members: int = option(1, low=1)
    resample: bool = False
    moments: bool = True  # False: coordinates are standardised by the model's samples alone

    def __post_init__(self) -> None:
        declared(self, f"Chain('{self.name}')")

    def step(
        self, state: LogLinearState | None, real: Mapping[int, Tensor], model: Mapping[int, Tensor], seed: int
    ) -> tuple[LogLinearState, dict[int, TaskLogRatios]]:
        """One network for all tasks."""
        return self.step_many([Job(state, real, model, seed)])[0]

    def step_many(self, jobs: Sequence[Job[LogLinearState]]) -> list[tuple[LogLinearState, dict[int, TaskLogRatios]]]:
        """The networks of all chains and members as one, if they are of one shape; else chain after chain."""
        ready = [self.prepare(job) for job in jobs]
        if any(own.shape != ready[0].shape for own in ready):
            return super().step_many(jobs)
        first, tasks = ready[0], len(ready[0].p)
        epochs = self.epochs if first.known else self.first_epochs
        schedule = LogLinearSchedule(
            self.learning_rate, self.cosine, self.batch_size, epochs, self.held_out, self.patience, self.resample
        )
        layers = train(
            [torch.cat(parts) for parts in zip(*(own.layers for own in ready), strict=True)],
            [_joined([own.p[i] for own in ready]) for i in range(tasks)],
            [_joined([own.q[i] for own in ready]) for i in range(tasks)],
            [self.lambda_c * tasks * (i < first.known) for i in range(tasks)],  # A.2: grows with the number of tasks
            step_value(self.estimator, self.critic),
            schedule,
            seeds=[seed for own in ready for seed in own.seeds],
        )
        split = zip(*(x.split(self.members) for x in layers), strict=True)
        return [self.finish(*each) for each in zip(jobs, ready, split, strict=True)]

    def prepare(self, job: Job[LogLinearState]) -> StepInputs:
        """Inputs of both sides with log r_{t-1}, and the networks to start from."""
        tasks = sorted(job.model)
        known = 0 if job.state is None else len(job.state.tasks)
        seeds = [rng.child_seed(job.seed, "member", k) for k in range(self.members)]
        p: list[TaskRows] = []
        q: list[TaskRows] = []
        standardise: list[Standardiser] = []
        of = job.real if self.moments else job.model
        for i in tasks:
            old = job.state.tasks[i] if job.state is not None and i < known else None
            standardise.append(_coordinates(of[i], job.model[i]) if old is None else old.standardise)
            for side, x in ((p, job.real[i] if old is None else old.samples), (q, job.model[i])):
                seen = inputs(standardise[i], x, i).float().expand(self.members, -1, -1)
                before = torch.zeros(seen.shape[:2])
                if job.state is not None and old is not None:
                    before = job.state.member_log_ratios(i, x).float()
                side.append(TaskRows(seen, before))
        sizes = [job.model[0].shape[1] + 1, *self.hidden]
        layers = fresh(sizes, seeds) if job.state is None else job.state.layers
        return StepInputs(grown(layers, len(tasks)), p, q, standardise, known, seeds)

    def finish(
        self, job: Job[LogLinearState], ready: StepInputs, layers: Sequence[Tensor]
    ) -> tuple[LogLinearState, dict[int, TaskLogRatios]]:
        """The state with Psi_t, and log r_t wherever a divergence is averaged."""
        old = () if job.state is None else job.state.tasks
        sides = []
        for i, q in sorted(job.model.items()):
            sides.append(LogLinearTask.of(layers, ready.standardise[i], q, i, old[i] if i < len(old) else None))
        state, found = LogLinearState(tuple(layers), tuple(sides)), {}
        for i, q in sorted(job.model.items()):
            if job.state is None or i >= len(old):
                anchored = running = Points(state.log_ratio(i, job.real[i]), None, None)
            else:
                before = job.state.log_ratio(i, old[i].samples)
                anchored = Points(state.log_ratio(i, sides[i].anchor), sides[i].anchor_weights, None)
                running = Points(state.log_ratio(i, old[i].samples), torch.softmax(before, 0), before)
            every = state.member_log_ratios(i, q) if self.members > 1 else None
            found[i] = TaskLogRatios(
                state.log_ratio(i, q),
                None,
                None,
                depth=sides[i].depth,
                anchored=anchored,
                running=running,
                moved=True,
                members=every,
            )
        return state, found

    def log_ratio(self, state: LogLinearState, task: int, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Eq. 7: psi_t - log Psi_t."""
        return state.log_ratio(task, x)

    def anchor_samples(self, state: LogLinearState, task: int) -> tuple[Tensor, Tensor]:
        """The last generated samples under r_t."""
        samples = state.tasks[task].samples
        return samples, torch.softmax(state.log_ratio(task, samples), 0)


def _coordinates(p: Tensor, q: Tensor) -> Standardiser:
    even = [x.new_full((len(x),), 1 / len(x)) for x in (p, q)]
    return mixture_standardiser(p, q, *even)


def _joined(rows: Sequence[TaskRows]) -> TaskRows:
    if len(rows) == 1:  # a view that is shared by the members stays one
        return rows[0]
    return TaskRows(torch.cat([own.x for own in rows]), torch.cat([own.before for own in rows]))
