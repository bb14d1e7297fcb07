"""Run as a script, `crowd.py FOLDER COUNT`: COUNT processes run `vestige run` of a small experiment on one folder.

The first of them to train is killed with SIGKILL while it holds a unit and the others want it. Prints as JSON what was
seen: the exit codes, which processes trained which task of which unit, and what is left in the folder. It forks, after
a run of its own, so that whatever a run imports is loaded once.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
import border  # noqa: F401 - makes itself known
from vestige.cli import main

torch.set_num_threads(1)


def forked(work, errors):
    """A child that does `work`, says its errors to a file, and ends with the code that it returns."""
    pid = os.fork()
    if pid:
        return pid
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        stack.enter_context(contextlib.redirect_stderr(stack.enter_context(open(errors, "a"))))
        code = main(work)
    os._exit(code)


def lines(log):
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def crowd(folder, count):
    log, gate, errors = folder / "log", folder / "gate", folder / "errors"
    (folder / "runs" / "border").mkdir(parents=True)
    given = [word for pair in (f"log={log}", f"gate={gate}") for word in ("--set", pair)]
    words = ["run", "border", "--preset", "smoke", "--workers", "0"]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        main([*words, "--seeds", "1", "--out", str(folder / "warm")])
    words += ["--seeds", "2", *given, "--out", folder / "runs"]
    pids = [forked(list(map(str, words)), errors) for _ in range(count)]
    while len({unit for unit, *_ in lines(log)}) < min(count, 4):  # each unit has begun, and waits at the gate
        time.sleep(0.02)
    lost = int(lines(log)[0][2])
    os.kill(lost, signal.SIGKILL)
    begun = len(lines(log))
    gate.touch()
    codes = {pid: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids}
    return {
        "lost": codes.pop(lost),
        "codes": list(codes.values()),
        "begun": begun,
        "trained": [[unit, int(task), int(pid) == lost] for unit, task, pid in lines(log)],
        "files": sorted(path.name for path in (folder / "runs" / "border").iterdir()),
        "errors": errors.read_text(),
    }


if __name__ == "__main__":
    print(json.dumps(crowd(Path(sys.argv[1]), int(sys.argv[2]))))
