"""A step is all or nothing, wherever it is killed, and no file that is left behind holds a real sample."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "kills.py"


def run(folder, *wanted):
    done = subprocess.run([sys.executable, SCRIPT, folder, *wanted], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_handful_of_kills_and_two_processes_at_once(tmp_path):
    seen = run(tmp_path, "every=11", "made=9", "two=4")
    assert seen["every"]["kills"] > 6
    assert seen["every"]["left_behind"] > 2  # so the kills did hit the writing
    assert 0 < seen["made"]["made"] < seen["made"]["kills"]
    assert seen["two"]["steps"] == 9


@pytest.mark.slow
def test_sixty_kills_at_random_moments(tmp_path):
    seen = run(tmp_path, "random=60")["random"]
    assert seen["kills"] == 60
    assert seen["steps"] > 10
    assert seen["left_behind"] > 5


@pytest.mark.slow
def test_a_kill_before_every_operation_on_the_disk(tmp_path):
    seen = run(tmp_path, "every=1", "made=1")
    assert seen["every"]["kills"] > 50
    assert seen["made"]["kills"] > 15
