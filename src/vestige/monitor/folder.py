"""The folder of a monitor: every step goes in whole or not at all, one process at a time.

    .vestige-monitor    the marker: the folder is a monitor's, from before anything else is written into it
    monitor.json        the head: settings, the number of the last finished step, and which of the rest belong to it
    steps/000001.json   what step 1 found, and so on; written once, never again
    state-000007/       the chain after step 7, the last; the one before is removed
    features-000001/    the feature map, written in the step in which it was fitted
    lock                an empty file

A step writes its own file and a new state, and then the head, by rename: until that rename the folder is at the step
before, and from then on at the new one, wherever the process is killed. What a killed step leaves behind is named by no
head and is removed when the folder is next opened: the files, by their names, that the step after the last or the one
before it can have written, and no others. Of the past, only what each step found is kept, so the folder grows by one
small file a step.

A folder that holds anything is taken only if it has the marker and no more than a start that was killed leaves behind.
Folders of before there was a marker have a head, and go on.

The lock belongs to the kernel (flock): it goes when its process does, however that ends. Readers need no lock: the head
is replaced in one piece, and the files of steps never change.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from vestige import store
from vestige.core import InputError, StoreError
from vestige.monitor.alarms import Alarms
from vestige.monitor.history import MonitorStep
from vestige.monitor.samples import TableCoding

MARKER, HEAD, LOCK, STEPS = ".vestige-monitor", "monitor.json", "lock", "steps"
MARKED = "This folder belongs to a monitor of Vestige, which keeps its own files here and leaves others alone.\n"
STATE, FEATURES = "state", "features"
# The files of these two parts, and any file of which the writing was killed.
WRITTEN = re.compile(r"\.?(chain|features)(\.[0-9a-f]{16})?\.(json|safetensors)(\.\w{8}\.part)?")
TORN = re.compile(r"\.(monitor|\d{6,})\.json\.\w{8}\.part")
PAUSE = 0.02  # seconds between two attempts at the lock

Parts = dict[str, int]  # the step that each part of the folder is from
Writes = dict[str, Callable[[Path], object]]  # each writes what belongs into the folder that it is given


@dataclass(frozen=True)
class MonitorSettings:
    """What was chosen when the monitor was made, and the coding of tables, which its first step makes."""

    created: str
    features: Mapping[str, Any]  # the configuration of the map
    alarms: Alarms
    keep_moments: bool
    drop: tuple[str, ...]  # columns of tables
    coding: TableCoding | None = None


@dataclass(frozen=True)
class MonitorHead:
    """What the head says: the last finished step is that of the part "state"."""

    settings: MonitorSettings
    parts: Parts


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
            raise InputError(
                f"The folder '{self.path}' must hold a monitor. Got one without {HEAD} instead. "
                "'vestige monitor start' makes one, in a new or empty folder."
            )
        fields, _ = store.load(self.head, "monitor")
        head: MonitorHead = store.decode_from(self.head, MonitorHead, fields)
        if STATE not in head.parts:
            raise StoreError(f"{self.head}: key 'parts' must name the '{STATE}'. Got {head.parts} instead.")
        return head.settings, head.parts

    def read_step(self, step: int) -> MonitorStep:
        """What `commit` wrote for `step`."""
        path = self.step_file(step)
        read: MonitorStep = store.decode_from(path, MonitorStep, store.load(path, "monitor-step")[0])
        if read.number != step:
            raise StoreError(f"{path}: key 'report' must be that of step {step}. Got step {read.number} instead.")
        known = {frozenset(task.estimates) for task in read.report.tasks}
        if len(known) != bool(read.model_rows) or frozenset() in known:  # without samples nothing was judged
            raise StoreError(
                f"{path}: key 'report.tasks' must hold tasks with the same divergences. Got others instead."
            )
        # before a `Refusal` was something else than an alarm, it was stored as one without an amount
        return replace(read, alarms=tuple(one for one in read.alarms if not math.isnan(one.amount)))

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
        """Make the folder of a new monitor at step 0; one that holds anything else is refused, and left as it is."""
        if self.path.exists() and not self.path.is_dir():
            self._refuse(f"the file {self.path}")
        self.path.mkdir(parents=True, exist_ok=True)
        self._claim()
        with self.locked(0):
            if self.head.exists():  # another process was faster
                self._refuse(f"{self.path}, which holds a monitor,")
            self.sweep({})  # what a creation that was killed has left
            (self.path / STEPS).mkdir(exist_ok=True)
            self.commit(settings, {}, writes)

    def _refuse(self, got: str) -> NoReturn:
        raise InputError(
            f"The 'folder' of Monitor.create must be a new or empty folder. Got {got} instead; nothing in it was "
            "changed. Name another folder; one that holds a monitor goes on with 'vestige monitor step'."
        )

    def _claim(self) -> None:
        """Put the marker into an empty folder; one with a marker may hold what a start that was killed leaves."""
        names = set(os.listdir(self.path))
        if HEAD in names:
            self._refuse(f"{self.path}, which holds a monitor or another '{HEAD}',")
        marked = MARKER in names and (self.path / MARKER).is_file()
        left = {MARKER, LOCK, STEPS, self.part(STATE, 0).name, self.part(FEATURES, 0).name} if marked else set()
        foreign = sorted(name for name in names - left if not (marked and TORN.fullmatch(name)))
        if marked and STEPS in names:
            foreign += [f"{STEPS}/{name}" for name in sorted(os.listdir(self.path / STEPS))]
        if foreign:
            self._refuse(f"{self.path}, which holds '{foreign[0]}',")
        if not marked:
            # where it exists by now, another process makes a monitor here: the lock says who does
            with suppress(FileExistsError), (self.path / MARKER).open("x") as file:
                file.write(MARKED)
            store.sync(self.path)

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
        """Remove what a step or a start that was killed has left, by the names that it can have, and nothing else.

        The lock must be held. Without `parts` there is no head yet, and what is removed is of step 0.
        """
        last = parts.get(STATE, -1)
        for folder in (self.part(STATE, last - 1), self.part(STATE, last + 1), self.part(FEATURES, last + 1)):
            if folder.is_dir() and not folder.is_symlink():
                _remove(folder, WRITTEN)
                with suppress(OSError):  # what somebody else has put there stays
                    folder.rmdir()
        for folder in (self.path, self.path / STEPS):
            _remove(folder, TORN)
        self.step_file(last + 1).unlink(missing_ok=True)


def _remove(folder: Path, names: re.Pattern[str]) -> None:
    """Remove the files of `folder` whose names are among `names`."""
    for file in list(folder.iterdir()) if folder.is_dir() else ():
        if names.fullmatch(file.name) and (file.is_symlink() or not file.is_dir()):
            file.unlink()
