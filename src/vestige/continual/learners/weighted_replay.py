"""Weighted replay: generated replay that corrects the bias of its generator, after the data is gone.

As `dgr`, and a chain follows the generator: a sample x of condition c (a class, or a task) at time t
has the weight r = p(x|c) / q_t(x|c), taken to the largest power that leaves an effective sample size of `ess` of the
samples, and divided by the mean over the condition (LFIW Eq. 6), so that conditions weigh what they weighed. Two uses:
- `solver`: weights in the solver's loss, Eq. 1 of DGR with E_G[w L] in place of E_G[L];
- `resample`: what the next generator learns of earlier conditions is drawn by weight from `oversample` times as many
  samples, so that a bias is corrected before it is learnt and amplified. Not by default: a VAE learns better from its
  own samples if it may keep the codes that they were drawn from (its `pairs`), and samples that are given have none.
  Handing their codes on would not help. A pair (x, z) holds the decoder to what it makes of z, however often it comes,
  and a VAE draws z from its fixed prior, so that pairs under any other law of z leave what it draws as it was. Only
  where codes are inferred, and so come to share the prior out anew, can resampling move mass.
  On validation rows of Split MNIST, generator skewed ten to one, seed 0: plain replay 77.9 %, `solver` 80.4,
  `resample` 77.1, both 80.1 (`beyond-replay` has the test rows, other generators, and the controls).

Weights move mass between samples that the generator makes; they cannot correct how a sample looks, nor what is never
made.
No row of the data is kept. Anchors (codes of generated samples, and their weights), ratios and encoders occupy memory,
as exemplars do: `bytes` counts them under "method". `report_` has, of the last weights in each of the two places, ESS,
mean raw weight, exponent and verdict of each condition, and why the weights of others are one.

Nobody's paper: CDRE gives the chain, LFIW the weights, DGR the replay. The generator must have codes: the VAE.

How a sample is weighed. A `Chain` follows the generator, a task of the chain for each of its conditions c: log p(z|c)
/ q_t(z|c), where z is the code of a sample x under the generator's own encoder. A code is *drawn*, z ~ q(z|x) (`blur`
deviations around its mean): means alone lie too far apart. Measured once, by hand, on a VAE of 8 codes, 2000 steps on
zeros and a tenth of the ones of MNIST, of whose samples 17 % are ones and 50 % should be: drawn codes are 0.6 nats
apart, and their weights make it 48 %; the next step's weights, of which the data has no part, 53 %. Means are 1.6
nats apart, make it 36 %, and the chain refuses the next step. Features of the solver are further apart still.

Encoders change with each fit, so the one of a condition's arrival is kept to see its samples ever after. Kept besides:
the chain, whose anchors are codes of generated samples under weights. No row of the data, nor its code.

Codes are drawn where the generator computes. The chain, and the weights that come of it, are in float64 and on the CPU.

A condition whose ratio the chain refuses, or that has too few rows, or that came with data twice (its first data is
then not all that it stands for), has weights of one, and `refused` says why.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vestige.chains import Chain
from vestige.continual.learners.base import Spec
from vestige.continual.learners.generative_replay import DGR, ConditionalReplay, DGRConfig, Label, ReplayBatch
from vestige.core import VestigeError, VestigeWarning, rng
from vestige.core.checks import option, refuse
from vestige.core.machine import on_cpu
from vestige.data.stream import Inputs, Task
from vestige.generators import Generator
from vestige.generators.vae import VAE
from vestige.ratios import weights as weighing

# The divergence whose refusal counts. It is bounded, so that it is refused only where the anchors are worth too little,
# and not for a heavy tail, which tempering deals with.
WATCHED = "js"
# Nats from which a chain would bridge a jump. Weights over such a gap are refused anyway, and a bridge is dear.
NEVER = 1e6


class FrozenEncoder(nn.Module):
    """The encoder of a VAE as it was: rows to mean and log-variance of their codes."""

    def __init__(self, generator: VAE) -> None:
        super().__init__()
        self.scale, self.encoder = copy.deepcopy(generator.scale_), copy.deepcopy(generator.net_.encoder)
        self.requires_grad_(False)

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n f"]]:
        """Mean and log-variance."""
        mean, log_var = self.encoder(self.scale(x)).chunk(2, 1)
        return mean, log_var

    def code(self, x: Inputs, blur: float, generator: torch.Generator) -> Float[Tensor, "n f"]:
        """A draw of each row's code, `blur` times as far from the mean as it should be."""
        mean, log_var = self(x.flatten(1).float())
        return mean + blur * (log_var / 2).exp() * torch.randn(mean.shape, generator=generator)


@dataclass(frozen=True)
class WeightsReport:
    """What is to be known of the weights of one condition: of the raw ones, and of those that are used."""

    mean_weight: float
    raw_ess: float  # this and the next as a share of the samples
    ess: float
    alpha: float  # the exponent that leaves `ess`
    verdict: str


@on_cpu()
def tempered(log_ratio: Float[Tensor, " n"], least: float) -> tuple[Float[Tensor, " n"], WeightsReport]:
    """Weights of mean one: the ratio to the largest power, at most one, that leaves an ESS of `least` of n."""
    found, flat = weighing.diagnose(log_ratio), weighing.temper(log_ratio, least)
    log_w: Tensor = weighing.self_normalise(flat.log_weights)
    told = WeightsReport(found.mean_weight, found.ess_fraction, flat.ess_fraction, flat.alpha, found.verdict)
    return log_w.exp(), told


@dataclass(frozen=True)
class WeightedReplayConfig(DGRConfig):
    """Where weights are used, and how they are had; `estimator` is one of those of `Chain`."""

    solver: bool = option(True)
    resample: bool = option(False)
    ess: float = option(0.3, above=0, high=1)
    oversample: int = option(4, low=1)
    estimator: str = "quadratic"
    chain_samples: int = option(1000, low=1)
    min_rows: int = option(100, low=1)  # of data that a condition must have to be followed
    blur: float = option(1.0, low=0)


class GeneratorFollower:
    """A chain on the codes of a generator's samples."""

    arrival_: dict[int, int]  # of each condition that the chain knows
    barred_: dict[int, str]  # why a condition is not followed, for good
    refused_: dict[int, str]  # why a condition's weights are one, as the generator is now

    def __init__(self, config: WeightedReplayConfig, skeleton: VAE) -> None:
        self.skeleton = skeleton  # of the configuration that is followed, for its encoder
        self.config = config
        self.begin()

    def begin(self) -> None:
        """Nothing is followed yet."""
        options: dict[str, Any] = {"estimator": self.config.estimator, "min_samples": self.config.min_rows}
        self.chain = Chain(preset="lean", names=(WATCHED,), bridge_above=NEVER, **options)
        self.encoders: dict[int, FrozenEncoder] = {}  # by number of arrival
        self.arrival_, self.barred_, self.refused_ = {}, {}, {}

    def step(self, generator: Generator, data: Mapping[int, Tensor], *, seed: int) -> None:
        """The generator has learnt anew, from `data` by condition, which is here for the last time."""
        assert isinstance(generator, VAE)
        for c, x in data.items():
            if c in self.arrival_ or c in self.barred_:
                self.barred_[c] = "came with data twice"
            elif len(x) < self.config.min_rows:
                self.barred_[c] = f"fewer than {self.config.min_rows} rows of data"
        new = [c for c in data if c not in self.arrival_ and c not in self.barred_]
        number, encoder = len(self.encoders), FrozenEncoder(generator)
        seen = {c: encoder if c in new else self.encoders[self.arrival_[c]] for c in (*self.arrival_, *new)}
        drawn = {
            c: generator.sample(self.config.chain_samples, c, seed=rng.child_seed(seed, "follow", c)) for c in seen
        }
        try:
            blur = self.config.blur
            real: dict[str | int, Any] = {c: encoder.code(data[c], blur, rng.fork(seed, "real", c)).cpu() for c in new}
            model: dict[str | int, Any] = {
                c: seen[c].code(x, blur, rng.fork(seed, "model", c)).cpu() for c, x in drawn.items()
            }
            with warnings.catch_warnings(), on_cpu():
                warnings.simplefilter("ignore", VestigeWarning)  # what the chain is unsure of stands in its report
                report = self.chain.step(real, model, seed=seed)
        except VestigeError as error:  # the chain is as it was, and knows nothing of this generator
            self.barred_ |= dict.fromkeys(new, str(error))
            self.refused_ = dict.fromkeys(self.arrival_, str(error)) | self.barred_
            return
        if new:
            self.encoders[number] = encoder
            self.arrival_ |= dict.fromkeys(new, number)
        found = {int(task.task): task.estimates[WATCHED] for task in report.tasks}
        self.refused_ = {c: e.reason for c, e in found.items() if not e.known} | self.barred_

    def log_ratio(self, x: Inputs, condition: int, *, seed: int) -> Float[Tensor, " n"]:
        """log p/q_t of samples of a condition; zero where it is refused or unknown."""
        if condition in self.refused_ or condition not in self.arrival_:
            return torch.zeros(len(x), dtype=torch.float64, device="cpu")
        encoder = self.encoders[self.arrival_[condition]]
        code = encoder.code(x, self.config.blur, rng.fork(seed, "weigh", condition))
        with on_cpu():
            found: Tensor = self.chain.log_ratio(code.cpu().double(), condition)
        return found

    @property
    def encoders_(self) -> dict[int, dict[str, Tensor]]:
        """The weights of every encoder."""
        return {number: encoder.state_dict() for number, encoder in self.encoders.items()}

    @encoders_.setter
    def encoders_(self, weights: dict[int, dict[str, Tensor]]) -> None:
        self.encoders = {number: FrozenEncoder(self.skeleton) for number in weights}
        for number, encoder in self.encoders.items():
            encoder.load_state_dict(weights[number])

    @property
    def chain_(self) -> dict[str, Any]:
        """All that the chain needs to go on; its fields as text, for they name tensors of their own."""
        fields, tensors = self.chain.state()
        return {"fields": json.dumps(fields), "tensors": tensors}

    @chain_.setter
    def chain_(self, state: dict[str, Any]) -> None:
        tensors = {name: tensor.cpu() for name, tensor in state["tensors"].items()}
        with on_cpu():
            self.chain = Chain.from_state(json.loads(state["fields"]), tensors)

    def bytes(self) -> int:
        """What the chain holds: its anchor samples and ratios."""
        return sum(value.numel() * value.element_size() for value in self.chain.state()[1].values())


class FollowedReplay(ConditionalReplay):
    """Replay whose samples have weights, by what follows the generator."""

    follower_class: ClassVar[type[GeneratorFollower]] = GeneratorFollower
    follower_: GeneratorFollower

    def __init__(self, config: WeightedReplayConfig, spec: Spec, label: Label, *, owner: str, seed: int) -> None:
        super().__init__(config, spec, label, owner=owner, seed=seed)
        skeleton = self.fresh_generator(spec.n_outputs)
        if not isinstance(skeleton, VAE):
            refuse("generator", owner, "one with codes ('vae')", repr(self.config.generator))
        self.use, self.follower_ = config, self.follower_class(config, skeleton)
        self.weights: Tensor = torch.ones(0, device="cpu")  # of the pool, and no more a state than it
        self.report: dict[str, Any] = {}

    def draw(self, each: int, *names: str | int) -> ReplayBatch:
        """As DGR does, and the samples' weights beside them."""
        drawn = super().draw(each, *names)
        self.weights = torch.ones(len(drawn.y), dtype=torch.float64, device="cpu")
        if self.use.solver and self.generator is not None:
            seed, conditions, told = rng.child_seed(self.seed, "weigh", *names), self.asked(0, each), {}
            for c in self.generator.known_:
                rows = conditions == c
                self.weights[rows.cpu()], found = self.weigh(drawn.x[rows], c, seed)
                told[c] = asdict(found)
            self.tell("solver", told)
        return drawn

    def tell(self, place: str, weights: dict[int, dict[str, Any]]) -> None:
        """Report the weights that are used in one of the two places."""
        self.report[place] = {"task": self.task_, "weights": weights, "refused": dict(self.follower_.refused_)}

    def weigh(
        self, x: Float[Tensor, "m *shape"], condition: int, seed: int
    ) -> tuple[Float[Tensor, " m"], WeightsReport]:
        """Weights, of mean one, of samples of one condition, and what there is to know of them."""
        return tempered(self.follower_.log_ratio(x, condition, seed=seed), self.use.ess)

    def weights_of(self, rows: Int64[Tensor, " m"]) -> Float[Tensor, " m"]:
        """The weights of rows of the pool."""
        return self.weights[rows.cpu()]

    def teach(self, task: Task, given: Mapping[int, Tensor] | None = None) -> None:
        """The generator learns the task and samples drawn by weight; then the chain follows it."""
        if len(task.y) == 0:
            return
        conditions = self.conditions(task)
        new = conditions.unique().tolist()
        if self.use.resample and self.generator is not None:
            given = self.resampled(self.generator)
        super().teach(task, given)
        assert self.generator is not None, "it was taught"
        data = {c: task.x[conditions == c] for c in new}
        self.follower_.step(self.generator, data, seed=rng.child_seed(self.seed, "chain", task.info.index))

    def resampled(self, generator: Generator) -> dict[int, Tensor]:
        """Samples of every condition that it knows, drawn by weight."""
        found, told = {}, {}
        for c in generator.known_:
            n = self.each_ * len(self.classes_[0][c])
            seed = rng.child_seed(self.seed, "resample", self.task_, c)
            x = generator.sample(self.use.oversample * n, c, seed=seed)
            w, about = self.weigh(x, c, seed)
            with on_cpu():
                rows = weighing.resample(n, w.log(), seed)
            found[c], told[c] = x[rows], asdict(about)
        self.tell("generator", told)
        return found


class WeightedReplay(DGR):
    """DGR whose replay is weighted by density ratios to data that is gone."""

    replay_class = FollowedReplay
    config: WeightedReplayConfig
    replay_: FollowedReplay

    def set_up(self) -> None:
        """A chain needs as many samples as rows."""
        super().set_up()
        if self.config.chain_samples < self.config.min_rows:
            must = f"at least 'min_rows', {self.config.min_rows}"
            refuse("chain_samples", type(self).__name__, must, self.config.chain_samples)

    @property
    def report_(self) -> dict[str, Any]:
        """Of the last weights in each of the two places, what there is to know of them."""
        return self.replay_.report

    def bytes(self) -> dict[str, int]:
        """And of the method's state what the chain holds: memory in the place of exemplars, though no data."""
        held, anchors = super().bytes(), self.replay_.follower_.bytes()
        return held | {"method": held["method"] - anchors, "anchors": anchors}
