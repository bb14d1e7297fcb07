"""Episodes of a policy against a plain loop over gymnasium."""

import numpy as np
import pytest
import torch

from vestige.core import rng
from vestige.core.errors import InputError
from vestige.policy import environments
from vestige.policy.environments import Environments, collect, truth_of
from vestige.policy.logs import Logs
from vestige.policy.policies import GaussianPolicy

gymnasium = pytest.importorskip("gymnasium", reason="needs pip install 'vestige[policy]'")

LOW, HIGH = torch.tensor([-2.0]), torch.tensor([2.0])


def wild(seed=0):
    """A policy whose draws often meet the bounds."""
    return GaussianPolicy.initial(3, 1, log_std=1.0, low=LOW, high=HIGH, seed=seed)


def test_rows_are_what_a_plain_loop_gives():
    policy = wild()
    logs = collect("Pendulum-v1", policy, episodes=4, horizon=6, seed=5)
    assert len(logs) == 24
    assert logs.action_low.tolist() == [-2.0]
    assert float(logs.actions.abs().max()) <= 2.0
    for i in range(4):
        rows = logs.episodes == i
        one = gymnasium.make("Pendulum-v1")
        seen, _ = one.reset(seed=rng.child_seed(5, "episode", i) % 2**31)
        for s, a, r, after in zip(
            logs.observations[rows], logs.actions[rows], logs.rewards[rows], logs.next_observations[rows], strict=True
        ):
            assert s.tolist() == pytest.approx(seen.tolist())
            seen, reward, _, _, _ = one.step(a.numpy().astype(np.float32))
            assert float(r) == pytest.approx(float(reward))
            assert after.tolist() == pytest.approx(seen.tolist())
        one.close()
    assert torch.equal(logs.log_probs, policy.log_prob(logs.observations, logs.actions))
    assert not bool(logs.terminated.any())


def test_the_same_seed_gives_the_same_episodes_and_another_others(monkeypatch):
    first = collect("Pendulum-v1", wild(), episodes=3, horizon=4, seed=1)
    again = collect("Pendulum-v1", wild(), episodes=3, horizon=4, seed=1)
    assert torch.equal(first.observations, again.observations)
    assert torch.equal(first.actions, again.actions)
    other = collect("Pendulum-v1", wild(), episodes=3, horizon=4, seed=2)
    assert not torch.equal(first.initial, other.initial)
    monkeypatch.setattr(environments, "AT_ONCE", 2)  # the same beginnings, however many at once
    assert torch.equal(collect("Pendulum-v1", wild(1), episodes=3, horizon=4, seed=1).initial, first.initial)


class Ends(gymnasium.Env):
    """Pays 1 a step and ends after as many as its number says."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    spec = type("Spec", (), {"id": "Ends-v0", "max_episode_steps": None})
    made = 0

    def __init__(self):
        Ends.made += 1
        self.last = Ends.made

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, dtype=np.float32), 1.0, self.t == self.last, False, {}


def test_episodes_that_end_early_are_short_and_terminal(monkeypatch):
    Ends.made = 0
    monkeypatch.setattr(environments, "make", lambda name, n: Environments([Ends() for _ in range(n)]))
    policy = GaussianPolicy.initial(1, 1, low=-torch.ones(1), high=torch.ones(1))
    logs = collect("Ends-v0", policy, episodes=4, horizon=3)
    assert logs.lengths.tolist() == [1, 2, 3, 3]
    assert logs.ended.tolist() == [True, True, True, False]
    assert logs.next_observations[:, 0].tolist() == [1, 1, 2, 1, 2, 3, 1, 2, 3]
    truth = truth_of(logs, 3)
    assert truth.returns.tolist() == [1, 2, 3, 3]
    assert truth.value == 2.25
    assert truth.se == pytest.approx(np.std([1, 2, 3, 3], ddof=1) / 2)
    assert truth_of(logs, 2).returns.tolist() == [1, 2, 2, 2]


def test_refusals():
    with pytest.raises(InputError, match=r"'episodes' of policy\.collect must be at least 2"):
        collect("Pendulum-v1", wild(), episodes=1)
    with pytest.raises(InputError, match=r"'horizon' of policy\.collect in Pendulum-v1 must be at most 200\. Got 201"):
        collect("Pendulum-v1", wild(), episodes=2, horizon=201)
    with pytest.raises(InputError, match="must be one for observations 3 wide and actions 1 wide, as Pendulum-v1 has"):
        collect("Pendulum-v1", GaussianPolicy.initial(4, 1), episodes=2)
    free, wide = GaussianPolicy.initial(3, 1), GaussianPolicy.initial(3, 1, low=LOW, high=HIGH + 1)
    for policy, told in ((free, "one without bounds"), (wide, r"\[-2, 3\] for \[-2, 2\] in dimension 0")):
        with pytest.raises(
            InputError, match=rf"'policy' of policy\.collect must be bounded as Pendulum-v1 is .* {told}"
        ):
            collect(
                "Pendulum-v1", policy, episodes=2, horizon=3, on_progress=lambda *a: pytest.fail("it was simulated")
            )
    narrow = GaussianPolicy.initial(3, 1, low=LOW / 2, high=HIGH / 2)
    assert float(collect("Pendulum-v1", narrow, episodes=2, horizon=3).actions.abs().max()) <= 1
    zeros = np.zeros((4, 1))
    short = Logs.of(zeros, zeros, np.zeros(4), zeros, [0, 0, 1, 1])
    with pytest.raises(InputError, match="'logs' of truth_of must be two or more episodes of 3 steps"):
        truth_of(short, 3)
