"""How many units fit into the memory of this machine at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Of what is free, left to the rest of the machine.
SPARE = 0.1


@dataclass
class Room:
    """At most `workers` units at once, and no more than fit: each is taken to need the largest peak seen so far.

    Before any unit has finished nothing is known, and nothing bounds them but `workers`. A process that died takes one
    worker with it, because the likeliest cause is that they were too many.
    """

    workers: int
    peak: int = 0

    def measured(self, peak: int) -> None:
        """A unit took so many bytes."""
        self.peak = max(self.peak, peak)

    def died(self) -> None:
        """A worker was lost; one at least remains."""
        self.workers = max(1, self.workers - 1)

    def allows(self, held: int, free: int | None) -> int:
        """Units that may run at once, one at least, when those that run hold `held` bytes and `free` are left."""
        if free is None or self.peak == 0:
            return self.workers
        return max(1, min(self.workers, int((held + free) * (1 - SPARE)) // self.peak))


def free_bytes(system: Path = Path("/")) -> int | None:
    """Memory that processes may still take: what the machine has, or the container if that is less; None if unknown."""
    found = []
    available = _kilobytes(system / "proc/meminfo", "MemAvailable:")
    if available is not None:
        found.append(available)
    try:
        limit = (system / "sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            found.append(max(0, int(limit) - int((system / "sys/fs/cgroup/memory.current").read_text())))
    except OSError:
        pass
    return min(found, default=None)


def held_bytes(pid: int, system: Path = Path("/")) -> int:
    """What a process holds at this moment; 0 if it is gone or the system does not tell."""
    return _kilobytes(system / f"proc/{pid}/status", "VmRSS:") or 0


def _kilobytes(path: Path, name: str) -> int | None:
    """The line `name` of a file of the kernel, in bytes."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
