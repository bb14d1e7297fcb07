"""Learners that answer with a distribution over networks: the VCL family, Monte Carlo dropout, deep ensembles.

All they have to say is how to draw logits. Predictions are the log of the mean probability over `test_samples` draws;
how sure they are, `vestige.metrics.Uncertainty` computes from the same draws. Draws come a few at a time, so that
(samples, n, k) never stands in memory as a whole unless it is asked for.

Among which outputs probabilities are taken: those of the task where it is told, of all tasks so far where it is not.

One that has generators (`replay_`, see `generative_replay`) trains on their samples as well: each batch brings its
share, and what is more than one step takes is cut into several.

A deep ensemble (`Ensemble`, Lakshminarayanan et al. 2017) has `members` plain networks that differ in where their
weights began. They train as one batched network, each exactly as it would alone: the loss is the sum of theirs.
Predictions average their probabilities; where they are sure and disagree, the mutual information is high. Nothing is
kept from task to task: each member forgets as vanilla does. Deviation: the paper also shuffles the data for each
member; here the task loop hands all of them the same batch.

Monte Carlo dropout (`MCDropout`) is plain training with dropout that stays on at test time: Farquhar and Gal C.8.1,
after Gal and Ghahramani (2015). Each batch goes through one mask a row; the loss is its cross-entropy and `l2` times
the squared weights, which stands for the KL (see `nets.bayesian` for the factor that the theory gives). A prediction
averages `test_samples` masks. Nothing is kept from task to task: it forgets as vanilla does, and says how sure it is.
The paper's setting is net="conv", dropout 0.25, l2 0.01, 25 epochs, with generated replay, which this learner has not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Float64
from torch import Generator, Tensor

from vestige.continual.learners.base import Info, Learner, TrainConfig
from vestige.continual.learners.generative_replay import GeneratorReplay
from vestige.core import rng
from vestige.core.checks import option, refuse, whole
from vestige.data.stream import Inputs, Labels, Task, TaskInfo
from vestige.metrics.uncertainty import Uncertainty
from vestige.nets.bayesian import BayesNet, EnsembleMLP, MCDropoutNet

Draws = Iterator[Float[Tensor, "s n k"]]
ROWS = 2048  # inputs of one pass; bounds memory, changes nothing but the noise


class Posterior(Learner):
    """A learner with draws."""

    uses_task = True
    own_layers = "it draws from layers that it makes itself; ewc, rwalk, icarl and others take any network"
    net: BayesNet | MCDropoutNet  # type: ignore[assignment]
    seen_: tuple[int, ...] = ()  # the outputs of all tasks so far
    replay_: GeneratorReplay | None = None

    def begin_task(self, task: Task) -> None:
        """The outputs and the optimiser of the task; classes that will be replayed take part in the loss."""
        super().begin_task(task)
        self.seen_ = tuple(sorted({*self.seen_, *task.info.outputs}))
        if self.replay_ is not None:
            self.outputs_ = self.replay_.begin_task(task.info, self.outputs_)

    @abstractmethod
    def train_on(self, x: Inputs, y: Labels) -> Info:
        """One step on these rows."""

    def observe(self, x: Inputs, y: Labels) -> Info:
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

    def draws(self, x: Inputs, samples: int, generator: Generator, task: TaskInfo | None = None) -> Draws:
        """Logits of `samples` draws, some at a time; the network in use may depend on the task, where it is told."""
        return self.net.draw(x, samples, generator)

    def competing(self, task: TaskInfo | None) -> tuple[int, ...]:
        """The outputs among which an answer is sought."""
        return task.outputs if task is not None else self.seen_ or self.outputs_.outputs

    @torch.no_grad()
    def predict(self, x: Inputs, task: TaskInfo | None = None) -> Float[Tensor, "n k"]:
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

    def log_p_draws(self, x: Inputs, samples: int, seed: int, task: TaskInfo | None, outputs: Sequence[int]) -> Draws:
        """Log-probabilities among `outputs`, some draws at a time."""
        index, generator = torch.tensor(tuple(outputs)), rng.fork(seed, "posterior")
        for logits in self.draws(x, samples, generator, task):
            yield logits[..., index].log_softmax(-1)

    @torch.no_grad()
    def posterior_log_p(
        self,
        x: Inputs,
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
        x: Inputs,
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
    learner: Learner, x: Inputs, y: Labels, outputs: Sequence[int], *, seed: int = 0, task: TaskInfo | None = None
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


@dataclass(frozen=True)
class EnsembleConfig(TrainConfig):
    """How many networks; they are its own, so that there is no other choice of them."""

    net: str = option("mlp", among=("mlp",))
    init: str = option("torch", among=("torch",))
    head: str = option("fixed", among=("fixed",))
    members: int = option(5, low=2)


class Ensemble(Posterior):
    """Its draws are its members, each once."""

    config: EnsembleConfig
    net: EnsembleMLP  # type: ignore[assignment]

    def whole_net(self) -> EnsembleMLP:  # type: ignore[override]
        """All members as one batched network."""
        c, spec = self.config, self.spec
        return EnsembleMLP(spec.input_shape, c.hidden, spec.n_outputs, members=c.members, seed=self.seed)

    @property
    def test_samples(self) -> int:
        """Every member."""
        return self.config.members

    def train_on(self, x: Inputs, y: Labels) -> Info:
        """One step of every member down its own loss; what is told is their mean."""
        members = self.config.members
        mean = self.outputs_.loss(self.net(x).flatten(0, 1), y.repeat(members))
        return Info(self.step(mean * members).loss / members)

    def draws(self, x: Inputs, samples: int, generator: torch.Generator, task: TaskInfo | None = None) -> Draws:
        """Logits of the members; there are as many draws as members, and another number is refused."""
        if samples != self.config.members:
            refuse("samples", "Ensemble", f"{self.config.members}, its members", samples)
        yield self.net(x).detach()


@dataclass(frozen=True)
class MCDropoutConfig(TrainConfig):
    """The rate of dropout, the factor of the squared weights (C.8.1 has 0.25 and 0.01), the masks of a prediction."""

    net: str = option("mlp", among=("mlp", "conv"))
    head: str = option("fixed", among=("fixed",))
    dropout: float = option(0.25, above=0, below=1)
    l2: float = option(0.01, low=0)
    test_samples: int = option(100, low=1)


class MCDropout(Posterior):
    """Masks are its posterior."""

    version: ClassVar[int] = 2  # 2: masks from 16 bits a number
    config: MCDropoutConfig
    net: MCDropoutNet
    steps_: int = 0  # masks drawn so far

    def whole_net(self) -> MCDropoutNet:  # type: ignore[override]
        """The network under masks."""
        return MCDropoutNet(super().whole_net(), self.config.dropout)

    @property
    def test_samples(self) -> int:
        """Masks behind one prediction."""
        return self.config.test_samples

    def train_on(self, x: Inputs, y: Labels) -> Info:
        """One step under one mask a row, which follows from the seed and how many steps came before."""
        self.steps_ += 1
        logits = self.net(x, 1, rng.fork(self.seed, "mask", self.steps_)).squeeze(0)
        return self.step(self.outputs_.loss(logits, y) + self.config.l2 * self.net.squared_weights())
