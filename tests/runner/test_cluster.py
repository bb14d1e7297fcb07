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
from vestige.core.errors import InputError, MissingPackage
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
