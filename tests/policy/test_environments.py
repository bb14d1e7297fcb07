"""Environments by name: what is refused, what stands side by side, and what MuJoCo may say."""

import sys

import numpy as np
import pytest
import torch

from vestige.core.errors import InputError, MissingPackage, UnknownName, VestigeWarning
from vestige.policy import environments
from vestige.policy.environments import describe, make

gymnasium = pytest.importorskip("gymnasium", reason="needs pip install 'vestige[policy]'")


def test_the_space_is_gymnasiums():
    space = describe("Pendulum-v1")
    assert (space.name, space.observations, space.actions, space.limit) == ("Pendulum-v1", 3, 1, 200)
    assert space.low.tolist() == [-2.0]
    assert space.high.tolist() == [2.0]


def test_side_by_side_is_one_after_the_other():
    actions = torch.tensor([[1.0], [-0.5], [0.3]])
    alive = torch.ones(3, dtype=torch.bool)
    with make("Pendulum-v1", 5) as five:
        first = five.reset([7, 8, 9])
        steps = [five.step(actions, alive) for _ in range(3)]
    for i, seed in enumerate((7, 8, 9)):
        one = gymnasium.make("Pendulum-v1")
        assert first[i].tolist() == one.reset(seed=seed)[0].tolist()
        for step in steps:
            seen, reward, ended, _, _ = one.step(actions[i].numpy())
            assert step.observations[i].tolist() == seen.tolist()
            assert float(step.rewards[i]) == reward
            assert bool(step.terminated[i]) == ended
        one.close()


class Short(gymnasium.Env):
    """Ends by itself after two steps, or is cut off after three; it refuses to be stepped further."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    spec = type("Spec", (), {"id": "Short-v0", "max_episode_steps": None})

    def reset(self, *, seed=None, options=None):
        self.ends, self.step_ = seed % 2 == 0, 0
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action):
        self.step_ += 1
        assert self.step_ <= (2 if self.ends else 3), "stepped beyond the end"
        seen = np.full(2, self.step_ / 10, dtype=np.float32)
        return seen, 1.0, self.ends and self.step_ == 2, self.step_ == 3, {}


def test_an_episode_that_is_over_is_not_stepped_further():
    two = environments.Environments([Short(), Short()])
    two.reset([0, 1])
    alive, seen = torch.ones(2, dtype=torch.bool), []
    for _ in range(3):
        step = two.step(torch.zeros(2, 1), alive)
        seen.append((step.terminated.tolist(), step.over.tolist(), step.rewards.tolist()))
        alive &= ~step.over
    assert seen[0] == ([False, False], [False, False], [1.0, 1.0])
    assert seen[1] == ([True, False], [True, False], [1.0, 1.0])
    assert seen[2] == ([True, False], [True, True], [0.0, 1.0])


def test_a_name_that_is_unknown_comes_with_the_nearest():
    with pytest.raises(UnknownName, match=r"must be one that gymnasium knows\. Got 'Pendulm-v1' .* 'Pendulum-v1'\?"):
        describe("Pendulm-v1")
    with pytest.raises(UnknownName, match="Got 'no_such_module:X-v0' instead"):
        describe("no_such_module:X-v0")


def test_a_finite_set_of_actions_is_refused():
    with pytest.raises(
        InputError, match=r"'actions' of CartPole-v1 must be numbers within bounds .* Got Discrete\(2\)"
    ):
        make("CartPole-v1", 2)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"action_space": gymnasium.spaces.Box(-np.inf, np.inf, (1,))}, "'actions' of Short-v0"),
        ({"action_space": gymnasium.spaces.Box(-1, 1, (1, 2))}, "'actions' of Short-v0"),
        ({"observation_space": gymnasium.spaces.Discrete(3)}, "'observations' of Short-v0 must be one row"),
    ],
)
def test_spaces_that_are_no_row_of_bounded_numbers_are_refused(space, said):
    environment = Short()
    for key, value in space.items():
        setattr(environment, key, value)
    with pytest.raises(InputError, match=said):
        environments.space_of(environment)


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    def none(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(environments, "import_module", none)
    with pytest.raises(MissingPackage, match=r"pip install 'vestige\[policy\]'"):
        describe("Pendulum-v1")


@pytest.mark.parametrize(("missing", "helps"), [("Box2D", False), ("MuJoCo", True)])
def test_the_extra_is_named_only_where_it_helps(monkeypatch, missing, helps):
    def refuse(name):
        raise gymnasium.error.DependencyNotInstalled(f"{missing} is not installed, run `pip install it`")

    monkeypatch.setattr(gymnasium, "make", refuse)
    monkeypatch.setitem(sys.modules, "mujoco", None)  # as if it were not there
    with pytest.raises(MissingPackage, match=f"{missing} is not installed") as told:
        describe("Pendulum-v1")
    assert (environments.INSTALL in str(told.value)) == helps


class Mujoco:
    """MuJoCo's place for complaints."""

    def __init__(self):
        self.handler = self.before = print

    def get_mju_user_warning(self):
        return self.handler

    def set_mju_user_warning(self, handler):
        self.handler = handler


def test_mujoco_is_heard_but_for_what_gymnasium_alone_can_change(monkeypatch):
    fake = Mujoco()
    monkeypatch.setitem(sys.modules, "mujoco", fake)

    def complain():
        with environments._mujoco_heard():
            fake.handler("compiler attribute 'settotalmass' is deprecated and ...\n")
            fake.handler("the mass is negative\n")

    with pytest.warns(VestigeWarning, match="MuJoCo says: the mass is negative") as heard:
        complain()
    assert len(heard) == 1
    assert fake.handler is fake.before


def test_mujoco_prints_nothing_and_leaves_no_file(tmp_path, monkeypatch, capfd):
    pytest.importorskip("mujoco", reason="needs pip install 'vestige[policy]'")
    monkeypatch.chdir(tmp_path)
    assert describe("HalfCheetah-v5").observations == 17
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
