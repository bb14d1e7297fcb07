"""Packages from PyPI that we compare with, in an environment of their own: `.venv-peers`, made on demand.

`python -m benchmarks` starts itself again inside that environment, where Vestige and the peers are installed side by
side, so that one process times both in turns. In a benchmark, ask for a peer by its import name:

    densratio = peers.get("densratio")            # the module, or None
    if densratio is None:
        return [Row("ulsif", None, "densratio", None, note=peers.why_not("densratio"))]

Each peer is installed by a call of its own: one that cannot be installed takes no other with it, and its rows say so.
"""

from __future__ import annotations

import importlib
import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from types import ModuleType

from benchmarks.absent import OF_AVALANCHE, Absent
from benchmarks.environments import ROOT, Environment

# Import name -> what pip installs, at versions that run beside the pins of constraints.txt.
PEERS: dict[str, list[str]] = {
    "densratio": ["densratio==0.4.0"],
    "adapt": ["adapt==0.4.5"],
    "torchmetrics": ["torchmetrics==1.9.0"],
    "torch_fidelity": ["torch-fidelity==0.4.0"],
    "prdc": ["prdc==0.2"],
    "avalanche": ["--no-deps", "avalanche-lib==0.6.0", "dill"],
}
# What they import and nothing here calls: where it does not import, empty modules stand for it.
NOT_NEEDED = {
    "adapt": ("tensorflow",),
    "torchmetrics": ("torchvision",),
    "torch_fidelity": ("torchvision",),
    "avalanche": OF_AVALANCHE,
}
ENVIRONMENT = Environment(
    name=".venv-peers",
    needed=["-e", "."],
    optional=PEERS,
    constraints=ROOT / "constraints.txt",
    depends_on=[ROOT / "pyproject.toml"],
    variables={"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
)

_refusals: dict[str, str] = {}


def run_inside(arguments: list[str]) -> int | None:
    """Run `python -m benchmarks` with `arguments` in the peers' environment; None if there is none."""
    started = ENVIRONMENT.start("benchmarks", arguments)
    return None if started is None else started.wait()


def get(name: str) -> ModuleType | None:
    """The peer's module, or None where it is not installed or does not import; `why_not` then says why."""
    quiet = io.StringIO()
    if name not in sys.modules and name in NOT_NEEDED:
        Absent(NOT_NEEDED[name]).install()
    try:
        with warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception as error:  # whatever a peer raises at import must not end the run
        _refusals[name] = f"{name} does not import: {type(error).__name__}: {error}"
        return None


def why_not(name: str) -> str:
    """One line on why `get(name)` gave None."""
    stored = ENVIRONMENT.refusals()
    if name in stored:
        return f"{name} could not be installed: {stored[name]}"
    return _refusals.get(name, f"{name} was not asked for")
