"""Runs units on this machine: here, or in a pool of processes with one torch thread each.

Every unit is written, atomically, as soon as it is done; a kill loses at most the units under way. Processes are
spawned, not forked, so that no state of the caller reaches a run.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass

import torch

from vestige import checks
from vestige.errors import VestigeWarning
from vestige.experiments import EXPERIMENTS, Tell
from vestige.record import Record
from vestige.runner.plan import Unit


@dataclass(frozen=True)
class Finished:
    """A unit and its Record; `fresh` if it was run now."""

    unit: Unit
    record: Record
    fresh: bool


def run(units: Iterable[Unit], *, workers: int = 0, tell: Callable[[Unit], Tell] | None = None) -> Iterator[Finished]:
    """Yield each unit's Record as it comes: finished ones first, then the others as they finish.

    `workers` processes run at once; 0 runs here, with this process's threads. `tell` hears how far a unit is, from runs
    in this process alone.
    """
    workers = checks.whole(workers, "workers", "runner.run", low=0)
    left = []
    for unit in units:
        found = unit.finished()
        if found is None:
            left.append(unit)
        else:
            yield Finished(unit, found, False)
    if workers == 0:
        for unit in left:
            yield Finished(unit, run_unit(unit, tell(unit) if tell else _silent), True)
    elif left:
        yield from _pooled(left, min(workers, len(left)))


def run_unit(unit: Unit, tell: Tell) -> Record:
    """Run one unit and write its Record."""
    with warnings.catch_warnings():
        # What a run has to say about its estimates stands in the Record; a thousand runs would bury it here.
        warnings.simplefilter("ignore", VestigeWarning)
        record = EXPERIMENTS[unit.experiment].run(unit.config, unit.seed, tell)
    assert record.id == unit.path.stem, f"{unit.experiment} made a Record of another unit"
    record = dataclasses.replace(record, details=record.details | {"command": unit.command})
    record.save(unit.path)
    return record


def _pooled(units: list[Unit], workers: int) -> Iterator[Finished]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_one_thread) as pool:
        waiting: dict[Future[Record], Unit] = {pool.submit(run_unit, unit, _silent): unit for unit in units}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield Finished(waiting.pop(future), future.result(), True)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> None:
    torch.set_num_threads(1)  # in the worker's own process


def _silent(share: float, words: str) -> None:
    """Where nobody listens."""
