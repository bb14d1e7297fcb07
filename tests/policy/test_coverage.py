"""Where the simulated policy goes, against where the logs have been."""

import pytest
import torch

from linear_system import System, linear_policy
from vestige.policy.dynamics import Trajectories
from vestige.policy.evaluation import LEVEL, coverage

SYSTEM = System.default()
POLICY = linear_policy([[0.0, -0.2]], [0.0], 0.5)


def simulated(s, a, r):
    return Trajectories(s, a, r, torch.zeros(len(r), dtype=torch.int64), 0.0)


def test_the_logs_cover_their_own_policy_and_not_a_distant_one():
    logs = SYSTEM.logs(POLICY, 200, 20, seed=0)
    own = coverage(logs, simulated(*SYSTEM.trajectories(POLICY, 200, 20, seed=1)))
    assert float(own.mean()) == pytest.approx(1 - LEVEL, abs=0.01)
    assert pytest.approx(0.01) == 1 - LEVEL
    far = linear_policy([[0.0, -0.2]], [4.0], 0.5)
    found = coverage(logs, simulated(*SYSTEM.trajectories(far, 200, 20, seed=1)))
    assert float(found.mean()) > 0.8
    assert found.shape == (20,)


def test_it_is_the_mahalanobis_distance():
    logs = SYSTEM.logs(POLICY, 200, 20, seed=0)
    s, a, r = SYSTEM.trajectories(linear_policy([[0.0, -0.2]], [0.7], 0.5), 50, 20, seed=1)
    x = torch.cat([logs.observations, logs.actions], 1)
    y = torch.cat([s[:, :-1], a], 2).flatten(0, 1)
    inverse = torch.linalg.inv(torch.cov(x.mT))
    d_x, d_y = (((z - x.mean(0)) @ inverse * (z - x.mean(0))).sum(1) for z in (x, y))
    want = float((d_y > d_x.quantile(0.99)).double().mean())
    assert float(coverage(logs, simulated(s, a, r)).mean()) == pytest.approx(want, abs=0.01)
    assert 0.01 < want < 0.9


def test_a_direction_that_the_logs_never_took_is_beyond_them():
    logs = SYSTEM.logs(linear_policy([[0.0, 0.0]], [0.0], 1e-12), 50, 20, seed=0)
    s, a, r = SYSTEM.trajectories(POLICY, 50, 20, seed=0)
    assert float(coverage(logs, simulated(s, a, r)).mean()) > 0.5
