"""Run as a script: `vestige run` of a small experiment in children that are killed with SIGKILL, then examined.

    kills.py FOLDER random=COUNT      at random moments, COUNT times
    kills.py FOLDER every=STRIDE      before every (or every STRIDE-th) operation on the disk, one by one

After each kill every Record that is there is whole and the same, to the bit, as one that was never killed; what was
finished is not run again, and of a unit under way only tasks that were not finished. At the end nothing is left behind.
Prints what was seen as JSON; whatever is wrong is an error. It forks, after a run of its own, so that
whatever a run imports is loaded once.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
import border  # noqa: F401 - makes itself known
from deadly import die_at
from vestige import runner
from vestige.cli import main
from vestige.continual.record import Record
from vestige.runner.unit import silent

torch.set_num_threads(1)


def essence(record):
    """Everything that must not depend on kills: no times, no peak of memory."""
    numbers = {name: x.tolist() for name, x in (record.matrices | record.baseline).items()}
    sizes = {name: size for name, size in record.bytes.items() if name != "peak"}
    return json.dumps([record.id, record.config, numbers, sizes, record.details])


def forked(work):
    """A child that does `work` in silence, and ends with the code that it returns."""
    pid = os.fork()
    if pid:
        return pid
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            code = work()
    except BaseException as error:  # the parent must see it
        os.write(2, repr(error).encode())
        code = 99
    os._exit(code)


class Examined:
    """A folder of runs beside units that were never killed."""

    def __init__(self, folder, seeds, methods):
        self.folder, self.log, self.seeds, self.methods = Path(folder), Path(folder + ".log"), seeds, methods
        self.folder.mkdir(parents=True)
        asked = {"seeds": seeds, "overrides": {"methods": methods, "log": str(self.log)}}
        self.units = runner.plan("border", folder, **asked)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            assert self.command(f"{folder}.reference") == 0
        alone = map(Record.load, Path(f"{folder}.reference").glob("border/*.json"))
        self.reference = {record.id: essence(record) for record in alone}
        self.seen = {"kills": 0, "left_behind": 0, "resumed": 0, "runs": 0}

    def command(self, folder=None):
        fields = {"methods": ",".join([*self.methods, ""]), "log": self.log}
        given = [word for key, value in fields.items() for word in ("--set", f"{key}={value}")]
        return main(
            ["run", "border", "--workers", "0", "--seeds", str(self.seeds), *given, "--out", str(folder or self.folder)]
        )

    def clear(self):
        for unit in self.units:
            unit.path.unlink()

    def finished(self):
        return {u.path.stem for u in self.units if u.finished() is not None}

    def borders(self):
        """unit -> how many tasks of it are in a whole checkpoint."""
        found = {}
        for path in self.folder.glob("border/*.checkpoint/*.json"):
            with contextlib.suppress(ValueError):
                found[path.parent.stem] = json.loads(path.read_text())["fields"]["tasks"]
        return found

    def launch(self, work, end):
        """One child, which `end` waits for; then everything is looked at."""
        finished, borders = self.finished(), self.borders()
        self.log.write_text("")
        code = end(forked(work))
        assert code in (0, -signal.SIGKILL), code
        trained = [line.split()[:2] for line in self.log.read_text().splitlines() if line.count(" ") == 2]
        assert not finished & {unit for unit, _ in trained}, "a finished unit was run again"
        assert all(int(task) >= borders.get(unit, 0) for unit, task in trained), "a finished task again"
        assert finished <= self.finished(), "a Record was lost"
        for path in self.folder.glob("border/*.json"):
            assert essence(Record.load(path)) == self.reference[path.stem], path
        self.seen["kills"] += code != 0
        self.seen["runs"] += 1
        self.seen["resumed"] += any(borders.get(unit, 0) for unit, _ in trained)
        self.seen["left_behind"] += any(self.folder.rglob("*.part")) or any(self.folder.rglob("*.checkpoint"))
        return code

    def whole(self):
        """Nothing but the Records is left."""
        assert len(self.finished()) == len(self.units)
        left = [p.name for p in (self.folder / "border").iterdir() if p.suffix not in (".json", ".png")]
        assert left == [], left
        return self.seen


def waited(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_random(folder, count):
    """Kills at random moments of a run; when it is whole, it begins anew."""
    examined, dice = Examined(folder, 2, ["vanilla", "ewc_pp_s"]), random.Random(0)
    start = time.monotonic()
    runner.run_unit(runner.plan("border", f"{folder}.timed")[1], silent)
    typical = time.monotonic() - start  # of a unit, on this machine at this hour

    def end(pid):
        time.sleep(dice.uniform(0, 2.5 * typical))
        os.kill(pid, signal.SIGKILL)
        return waited(pid)

    while examined.seen["kills"] < count:
        if len(examined.finished()) == len(examined.units):  # the kill may have come before all was tidied up
            examined.launch(examined.command, waited)
            examined.whole()
            examined.clear()
        examined.launch(examined.command, end)
    examined.launch(examined.command, waited)
    return examined.whole()


def at_every_operation(folder, stride):
    """A run that is killed before its first operation on the disk and goes on, then before its second, and so on."""
    examined, place = Examined(folder, 1, ["ewc_pp_s"]), 0

    def deadly():
        die_at(place)
        return examined.command()

    while True:
        place += stride
        if examined.launch(deadly, waited) == 0:
            return examined.whole()
        examined.launch(examined.command, waited)
        examined.whole()
        examined.clear()


if __name__ == "__main__":
    modes = {"random": at_random, "every": at_every_operation}
    wanted = dict(word.split("=") for word in sys.argv[2:])
    print(json.dumps({mode: modes[mode](f"{sys.argv[1]}/{mode}", int(number)) for mode, number in wanted.items()}))
