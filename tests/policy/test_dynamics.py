"""Learned dynamics against a linear system whose values are known in closed form."""

from dataclasses import replace

import pytest
import torch

from linear_system import System, linear_policy
from vestige.core.errors import InputError, NotFitted, StoreError
from vestige.policy import Dynamics, Logs, Settings
from vestige.policy.dynamics import assign_folds

SYSTEM = System.default()
BEHAVIOUR = linear_policy([[0.0, -0.2]], [0.0], 0.5)
TARGET = linear_policy([[0.1, -0.6]], [0.1], 0.3)
SMALL = Settings(hidden=(16,), steps=400, check_every=50, learning_rate=1e-2)


class Acting:
    """A policy that is one function."""

    def __init__(self, act):
        self.function = act

    def act(self, observations, *, generator):
        return self.function(observations, generator)

    def log_prob(self, observations, actions):
        raise NotImplementedError


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def logs():
    return SYSTEM.logs(BEHAVIOUR, 150, 40, seed=0)


@pytest.fixture(scope="module")
def learned(logs):
    """Dynamics and reward both from the logs."""
    return Dynamics(3, SMALL).fit(logs, seed=0)


def test_known_dynamics_give_the_closed_form():
    dynamics = SYSTEM.dynamics(members=4)
    starts = SYSTEM.starts(20_000, stream())
    simulated = dynamics.rollout(TARGET, starts, 15, generator=stream(1), rollouts="noise")
    returns = simulated.returns(0.9)
    error = float(returns.std()) / len(returns) ** 0.5
    assert float(returns.mean()) == pytest.approx(SYSTEM.value(TARGET, 15, 0.9), abs=4 * error)
    assert error < 0.05
    assert simulated.members.tolist() == sorted(simulated.members.tolist())
    assert simulated.observations.shape == (20_000, 16, 2)
    # Rewards are those of the states and actions that stand beside them.
    again = SYSTEM.reward(simulated.observations[:, :-1], simulated.actions, simulated.observations[:, 1:])
    assert torch.allclose(again.double(), simulated.rewards)


def test_mean_rollouts_are_those_of_the_system_without_noise():
    starts, quiet = SYSTEM.starts(20_000, stream()), replace(SYSTEM, noise=0.0)
    returns = SYSTEM.dynamics(members=4).rollout(TARGET, starts, 15, generator=stream(1)).returns()
    error = float(returns.std()) / len(returns) ** 0.5
    assert float(returns.mean()) == pytest.approx(quiet.value(TARGET, 15), abs=4 * error)
    assert abs(quiet.value(TARGET, 15) - SYSTEM.value(TARGET, 15)) > 8 * error


@pytest.mark.parametrize("rollouts", ["mean", "noise"])
def test_replayed_actions_are_a_policy_that_does_not_look(rollouts):
    """By brute force: the system's own equation, one trajectory at a time."""
    dynamics, g = SYSTEM.dynamics(members=2), stream(3)
    actions, starts = torch.randn(6, 5, 1, generator=g), SYSTEM.starts(6, g)
    found = dynamics.replay(actions, starts, generator=stream(), rollouts=rollouts)
    assert torch.equal(found.actions, actions)
    for i in range(6):
        s = starts[i]
        for t in range(5):
            mean = SYSTEM.mean(s, actions[i, t].double())
            after = found.observations[i, t + 1].double()
            gap = float((after - mean).abs().max())
            assert gap < 1e-5 if rollouts == "mean" else 1e-3 < gap < 0.6
            assert float(found.rewards[i, t]) == pytest.approx(
                float(SYSTEM.reward(s, actions[i, t].double(), after)), abs=1e-5
            )
            s = after
    # The same actions as a policy that is asked step by step.
    asked = iter(actions.reshape(2, 3, 5, 1).unbind(2))
    policy = Acting(lambda s, generator: next(asked))
    again = dynamics.rollout(policy, starts, 5, generator=stream(), rollouts=rollouts)
    assert torch.equal(again.rewards, found.rewards)


def test_two_policies_with_one_seed_meet_the_same_noise():
    """However many numbers a policy draws: transitions have a stream of their own."""
    dynamics, starts = SYSTEM.dynamics(members=2), SYSTEM.starts(4, stream())
    still = Acting(lambda s, generator: torch.zeros(*s.shape[:-1], 1))
    greedy = Acting(lambda s, generator: 0 * torch.randn(*s.shape[:-1], 9, generator=generator)[..., :1])
    one, other = (
        dynamics.rollout(p, starts, 6, generator=stream(), rollouts="noise").observations for p in (still, greedy)
    )
    assert torch.equal(one, other)


def test_a_learned_reward_has_noise_of_its_own(learned):
    s, u = torch.zeros(3, 400, 2), torch.zeros(3, 400, 1)
    mean = learned.rewards(s, u, s)
    drawn = learned.rewards(s, u, s, generator=stream())
    assert float(mean.std(1).max()) < 1e-6
    assert drawn.std(1).tolist() == pytest.approx(learned.reward_(torch.zeros(3, 1, 5))[1].flatten().tolist(), rel=0.15)


def test_learned_dynamics_come_near(logs, learned):
    truth, logged = SYSTEM.value(TARGET, 20), SYSTEM.value(BEHAVIOUR, 20)
    starts = SYSTEM.starts(3000, stream())
    returns = learned.rollout(TARGET, starts, 20, generator=stream(1), rollouts="noise").returns()
    assert float(returns.mean()) == pytest.approx(truth, abs=0.2 * abs(truth - logged))
    known = Dynamics(3, SMALL, reward=SYSTEM.reward).fit(logs, seed=0)
    returns = known.rollout(TARGET, starts, 20, generator=stream(1), rollouts="noise").returns()
    assert float(returns.mean()) == pytest.approx(truth, abs=0.2 * abs(truth - logged))
    assert known.report_["reward"] == "known"


def test_residuals_are_those_of_each_rows_member(learned):
    s, u, members = torch.randn(9, 2, generator=stream()), torch.zeros(9, 1), torch.tensor([2, 0, 0, 1, 2, 2, 1, 0, 2])
    after = s + 0.1
    z = learned.residuals(s, u, after, members)
    mean, deviation = learned.law(s.expand(3, 9, 2), u.expand(3, 9, 1))
    want = torch.stack([(after[i] - mean[k, i]) / deviation[k, 0] for i, k in enumerate(members)])
    assert torch.allclose(z, want, atol=1e-4)


def test_residuals_of_draws_are_standard_normal(learned):
    s, u = torch.randn(6000, 2, generator=stream()), torch.randn(6000, 1, generator=stream(1))
    members = torch.arange(6000) % 3
    z = learned.residuals(s, u, learned.draw(s, u, members, generator=stream(2)), members)
    assert z.mean(0).tolist() == pytest.approx([0, 0], abs=0.06)
    assert z.std(0).tolist() == pytest.approx([1, 1], abs=0.04)


def test_states_stay_within_limits_that_are_reported(learned):
    wild = linear_policy([[50.0, 50.0]], [0.0], 1.0)
    simulated = learned.rollout(wild, SYSTEM.starts(30, stream()), 30, generator=stream(1))
    assert simulated.clipped > 0.1
    low, high = learned.limits_
    assert bool((simulated.observations <= high + 1e-5).all())
    assert bool((simulated.observations >= low - 1e-5).all())
    calm = learned.rollout(TARGET, SYSTEM.starts(30, stream()), 10, generator=stream(1))
    assert calm.clipped == 0


def test_folds_are_whole_episodes_where_there_are_enough(logs):
    folds = assign_folds(logs, 5, stream())
    assert all(len(folds[logs.episodes == e].unique()) == 1 for e in range(150))
    assert torch.bincount(folds).tolist() == [30 * 40] * 5
    few = Logs.of(*[torch.zeros(20, 1)] * 2, torch.zeros(20), torch.zeros(20, 1), torch.arange(20) // 10)
    assert assign_folds(few, 5, stream()).tolist() == [i // 4 for i in range(20)]


def test_saved_dynamics_are_the_same(learned, tmp_path):
    again = Dynamics.load(learned.save(tmp_path / "dynamics.json"))
    starts = SYSTEM.starts(6, stream())
    one, other = (d.rollout(TARGET, starts, 3, generator=stream(1)) for d in (learned, again))
    assert torch.equal(one.rewards, other.rewards)
    assert again.report_ == learned.report_
    (tmp_path / "dynamics.json").write_text("{}")
    with pytest.raises(StoreError, match="format"):
        Dynamics.load(tmp_path / "dynamics.json")


def test_a_known_reward_is_asked_for_again(tmp_path):
    logs = SYSTEM.logs(BEHAVIOUR, 5, 4, seed=0)
    tiny = Dynamics(2, Settings(hidden=(4,), steps=2), reward=SYSTEM.reward).fit(logs)
    tiny.save(tmp_path / "d.json")
    with pytest.raises(InputError, match=r"'reward' of Dynamics.load must be the known function"):
        Dynamics.load(tmp_path / "d.json")
    assert Dynamics.load(tmp_path / "d.json", reward=SYSTEM.reward).members == 2


def test_what_is_refused(learned):
    with pytest.raises(InputError, match=r"'initial' of Dynamics.rollout must be a multiple of 3"):
        learned.rollout(TARGET, torch.zeros(4, 2), 3, generator=stream())
    with pytest.raises(InputError, match=r"'horizon' of Dynamics.rollout must be at least 1"):
        learned.rollout(TARGET, torch.zeros(3, 2), 0, generator=stream())
    with pytest.raises(InputError, match=r"'rollouts' of Dynamics.rollout must be one of mean, noise"):
        learned.rollout(TARGET, torch.zeros(3, 2), 1, generator=stream(), rollouts="median")
    with pytest.raises(InputError, match=r"'actions' of Dynamics.replay must be as many as 'initial' \(3\). Got 6"):
        learned.replay(torch.zeros(6, 2, 1), torch.zeros(3, 2), generator=stream())
    with pytest.raises(InputError, match=r"'initial' of Dynamics.replay must be a multiple of 3"):
        learned.replay(torch.zeros(4, 2, 1), torch.zeros(4, 2), generator=stream())
    with pytest.raises(NotFitted, match="before fit"):
        Dynamics().rollout(TARGET, torch.zeros(5, 2), 3, generator=stream())
    with pytest.raises(InputError, match="'members' of Dynamics must be at least 1"):
        Dynamics(0)
    with pytest.raises(InputError, match=r"'logs' of Dynamics.fit must be 10 transitions or more for 5 members. Got 4"):
        Dynamics().fit(SYSTEM.logs(BEHAVIOUR, 2, 2, seed=0))
    with pytest.raises(InputError, match=r"must be 24 transitions or more for 12 members. Got 20"):
        Dynamics(12).fit(SYSTEM.logs(BEHAVIOUR, 2, 10, seed=0))
