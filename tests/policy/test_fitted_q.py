"""Fitted-Q evaluation against the closed form of a linear system, and its refusals."""

import math

import pytest
import torch

from linear_system import System, linear_policy
from vestige.policy import Logs
from vestige.policy.estimators import fitted_q

SYSTEM = System.default()
BEHAVIOUR = linear_policy([[0.0, -0.2]], [0.0], 0.5)
TARGET = linear_policy([[0.1, -0.6]], [0.1], 0.3)


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def fitted():
    logs = SYSTEM.logs(BEHAVIOUR, 1000, 20, seed=0)
    return logs, fitted_q(logs, TARGET, 20, 0.95, generator=stream())


def test_quadratic_features_are_exact_for_a_linear_system(fitted):
    _, found = fitted
    truth, behaviour = SYSTEM.value(TARGET, 20, 0.95), SYSTEM.value(BEHAVIOUR, 20, 0.95)
    assert found.features.form == "full"
    error = float(found.resampled.std())
    assert found.value == pytest.approx(truth, abs=3 * error)
    assert abs(truth - behaviour) > 6 * error  # the logs' own value is further away than that


def test_q_and_v_are_those_of_every_number_of_steps(fitted):
    """One step to go: Q is the reward. V is its mean over actions."""
    logs, found = fitted
    one = torch.ones(5, dtype=torch.int64)
    s, a = logs.observations[:5], logs.actions[:5]
    assert found.q(s, a, one).tolist() == pytest.approx(logs.rewards[:5].tolist(), abs=1e-3)
    mean = TARGET.mean(s)
    want = -((s.square() * SYSTEM.q).sum(1) + SYSTEM.cost * (mean.square().sum(1) + 0.09))
    assert found.v(s, one, generator=stream()).tolist() == pytest.approx(want.tolist(), abs=0.03)
    assert found.q(s, a, 0 * one).tolist() == [0] * 5


def test_a_terminal_state_is_worth_nothing():
    """Every episode ends after its first step with reward 1: the value is 1 at any horizon."""
    g = stream()
    s, a = torch.randn(300, 2, generator=g), torch.randn(300, 1, generator=g)
    steps = {"episodes": torch.arange(300), "next_observations": s}
    ended = Logs.of(s, a, torch.ones(300), terminated=torch.ones(300), **steps)
    assert fitted_q(ended, TARGET, 10, generator=stream()).value == pytest.approx(1, abs=1e-3)
    going_on = Logs.of(s, a, torch.ones(300), **steps)
    assert fitted_q(going_on, TARGET, 10, generator=stream()).value == pytest.approx(10, abs=0.1)


def test_few_rows_have_squares_alone(fitted):
    logs = SYSTEM.logs(BEHAVIOUR, 10, 20, seed=0)
    assert fitted_q(logs, TARGET, 3, generator=stream()).features.form == "diagonal"


def test_a_recursion_that_runs_away_has_no_value(fitted):
    logs, _ = fitted
    wild = linear_policy([[20.0, 20.0]], [0.0], 1.0)
    found = fitted_q(logs, wild, 20, generator=stream())
    assert math.isnan(found.value)
    assert found.lost == 1 - len(found.resampled) / 100 > 0.9


def test_the_share_of_resamples_that_ran_away_is_told():
    """Seven episodes with a policy at the edge of what they carry: some resamples run away, and some do not."""
    logs = SYSTEM.logs(BEHAVIOUR, 7, 6, seed=0)
    found = fitted_q(logs, linear_policy([[0.5, -2.0]], [0.0], 0.5), 30, generator=stream())
    assert 0 < found.lost < 1
    assert found.lost == pytest.approx(1 - len(found.resampled) / 100)
