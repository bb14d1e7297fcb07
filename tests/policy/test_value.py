"""Weighted values against the closed form: with exact ratios of a model that is wrong in a known way."""

import math

import pytest
import torch

from linear_system import System, linear_policy
from vestige.policy.estimators import (
    episode_counts,
    self_normalised,
    shuffled,
    trajectory_counts,
    trajectory_log_weights,
    weighted_values,
)

SYSTEM = System.default()
WRONG = SYSTEM.biased([0.03, 0.03], 0.11)
TARGET = linear_policy([[0.1, -0.6]], [0.1], 0.3)
HORIZON = 8


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def exact():
    """Returns of trajectories of the wrong model, and their exact log-ratios."""
    s, u, r = WRONG.trajectories(TARGET, 20_000, HORIZON, seed=0)
    log_ratio = SYSTEM.log_density(s[:, :-1], u, s[:, 1:]) - WRONG.log_density(s[:, :-1], u, s[:, 1:])
    return r.sum(1), log_ratio[None]


def one_row(n, c=1):
    """The sample itself, and two resamples to take an interval of."""
    return episode_counts(n, 2, stream()), episode_counts(c, 2, stream())


def test_exact_weights_move_a_wrong_model_to_the_truth(exact):
    returns, log_ratio = exact
    truth, wrong = SYSTEM.value(TARGET, HORIZON), WRONG.value(TARGET, HORIZON)
    found = weighted_values(log_ratio, returns, (0, HORIZON), *one_row(len(returns)))
    share = torch.softmax(log_ratio[0].sum(1), 0)
    error = float(((returns - truth) * share).square().sum().sqrt())
    assert found.values.tolist() == [pytest.approx(wrong, abs=0.1), pytest.approx(truth, abs=4 * error)]
    assert 4 * error < 0.5 * abs(truth - wrong)  # or the line above says nothing
    assert found.ess[0] == pytest.approx(len(returns))
    assert found.ess[1] == pytest.approx(1 / float(share.square().sum()), rel=1e-9)


def test_every_h_corrects_the_first_steps_alone(exact):
    """With H steps weighted, the expectation is that of a trajectory that is real for H steps and wrong thereafter."""
    returns, log_ratio = exact
    found = weighted_values(log_ratio, returns, tuple(range(HORIZON + 1)), *one_row(len(returns)))
    gap = (found.values - SYSTEM.value(TARGET, HORIZON)).abs()
    assert float(gap[4]) < float(gap[0])
    s, u, r = SYSTEM.trajectories(TARGET, 20_000, 4, seed=1)
    m = s[:, -1]
    rest = torch.zeros(len(m), dtype=torch.float64)
    g = stream(2)
    for _ in range(HORIZON - 4):
        a = TARGET.act(m, generator=g)
        rest += WRONG.reward(m, a, m)
        m = WRONG.mean(m, a) + WRONG.noise * torch.randn(m.shape, generator=g, dtype=torch.float64)
    assert float(found.values[4]) == pytest.approx(float((r.sum(1) + rest).mean()), abs=0.1)
    assert u.shape[1] == 4


def test_self_normalised_by_hand():
    log_w = torch.tensor([[0.0, math.log(3.0), -math.inf]], dtype=torch.float64)
    returns = torch.tensor([1.0, 5.0, 100.0], dtype=torch.float64)
    counts = torch.tensor([[1.0, 1, 1], [2, 0, 1], [0, 2, 1]], dtype=torch.float64)
    assert self_normalised(log_w, returns, counts).squeeze(1).tolist() == pytest.approx([4.0, 1.0, 5.0])


def test_log_weights_of_hundreds_of_nats_do_no_harm():
    log_ratio = torch.tensor([[[500.0, 500], [-900, 2000], [0, 0]]], dtype=torch.float64)
    assert trajectory_log_weights(log_ratio, 1).tolist() == [[500, -900, 0]]
    returns = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    found = weighted_values(log_ratio, returns, (0, 1, 2), *one_row(3), min_ess=0.4)
    assert bool(found.values.isfinite().all())
    assert found.alpha.tolist()[0] == 1
    assert 0 < found.alpha.tolist()[2] < 0.05
    raw = weighted_values(log_ratio, returns, (0, 1, 2), *one_row(3))
    assert raw.values.tolist() == pytest.approx([2, 1, 2])
    assert raw.values[2] == pytest.approx(2.0)  # 1100 nats beat 1000


def test_tempering_keeps_the_share_of_effective_trajectories(exact):
    returns, log_ratio = exact
    found = weighted_values(10 * log_ratio, returns, (HORIZON,), *one_row(len(returns)), min_ess=0.1)
    assert float(found.ess[0]) == pytest.approx(0.1 * len(returns), rel=1e-6)


def test_values_are_averaged_over_classifiers(exact):
    returns, log_ratio = exact
    both = torch.cat([log_ratio, torch.zeros_like(log_ratio)])
    found = weighted_values(both, returns, (HORIZON,), *one_row(len(returns), 2))
    assert found.by_classifier.shape == (2, 1)
    assert found.by_classifier[1, 0] == pytest.approx(float(returns.mean()))
    assert found.values[0] == pytest.approx(float(found.by_classifier.mean()))


def test_the_interval_covers_the_spread_over_members():
    """Members that disagree by 10 and agree within themselves: all of the interval is between members."""
    returns = torch.tensor([0.0, 10.0, 20.0], dtype=torch.float64).repeat_interleave(100)
    counts = trajectory_counts(300, 3, 400, stream())
    found = weighted_values(
        torch.zeros(1, 300, 2, dtype=torch.float64), returns, (0,), counts, torch.ones(401, 1).double()
    )
    assert float(found.values[0]) == pytest.approx(10)
    assert float(found.low[0]) < 2
    assert float(found.high[0]) > 18


def test_shuffled_weights_know_nothing(exact):
    returns, log_ratio = exact
    log_w = trajectory_log_weights(log_ratio, HORIZON)
    control = shuffled(log_w, returns, 50, generator=stream())
    spread = float(control.std()) / 50**0.5
    assert float(control.mean()) == pytest.approx(float(returns.mean()), abs=4 * spread)
    assert float(control.std()) > 0
    shares = torch.softmax(log_w[0], 0)
    assert float(control.std()) == pytest.approx(
        float(returns.std()) * float((shares.square().sum() - 1 / len(returns)).sqrt()), rel=0.4
    )
