"""Run as a script: children take steps in a folder and are killed with SIGKILL; after each kill the folder is examined.

    kills.py FOLDER random=COUNT      at random moments, COUNT times
    kills.py FOLDER every=STRIDE      before every (or every STRIDE-th) operation of a step on the disk, one by one
    kills.py FOLDER made=STRIDE       the same while the folder is made
    kills.py FOLDER two=COUNT         no kill: two children take COUNT steps each, at the same time

Several may be asked for. Prints what was seen as JSON; whatever is wrong is an error. It runs in a process of its own
because it forks, and so that torch is loaded once and not for every child.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from deadly import die_at
from monitor.real_bytes import found_in, marked
from vestige.monitor import Alarm, Monitor
from vestige.store import encode

warnings.simplefilter("ignore")
torch.set_num_threads(1)
N = 24
CHAIN = {
    "strategy": "every-step",
    "names": ("js", "kl"),
    "first_epochs": 1,
    "epochs": 1,
    "hidden": (4,),
    "min_samples": 20,
}
REAL = {1: ("a", marked(N, 1)), 3: ("b", marked(N, 3))}


def handed_over(t):
    """The samples of step t: two tasks, the second of which arrives at step 3."""
    g = torch.Generator().manual_seed(t)
    model = {task: 1000 + torch.randn(N, 2, generator=g) for task in ("a", "b")[: 1 + (t >= 3)]}
    task, x = REAL.get(t, (None, None))
    return ({task: x} if task else {}), model


def make(folder):
    return Monitor.create(folder, features={"map": "pca", "dims": 2}, chain=CHAIN, alarms=[Alarm("js", above=0.5)])


def take(monitor, seed=None):
    t = monitor.steps + 1
    return monitor.step(*handed_over(t), seed=t if seed is None else seed).number


def essence(monitor):
    """Everything that must not depend on kills: not the hour."""
    tensors = {key: x.tolist() for key, x in monitor.chain.state()[1].items()}
    return [encode(step)[0] | {"when": None} for step in monitor.history], tensors


def child(work):
    """Fork; returns the pid, and a file that the child writes the numbers of finished steps to."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    os.close(read)
    try:
        work(lambda *numbers: os.write(write, (" ".join(map(str, numbers)) + "\n").encode()))
        os._exit(0)
    except BaseException as error:  # the parent must see it
        os.write(2, repr(error).encode())
        os._exit(1)


def said(read, before=b""):
    with os.fdopen(read, "rb") as file:
        return [tuple(map(int, line.split())) for line in (before + file.read()).splitlines()]


class Examined:
    """The folder beside one that was never killed."""

    def __init__(self, folder):
        self.folder, self.reference = folder, make(folder + ".reference")
        self.seen = {"kills": 0, "steps": 0, "left_behind": 0}
        self.values = np.concatenate([x for _, x in REAL.values()])

    def after_kill(self, before, acknowledged):
        parts = [p.name for p in Path(self.folder).rglob("*.part")]
        states = len(list(Path(self.folder).glob("state-*")))
        assert not found_in(self.folder, self.values), found_in(self.folder, self.values)
        monitor = Monitor.open(self.folder)
        last = max(acknowledged, default=before)
        assert last <= monitor.steps <= last + 1, (last, monitor.steps)
        while self.reference.steps < monitor.steps:
            take(self.reference)
        assert essence(monitor) == essence(self.reference)
        have = sorted(p.name for p in Path(self.folder).iterdir())
        named = ["features-000001"] * (monitor.steps > 0)
        assert have == [".vestige-monitor", *named, "lock", "monitor.json", f"state-{monitor.steps:06d}", "steps"], have
        assert len(list((Path(self.folder) / "steps").iterdir())) == monitor.steps
        self.seen["kills"] += 1
        self.seen["left_behind"] += bool(parts) or states != 1
        self.seen["steps"] = monitor.steps
        return monitor.steps


def at_random(folder, count):
    make(folder)
    examined, steps, dice = Examined(folder), 0, random.Random(0)
    start = time.monotonic()
    warm = make(folder + ".timed")
    for _ in range(5):
        take(warm)
    typical = (time.monotonic() - start) / 5  # of a step, on this machine at this hour

    def work(say):
        monitor = Monitor.open(folder)
        say(monitor.steps)
        while True:
            say(take(monitor))

    for _ in range(count):
        pid, read = child(work)
        ready = os.read(read, 1)
        time.sleep(dice.uniform(0, 2 * typical))
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        steps = examined.after_kill(steps, [number for (number,) in said(read, ready)])
    return examined.seen


def while_it_is_made(folder, stride):
    """A creation that was killed has made a monitor or none, and can be done again."""
    seen = {"kills": 0, "made": 0}
    for place in range(1, 1000, stride):
        where = f"{folder}-{place}"

        def work(_, place=place, where=where):
            die_at(place)
            make(where)

        pid, read = child(work)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said(read)
        made = (Path(where) / "monitor.json").exists()
        monitor = Monitor.open(where) if made else make(where)
        assert take(monitor) == 1
        seen["kills"] += code != 0
        seen["made"] += made
        if code == 0:
            return seen


def at_every_operation(folder, stride):
    make(folder)
    examined, steps, place = Examined(folder), 0, 0
    while True:
        place += stride

        def work(say, place=place):
            monitor = Monitor.open(folder)
            die_at(place)
            say(take(monitor))

        pid, read = child(work)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0 and steps > 3:  # no operation is left that could be deadly
            said(read)
            return examined.seen
        assert code in (0, -signal.SIGKILL), code
        place = place if code else 0  # the next kind of step: with data, without, with a new task
        steps = examined.after_kill(steps, [number for (number,) in said(read)])


def two_at_once(folder, count):
    take(make(folder))

    def work(own):
        def steps(say):
            monitor = Monitor.open(folder)
            for i in range(count):
                time.sleep(random.Random(own * 100 + i).uniform(0, 0.05))  # so that they meet in every order
                x = 1000 + torch.randn(N, 2, generator=torch.Generator().manual_seed(100 * own + i))
                say(monitor.step(model={"a": x}, seed=100 * own + i, wait=60).number, 100 * own + i)

        return steps

    pids, reads = zip(*(child(work(own)) for own in (1, 2)), strict=True)
    for pid in pids:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    done = dict(pair for read in reads for pair in said(read))
    monitor = Monitor.open(folder)
    assert {step.number: step.seed for step in monitor.history[1:]} == done
    turns = [step.seed // 100 for step in monitor.history[1:]]
    return {"steps": monitor.steps, "turns": sum(a != b for a, b in pairwise(turns))}


if __name__ == "__main__":
    where = sys.argv[1]
    take(make(where + "/warm"))  # what is loaded at the first step is loaded before the first fork
    modes = {"random": at_random, "every": at_every_operation, "made": while_it_is_made, "two": two_at_once}
    wanted = dict(word.split("=") for word in sys.argv[2:])
    print(json.dumps({mode: modes[mode](f"{where}/{mode}", int(number)) for mode, number in wanted.items()}))
