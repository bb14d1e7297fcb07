"""The pool with workers that do as they are told: deaths, errors, and how many may run at once.

`test_kills.py` has the same with real processes.
"""

import threading
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from vestige.core.errors import VestigeError
from vestige.runner.local import SPARE, Pool, Worker, free_bytes, held_bytes
from vestige.runner.plan import Unit

GB = 2**30


class Played(BaseProcess):
    """A process that is a thread, ended by the signal that the system sends when memory is short."""

    pid, exitcode = 0, -9

    def __init__(self, thread):
        self.thread = thread

    def join(self, timeout=None):
        self.thread.join(timeout)

    def is_alive(self):
        return self.thread.is_alive()

    def terminate(self):
        pass


class Stage:
    """Starts workers that play `script`: by seed what happens at each attempt, a peak in bytes where it goes well."""

    def __init__(self, script):
        self.script = {seed: list(acts) for seed, acts in script.items()}
        self.under_way, self.most, self.lock, self.gate = 0, 0, threading.Lock(), threading.Semaphore(0)
        self.said, self.told, self.waited = [], [], []

    def __call__(self):
        ours, theirs = Pipe()
        thread = threading.Thread(target=self.play, args=(theirs,), daemon=True)
        thread.start()
        return Worker(Played(thread), ours)

    def play(self, pipe):
        try:
            while True:
                unit, wait = pipe.recv()
                self.waited.append((unit.seed, wait))
                with self.lock:
                    self.under_way += 1
                    self.most = max(self.most, self.under_way)
                act = self.script[unit.seed].pop(0)
                pipe.send(("told", 0.5, "half way"))
                self.gate.acquire(timeout=0.05)  # long enough for the others to begin
                with self.lock:
                    self.under_way -= 1
                if act == "die":
                    pipe.close()
                    return
                if act == "elsewhere":
                    pipe.send((act,))
                    continue
                pipe.send(("raised", act) if isinstance(act, Exception) else ("done", act))
        except (EOFError, OSError):
            pass

    def run(self, workers, free=None):
        units = [Unit("toy", None, seed, Path(f"{seed}.json"), "") for seed in self.script]
        on_progress = lambda unit: lambda share, words: self.told.append((unit.seed, share, words))  # noqa: E731
        self.pool = Pool(workers, on_progress, self.said.append, start=self, free=lambda: free)
        return [unit.seed for unit in self.pool.run(units)]


def test_every_unit_is_run_once_with_no_more_than_so_many_at_once():
    stage = Stage({seed: [1] for seed in range(9)})
    assert sorted(stage.run(3)) == list(range(9))
    assert stage.most == 3
    assert sorted(stage.told) == [(seed, 0.5, "half way") for seed in range(9)]
    assert stage.said == []


def test_a_unit_whose_worker_died_is_tried_once_more_while_the_others_go_on():
    stage = Stage({0: ["die", 1], 1: [1], 2: [1]})
    assert sorted(stage.run(2)) == [0, 1, 2]
    assert stage.said == [
        "The process of toy seed 0 was ended by SIGKILL (out of memory?); it is tried once more, with 1 at once."
    ]


def test_a_unit_whose_worker_died_twice_is_an_error_after_the_others():
    stage = Stage({0: ["die", "die"], 1: [1], 2: [1], 3: [1]})
    with pytest.raises(VestigeError, match=r"toy seed 0 was ended by SIGKILL .*, 2 times. What is finished is stored"):
        stage.run(2)
    assert stage.script == {0: [], 1: [], 2: [], 3: []}  # the others were run


def test_a_unit_that_another_command_is_at_comes_last_and_is_waited_for():
    stage = Stage({0: ["elsewhere", 1], 1: [1], 2: [1]})
    assert stage.run(1) == [1, 2, 0]
    assert stage.waited == [(0, False), (1, False), (2, False), (0, True)]
    assert stage.said == []


def test_an_error_of_a_unit_ends_the_run():
    stage = Stage({0: [KeyError("a bug")], **{seed: [1] for seed in range(1, 9)}})
    with pytest.raises(KeyError, match="a bug"):
        stage.run(1)
    assert stage.script[8] == [1]


def test_memory_bounds_the_workers_once_a_unit_was_measured():
    stage = Stage({0: [2 * GB], **{seed: [GB] for seed in range(1, 12)}})
    stage.run(1, free=5 * GB)
    assert stage.said == []  # one is always allowed
    stage = Stage({seed: [2 * GB] for seed in range(12)})
    assert len(stage.run(4, free=5 * GB)) == 12
    assert stage.said == ["2 of 4 workers at once: a unit takes 2.00 GB at its peak, 5.00 GB are to be had."]


@pytest.mark.parametrize(
    ("workers", "peak", "held", "free", "allowed"),
    [
        (4, 0, 0, GB, 4),  # nothing is known yet
        (4, GB, 0, None, 4),  # the system does not tell
        (4, GB, 0, 10 * GB, 4),
        (4, GB, 2 * GB, 2 * GB, 3),  # what runs already counts as room
        (4, GB, 0, GB // 2, 1),  # never none
    ],
)
def test_what_fits(workers, peak, held, free, allowed):
    assert Pool(workers, print, print, peak).fitting(held, free) == allowed
    assert 0 < SPARE < 1


def test_a_death_takes_a_worker_with_it_but_never_the_last():
    stage = Stage({0: ["die", 1], 1: ["die", GB], 2: [GB // 2], 3: [1]})
    assert sorted(stage.run(2)) == [0, 1, 2, 3]
    assert stage.pool.most == 1
    assert stage.pool.peak == GB  # the largest, not the last


def test_free_memory_is_the_machines_or_the_containers(tmp_path):
    assert free_bytes(tmp_path) is None
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:   500 kB\n")
    assert free_bytes(tmp_path) == 500 * 1024
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.max").write_text("max\n")
    assert free_bytes(tmp_path) == 500 * 1024
    (group / "memory.max").write_text("5000\n")
    assert free_bytes(tmp_path) == 4000
    (tmp_path / "proc" / "7" / "status").write_text("VmHWM: 9 kB\nVmRSS:\t 3 kB\n")
    assert held_bytes(7, tmp_path) == 3 * 1024
    assert held_bytes(8, tmp_path) == 0
