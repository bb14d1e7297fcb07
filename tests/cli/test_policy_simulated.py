"""`vestige policy train` and `collect`: what is printed, what is written, and what is refused before it."""

import json

import pytest

from vestige.cli.policy import Collect, Train
from vestige.core.errors import InputError, StoreError
from vestige.policy.logs import Logs
from vestige.policy.policies import GaussianPolicy

pytest.importorskip("stable_baselines3", reason="needs pip install 'vestige[policy]'")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


def train(out, cache, **options):
    """Two policies of one training of two rollouts; a rollout has 2048 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VESTIGE_CACHE", cache)
        Train("Pendulum-v1", steps=(2000, 4096), episodes=3, horizon=10, out=out, **options).run()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, cache):
    """The policies of a training, in a folder."""
    out = tmp_path_factory.mktemp("policies")
    train(out, cache)
    return out


@pytest.mark.slow
def test_train_writes_a_policy_for_each_number_of_steps(trained):
    first, last = (GaussianPolicy.load(trained / f"Pendulum-v1-{n}.json") for n in (2000, 4096))
    assert first.widths == (3, 1)
    assert not first.weights[0].equal(last.weights[0])


def test_train_says_how_many_steps_it_really_took(trained, cache, tmp_path, capsys):
    train(tmp_path, cache, json=True)
    assert [(row["steps"], row["trained"]) for row in json.loads(capsys.readouterr().out)] == [
        (2000, 2048),
        (4096, 4096),
    ]
    train(tmp_path, cache)
    assert "2048" in capsys.readouterr().out


def test_collect_writes_logs_that_evaluate_reads(trained, tmp_path, capsys):
    out = tmp_path / "logs.npz"
    policy = trained / "Pendulum-v1-2000.json"
    Collect("Pendulum-v1", policy, episodes=3, horizon=10, out=out, json=True).run()
    said = json.loads(capsys.readouterr().out)
    logs = Logs.read(out)
    assert (said["transitions"], said["episodes"]) == (30, 3)
    assert said["return"] == pytest.approx(float(logs.rewards.sum()) / 3)
    own = GaussianPolicy.load(policy).log_prob(logs.observations, logs.actions)
    assert logs.log_probs.tolist() == pytest.approx(own.tolist(), rel=1e-5)  # other batches, other rounding
    Collect("Pendulum-v1", policy, episodes=3, horizon=10, out=out).run()
    assert "30 transitions of 3 episodes written to" in capsys.readouterr().out


def test_nothing_is_written_on_bad_input(trained, tmp_path):
    policy = trained / "Pendulum-v1-2000.json"
    with pytest.raises(InputError, match=r"'out' of vestige policy collect must be a name that ends in .npz"):
        Collect("Pendulum-v1", policy, out=tmp_path / "logs.txt").run()
    with pytest.raises(StoreError, match="does not exist"):
        Collect("Pendulum-v1", tmp_path / "none.json", out=tmp_path / "logs.npz").run()
    with pytest.raises(InputError, match="'actions' of CartPole-v1"):
        Collect("CartPole-v1", policy, out=tmp_path / "logs.npz").run()
    with pytest.raises(InputError, match="'episodes' of vestige policy train must be at least 2"):
        Train("Pendulum-v1", episodes=1, out=tmp_path / "policies").run()
    with pytest.raises(InputError, match="'out' of vestige policy train must be in a folder"):
        Train("Pendulum-v1", out=policy / "policies").run()
    with pytest.raises(InputError, match="'out' of vestige policy collect must be a folder"):
        Collect("Pendulum-v1", policy, out=policy / "logs.npz").run()
    assert list(tmp_path.iterdir()) == []
    GaussianPolicy.initial(3, 1).save(tmp_path / "free.json")
    with pytest.raises(InputError, match=r"'policy' of policy.collect must be bounded as Pendulum-v1 is"):
        Collect("Pendulum-v1", tmp_path / "free.json", out=tmp_path / "logs.npz").run()
    assert not (tmp_path / "logs.npz").exists()
