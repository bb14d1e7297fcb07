"""What LFIW Table 3 and Fig. 3 share: one policy evaluated from logs of another, and the Record that both read.

A unit is an environment and a seed. PPO trains a policy; the one at a part of the steps logs episodes of T steps, the
one at the end is judged from those logs alone (`policy.evaluate`), and then let into the simulator for the truth.

Deviations from section 3.3 and App. C.5. One training gives both policies, which the paper trained with settings of
their own that it does not name. The reward function is known, as there; for HalfCheetah and Swimmer it is known up to
the speed within a step (`policy.rewards`). Dynamics, classifier and tempering deviate as `policy.dynamics`,
`policy.transitions` and `policy.value` say; the preset `paper` has the paper's dynamics and what its classifier sees,
but not its size of the classifier. HumanoidStandup has 348 observations in gymnasium's version 5, not the 376 of Table
6. Swimmer is trained with a discount of 0.9999, without which PPO hardly learns it. Beyond the paper: tempered weights
with log-ratios that are cut, shuffled weights as a control, and what the logs say without a model (importance sampling,
fitted Q, doubly robust).

Where the ratios are cut was chosen on HalfCheetah with seeds 10 to 12, which are not among those of a run: mean
absolute errors 46 of the plain model, 38 tempered, 34 tempered with `cut` 0.001, 22 with 0.01. It did not carry over to
the seeds of the run (REPRODUCTIONS.md), nor to other classifiers of the same seeds: simulated trajectories that leave
the logs spread so widely, returns of -600 to 900 where real ones are about 80, that which of them count is chance. More
logs, longer training of the dynamics, larger classifiers and tighter limits of the states were tried on seeds 11 and 12
and changed that no more.

All this was looked into after a first run, seeds 0 and 1 without a cut, had shown no gain. Swimmer's policies are of
few steps because returns over its first 100 steps hardly grow after 10 000 (10 to 12 after
4096 steps of PPO, 22 to 24 after 10 000, no more after 400 000).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from vestige.continual.record import Record
from vestige.core import checks, rng
from vestige.policy.collect import Truth, collect, truth_of
from vestige.policy.evaluation import Evaluation, evaluate
from vestige.policy.regression import Settings
from vestige.policy.rewards import known_reward
from vestige.policy.training import PPO, train
from vestige.runner.experiment import Experiment, OnProgress

RUNS = "lfiw-table3"  # whose units both are
SWIMMER, CHEETAH, HUMANOID = "Swimmer-v5", "HalfCheetah-v5", "HumanoidStandup-v5"
DISCOUNTS = {SWIMMER: 0.9999}
# The share of a unit's time that its parts take, for the bar.
TRAINED, COLLECTED = 0.5, 0.55


@dataclass(frozen=True)
class Config:
    """One unit, once `environment` is set."""

    environments: tuple[str, ...] = (SWIMMER, CHEETAH)
    environment: str = ""
    behaviour_steps: int = 100_000
    evaluated_steps: int = 200_000
    swimmer: tuple[int, int] = (4096, 20_480)  # the same for Swimmer, whose first steps are learnt at once
    humanoid: tuple[int, int] = (20_000, 40_000)  # and for HumanoidStandup, whose steps are dear
    ppo_batch: int = 256
    ppo_lr: float = 1e-3
    horizon: int = 100
    episodes: int = 200  # logged
    truth_episodes: int = 200
    trajectories: int = 1000
    members: int = 5
    classifiers: int = 5
    hidden: tuple[int, ...] = (200, 200, 200)
    steps: int = 3000
    batch: int = 128
    sees: str = "state"
    ess: float = 0.1
    cut: float = 0.01


class PolicyValue(Experiment[Config]):
    """An experiment whose units are Table 3's; each Record serves the table and the figure."""

    presets: ClassVar[Mapping[str, Config]] = {
        "smoke": Config(
            environments=("Pendulum-v1",), behaviour_steps=2048, evaluated_steps=4096, horizon=20, episodes=20,
            truth_episodes=20, trajectories=40, members=2, classifiers=2, hidden=(16,), steps=100,
        ),
        "laptop": Config(),
        "paper": Config(
            environments=(SWIMMER, CHEETAH, HUMANOID), behaviour_steps=500_000, evaluated_steps=1_000_000,
            swimmer=(500_000, 1_000_000), humanoid=(500_000, 1_000_000),
            ppo_batch=64, ppo_lr=3e-4, episodes=500, trajectories=100, hidden=(500, 500, 500), steps=100_000,
        ),
    }  # fmt: skip
    seeds: ClassVar[Mapping[str, int]] = {"smoke": 1, "laptop": 3, "paper": 5}
    cut: ClassVar[Mapping[str, str]] = {
        "smoke": "MuJoCo (Pendulum instead), and nearly all training.",
        "laptop": "PPO of 100k and 200k steps (Swimmer: 4k and 20k), not 500k and 1M, in batches of 256; "
        "dynamics of 3 x 200 units and 3000 steps, not 3 x 500 and 100k; HumanoidStandup, which --set "
        "environments=HumanoidStandup-v5 --seeds 1 runs, with 20k and 40k steps of PPO. 1000 simulated "
        "trajectories for 100.",
    }

    def arms(self, config: Config) -> Sequence[Config]:
        """An environment each."""
        if config.environment:
            return [config]
        return [_of(config, name) for name in config.environments]

    def config(self, config: Config) -> dict[str, Any]:
        """As Table 3's, so that the ids agree."""
        return super().config(config) | {"experiment": RUNS}

    def run(self, config: Config, seed: int, on_progress: OnProgress) -> Record:
        """Train, log, judge, and look."""
        name, begun = config.environment, time.process_time()
        behaviour, evaluated = train(
            name,
            (config.behaviour_steps, config.evaluated_steps),
            settings=PPO(batch=config.ppo_batch, lr=config.ppo_lr, discount=DISCOUNTS.get(name, PPO.discount)),
            seed=seed,
            tell=lambda share, words: on_progress(TRAINED * share, words),
        )
        trained = time.process_time()
        logs, own = (
            collect(name, policy, episodes=n, horizon=config.horizon, seed=rng.child_seed(seed, who))
            for who, policy, n in (
                ("logs", behaviour, config.episodes),
                ("truth", evaluated, config.truth_episodes),
            )
        )
        on_progress(COLLECTED, f"{name}: logs")
        found = evaluate(
            logs,
            evaluated,
            horizon=config.horizon,
            trajectories=config.trajectories,
            members=config.members,
            classifiers=config.classifiers,
            ess=config.ess,
            cut=config.cut,
            reward=known_reward(name),
            settings=Settings(hidden=config.hidden, steps=config.steps, batch=config.batch),
            sees=config.sees,
            seed=seed,
            tell=lambda what, share: on_progress(COLLECTED + (1 - COLLECTED) * share, f"{name}: {what}"),
        )
        truth = truth_of(own, config.horizon)
        details = details_of(found) | {"reward": "known" if known_reward(name) else "learned"}
        details["cpu_seconds"] = {"policies": trained - begun, "the rest": time.process_time() - trained}
        return self.record(config, seed, values=values_of(truth, found), details=details)


def _of(config: Config, name: str) -> Config:
    """The unit of one environment."""
    own = {SWIMMER: config.swimmer, HUMANOID: config.humanoid}
    behaviour, evaluated = own.get(name, (config.behaviour_steps, config.evaluated_steps))
    if behaviour >= evaluated:
        checks.refuse("behaviour_steps", RUNS, f"fewer than the evaluated policy's ({evaluated})", behaviour)
    bare = replace(config, environments=(), swimmer=(0, 0), humanoid=(0, 0))
    return replace(bare, environment=name, behaviour_steps=behaviour, evaluated_steps=evaluated)


def values_of(truth: Truth, found: Evaluation) -> dict[str, Tensor]:
    """The truth (value, standard error), every estimate (value, low, high), the curves over H, and single deals.

    `deals` is the mean absolute error of weights dealt at random, one deal at a time, and the share of deals that come
    at least as near to the truth as the tempered weights do.
    """
    values = {"truth": torch.tensor([truth.value, truth.se], dtype=torch.float64)}
    for name, estimate in found.estimates.items():
        values[name] = torch.tensor([estimate.value, estimate.low, estimate.high], dtype=torch.float64)
    for name, curve in found.curves.items():
        values[f"{name}.h"] = torch.tensor(curve.hs, dtype=torch.float64)
        for part in ("values", "by_classifier", "ess", "alpha"):
            values[f"{name}.{part}"] = getattr(curve, part)
    off = (found.deals - truth.value).abs()
    near = (off <= abs(found.estimates["lfiw_tempered"].value - truth.value)).double()
    values["deals"] = torch.stack([off.mean(), near.mean()])
    return values


def details_of(found: Evaluation) -> dict[str, Any]:
    """What stands beside the numbers: how far to trust them."""
    return {
        "verdict": found.verdict,
        "warnings": list(found.warnings),
        "outside": found.outside,
        "states_clipped": found.report["states_clipped"],
        "accuracy": found.report["classifiers"]["accuracy"],
        "notes": {name: estimate.note for name, estimate in found.estimates.items()},
    }


def by_environment(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of each environment, by seed."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: r.seed):
        found.setdefault(record.config["environment"], []).append(record)
    return found


def errors(runs: Sequence[Record], name: str) -> list[float]:
    """|v - v_hat| of each seed."""
    return [abs(float(r.values[name][0] - r.values["truth"][0])) for r in runs]


def gained(record: Record) -> bool:
    """Is the tempered value nearer to the truth than the plain model's, and by more than 95 % of deals at random move?

    The mean over deals is the plain model's value, so only the range of single deals can tell weights that know
    something from weights that do not.
    """
    value, (low, high) = float(record.values["lfiw_tempered"][0]), record.values["shuffled"][1:].tolist()
    nearer = errors([record], "lfiw_tempered")[0] < errors([record], "model")[0]
    return nearer and not low <= value <= high
