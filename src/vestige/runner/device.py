"""On which device units compute.

Networks, data and draws of random numbers are made on the CPU throughout, where the same seed gives the same bits; a
Record's id does not know a device. So the CPU is the best there is for now, and another device is refused by name
rather than asked for and not used.
"""

from __future__ import annotations

import torch

from vestige import checks
from vestige.errors import InputError

DEVICES = ("cpu", "cuda", "mps")


def device_of(name: str | None) -> torch.device:
    """The device called `name`, or the best that units can use; one that is absent, or that they cannot, is refused."""
    if name is None:
        return torch.device("cpu")
    checks.one_of(name, DEVICES, "device", "vestige run")
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[name]:
        here = " or ".join(device for device, found in there.items() if found)
        raise InputError(f"The 'device' of vestige run must be on this machine: {here}. Got {name} instead.")
    if name != "cpu":
        raise InputError(
            f"The 'device' of vestige run must be cpu: units do not compute elsewhere. Got {name} instead."
        )
    return torch.device(name)
