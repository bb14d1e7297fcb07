"""One unit, run to its Record: what every way of running (here, in a pool, on a cluster) does in its process.

While it runs, its state at task borders lies in `ID.checkpoint` beside the Record's place, so that the next attempt
goes on from the last finished task; the folder goes when the Record is written, whole or not at all.
"""

from __future__ import annotations

import dataclasses
import shutil
import warnings
from pathlib import Path

from vestige.continual import checkpoint
from vestige.continual.record import Record
from vestige.core.errors import VestigeError, VestigeWarning
from vestige.core.machine import PeakMemory
from vestige.runner.device import computing_on, device_of
from vestige.runner.experiment import OnProgress
from vestige.runner.plan import Unit
from vestige.runner.registry import EXPERIMENTS


def run_unit(unit: Unit, on_progress: OnProgress) -> Record:
    """Run one unit and write its Record; one that is finished by now, by whomever, is read instead."""
    found = stored(unit)
    if found is not None:
        return found
    experiment = EXPERIMENTS[unit.experiment]
    if experiment.unit_id(unit.config, unit.seed) != unit.path.stem:
        raise VestigeError(
            f"{unit} was planned with other versions than those of this process: a file was edited since, or another "
            "version is installed here. Start the command again, with one version everywhere."
        )
    folder = _borders(unit)
    device = device_of(unit.device, experiment.computes_on(unit.config))
    with warnings.catch_warnings(), checkpoint.kept_in(folder), computing_on(device):
        # What a run has to say about its estimates stands in the Record; a thousand runs would bury it here.
        warnings.simplefilter("ignore", VestigeWarning)
        record = experiment.run(unit.config, unit.seed, on_progress)
    assert record.id == unit.path.stem, f"{unit.experiment} made a Record of another unit"
    record = dataclasses.replace(record, details=record.details | unit.details | {"command": unit.command})
    found = stored(unit)
    if found is not None:  # by another process, in the meantime
        return found
    with checkpoint.unbroken():
        record.save(unit.path)
        shutil.rmtree(folder, ignore_errors=True)
    return record


def stored(unit: Unit) -> Record | None:
    """The Record of a finished unit; what it is to say besides is added if it was run without (never run again)."""
    found = unit.finished()
    if found is not None:  # a kill after its last write may have left them
        shutil.rmtree(_borders(unit), ignore_errors=True)
    if found is None or all(found.details.get(key) == value for key, value in unit.details.items()):
        return found
    found = dataclasses.replace(found, details=found.details | unit.details)
    with checkpoint.unbroken():
        found.save(unit.path)
    return found


def run_measured(unit: Unit, on_progress: OnProgress) -> int:
    """Run one unit and say how many bytes its process held at the peak; 0 where the system does not tell."""
    memory = PeakMemory()
    record = run_unit(unit, on_progress)
    # The protocol looks at the peak of each task, which starts the count anew: the unit's own is the largest of all.
    return max(memory.peak() or 0, peak_of(record))


def peak_of(record: Record) -> int:
    """The largest peak that a Record tells of; 0 if it tells of none."""
    return max(record.bytes.get("peak", []), default=0)


def _borders(unit: Unit) -> Path:
    """The folder of a unit's checkpoints."""
    return unit.path.with_suffix(".checkpoint")


def silent(share: float, words: str) -> None:
    """Where nobody listens."""
