"""The folder of a monitor: every step goes in whole or not at all, one process at a time.

    monitor.json        the head: settings, the number of the last finished step, and which of the rest belong to it
    steps/000001.json   what step 1 found, and so on; written once, never again
    state-000007/       the chain after step 7, the last; the one before is removed
    features-000001/    the feature map, written in the step in which it was fitted
    lock                an empty file

A step writes its own file and a new state, and then the head, by rename: until that rename the folder is at the step
before, and from then on at the new one, wherever the process is killed. What a killed step leaves behind is named by no
head and is removed when the folder is next opened. Of the past, only what each step found is kept, so the folder grows
by one small file a step.

The lock belongs to the kernel (flock): it goes when its process does, however that ends. Readers need no lock: the head
is replaced in one piece, and the files of steps never change.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige import store
from vestige.core import InputError, StoreError, checks
from vestige.monitor.alarms import Alarm
from vestige.monitor.history import MonitorStep
from vestige.monitor.samples import TableCoding

HEAD, LOCK, STEPS = "monitor.json", "lock", "steps"
OURS = re.compile(r"monitor\.json|lock|steps|(state|features)-\d{6,}|\.monitor\.json\.\w{8}\.part")
PAUSE = 0.02  # seconds between two attempts at the lock

Parts = dict[str, int]  # the step that each part of the folder is from
Writes = dict[str, Callable[[Path], object]]  # each writes what belongs into the folder that it is given


@dataclass(frozen=True)
class MonitorSettings:
    """What was chosen when the monitor was made, and the coding of tables, which its first step makes."""

    created: str
    features: Mapping[str, Any]  # the configuration of the map
    alarms: tuple[Alarm, ...]
    keep_moments: bool
    drop: tuple[str, ...]  # columns of tables
    coding: TableCoding | None = None


@dataclass(frozen=True)
class Folder:
    """Where a monitor lives."""

    path: Path

    @property
    def head(self) -> Path:
        """The file that says which step is the last."""
        return self.path / HEAD

    def part(self, name: str, step: int) -> Path:
        """The folder of the "state" after `step`, or of the "features" that were fitted in it."""
        return self.path / f"{name}-{step:06d}"

    def step_file(self, step: int) -> Path:
        """What `step` found."""
        return self.path / STEPS / f"{step:06d}.json"

    def read_head(self) -> tuple[MonitorSettings, Parts]:
        """Settings, and the step that each part is from; that of "state" is the last finished one."""
        if not self.head.is_file():
            raise InputError(f"The folder '{self.path}' must hold a monitor. Got one without {HEAD} instead.")
        head = store.load(self.head, "monitor")[0]
        return store.decode(MonitorSettings, head["settings"]), head["parts"]

    def read_step(self, step: int) -> MonitorStep:
        """What `commit` wrote for `step`."""
        read: MonitorStep = store.decode(MonitorStep, store.load(self.step_file(step), "monitor-step")[0])
        return read

    @contextmanager
    def locked(self, wait: float) -> Iterator[None]:
        """The folder to ourselves while the block runs; refused after `wait` seconds."""
        import fcntl  # POSIX alone has it

        handle = os.open(self.path / LOCK, os.O_RDONLY | os.O_CREAT, 0o644)
        try:
            deadline = time.monotonic() + wait
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        waited = f", and was for {wait:g} seconds" if wait else ""
                        text = f"{self.path} is in use by another process{waited}; nothing was changed."
                        raise StoreError(text) from None
                    time.sleep(PAUSE)
            yield
        finally:
            os.close(handle)  # which gives the lock back

    def begin(self, settings: MonitorSettings, writes: Writes) -> None:
        """Make the folder of a new monitor at step 0; one that holds anything else is refused."""
        owner, must = "Monitor.create", "a new or empty folder"
        if self.path.exists() and not self.path.is_dir():
            checks.refuse("folder", owner, must, f"the file {self.path}")
        self.path.mkdir(parents=True, exist_ok=True)
        foreign = sorted(entry.name for entry in os.scandir(self.path) if not OURS.fullmatch(entry.name))
        if foreign:
            checks.refuse("folder", owner, must, f"{self.path}, which holds '{foreign[0]}',")
        with self.locked(0):
            if self.head.exists():
                checks.refuse("folder", owner, must, f"{self.path}, which holds a monitor,")
            self.sweep({})  # what a creation that was killed has left
            (self.path / STEPS).mkdir()
            self.commit(settings, {}, writes)

    def commit(
        self, settings: MonitorSettings, parts: Parts, writes: Writes, found: MonitorStep | None = None
    ) -> Parts:
        """Make the step of `found` the last finished one, with the parts that `writes` makes anew; 0 where it is None.

        The lock must be held.
        """
        step = 0 if found is None else found.number
        if found is not None:
            store.save(self.step_file(step), "monitor-step", store.encode(found)[0])
        for name, write in writes.items():
            write(self.part(name, step))
        store.sync(self.path)  # the new parts must be there before anything names them
        after = {**parts, **dict.fromkeys(writes, step)}
        store.save(self.head, "monitor", {"settings": store.encode(settings)[0], "parts": after})
        self.sweep(after)
        return after

    def sweep(self, parts: Parts) -> None:
        """Remove what the head does not name: other states, steps that never finished, parts of killed writes.

        The lock must be held. Without `parts` there is no head yet, and nothing stays but the lock.
        """
        named = {HEAD, LOCK, *(self.part(name, step).name for name, step in parts.items())}
        stale = [at for at in self.path.iterdir() if OURS.fullmatch(at.name) and at.name not in named]
        if parts:
            steps = self.path / STEPS
            later = [at for at in steps.glob("*.json") if at.stem.isdigit() and int(at.stem) > parts["state"]]
            stale = [*(at for at in stale if at != steps), *later, *steps.glob(".*.part")]
        for at in stale:
            if at.is_dir() and not at.is_symlink():
                shutil.rmtree(at)
            else:
                at.unlink()
