"""Facts about the machine and the software, for Records; and the peak of memory over a stretch of work."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vestige.core.version import __version__


def machine_facts() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.get_default_device().type,
        "accelerator": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


@functools.cache
def versions() -> dict[str, str]:
    """The software that took part."""
    found = {"vestige": __version__, "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in ("torch", "numpy", "scipy", "scikit-learn")}


def software() -> dict[str, str]:
    """The versions, and the commit of a checkout: what a Record says it was made by."""
    found = commit()
    return versions() | ({} if found is None else {"commit": found})


@functools.cache
def commit() -> str | None:
    """The commit that this code lies at, with a + where it was changed since; None where it is no checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():  # installed: a repository around it would be someone else's
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    quiet = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # it reads, and must not stand in another's way
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True, env=quiet)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


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

    On Linux the kernel's high-water mark can be reset, so the peak is of the stretch alone.
    Elsewhere it is the peak of the whole process.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start a new stretch."""
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

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
