"""One unit, run to its Record: what every way of running (here, in a pool, on a cluster) does in its process.

While it runs, its state at task borders lies in `ID.checkpoint` beside the Record's place, so that the next attempt
goes on from the last finished task; the folder goes when the Record is written, whole or not at all. The process that
runs it holds `ID.lock` locked, so that several commands with one folder share the units among them and none runs twice;
a lock ends with its process.

It computes on the device that `--device` names, or on the best that is there: within `torch.device(...)`, where
tensors, networks and draws are made and tasks are handed out; on the CPU, the default of torch, nothing is put around
it. Which devices a unit can compute on, best first, is said by its experiment (`devices`): all, where a learner is
trained on a stream of tasks, with a generator or without; the CPU alone for chains and ratios, which are in float64 and
use scipy. A device that is absent, or that a unit cannot use, is refused.

The id of a Record does not know the device, as it knows neither the number of threads nor the version of torch: all of
them change bits and none of them the question, and a finished unit is never run again. The Record says where it was
made (`machine["device"]`), and a checkpoint of one device is not taken up on another.

Untested on a GPU: tests run every method and every generator on a device that is made up, which computes on the CPU and
refuses tensors, generators and conversions that a GPU would refuse, and float64, which MPS has not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vestige import store
from vestige.continual import checkpoint
from vestige.continual.record import Record
from vestige.core import InputError, VestigeError, VestigeWarning, checks
from vestige.core.machine import PeakMemory
from vestige.runner.experiment import OnProgress
from vestige.runner.plan import Unit
from vestige.runner.registry import EXPERIMENTS

DEVICES = ("cuda", "mps", "cpu")  # best first


@dataclass(frozen=True)
class Finished:
    """A unit and its Record; `fresh` if it was run now."""

    unit: Unit
    record: Record
    fresh: bool


def divided(units: Iterable[Unit], device: str | None) -> tuple[list[Finished], list[Unit]]:
    """Those that are finished already, and those that are left to run on `device`."""
    done, left = [], []
    for unit in {unit.path: unit for unit in units}.values():  # two of one place would be one run, made twice
        found = stored(unit)
        if found is None:
            left.append(dataclasses.replace(unit, device=device))
        else:
            done.append(Finished(unit, found, False))
    return done, left


def run_unit(unit: Unit, on_progress: OnProgress) -> Record:
    """Run one unit and write its Record; one that is finished by now, by whomever, is read instead.

    Where another process is at it we wait, and take over if that ends without a Record.
    """
    while (found := try_unit(unit, on_progress)) is None:
        on_progress(0.0, "another process is at it")
        with store.locked(_lock(unit)):  # which that process holds until its end
            pass
    return found


def try_unit(unit: Unit, on_progress: OnProgress) -> Record | None:
    """The same, but None where another process is at it."""
    found = stored(unit)
    if found is not None:
        return found
    with store.locked(_lock(unit), wait=False) as ours:
        if not ours:
            return None
        found = stored(unit)  # it may have been finished just before
        if found is not None:
            return found
        experiment = EXPERIMENTS[unit.experiment]
        if experiment.unit_id(unit.config, unit.seed) != unit.path.stem:
            raise VestigeError(
                f"{unit} was planned with other versions than those of this process: a file was edited since, or "
                "another version is installed here. Start the command again, with one version everywhere."
            )
        folder = _borders(unit)
        device = device_of(unit.device, experiment.devices)
        with warnings.catch_warnings(), checkpoint.kept_in(folder), computing_on(device):
            # What a run has to say about its estimates stands in the Record; a thousand runs would bury it here.
            warnings.simplefilter("ignore", VestigeWarning)
            record = experiment.run(unit.config, unit.seed, on_progress)
        assert record.id == unit.path.stem, f"{unit.experiment} made a Record of another unit"
        record = dataclasses.replace(record, details=record.details | unit.details | {"command": unit.command})
        found = stored(unit)
        if found is not None:  # by another process, where the file system has no locks
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
        with contextlib.suppress(OSError):  # in a folder that we may only read
            _lock(unit).unlink()
    if found is None or all(found.details.get(key) == value for key, value in unit.details.items()):
        return found
    found = dataclasses.replace(found, details=found.details | unit.details)
    with checkpoint.unbroken():
        found.save(unit.path)
    return found


def run_measured(unit: Unit, on_progress: OnProgress, run: Callable[..., Record | None] = run_unit) -> int | None:
    """`run` one unit and say how many bytes its process held at the peak; 0 where the system does not tell.

    None where another process is at it.
    """
    memory = PeakMemory()
    record = run(unit, on_progress)
    # The protocol looks at the peak of each task, which starts the count anew: the unit's own is the largest of all.
    return None if record is None else max(memory.peak() or 0, peak_of(record))


def peak_of(record: Record) -> int:
    """The largest peak that a Record tells of; 0 if it tells of none."""
    return max(record.bytes.get("peak", []), default=0)


def _borders(unit: Unit) -> Path:
    """The folder of a unit's checkpoints."""
    return unit.path.with_suffix(".checkpoint")


def _lock(unit: Unit) -> Path:
    """The file that a process holds locked while it runs the unit."""
    return unit.path.with_suffix(".lock")


def silent(*said: object) -> None:
    """Where nobody listens."""


def device_of(name: str | None, able: Sequence[str] = DEVICES) -> torch.device:
    """The device called `name`, or the first of `able` that is there; one that is absent or not among them is refused.

    `able` are those that a unit can compute on, best first.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name is None:
        return torch.device(next(device for device in able if there[device]))
    checks.one_of(name, DEVICES, "device", "vestige run")
    if not there[name]:
        here = " or ".join(device for device, found in there.items() if found)
        raise InputError(f"The 'device' of vestige run must be on this machine: {here}. Got {name} instead.")
    if name not in able:
        raise InputError(
            f"The 'device' of vestige run must be one that each of its units can compute on: {' or '.join(able)}. "
            f"Got {name} instead."
        )
    return torch.device(name)


def computing_on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Within it tensors are made on `device`; on the CPU, where they are anyway, nothing slows down."""
    return contextlib.nullcontext() if device.type == "cpu" else device
