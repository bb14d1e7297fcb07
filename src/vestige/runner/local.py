"""Runs units on this machine: here, or in a pool of processes with one torch thread each.

Every unit is written, atomically, as soon as it is done; a kill loses at most the units under way, and of those only
what came after the last finished task. An interrupt finishes the write that is under way, and leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from vestige.continual.record import Record
from vestige.core import checks
from vestige.runner.experiment import OnProgress
from vestige.runner.memory import Room
from vestige.runner.plan import Unit
from vestige.runner.pool import Pool
from vestige.runner.unit import peak_of, run_unit, silent, stored


@dataclass(frozen=True)
class Finished:
    """A unit and its Record; `fresh` if it was run now."""

    unit: Unit
    record: Record
    fresh: bool


def run(
    units: Iterable[Unit],
    *,
    workers: int = 0,
    device: str | None = None,
    on_progress: Callable[[Unit], OnProgress] | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[Finished]:
    """Yield each unit's Record as it comes: finished ones first, then the others as they finish.

    At most `workers` processes run at once, fewer where memory does not allow it; 0 runs here, with this process's
    threads. Units compute on `device`, or on the best that each can use. `on_progress` hears how far a unit is, `say`
    what a person should know: a worker that died, a bound by memory.
    """
    workers = checks.whole(workers, "workers", "runner.run", low=0)
    room, left = Room(workers), []
    for unit in {unit.path: unit for unit in units}.values():  # two of one place would be one run, made twice
        found = stored(unit)
        if found is None:
            left.append(dataclasses.replace(unit, device=device))
        else:
            room.measured(peak_of(found))
            yield Finished(unit, found, False)
    listen = on_progress or (lambda unit: silent)
    if workers == 0:
        for unit in left:
            yield Finished(unit, run_unit(unit, listen(unit)), True)
    elif left:
        for unit in Pool(room, listen, say or (lambda words: None)).run(left):
            yield Finished(unit, Record.load(unit.path), True)
