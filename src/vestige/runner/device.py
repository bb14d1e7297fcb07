"""On which device units compute: the one that `--device` names, or the best that is there.

A unit is run within `torch.device(...)`, where tensors, networks and draws are made and tasks are handed out; on the
CPU, the default of torch, nothing is put around it. Which devices a unit can compute on, best first, is said by its
experiment (`computes_on`): all, where a learner is trained on a stream of tasks, with a generator or without; the CPU
alone for chains and ratios, which are in float64 and use scipy. A device that is absent, or that a unit cannot use, is
refused.

The id of a Record does not know the device, as it knows neither the number of threads nor the version of torch: all of
them change bits and none of them the question, and a finished unit is never run again. The Record says where it was
made (`machine["device"]`), and a checkpoint of one device is not taken up on another.

Untested on a GPU: tests run every method and every generator on a device that is made up, which computes on the CPU and
refuses tensors, generators and conversions that a GPU would refuse, and float64, which MPS has not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch

from vestige.core import checks
from vestige.core.errors import InputError

DEVICES = ("cuda", "mps", "cpu")  # best first


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
