"""Results as lines of JSON, each written when it is there, with what made them: versions, commit, machine, command.

A document that shows them reads these files and computes nothing but ratios, exponents and counts.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers import PEERS
from vestige.core import machine
from vestige.store import write_bytes

RESULTS = Path(__file__).parent / "results"
OUTCOMES = ("benchmarks/results", "BENCHMARKS.md", "docs/benchmarks")  # which do not decide a result
DISTRIBUTIONS = {"torch_fidelity": "torch-fidelity", "avalanche": "avalanche-lib"}  # import name -> what pip calls it


def context(command: str) -> dict[str, Any]:
    """What made a result."""
    cores = os.cpu_count() or 1
    return {
        "versions": machine.software() | commit() | peer_versions(),
        "machine": f"{cores} core{'s' * (cores > 1)}, {platform.machine().replace('_', '-')}",
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "command": command,
    }


def commit() -> dict[str, str]:
    """The commit, with a + where anything but results was changed since."""
    found = machine.commit()
    if found is None or not found.endswith("+"):
        return {} if found is None else {"commit": found}
    changed = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", *(f":!{path}" for path in OUTCOMES)]
    left = subprocess.run(changed, cwd=RESULTS.parents[1], capture_output=True, text=True, check=True).stdout
    return {"commit": found if left.strip() else found.removesuffix("+")}


def peer_versions() -> dict[str, str]:
    """Of the peers that are installed."""
    found = {}
    for name in PEERS:
        try:
            found[name] = metadata.version(DISTRIBUTIONS.get(name, name))
        except metadata.PackageNotFoundError:
            continue
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """Every line; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def add(path: Path, lines: Sequence[dict[str, Any]], key: Sequence[str]) -> None:
    """Put `lines` into the file, in place of those that agree with one of them in all of `key`."""

    def named(line: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(line[name] for name in key)

    new = {named(line) for line in lines}
    write(path, [*(line for line in read(path) if named(line) not in new), *lines])


def write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """The file, whole or not at all."""
    write_bytes(path, "".join(f"{json.dumps(line, sort_keys=True)}\n" for line in lines).encode())
