"""Estimates from logged episodes: brute force on a few numbers, the closed form on many episodes."""

import math

import pytest
import torch

from linear_system import System, linear_policy
from vestige.policy import Logs
from vestige.policy.estimators import Episodes, doubly_robust

SYSTEM = System.default()
BEHAVIOUR = linear_policy([[0.0, -0.4]], [0.0], 0.4)
TARGET = linear_policy([[0.0, -0.4]], [0.25], 0.35)


def all_once(n):
    return torch.ones(1, n, dtype=torch.float64)


def test_per_decision_by_brute_force():
    log_ratio = torch.tensor([[0.1, 0.7, -0.2], [-0.5, 0.3, 0.9]], dtype=torch.float64)
    rewards = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=torch.float64)
    want = 0.0
    for t in range(3):
        rho = [math.exp(float(log_ratio[i, t])) for i in range(2)]
        want += 0.9**t * sum(rho[i] * float(rewards[i, t]) for i in range(2)) / sum(rho)
    assert float(doubly_robust(log_ratio, rewards, all_once(2), 0.9)) == pytest.approx(want)
    twice = torch.tensor([[2.0, 0.0]], dtype=torch.float64)  # a resample of the first episode alone
    alone = float((rewards[0] * 0.9 ** torch.arange(3)).sum())
    assert float(doubly_robust(log_ratio, rewards, twice, 0.9)) == pytest.approx(alone)


def test_doubly_robust_by_brute_force():
    g = torch.Generator().manual_seed(0)
    log_ratio, rewards, q, v = (torch.randn(4, 3, generator=g, dtype=torch.float64) for _ in range(4))
    want = 0.0
    before = [1.0] * 4
    for t in range(3):
        rho = [math.exp(float(log_ratio[i, t])) for i in range(4)]
        for i in range(4):
            now, then = rho[i] / sum(rho), before[i] / sum(before)
            want += 0.8**t * (now * float(rewards[i, t]) - now * float(q[i, t]) + then * float(v[i, t]))
        before = rho
    assert float(doubly_robust(log_ratio, rewards, all_once(4), 0.8, q, v)) == pytest.approx(want)


def test_a_perfect_critic_leaves_no_noise():
    """Deterministic rewards of time alone, with Q and V right: every weight gives the same value."""
    left = torch.tensor([6.0, 3.0, 1.0], dtype=torch.float64).expand(5, 3)  # rewards 3, 2, 1
    rewards = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64).expand(5, 3)
    log_ratio = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float(doubly_robust(log_ratio, rewards, all_once(5), 1.0, left, left)) == pytest.approx(6)


def test_importance_sampling_meets_the_closed_form():
    logs = SYSTEM.logs(BEHAVIOUR, 20_000, 5, seed=0)
    episodes = Episodes.of(logs, 5, TARGET)
    truth, behaviour = SYSTEM.value(TARGET, 5), SYSTEM.value(BEHAVIOUR, 5)
    assert abs(truth - behaviour) > 0.1
    found = float(doubly_robust(episodes.log_ratio, episodes.rewards, all_once(20_000)))
    assert found == pytest.approx(truth, abs=0.5 * abs(truth - behaviour))
    assert float(episodes.returns().mean()) == pytest.approx(behaviour, abs=0.03)


def test_ratios_add_up_over_steps_and_stop_at_the_end():
    end = [0, 0, 0, 0, 1, 0, 0, 0]
    path = torch.randn(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    s, after = path[:-1], path[1:]
    a, numbers = s[:, :1], [0, 0, 0, 1, 1, 2, 2, 2]
    logs = Logs.of(s, a, torch.ones(8), after, numbers, terminated=end, log_probs=BEHAVIOUR.log_prob(s, a))
    episodes = Episodes.of(logs, 3, TARGET)
    steps = TARGET.log_prob(s, a) - BEHAVIOUR.log_prob(s, a)
    assert torch.allclose(episodes.log_ratio[0], steps[:3].cumsum(0))
    assert episodes.log_ratio[1].tolist() == pytest.approx([float(steps[3]), *[float(steps[3] + steps[4])] * 2])
    assert episodes.rewards.tolist() == [[1, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert episodes.returns(0.5).tolist() == [1.75, 1.5, 1.75]
    assert Episodes.of(logs, 3).log_ratio is None
