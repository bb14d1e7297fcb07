"""PPO by stable-baselines3, as plain numbers in the cache."""

import random

import numpy as np
import pytest
import torch

from vestige.core.errors import InputError, UnknownName, VestigeWarning
from vestige.policy import training
from vestige.policy.training import PPO, key_of, train, trained_steps

pytest.importorskip("stable_baselines3", reason="needs pip install 'vestige[policy]'")

SMALL = PPO(hidden=(8, 8), environments=2, rollout=16, batch_size=16, epochs=2, learning_rate=1e-2)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.weights, other.weights, strict=True)) and torch.equal(
        one.shift, other.shift
    )


def generators():
    """The state of the global ones; not Python's own, from which the type checker of these tests draws."""
    return np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two policies of one run, the folder they are cached in, and what was told."""
    folder, told = tmp_path_factory.mktemp("policies"), []
    before = generators()
    policies = train(
        "Pendulum-v1", (64, 128), settings=SMALL, seed=3, folder=folder, on_progress=lambda *a: told.append(a)
    )
    return policies, folder, told, before, generators()


def test_global_generators_are_as_they_were(trained):
    *_, before, after = trained
    assert before == after
    state = random.getstate()
    with training._global_randomness_lent(0):
        random.random()
    assert random.getstate() == state


def test_the_share_that_is_done_is_told(trained):
    shares = [share for share, _ in trained[2]]
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert trained[2][-1][1] == "Pendulum-v1: 128 steps of training"


def test_a_checkpoint_is_where_a_shorter_run_ends(trained):
    first, last = trained[0]
    assert first.widths == (3, 1)
    assert first.low.tolist() == [-2.0]
    assert not same(first, last)
    (short,) = train("Pendulum-v1", (64,), settings=SMALL, seed=3, cached=False)
    assert same(short, first)
    (other,) = train("Pendulum-v1", (64,), settings=SMALL, seed=4, cached=False)
    assert not same(other, first)


def test_the_second_time_it_is_read(trained, monkeypatch):
    policies, folder, *_ = trained
    monkeypatch.setattr(training, "_learn", lambda *a: pytest.fail("trained again"))
    again = train("Pendulum-v1", (64, 128), settings=SMALL, seed=3, folder=folder)
    assert all(same(a, b) for a, b in zip(again, policies, strict=True))
    (alone,) = train("Pendulum-v1", (128,), settings=SMALL, seed=3, folder=folder)
    assert same(alone, policies[1])
    assert all(path.suffix in (".json", ".safetensors") for path in folder.rglob("*.*"))


def test_a_damaged_entry_is_made_anew_and_a_folder_that_cannot_be_written_costs_a_warning(
    trained, monkeypatch, tmp_path
):
    policies, folder, *_ = trained
    path = training._entry(folder, key_of("Pendulum-v1", 128, SMALL, 3))
    whole = path.read_bytes()
    monkeypatch.setattr(training, "_learn", lambda *a: [policies[1]])
    path.write_bytes(whole[:100])
    train("Pendulum-v1", (128,), settings=SMALL, seed=3, folder=folder)
    assert path.read_bytes() == whole
    (tmp_path / "file").write_text("")
    with pytest.warns(VestigeWarning, match="could not be cached"):
        train("Pendulum-v1", (128,), settings=SMALL, seed=3, folder=tmp_path / "file")


def test_whatever_decides_the_outcome_is_in_the_key(monkeypatch):
    key = key_of("Pendulum-v1", 64, SMALL, 0)
    others = [
        key_of("Swimmer-v5", 64, SMALL, 0),
        key_of("Pendulum-v1", 65, SMALL, 0),
        key_of("Pendulum-v1", 64, PPO(), 0),
        key_of("Pendulum-v1", 64, SMALL, 1),
    ]
    monkeypatch.setattr(training, "_version", lambda name: "0.0")
    others.append(key_of("Pendulum-v1", 64, SMALL, 0))
    assert len({key, *others}) == 6


def test_the_policy_acts_as_the_one_that_was_trained(monkeypatch):
    kept = {}

    def spy(model, environments):
        kept["model"], kept["environments"] = model, environments
        return kept.setdefault("policy", made(model, environments))

    made = training._as_policy
    monkeypatch.setattr(training, "_as_policy", spy)
    (policy,) = train("Pendulum-v1", (50,), settings=SMALL, cached=False)
    assert kept["model"].num_timesteps == trained_steps(50, SMALL) == trained_steps(64, SMALL) == 64
    assert trained_steps(20_000) == 20_480
    far = np.array([[0.1, -0.9, 3.0], [1.0, 0.0, -8.0], [0.5, 0.5, 500.0]], dtype=np.float32)  # the last is clipped
    mean, _ = kept["model"].predict(kept["environments"].normalize_obs(far), deterministic=True)
    cut = policy.mean(torch.from_numpy(far)).clamp(policy.low, policy.high)
    assert cut.numpy() == pytest.approx(mean, abs=1e-5)
    seen = torch.from_numpy(kept["environments"].normalize_obs(far)).float()
    law = kept["model"].policy.get_distribution(seen).distribution
    assert policy.log_std.exp().tolist() == pytest.approx(law.stddev[0].tolist(), rel=1e-5)


@pytest.mark.slow
def test_it_learns():
    """Pendulum: 60k steps bring the return of an episode from about -1200 well up."""
    from vestige.policy.environments import collect, truth_of

    first, last = train("Pendulum-v1", (2048, 60_000), settings=PPO(learning_rate=1e-3, discount=0.9), cached=False)
    before, after = (truth_of(collect("Pendulum-v1", p, episodes=20, horizon=200), 200) for p in (first, last))
    assert after.value > before.value + 300


def test_refusals(tmp_path):
    for steps in ((), (64, 64), (128, 64), (0,)):
        with pytest.raises(InputError, match=r"'steps' of policy\.train must be"):
            train("Pendulum-v1", steps, folder=tmp_path)
    with pytest.raises(InputError, match="'learning_rate' of PPO"):
        PPO(learning_rate=0.0)
    with pytest.raises(InputError, match=r"'seed' of policy\.train"):
        train("Pendulum-v1", (64,), seed=-1, folder=tmp_path)
    with pytest.raises(UnknownName, match="Pendulum-v1"):
        train("Pendulm-v1", (64,), folder=tmp_path)
    with pytest.raises(InputError, match="'actions' of CartPole-v1"):
        train("CartPole-v1", (64,), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
