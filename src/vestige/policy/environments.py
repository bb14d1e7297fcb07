"""Environments: any continuous one that gymnasium knows by name, without a screen.

    with make("HalfCheetah-v5", 8) as environments:
        observations = environments.reset([1, 2, 3, 4, 5, 6, 7, 8])
        step = environments.step(actions, alive)

Several stand side by side and are stepped together, so that a policy is asked once for all of them. They are plain
simulators one after the other in this process: gymnasium's and stable-baselines3's vectors of environments cost the
same to within 5 % (the simulator is nearly all of it), and begin a new episode behind the caller's back.

Observations and actions must be one box of numbers each, and actions bounded: a finite set of actions is refused in a
sentence. gymnasium, MuJoCo and stable-baselines3 are the extra `policy`; nothing here is imported before it is used.

**Episodes of a policy** (`collect`): logs to learn from, and what the policy is truly worth there. Episode i begins
with a seed of its own that depends on `seed` and i alone, so the same episodes begin alike for every policy and however
many environments stand side by side. Actions are those that were carried out, and each comes with its log density, so
that importance sampling can be set beside what is learned. An environment that ends an episode early is not stepped
further; its rewards beyond are zero, and the logs say that the state was terminal.

**Reward functions** r(s, a, s') of known environments (`REWARDS`): LFIW section 3.3 assumes "a known reward function".

    Pendulum           exact
    HumanoidStandup    exact: the height, the controls and the forces of contact are all in s' and a
    HalfCheetah        nearly: the reward is the mean speed over the 5 frames of a step, and only the speed at either
    Swimmer            end is observed; their mean stands in (trapezoid). Over 100 steps of trained policies with
                       returns of 46 and 111, HalfCheetah's sums are off by 0.8; Swimmer's, of random actions, by 0.1

For any other environment there is none, and the dynamics learn the reward with the next state. Actions are those that
the environment was given, within its bounds.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

from vestige.core import InputError, MissingPackage, UnknownName, VestigeWarning, checks, rng
from vestige.policy.logs import Logs
from vestige.policy.policies import Policy, require_bounds, require_widths

INSTALL = "pip install 'vestige[policy]'"
OWNER = "an environment"
# What MuJoCo says of the models that gymnasium ships, and nobody but gymnasium can change.
KNOWN_COMPLAINT = "'settotalmass' is deprecated"
AT_ONCE = 50  # environments side by side: a policy is asked once for all of them


@dataclass(frozen=True)
class Space:
    """What goes in and out of one environment: `observations` and `actions` numbers, actions within `low` and `high`.

    `limit` is how many steps an episode has at most, None if there is no such limit.
    """

    name: str
    observations: int
    actions: int
    low: Float32[Tensor, " a"]
    high: Float32[Tensor, " a"]
    limit: int | None


@dataclass(frozen=True)
class Step:
    """What one step of n environments gave. An episode is over where it `terminated` or its time ran out."""

    observations: Float64[Tensor, "n s"]
    rewards: Float64[Tensor, " n"]
    terminated: Bool[Tensor, " n"]
    over: Bool[Tensor, " n"]


class Environments:
    """`count` environments of one name, side by side; leaving the block closes them."""

    def __init__(self, each: Sequence[Any]) -> None:
        self.each = list(each)
        self.space = space_of(self.each[0])

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *_: object) -> None:
        for environment in self.each:
            environment.close()

    def reset(self, seeds: Sequence[int]) -> Float64[Tensor, "n s"]:
        """Begin an episode in as many environments as there are seeds, each with its own."""
        begun = zip(self.each, seeds, strict=False)
        return torch.from_numpy(np.stack([one.reset(seed=seed)[0] for one, seed in begun]).astype(np.float64))

    def step(self, actions: Float32[Tensor, "n a"], alive: Bool[Tensor, " n"]) -> Step:
        """One step in those of the first n that are `alive`; the others stay as zeros, terminated and over."""
        n = len(actions)
        observations = np.zeros((n, self.space.observations))
        rewards, ended, over = np.zeros(n), np.ones(n, dtype=bool), np.ones(n, dtype=bool)
        given = actions.numpy()
        for i in alive.nonzero().squeeze(1).tolist():
            observations[i], rewards[i], ended[i], truncated, _ = self.each[i].step(given[i])
            over[i] = ended[i] or truncated
        return Step(*(torch.from_numpy(part) for part in (observations, rewards, ended, over)))


def make(name: str, count: int = 8) -> Environments:
    """`count` environments called `name`."""
    checks.whole(count, "count", OWNER, low=1)
    return Environments([make_one(name) for _ in range(count)])


def describe(name: str) -> Space:
    """What goes in and out of the environment called `name`."""
    with make(name, 1) as environments:
        return environments.space


def make_one(name: str) -> Any:  # noqa: ANN401 - gymnasium has no types here
    """A gymnasium environment, once it is known to be a continuous one."""
    gymnasium = package("gymnasium")
    try:
        gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        near = difflib.get_close_matches(str(name), gymnasium.registry, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        told = f"The 'name' of {OWNER} must be one that gymnasium knows. Got {name!r} instead.{hint}"
        raise UnknownName(told) from error
    try:
        with _mujoco_heard():
            environment = gymnasium.make(name)
    except gymnasium.error.DependencyNotInstalled as error:
        # The extra brings MuJoCo; of any other package gymnasium's own words say how to get it.
        cure = f": {INSTALL}" if "mujoco" in str(error).lower() and _mujoco() is None else "."
        raise MissingPackage(f"The environment {name} needs a package that is not here ({error}){cure}") from error
    except ImportError as error:  # of a version that gymnasium no longer carries
        checks.refuse("name", OWNER, "one that can be made here", f"{name} ({error})")
    try:
        space_of(environment)
    except InputError:
        environment.close()
        raise
    return environment


def space_of(environment: Any) -> Space:  # noqa: ANN401
    """The space of a gymnasium environment; one that is not continuous is refused."""
    box, seen, done = package("gymnasium").spaces.Box, environment.observation_space, environment.action_space
    if not isinstance(done, box) or len(done.shape) != 1 or not done.is_bounded():
        checks.refuse("actions", environment.spec.id, "numbers within bounds (a continuous environment)", done)
    if not isinstance(seen, box) or len(seen.shape) != 1:
        checks.refuse("observations", environment.spec.id, "one row of numbers", seen)
    low, high = (torch.from_numpy(bound.astype(np.float32)) for bound in (done.low, done.high))
    widths = seen.shape[0], done.shape[0]
    return Space(environment.spec.id, *widths, low, high, environment.spec.max_episode_steps)


def package(name: str) -> Any:  # noqa: ANN401 - a module without types
    """A package of the extra `policy`, or the line that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(f"Simulated environments and training need {name}: {INSTALL}") from error


def _mujoco() -> Any:  # noqa: ANN401 - a module without types
    """MuJoCo, or None where it is not here."""
    try:
        return import_module("mujoco")
    except ImportError:
        return None


@contextmanager
def _mujoco_heard() -> Iterator[None]:
    """MuJoCo's complaints about a model as our warnings, but for the known one.

    Left alone it prints them, and writes a MUJOCO_LOG.TXT into whatever folder it is run from.
    """
    mujoco = _mujoco()
    if mujoco is None:  # many environments do without
        yield
        return
    said: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
    for text in said:
        if KNOWN_COMPLAINT not in text:
            warnings.warn(f"MuJoCo says: {text.strip()}", VestigeWarning, stacklevel=4)


@dataclass(frozen=True)
class Truth:
    """Mean return over a number of steps and its standard error over the episodes."""

    value: float
    se: float
    returns: Float64[Tensor, " n"]


def collect(
    name: str,
    policy: Policy,
    *,
    episodes: int = 100,
    horizon: int = 100,
    seed: int = 0,
    on_progress: Callable[[float, str], None] | None = None,
) -> Logs:
    """Logs of `episodes` episodes of at most `horizon` steps."""
    checks.whole(episodes, "episodes", "policy.collect", low=2)
    checks.whole(horizon, "horizon", "policy.collect", low=1)
    report = on_progress or (lambda share, words: None)
    parts: list[dict[str, Tensor]] = []
    with make(name, min(episodes, AT_ONCE)) as environments:
        _fits(policy, environments.space, horizon)
        for first in range(0, episodes, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, episodes))
            parts.append(_together(environments, policy, numbers, horizon, seed))
            report(numbers[-1] / episodes, f"{name}: {numbers[-1] + 1} of {episodes} episodes")
        bounds = {"action_low": environments.space.low, "action_high": environments.space.high}
    whole = {key: torch.cat([part[key] for part in parts]) for key in parts[0]}
    return Logs.of(**whole, **bounds, owner="policy.collect")


def truth_of(logs: Logs, horizon: int) -> Truth:
    """The Monte Carlo value of the policy that `logs` are of: LFIW's ground truth v(pi_e)."""
    rows, alive = logs.first(horizon)
    if len(rows) < 2:
        checks.refuse("logs", "truth_of", f"two or more episodes of {horizon} steps", f"{len(rows)}")
    returns = (logs.rewards[rows] * alive).sum(1)
    return Truth(float(returns.mean()), float(returns.std()) / math.sqrt(len(returns)), returns)


def _together(environments: Environments, policy: Policy, numbers: range, horizon: int, seed: int) -> dict[str, Tensor]:
    """The episodes of these numbers, row by row, one after the other."""
    seeds = [rng.child_seed(seed, "episode", i) % 2**31 for i in numbers]
    stream = rng.fork(seed, "actions", numbers[0])
    observations = environments.reset(seeds)
    alive = torch.ones(len(numbers), dtype=torch.bool)
    steps: list[dict[str, Tensor]] = []
    for _ in range(horizon):
        actions = policy.act(observations, generator=stream).float()
        log_probs = policy.log_prob(observations, actions)
        step = environments.step(actions, alive)
        steps.append(
            {
                "observations": observations,
                "actions": actions,
                "rewards": step.rewards,
                "next_observations": step.observations,
                "episodes": torch.tensor(numbers),
                "terminated": step.terminated,
                "log_probs": log_probs,
                "alive": alive,
            }
        )
        observations, alive = step.observations, alive & ~step.over
        if not bool(alive.any()):
            break
    # (episode, step) in the order of rows, without what lies beyond an end
    flat = {key: torch.stack([one[key] for one in steps], 1).flatten(0, 1) for key in steps[0]}
    kept = flat.pop("alive")
    return {key: value[kept] for key, value in flat.items()}


def _fits(policy: Policy, space: Space, horizon: int) -> None:
    """Refuse a policy for other widths or wider bounds than the environment's, and episodes longer than there are."""
    if space.limit is not None:
        checks.whole(horizon, "horizon", f"policy.collect in {space.name}", high=space.limit)
    owner, widths = "policy.collect", (space.observations, space.actions)
    require_widths(policy, widths, f"{space.name} has", "policy", owner)
    anywhere = torch.zeros(1, space.observations, dtype=torch.float64)
    require_bounds(policy, space.low, space.high, anywhere, space=f"{space.name} is", owner=owner, narrower=True)


Reward = Callable[[Tensor, Tensor, Tensor], Tensor]
# The shapes of states, actions and rewards, of any number of rows.
S: TypeAlias = Float[Tensor, "*n s"]
A: TypeAlias = Float[Tensor, "*n a"]
R: TypeAlias = Float[Tensor, "*n"]


@dataclass(frozen=True)
class KnownReward:
    """r(s, a, s') of one environment; `widths` are those of its observations and actions."""

    function: Reward
    widths: tuple[int, int]

    def __call__(self, states: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """r(s, a, s'), row by row."""
        return self.function(states, actions, next_states)


def pendulum(states: S, actions: A, next_states: S) -> R:
    """-(angle^2 + 0.1 speed^2 + 0.001 torque^2), of (cos, sin, speed)."""
    angle = torch.atan2(states[..., 1], states[..., 0])
    return -(angle.square() + 0.1 * states[..., 2].square() + 0.001 * actions[..., 0].square())


def forward_speed(at: int, cost: float) -> Reward:
    """Mean of the forward speed at both ends, observed at place `at`, less `cost` times the squared action."""

    def reward(states: S, actions: A, next_states: S) -> R:
        return (states[..., at] + next_states[..., at]) / 2 - cost * actions.square().sum(-1)

    return reward


def stand_up(states: S, actions: A, next_states: S) -> R:
    """Height after the step over the length of a frame, less squared controls and impact, plus one."""
    impact = (5e-7 * next_states[..., -78:].square().sum(-1)).clamp(max=10.0)  # the environment's own ceiling
    return next_states[..., 0] / 0.003 - 0.1 * actions.square().sum(-1) - impact + 1


# By the environment's name, version included: another version may reward otherwise.
REWARDS: dict[str, KnownReward] = {
    "HalfCheetah-v5": KnownReward(forward_speed(8, 0.1), (17, 6)),
    "HumanoidStandup-v5": KnownReward(stand_up, (348, 17)),
    "Pendulum-v1": KnownReward(pendulum, (3, 1)),
    "Swimmer-v5": KnownReward(forward_speed(3, 1e-4), (8, 2)),
}
