"""How far a generator's samples are from data that is gone, sample by sample: the weights of `weighted_replay`.

A `Chain` follows the generator, a task of the chain for each of its conditions c: log p(z|c) / q_t(z|c), where z is the
code of a sample x under the generator's own encoder. A code is *drawn*, z ~ q(z|x) (`blur` deviations around its mean):
means alone lie too far apart. Measured once, by hand, on a VAE of 8 codes, 2000 steps on zeros and a tenth of the ones
of MNIST, of whose samples 17 % are ones and 50 % should be: drawn codes are 0.6 nats apart, and their weights make it
48 %; the next step's weights, of which the data has no part, 53 %. Means are 1.6 nats apart, make it 36 %, and the
chain refuses the next step. Features of the solver are further apart still.

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
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vestige.chains import Chain
from vestige.core import rng
from vestige.core.devices import on_cpu
from vestige.core.errors import VestigeError, VestigeWarning
from vestige.generators import Generator
from vestige.generators.vae import VAE
from vestige.ratios import weights

# The divergence whose refusal counts. It is bounded, so that it is refused only where the anchors are worth too little,
# and not for a heavy tail, which tempering deals with.
JUDGED = "js"
# Nats from which a chain would bridge a jump. Weights over such a gap are refused anyway, and a bridge is dear.
NEVER = 1e6


class Eye(nn.Module):
    """The encoder of a VAE as it was: rows to mean and log-variance of their codes."""

    def __init__(self, generator: VAE) -> None:
        super().__init__()
        self.scale, self.encoder = copy.deepcopy(generator.scale_), copy.deepcopy(generator.net_.encoder)
        self.requires_grad_(False)

    def forward(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n f"]]:
        """Mean and log-variance."""
        mean, log_var = self.encoder(self.scale(x)).chunk(2, 1)
        return mean, log_var

    def code(self, x: Float[Tensor, "n *shape"], blur: float, generator: torch.Generator) -> Float[Tensor, "n f"]:
        """A draw of each row's code, `blur` times as far from the mean as it should be."""
        mean, log_var = self(x.flatten(1).float())
        return mean + blur * (log_var / 2).exp() * torch.randn(mean.shape, generator=generator)


@dataclass(frozen=True)
class Told:
    """What is to be known of the weights of one condition: of the raw ones, and of those that are used."""

    mean_weight: float
    raw_ess: float  # this and the next as a share of the samples
    ess: float
    alpha: float  # the exponent that leaves `ess`
    verdict: str


@on_cpu
def tempered(log_ratio: Float[Tensor, " n"], least: float) -> tuple[Float[Tensor, " n"], Told]:
    """Weights of mean one: the ratio to the largest power, at most one, that leaves an ESS of `least` of n."""
    found, flat = weights.diagnose(log_ratio), weights.temper(log_ratio, least)
    log_w: Tensor = weights.self_normalise(flat.log_weights)
    told = Told(found.mean_weight, found.ess_fraction, flat.ess_fraction, flat.alpha, found.verdict)
    return log_w.exp(), told


class Follower:
    """A chain on the codes of a generator's samples."""

    def __init__(self, *, estimator: str, samples: int, min_rows: int, blur: float) -> None:
        self.samples, self.min_rows, self.blur = samples, min_rows, blur
        self.chain = Chain(estimator=estimator, names=(JUDGED,), min_samples=min_rows, bridge_above=NEVER)
        self.eyes: dict[int, Eye] = {}  # by number of arrival
        self.arrival: dict[int, int] = {}  # of each condition that the chain knows
        self.barred: dict[int, str] = {}  # why a condition is not followed, for good
        self.refused: dict[int, str] = {}  # why a condition's weights are one, as the generator is now

    def step(self, generator: Generator, data: Mapping[int, Tensor], *, seed: int) -> None:
        """The generator has learnt anew, from `data` by condition, which is here for the last time."""
        assert isinstance(generator, VAE)
        for c, x in data.items():
            if c in self.arrival or c in self.barred:
                self.barred[c] = "came with data twice"
            elif len(x) < self.min_rows:
                self.barred[c] = f"fewer than {self.min_rows} rows of data"
        new = [c for c in data if c not in self.arrival and c not in self.barred]
        number, eye = len(self.eyes), Eye(generator)
        seen = {c: eye if c in new else self.eyes[self.arrival[c]] for c in (*self.arrival, *new)}
        drawn = {c: generator.sample(self.samples, c, seed=rng.child_seed(seed, "follow", c)) for c in seen}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", VestigeWarning)  # verdicts stand in the report
                report = on_cpu(self.chain.step)(
                    {c: eye.code(data[c], self.blur, rng.fork(seed, "real", c)).cpu() for c in new},
                    {c: seen[c].code(x, self.blur, rng.fork(seed, "model", c)).cpu() for c, x in drawn.items()},
                    seed=seed,
                )
        except VestigeError as error:  # the chain is as it was, and knows nothing of this generator
            self.barred |= dict.fromkeys(new, str(error))
            self.refused = dict.fromkeys(self.arrival, str(error)) | self.barred
            return
        if new:
            self.eyes[number] = eye
            self.arrival |= dict.fromkeys(new, number)
        judged = {int(task.task): task.estimates[JUDGED] for task in report.tasks}
        self.refused = {c: e.reason for c, e in judged.items() if not e.known} | self.barred

    def log_ratio(self, x: Float[Tensor, "n *shape"], condition: int, *, seed: int) -> Float[Tensor, " n"]:
        """log p/q_t of samples of a condition; zero where it is refused or unknown."""
        if condition in self.refused or condition not in self.arrival:
            return torch.zeros(len(x), dtype=torch.float64, device="cpu")
        eye = self.eyes[self.arrival[condition]]
        code = eye.code(x, self.blur, rng.fork(seed, "weigh", condition))
        found: Tensor = on_cpu(self.chain.log_ratio)(code.cpu().double(), condition)
        return found

    def state(self) -> dict[str, Tensor]:
        """As flat tensors; what is no tensor as the bytes of a JSON text."""
        fields, tensors = self.chain.state()
        words = {"chain": fields, "arrival": sorted(self.arrival.items()), "barred": sorted(self.barred.items())}
        words["refused"] = sorted(self.refused.items())
        text = json.dumps(words, allow_nan=False).encode()
        state = {"words": torch.tensor(list(text), dtype=torch.uint8)}
        state |= {f"chain.{key}": value for key, value in tensors.items()}
        for number, eye in self.eyes.items():
            state |= {f"eye.{number}.{key}": value for key, value in eye.state_dict().items()}
        return state

    def load_state(self, state: Mapping[str, Tensor], skeleton: Generator) -> None:
        """The inverse; `skeleton` is a generator of the same configuration."""
        assert isinstance(skeleton, VAE)
        words: dict[str, Any] = json.loads(bytes(state["words"].tolist()))
        tensors = {k.removeprefix("chain."): v.cpu() for k, v in state.items() if k.startswith("chain.")}
        self.chain = on_cpu(Chain.from_state)(words["chain"], tensors)
        self.arrival, self.barred, self.refused = (dict(words[name]) for name in ("arrival", "barred", "refused"))
        self.eyes = {}
        for number in sorted(set(self.arrival.values())):
            prefix = f"eye.{number}."
            self.eyes[number] = Eye(skeleton)
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            self.eyes[number].load_state_dict(own)
