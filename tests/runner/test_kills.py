"""Whatever kills a run, at any moment: nothing is torn, nothing that is finished is run again, and it goes on."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import border  # noqa: F401 - makes itself known
from vestige import runner
from vestige.continual.record import Record
from vestige.runner.unit import silent

HERE = Path(__file__).parent
VESTIGE = [sys.executable, HERE.parent / "border.py"]


def killed(folder, *wanted):
    done = subprocess.run([sys.executable, HERE / "kills.py", folder, *wanted], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_handful_of_kills(tmp_path):
    seen = killed(tmp_path, "every=17")
    assert seen["every"]["kills"] > 2
    assert seen["every"]["left_behind"] > 0  # so the kills did hit the writing
    assert seen["every"]["resumed"] > 0  # and runs did go on from a border


@pytest.mark.slow
def test_fifty_kills_at_random_moments(tmp_path):
    seen = killed(tmp_path, "random=50")["random"]
    assert seen["kills"] == 50
    assert seen["resumed"] > 5
    assert seen["left_behind"] > 5


@pytest.mark.slow
def test_a_kill_before_every_operation_on_the_disk(tmp_path):
    seen = killed(tmp_path, "every=1")["every"]
    assert seen["kills"] > 40
    assert seen["resumed"] > 20


def started(tmp_path, *words, **fields):
    """`vestige run border` in a process of its own, once the log says that units train."""
    log = tmp_path / "log"
    given = [word for key, value in ({"log": log} | fields).items() for word in ("--set", f"{key}={value}")]
    # A shell that runs this in the background has it ignore the signal, and a child inherits that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    argv = [*VESTIGE, "run", "border", *given, "--out", tmp_path / "runs", *words]
    running = subprocess.Popen(argv, preexec_fn=heed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not log.exists() and running.poll() is None:
        time.sleep(0.02)
    return running


def children(pid):
    """Processes that `pid` started, by the kernel's account."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid):
    """Whether a process has ended; one whose parent has not asked for its code yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def whole(tmp_path):
    return {path.stem: Record.load(path) for path in (tmp_path / "runs" / "border").glob("*.json")}


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at processes through /proc")


@needs_proc
@pytest.mark.slow
def test_workers_die_with_their_parent_and_nothing_is_torn(tmp_path):
    running = started(tmp_path, "--workers", "1", "--seeds", "2", epochs=2000)
    workers = children(running.pid)
    running.kill()
    running.communicate()
    deadline = time.monotonic() + 20
    while not all(map(gone, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers
    assert all(map(gone, workers))
    assert whole(tmp_path) == {}


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_interrupt_leaves_with_130_and_says_how_to_go_on(tmp_path, workers):
    running = started(tmp_path, "--workers", workers, "--seeds", "1", epochs=2000)
    below = children(running.pid)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert f"border: 0 of 2 units are finished and stored in {tmp_path / 'runs'}. The same command goes on" in err
    assert "Traceback" not in err
    assert all(map(gone, below))
    assert not list((tmp_path / "runs").rglob("*.part"))


@pytest.mark.slow
def test_many_commands_on_one_folder_share_the_units_and_a_killed_one_gives_its_own_back(tmp_path):
    done = subprocess.run([sys.executable, HERE / "crowd.py", tmp_path, "6"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["lost"] == -signal.SIGKILL
    assert seen["codes"] == [0] * 5, seen["errors"]
    trained = [(unit, task) for unit, task, lost in seen["trained"] if not lost]
    assert len(trained) == len(set(trained)) == 4 * 3  # every task of every unit once
    assert sum(lost for *_, lost in seen["trained"]) == 1  # but for the one that was killed
    assert seen["files"] == sorted(f"{unit}.json" for unit, task in trained if task == 0)  # and no lock is left


@needs_proc
@pytest.mark.slow
def test_a_pool_that_is_killed_gives_its_units_to_a_command_that_waits_for_them(tmp_path):
    words, gate = ("--preset", "smoke", "--seeds", "1"), tmp_path / "gate"
    first = started(tmp_path, *words, "--workers", "2", gate=gate)
    while len(list((tmp_path / "runs" / "border").glob("*.lock"))) != 2:
        time.sleep(0.02)
    second = started(tmp_path, *words, "--workers", "1", gate=gate)
    first.kill()
    first.communicate()
    gate.touch()
    _, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert len(whole(tmp_path)) == 2
    assert [path.suffix for path in (tmp_path / "runs" / "border").iterdir()] == [".json"] * 2


def test_a_lock_that_a_killed_process_left_behind_does_no_harm(tmp_path):
    (unit, *_) = units(tmp_path)
    unit.path.parent.mkdir(parents=True)
    for _ in range(2):  # before it has run, and when it is finished
        unit.path.with_suffix(".lock").touch()
        runner.run_unit(unit, silent)
        assert [path.name for path in unit.path.parent.iterdir()] == [unit.path.name]


def units(tmp_path, **fields):
    return runner.plan("border", tmp_path / "runs", preset="smoke", seeds=1, overrides=fields)


@pytest.mark.slow
def test_a_worker_that_dies_is_said_and_its_unit_tried_once_more(tmp_path):
    argv = ["run", "border", "--preset", "smoke", "--seeds", "1", "--workers", "2", "--out", str(tmp_path / "runs")]
    done = subprocess.run([*VESTIGE, *argv, "--set", f"die={tmp_path / 'died'}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "was ended by SIGKILL (out of memory?); it is tried once more, with 1 at once" in done.stderr
    assert (tmp_path / "died").exists()
    assert len(whole(tmp_path)) == 2


@pytest.mark.slow
def test_one_that_dies_again_is_an_error_once_the_others_are_done(tmp_path):
    argv = ["run", "border", "--preset", "smoke", "--seeds", "1", "--workers", "1", "--out", str(tmp_path / "runs")]
    done = subprocess.run([*VESTIGE, *argv, "--set", "die=always"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "was ended by SIGKILL (out of memory?), 2 times. What is finished is stored" in done.stderr
    assert [record.config["method"] for record in whole(tmp_path).values()] == ["ewc_pp_s"]


@pytest.mark.slow
def test_an_error_of_a_unit_is_the_runs(tmp_path):
    argv = ["run", "border", "--preset", "smoke", "--seeds", "1", "--workers", "1", "--out", str(tmp_path / "runs")]
    done = subprocess.run([*VESTIGE, *argv, "--set", "fail=broken"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ValueError: broken" in done.stderr


def test_what_a_kill_after_the_last_write_left_goes(tmp_path):
    (unit, *_) = units(tmp_path)
    runner.run_unit(unit, silent)
    left = unit.path.with_suffix(".checkpoint")
    left.mkdir()
    (left / "x.json").write_text("{}")
    assert [f.fresh for f in runner.run([unit])] == [False]
    assert not left.exists()


@pytest.mark.slow
def test_a_pool_gives_the_bits_of_this_process(tmp_path):
    argv = ["run", "border", "--preset", "smoke", "--workers", "2", "--out", str(tmp_path / "runs")]
    done = subprocess.run([*VESTIGE, *argv], capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    pooled = whole(tmp_path)
    for finished in runner.run(runner.plan("border", tmp_path / "here", preset="smoke")):
        other = pooled.pop(finished.record.id)
        assert other.R.tolist() == finished.record.R.tolist()
        assert other.baseline["multi"].tolist() == finished.record.baseline["multi"].tolist()
    assert pooled == {}
