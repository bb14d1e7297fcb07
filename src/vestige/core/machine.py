"""Facts about the machine and the software, for Records; the peak of memory over a stretch of work; work on the CPU.

Rows are chosen and data sets held on the CPU, wherever a run computes, so that they are the same on every machine; so
is what needs float64, which not every device has.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vestige.core.version import __version__


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Within it, or in a function that it decorates, tensors are made on the CPU.

    Where they are made there anyway it does nothing: within `torch.device` every operation takes microseconds more.
    """
    with contextlib.nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
        yield


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


def free_memory() -> int:
    """Bytes that this machine could give without swapping, within the process's own limit; 4 GB where it is silent."""
    return max(0, min(_free_memory(), _room()))


def _room() -> int:
    """Bytes that the process may still ask for (`ulimit -v`); more than there are where it has no limit."""
    with contextlib.suppress(ImportError, OSError, IndexError, ValueError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return limit - pages * resource.getpagesize()
    return sys.maxsize


def _free_memory() -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    return 4 * 10**9


class PeakMemory:
    """Largest resident size of this process since this was made, in bytes.

    On Linux the kernel's high-water mark can be reset, so the peak is of the stretch alone.
    Elsewhere it is the peak of the whole process.
    """

    def __init__(self) -> None:
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
