"""Runs units on this machine: here, or in a pool of processes with one torch thread each.

Every unit is written, atomically, as soon as it is done; a kill loses at most the units under way, and of those only
what came after the last finished task. An interrupt finishes the write that is under way, and leaves.

No more run at once than memory allows. Processes are spawned, not forked, so that no state of the caller reaches a run,
and live for many units, because loading torch takes longer than a small unit. A worker writes its Records itself and
says over a pipe how far it is. One that dies is replaced and its unit tried once more, while the others go on; all of
them end with the process that started them, however that ends. An error that a unit raises ends the run: it would raise
it again. Several commands may run on one folder at once: a unit that a process of another is at is left for last, and
waited for.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from vestige.continual.record import Record
from vestige.core import VestigeError, checks
from vestige.runner.experiment import OnProgress
from vestige.runner.plan import Unit
from vestige.runner.registry import EXPERIMENTS
from vestige.runner.unit import Finished, divided, peak_of, run_measured, run_unit, silent, try_unit

TRIES = 2  # a unit whose process died is tried again, once
PATIENCE = 30.0  # seconds that a worker has to finish the write it is at
# Of what is free, left to the rest of the machine.
SPARE = 0.1


def run(
    units: Iterable[Unit],
    *,
    workers: int = 0,
    device: str | None = None,
    on_progress: Callable[[Unit], OnProgress] = lambda unit: silent,
    say: Callable[[str], None] = silent,
) -> Iterator[Finished]:
    """Yield each unit's Record as it comes: finished ones first, then the others as they finish.

    At most `workers` processes run at once, fewer where memory does not allow it; 0 runs here, with this process's
    threads. Units compute on `device`, or on the best that each can use. `on_progress` hears how far a unit is, `say`
    what a person should know: a worker that died, a bound by memory.
    """
    workers = checks.whole(workers, "workers", "runner.run", low=0)
    done, left = divided(units, device)
    for unit in left:
        EXPERIMENTS[unit.experiment].require(unit.config)
    yield from done
    if workers == 0:
        elsewhere = []  # those that another process is at come last
        for unit in left:
            record = try_unit(unit, on_progress(unit))
            if record is None:
                elsewhere.append(unit)
            else:
                yield Finished(unit, record, True)
        for unit in elsewhere:
            yield Finished(unit, run_unit(unit, on_progress(unit)), True)
    elif left:
        peak = max((peak_of(finished.record) for finished in done), default=0)
        for unit in Pool(workers, on_progress, say, peak).run(left):
            yield Finished(unit, Record.load(unit.path), True)


def free_bytes(system: Path = Path("/")) -> int | None:
    """Memory that processes may still take: what the machine has, or the container if that is less; None if unknown."""
    found = []
    available = _kilobytes(system / "proc/meminfo", "MemAvailable:")
    if available is not None:
        found.append(available)
    try:
        limit = (system / "sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            found.append(max(0, int(limit) - int((system / "sys/fs/cgroup/memory.current").read_text())))
    except OSError:
        pass
    return min(found, default=None)


def held_bytes(pid: int, system: Path = Path("/")) -> int:
    """What a process holds at this moment; 0 if it is gone or the system does not tell."""
    return _kilobytes(system / f"proc/{pid}/status", "VmRSS:") or 0


def _kilobytes(path: Path, name: str) -> int | None:
    """The line `name` of a file of the kernel, in bytes."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


@dataclass
class Worker:
    """A process, our end of its pipe, and the unit it is at."""

    process: BaseProcess
    pipe: Connection
    unit: Unit | None = None
    on_progress: OnProgress = silent


def begun() -> Worker:
    """A new worker, waiting for its first unit."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()  # so that the death of the worker ends our end
    return Worker(process, ours)


@dataclass
class Pool:
    """At most `most` processes; `say` hears what a person should know, `on_progress(unit)` how far each is.

    No more run at once than fit into memory: each unit is taken to need the largest `peak` seen so far. Before any has
    finished nothing is known, and nothing bounds them but `most`. A process that died takes one of `most` with it,
    because the likeliest cause is that they were too many.
    """

    most: int
    on_progress: Callable[[Unit], OnProgress]
    say: Callable[[str], None]
    peak: int = 0  # bytes
    start: Callable[[], Worker] = begun
    free: Callable[[], int | None] = free_bytes
    workers: list[Worker] = field(default_factory=list)
    deaths: Counter[Path] = field(default_factory=Counter)
    elsewhere: set[Path] = field(default_factory=set)  # units that another command's process was at: they come last
    lost: list[str] = field(default_factory=list)
    fewest: int = sys.maxsize  # workers at once, of what was said about memory

    def run(self, units: Sequence[Unit]) -> Iterator[Unit]:
        """Each unit once its Record is written; at the end an error, if some could not be run."""
        left = deque(units)
        try:
            while left or any(worker.unit for worker in self.workers):
                self._hand_out(left)
                busy = {worker.pipe: worker for worker in self.workers if worker.unit}
                for pipe in wait(list(busy)):
                    finished = self._receive(busy[pipe], left)  # type: ignore[index]
                    if finished is not None:
                        yield finished
        finally:
            self._end()
        if self.lost:
            raise VestigeError(f"{' '.join(self.lost)} What is finished is stored; the same command tries again.")

    def _hand_out(self, left: deque[Unit]) -> None:
        busy = sum(worker.unit is not None for worker in self.workers)
        allowed = self._allowed()
        while left and busy < allowed:
            idle = next((worker for worker in self.workers if worker.unit is None), None)
            if idle is None:
                idle = self.start()
                self.workers.append(idle)
            idle.unit = left.popleft()
            idle.on_progress = self.on_progress(idle.unit)
            with contextlib.suppress(OSError):  # it died while idle: `_receive` will see the end of its pipe
                idle.pipe.send((idle.unit, idle.unit.path in self.elsewhere))
            busy += 1

    def _allowed(self) -> int:
        free = self.free()
        held = sum(held_bytes(worker.process.pid or 0) for worker in self.workers)
        allowed = self.fitting(held, free)
        if allowed < min(self.fewest, self.most) and free is not None:  # said when it gets worse, not each time
            self.fewest = allowed
            gigabytes = f"{self.peak / 2**30:.2f} GB at its peak, {(held + free) / 2**30:.2f} GB are to be had"
            self.say(f"{allowed} of {self.most} workers at once: a unit takes {gigabytes}.")
        return allowed

    def fitting(self, held: int, free: int | None) -> int:
        """Units that may run at once, one at least, when those that run hold `held` bytes and `free` are left."""
        if free is None or self.peak == 0:
            return self.most
        return max(1, min(self.most, int((held + free) * (1 - SPARE)) // self.peak))

    def _receive(self, worker: Worker, left: deque[Unit]) -> Unit | None:
        """One message of a worker; the unit, if it is finished."""
        unit = worker.unit
        assert unit is not None, "only workers with a unit are listened to"
        try:
            kind, *said = worker.pipe.recv()
        except (EOFError, OSError):
            self._bury(worker, unit, left)
            return None
        if kind == "raised":
            raise said[0]
        if kind == "told":
            worker.on_progress(*said)
            return None
        worker.unit = None
        if kind == "elsewhere":
            self.elsewhere.add(unit.path)
            left.append(unit)
            return None
        self.peak = max(self.peak, said[0])
        return unit

    def _bury(self, worker: Worker, unit: Unit, left: deque[Unit]) -> None:
        """A worker is dead: its unit goes back to the end of the line, unless it has done this before."""
        worker.process.join()
        self.workers.remove(worker)
        self.most = max(1, self.most - 1)
        self.deaths[unit.path] += 1
        how = _ending(worker.process.exitcode)
        if self.deaths[unit.path] < TRIES:
            self.say(f"The process of {unit} {how}; it is tried once more, with {self.most} at once.")
            left.append(unit)
        else:
            self.lost.append(f"The process of {unit} {how}, {TRIES} times.")

    def _end(self) -> None:
        """Idle workers leave by themselves; one at work may finish the write it is at, no more."""
        for worker in self.workers:
            worker.pipe.close()
            if worker.unit is not None:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _serve(pipe: Connection) -> None:
    """The life of a worker: units come in, progress and results go out, until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # in the worker's own process
    with contextlib.suppress(EOFError, OSError):
        while True:
            unit, wait = pipe.recv()
            try:
                peak = run_measured(
                    unit, lambda share, words: pipe.send(("told", share, words)), run_unit if wait else try_unit
                )
                pipe.send(("elsewhere",) if peak is None else ("done", peak))
            except Exception as error:
                error.add_note(traceback.format_exc())
                try:
                    pipe.send(("raised", error))
                except (TypeError, AttributeError):  # an error that cannot travel
                    pipe.send(("raised", VestigeError(f"{type(error).__name__}: {error}")))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)  # in the middle of whatever it is: files are written whole or not at all


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return f"ended by itself with code {code}"
