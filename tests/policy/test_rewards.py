"""Reward functions against what the simulators pay."""

import pytest
import torch

from vestige.policy.environments import REWARDS, collect, describe
from vestige.policy.evaluation import Limits, reward_gap
from vestige.policy.policies import GaussianPolicy

pytest.importorskip("gymnasium", reason="needs pip install 'vestige[policy]'")
pytest.importorskip("mujoco", reason="needs pip install 'vestige[policy]'")


def logs_of(name):
    space = describe(name)
    policy = GaussianPolicy.initial(space.observations, space.actions, hidden=(), low=space.low, high=space.high)
    return collect(name, policy, episodes=4, horizon=50)


@pytest.mark.parametrize("name", ["Pendulum-v1", "HumanoidStandup-v5"])
def test_exact_where_all_of_it_is_observed(name):
    logs = logs_of(name)
    assert REWARDS.get(name).widths == (logs.observations.shape[1], logs.actions.shape[1])
    assert reward_gap(logs, REWARDS.get(name)) == pytest.approx((0, 0), abs=1e-5)
    got = REWARDS.get(name)(logs.observations, logs.actions.double(), logs.next_observations)
    assert torch.allclose(got, logs.rewards, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Swimmer-v5"])
def test_the_mean_of_both_speeds_is_nearer_than_either_and_its_sums_are_right(name):
    logs = logs_of(name)
    s, a, after = logs.observations, logs.actions.double(), logs.next_observations
    reward = REWARDS.get(name)
    assert reward.widths == (s.shape[1], a.shape[1])
    spread, shift = reward_gap(logs, reward)  # the trapezoid is off, but not so that it is said
    assert 0.01 < spread < Limits().reward_gap
    assert abs(shift) < Limits().reward_shift
    squared = {
        "mean": (reward(s, a, after) - logs.rewards).square().mean(),
        "before": (reward(s, a, s) - logs.rewards).square().mean(),
        "after": (reward(after, a, after) - logs.rewards).square().mean(),
    }
    assert min(squared, key=squared.get) == "mean"
    off = (reward(s, a, after) - logs.rewards).reshape(4, 50).sum(1).abs()
    assert float(off.max()) < 2.0
    # The cost of the action is in it.
    gap = reward(s, a, after) - reward(s, 0 * a, after)
    assert torch.allclose(gap, -(0.1 if "Cheetah" in name else 1e-4) * a.square().sum(1))


def test_a_gap_is_counted_in_deviations_and_its_mean_has_a_sign():
    logs = logs_of("Pendulum-v1")
    told = reward_gap(logs, lambda s, a, after: logs.rewards.float()[None] - 3)
    assert told == pytest.approx((3 / float(logs.rewards.std()), -3 / float(logs.rewards.std())), rel=1e-5)


def test_an_unknown_environment_has_none():
    assert REWARDS.get("Ant-v5") is None
    assert sorted(REWARDS) == ["HalfCheetah-v5", "HumanoidStandup-v5", "Pendulum-v1", "Swimmer-v5"]
