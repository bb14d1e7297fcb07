"""Learners that answer with a distribution over networks: the VCL family, Monte Carlo dropout, deep ensembles.

All they have to say is how to draw logits. Predictions are the log of the mean probability over `test_samples` draws;
how sure they are, `vestige.metrics.Uncertainty` computes from the same draws. Draws come a few at a time, so that
(samples, n, k) never stands in memory as a whole unless it is asked for.

Among which outputs probabilities are taken: those of the task where it is told, of all tasks so far where it is not.

One that has generators (`replay_`, see `generative_replay`) trains on their samples as well: each batch brings its
share, and what is more than one step takes is cut into several.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int64
from torch import Generator, Tensor

from vestige.continual.learners.base import Info, Learner
from vestige.continual.learners.generative_replay import GeneratorReplay
from vestige.core import rng
from vestige.core.checks import refuse, whole
from vestige.data.stream import Task, TaskInfo
from vestige.metrics.uncertainty import Uncertainty

ROWS = 2048  # inputs of one pass; bounds memory, changes nothing but the noise


class Posterior(Learner):
    """A learner with draws."""

    uses_task = True
    seen_: tuple[int, ...] = ()  # the outputs of all tasks so far
    replay_: GeneratorReplay | None = None

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task; classes that will be replayed take part in the loss."""
        super().begin_task(task)
        self.seen_ = tuple(sorted({*self.seen_, *task.info.outputs}))
        if self.replay_ is not None:
            self.outputs_ = self.replay_.begin_task(task.info, self.outputs_)

    @abstractmethod
    def train_on(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """One step on these rows."""

    def observe(self, x: Float[Tensor, "n *shape"], y: Int64[Tensor, " n"]) -> Info:
        """Learn from one batch and its share of the replay; the loss is the mean over the steps that it takes."""
        parts = [(x, y)] if self.replay_ is None else self.replay_.parts(x, y)
        return Info(torch.stack([self.train_on(*part).loss for part in parts]).mean())

    def end_task(self, task: Task) -> None:
        """Train the task's generator, where there are any."""
        super().end_task(task)
        if self.replay_ is not None:
            self.replay_.teach(task)

    def describe(self) -> dict[str, Any]:
        """With every field of the generator."""
        return super().describe() | ({} if self.replay_ is None else self.replay_.described())

    def bytes(self) -> dict[str, int]:
        """And of the method's state what the generators hold."""
        held = super().bytes()
        return held if self.replay_ is None else self.replay_.counted(held)

    @property
    @abstractmethod
    def test_samples(self) -> int:
        """Draws behind one prediction."""

    @abstractmethod
    def draws(
        self, x: Float[Tensor, "n *shape"], samples: int, generator: Generator, task: TaskInfo | None = None
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Logits of `samples` draws, some at a time; the network in use may depend on the task, where it is told."""

    def competing(self, task: TaskInfo | None) -> tuple[int, ...]:
        """The outputs among which an answer is sought."""
        return task.outputs if task is not None else self.seen_ or self.outputs_.outputs

    @torch.no_grad()
    def predict(self, x: Float[Tensor, "n *shape"], task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
        """Log of the mean probability among the outputs that take part; the others on the same scale, unnormalised."""
        outputs, samples = torch.tensor(self.competing(task)), self.test_samples
        generator, scores = rng.fork(self.seed, "predict"), []
        for part in x.split(ROWS):
            total = None
            for logits in self.draws(part, samples, generator, task):
                found = (logits - logits[..., outputs].logsumexp(-1, keepdim=True)).logsumexp(0)
                total = found if total is None else torch.logaddexp(total, found)
            assert total is not None, "there is one draw at least"
            scores.append(total - math.log(samples))
        return torch.cat(scores)

    def log_p_draws(
        self, x: Float[Tensor, "n *shape"], samples: int, seed: int, task: TaskInfo | None, outputs: Sequence[int]
    ) -> Iterator[Float[Tensor, "s n k"]]:
        """Log-probabilities among `outputs`, some draws at a time."""
        index, generator = torch.tensor(tuple(outputs)), rng.fork(seed, "posterior")
        for logits in self.draws(x, samples, generator, task):
            yield logits[..., index].log_softmax(-1)

    @torch.no_grad()
    def posterior_log_p(
        self,
        x: Float[Tensor, "n *shape"],
        samples: int | None = None,
        *,
        seed: int = 0,
        task: TaskInfo | None = None,
        outputs: Sequence[int] | None = None,
    ) -> Float[Tensor, "s n k"]:
        """Log-probabilities of `samples` draws (None: as many as a prediction takes), whole in memory.

        They are taken among `outputs` (None: those that compete), in that order.
        """
        samples = self.test_samples if samples is None else whole(samples, "samples", type(self).__name__, low=1)
        return torch.cat(list(self.log_p_draws(x, samples, seed, task, outputs or self.competing(task))))

    @torch.no_grad()
    def uncertainty(
        self,
        x: Float[Tensor, "n *shape"],
        samples: int | None = None,
        *,
        seed: int = 0,
        task: TaskInfo | None = None,
        outputs: Sequence[int] | None = None,
    ) -> Uncertainty:
        """What such draws say of each input; no more of them are held at once than the network holds."""
        samples = self.test_samples if samples is None else whole(samples, "samples", type(self).__name__, low=1)
        parts = []
        for i, rows in enumerate(x.split(ROWS)):
            parts.append(Uncertainty())
            block = rng.child_seed(seed, "rows", i)
            for log_p in self.log_p_draws(rows, samples, block, task, outputs or self.competing(task)):
                parts[-1].update(log_p)
        return Uncertainty.beside(parts)


def how_sure(
    learner: Learner,
    x: Float[Tensor, "n *shape"],
    y: Int64[Tensor, " n"],
    outputs: Sequence[int],
    *,
    seed: int = 0,
    task: TaskInfo | None = None,
) -> dict[str, Float64[Tensor, "..."]]:
    """Means over the inputs of the entropies and the mutual information, and how well confidence agrees with accuracy.

    Probabilities are taken among `outputs`. A learner without draws has one network, of which neither mutual
    information nor expected entropy is asked.
    """
    if isinstance(learner, Posterior):
        found = learner.uncertainty(x, seed=seed, task=task, outputs=outputs)
    elif learner.probabilities:
        scores = torch.cat([learner.predict(rows, task) for rows in x.split(ROWS)])
        found = Uncertainty().update(scores[:, list(outputs)].log_softmax(-1).unsqueeze(0))
    else:
        refuse("uncertainty", type(learner).__name__, "False: its scores are no probabilities", True)
    place = torch.full((learner.spec.n_outputs,), -1, dtype=torch.int64)
    place[list(outputs)] = torch.arange(len(outputs))
    summary = found.summary(place[y])
    if not isinstance(learner, Posterior):
        del summary["mutual_information"], summary["expected_entropy"]
    return summary
