"""DGR: a generator and a solver (Shin, Lee, Kim and Kim 2017, "Continual learning with deep generative replay").

When a task ends the generator learns it, and keeps the earlier ones by its own samples. While a task trains, the solver
S sees its data and what the generator of before, G, draws of the earlier ones (their Eq. 1):

    L = r E_task[L(S(x), y)] + (1 - r) E_G[L(S(x'), y')]

`labels` says where y' is from: "solver", as in the paper, is what the solver of before the task makes of x', the
likeliest of the outputs that are replayed; "condition" is the class that the generator was asked for. `condition` says
what that is: "class", or "task": then the generator is left to find how the classes of a task share its samples, as
the paper's unconditional one is, and only the solver can label them. `share` is r; None counts every row the same,
real or generated, so that every class is as heavy as any other.

Deviations: a conditional generator, so that each condition has its share of the samples whatever the generator would
draw unasked; of the paper's soft or hard answers of the solver the hard ones; a class (or task) that comes again is
learnt anew, from its newest data. The paper's WGAN-GP is one of the generators; the default is the gated VAE.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from vestige.continual.learners.base import Outputs, Spec
from vestige.continual.learners.generated import GeneratedConfig, Generating, Samples
from vestige.continual.learners.vanilla import Vanilla
from vestige.core import rng
from vestige.core.checks import number, one_of, refuse
from vestige.data.task import Task
from vestige.nets import Classifier

LABELS = ("condition", "solver")
CONDITIONS = ("class", "task")


@dataclass(frozen=True)
class DGRConfig(GeneratedConfig):
    """Who labels what is replayed, what the generator is conditional on, and r of Eq. 1."""

    generator: str = "vae"
    labels: str = "solver"
    condition: str = "class"
    share: float | None = None


def cross_entropies(outputs: Outputs, logits: Float[Tensor, "n k"], y: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Of each row, over `outputs` alone."""
    return functional.cross_entropy(logits[:, outputs.index], outputs.place[y], reduction="none")


def mixed(
    new: Float[Tensor, " n"], old: Float[Tensor, " m"], weights: Float[Tensor, " m"], share: float | None
) -> Float[Tensor, ""]:
    """Eq. 1 over the losses of a batch: r is `share`, or that of `new` among all rows; `old` has weights."""
    r = len(new) / (len(new) + len(old)) if share is None else share
    return r * new.mean() + (1 - r) * (weights * old).mean()


class DGR(Generating, Vanilla):
    """Generated samples of earlier tasks beside the data of the current one."""

    config: DGRConfig

    def __init__(self, spec: Spec, config: DGRConfig | None = None, *, seed: int = 0) -> None:
        super().__init__(spec, config, seed=seed)
        owner, c = type(self).__name__, self.config
        one_of(c.labels, LABELS, "labels", owner)
        one_of(c.condition, CONDITIONS, "condition", owner)
        if c.condition == "task" and c.labels == "condition":
            refuse("labels", owner, "'solver' where the generator is told the task alone", "'condition'")
        if c.share is not None:
            number(c.share, "share", owner, low=0, high=1)
        self.elder: Classifier | None = None  # the solver of before the task
        self.outputs_of: dict[int, tuple[int, ...]] = {}  # by task, where that is the condition

    @classmethod
    def default_config(cls) -> DGRConfig:
        """A gated VAE, and labels by the solver."""
        return DGRConfig()

    def begin_task(self, task: Task) -> None:
        """The solver so far is put aside, to label what is replayed."""
        super().begin_task(task)
        if self.config.condition == "task" and task.info.index >= self.spec.n_outputs:
            refuse("condition", type(self).__name__, f"'class' from task {self.spec.n_outputs} on", "'task'")
        self.elder = copy.deepcopy(self.net) if self.taught and self.config.labels == "solver" else None

    def loss(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Eq. 1 for a batch and its share of the replay."""
        old, weights = self.weighed(len(y))
        if len(old.y) == 0:
            return super().loss(x, y)
        logits = self.net(torch.cat([x, old.x.to(x)]))
        each = cross_entropies(self.outputs, logits, torch.cat([y, old.y]))
        return mixed(each[: len(y)], each[len(y) :], weights.to(each), self.config.share)

    def weighed(self, n: int) -> tuple[Samples, Float[Tensor, " m"]]:
        """What joins a batch of `n` rows, and its weights: here one each."""
        old = self.beside(n)
        return old, torch.ones(len(old.y))

    def end_task(self, task: Task) -> None:
        """The generator learns the task; the solver of before it has done its work."""
        super().end_task(task)
        self.elder = None

    def teach(self, task: Task, replay: Mapping[int, Tensor] | None = None) -> None:
        """The task's data under its conditions."""
        if self.config.condition == "task" and len(task.y):
            self.outputs_of[task.info.index] = task.info.outputs
        super().teach(Task(task.info, task.x, self.conditions(task), task.val_x, task.val_y), replay)

    def conditions(self, task: Task) -> Int64[Tensor, " n"]:
        """Under what the generator learns each row of a task."""
        return task.y if self.config.condition == "class" else torch.full_like(task.y, task.info.index)

    def replayed(self) -> list[int]:
        """The classes behind each condition that the generator knows."""
        if self.config.condition == "class":
            return super().replayed()
        return [c for _, outputs in sorted(self.outputs_of.items()) for c in outputs]

    def draw(self, each: int, *names: str | int) -> Samples:
        """`each` samples for every class that is replayed, in order of conditions, under their labels."""
        if not self.taught:
            return super().draw(each, *names)
        generator = self.taught[0].generator
        conditions = self.asked(each)
        x = generator.sample_each(conditions, seed=rng.child_seed(self.seed, "replay", *names))
        return Samples(x, conditions if self.elder is None else self.named(x, sorted(set(self.replayed()))))

    def asked(self, each: int) -> Int64[Tensor, " m"]:
        """The conditions of `each` samples for every class that is replayed."""
        known = torch.tensor(self.taught[0].generator.known_)
        classes = [len(self.outputs_of.get(c, (c,))) for c in known.tolist()]
        return known.repeat_interleave(each * torch.tensor(classes))

    @torch.no_grad()
    def named(self, x: Float[Tensor, "m *shape"], among: Sequence[int]) -> Int64[Tensor, " m"]:
        """What the solver of before takes `x` for, among some classes."""
        assert self.elder is not None
        elder, outputs = self.elder.eval(), torch.tensor(among)
        parts = x.to(elder.head.weight.dtype).split(elder.rows_at_once)
        return outputs[torch.cat([elder(part)[:, outputs] for part in parts]).argmax(1)]

    def method_state(self) -> dict[str, Tensor]:
        """And the solver of before, and the classes of each task."""
        state = super().method_state()
        if self.elder is not None:
            state |= {f"elder.{key}": value for key, value in self.elder.state_dict().items()}
        return state | {f"outputs_of.{task}": torch.tensor(found) for task, found in self.outputs_of.items()}

    def load_method_state(self, state: dict[str, Tensor]) -> None:
        """The inverse."""
        own = ("elder.", "outputs_of.")
        super().load_method_state({k: v for k, v in state.items() if not k.startswith(own)})
        elder = {k.removeprefix("elder."): v for k, v in state.items() if k.startswith("elder.")}
        self.elder = copy.deepcopy(self.net) if elder else None
        if self.elder is not None:
            self.elder.load_state_dict(elder)
        found = {k.removeprefix("outputs_of."): v for k, v in state.items() if k.startswith("outputs_of.")}
        self.outputs_of = {int(task): tuple(outputs.tolist()) for task, outputs in found.items()}
