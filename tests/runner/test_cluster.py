"""Units on Ray: the same Records, to the bit, though a machine is lost in the middle."""

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from dice import Dice
from vestige import runner
from vestige.core.errors import InputError, MissingPackage, VestigeError
from vestige.runner import cluster
from vestige.runner.cluster import Resources, resources_of
from vestige.runner.registry import EXPERIMENTS

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray: the extra 'cluster'")


@needs_ray
@pytest.mark.cluster
def test_a_machine_is_lost_and_every_unit_is_finished_once(tmp_path):
    script = Path(__file__).parent / "two_nodes.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["machines"] == [2, 1]
    assert seen["moved"] >= 1  # so the loss did hit a unit
    assert len(seen["finished"]) == len(set(seen["finished"])) == 4
    assert seen["files"] == sorted(f"{unit}.json" for unit in seen["finished"])  # and no checkpoint is left
    assert seen["differ"] == []
    assert seen["again"] == [False] * 4


@needs_ray
@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at ports through /proc")
def test_a_cluster_of_ours_is_on_loopback_with_a_token_and_one_without_is_refused(tmp_path):
    script = Path(__file__).parent / "one_node.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["local"] == [True]
    assert seen["beyond"] == []
    assert seen["environment"] == []  # what was set for the run is gone
    assert "must ask for a token: start it with RAY_AUTH_MODE=token" in seen["refusal"]
    assert "lets in whoever has none" in seen["refusal"]
    assert seen["stored"] == [False]
    assert seen["allowed"] == [True]
    assert seen["home"] == []


@pytest.fixture
def dice(monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "dice", Dice())


def test_without_ray_it_says_how_to_get_it(dice, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackage, match=r"pip install 'vestige\[cluster\]'"):
        next(cluster.run(runner.plan("dice", tmp_path), "local"))


@needs_ray
def test_what_is_finished_needs_no_cluster(dice, tmp_path):
    units = runner.plan("dice", tmp_path)
    list(runner.run(units))
    assert [f.fresh for f in cluster.run(units, "192.0.2.1:1")] == [False, False]  # an address where nobody is


@dataclass(frozen=True)
class Heavy:
    """A configuration that asks for a share of a GPU."""

    resources: ClassVar = {"cpus": 2, "gpus": 0.25}


def test_resources_come_from_the_configuration_then_the_experiment_then_one_cpu(dice, monkeypatch, tmp_path):
    (unit, *_) = runner.plan("dice", tmp_path)
    assert resources_of(unit) == Resources(1, 0)
    monkeypatch.setattr(Dice, "resources", Resources(cpus=4), raising=False)
    assert resources_of(unit) == Resources(4, 0)
    heavy = runner.Unit("dice", Heavy(), 0, unit.path, "")
    assert resources_of(heavy) == Resources(2, 0.25)


@pytest.mark.parametrize("wrong", [{"cpus": -1.0}, {"gpus": float("nan")}])
def test_resources_that_cannot_be_are_refused(wrong):
    with pytest.raises(InputError, match=f"'{next(iter(wrong))}' of Resources"):
        Resources(**wrong)


def test_an_environment_that_turns_tokens_off_is_refused_unless_told_otherwise(dice, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setitem(sys.modules, "ray", None)
    units = runner.plan("dice", tmp_path)
    with pytest.raises(InputError, match=r"RAY_AUTH_MODE=token\. Got RAY_AUTH_MODE=disabled.*--open-cluster"):
        next(cluster.run(units, "local"))
    with pytest.raises(MissingPackage):  # so it went on
        next(cluster.run(units, "local", open_cluster=True))


@pytest.mark.parametrize(
    ("code", "said"), [(cluster.TURNED_AWAY, None), (cluster.LET_IN, "lets in whoever has none"), (1, "be asked")]
)
def test_a_cluster_must_turn_away_whoever_has_no_token(code, said, monkeypatch):
    asked = []

    def knock(argv, *, env, **_):
        asked.append(env)
        return subprocess.CompletedProcess(argv, code)

    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setattr(cluster.subprocess, "run", knock)
    if said is None:
        cluster._refuse_open("127.0.0.1:1")
    else:
        with pytest.raises(VestigeError, match=rf"cluster at 127\.0\.0\.1:1 must ask for a token.*{said}"):
            cluster._refuse_open("127.0.0.1:1")
    assert asked[0]["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN" not in asked[0]


def test_what_the_user_has_set_stays(monkeypatch):
    for name in (cluster.MODE, *cluster.TOKENS, cluster.BEYOND_LOOPBACK):
        monkeypatch.delenv(name, raising=False)
    ours = cluster._environment("local", open_cluster=False)
    assert ours.keys() == {cluster.MODE, cluster.TOKENS[0], cluster.BEYOND_LOOPBACK}
    assert cluster._environment("local", open_cluster=False) != ours  # a token a run
    assert cluster._environment("10.0.0.5:6379", open_cluster=False) == {cluster.MODE: "token"}
    assert cluster._environment("10.0.0.5:6379", open_cluster=True) == {}
    monkeypatch.setenv(cluster.TOKENS[1], "mine")
    assert cluster.TOKENS[0] not in cluster._environment("local", open_cluster=False)
