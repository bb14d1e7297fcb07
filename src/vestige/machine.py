"""Facts about the machine and the software, for Records; and the peak of memory over a stretch of work."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vestige.version import __version__


def machine_facts() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str]:
    """The software that took part."""
    found = {"vestige": __version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class PeakMemory:
    """Largest resident size of this process since `reset`, in bytes.

    On Linux the kernel's high-water mark can be reset, so the peak is of the stretch alone (`since_reset` is True).
    Elsewhere it is the peak of the whole process.
    """

    def __init__(self) -> None:
        self.since_reset = False
        self.reset()

    def reset(self) -> None:
        """Start a new stretch."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self.since_reset = True
        except OSError:
            self.since_reset = False

    def peak(self) -> int | None:
        """Bytes, or None where the system does not tell."""
        try:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass
        if sys.platform == "win32":
            return None
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
