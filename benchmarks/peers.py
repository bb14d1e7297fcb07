"""Packages from PyPI that we compare with, in an environment of their own: `.venv-peers`, made on demand.

`python -m benchmarks` starts itself again inside that environment, where Vestige and the peers are installed side by
side, so that one process times both in turns. In a benchmark, ask for a peer by its import name:

    densratio = peers.get("densratio")            # the module, or None
    if densratio is None:
        return [Row("ulsif", None, "densratio", None, note=peers.why_not("densratio"))]

Each peer is installed by a call of its own: one that cannot be installed takes no other with it, and its rows say so.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-peers"
STAMP = HOME / ".peers.json"

# Import name -> what pip installs, at versions that run beside the pins of constraints.txt.
PEERS: dict[str, list[str]] = {
    "densratio": ["densratio==0.4.0"],
    "adapt": ["adapt==0.4.5"],
    "torchmetrics": ["torchmetrics==1.9.0"],
    "torch_fidelity": ["torch-fidelity==0.4.0"],
    "prdc": ["prdc==0.2"],
    "avalanche": ["avalanche-lib==0.6.0"],
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1"}

_refusals: dict[str, str] = {}


def _python() -> Path:
    return HOME / ("Scripts" if os.name == "nt" else "bin") / ("python.exe" if os.name == "nt" else "python")


def _wanted() -> str:
    """A digest of everything that the environment depends on."""
    text = json.dumps(PEERS) + (ROOT / "constraints.txt").read_text() + (ROOT / "pyproject.toml").read_text()
    return hashlib.sha256(text.encode()).hexdigest()


def _pip(*arguments: str) -> str | None:
    """Run pip inside the environment; the last line of its complaint if it failed."""
    command = [str(_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pins = ["-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([*command, *pins, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or done.stderr.splitlines() or ["pip failed without a word"])[-1].strip()


def ensure() -> Path | None:
    """The python of the peers' environment, made or renewed where needed; None if it cannot be made at all."""
    if STAMP.exists() and json.loads(STAMP.read_text())["wanted"] == _wanted():
        return _python()
    print(f"Installing peers into {HOME.name} (a few minutes the first time) ...", file=sys.stderr)
    STAMP.unlink(missing_ok=True)
    made = subprocess.run([sys.executable, "-m", "venv", str(HOME)], check=False)
    failed = _pip("-e", ".") if made.returncode == 0 else "python -m venv failed"
    if failed:
        print(f"The peers' environment could not be made: {failed}", file=sys.stderr)
        return None
    refusals = {name: reason for name, what in PEERS.items() if (reason := _pip(*what))}
    # Written last, so an install that was interrupted is done again.
    STAMP.write_text(json.dumps({"wanted": _wanted(), "refusals": refusals}))
    return _python()


def inside() -> bool:
    """Whether this process already runs in the peers' environment."""
    return Path(sys.prefix).resolve() == HOME.resolve()


def run_inside(arguments: list[str]) -> int | None:
    """Run `python -m benchmarks` with `arguments` in the peers' environment; None if there is none."""
    python = ensure()
    if python is None:
        return None
    environment = os.environ | ONE_THREAD | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([str(python), "-m", "benchmarks", *arguments], cwd=ROOT, env=environment, check=False)
    return done.returncode


def get(name: str) -> ModuleType | None:
    """The peer's module, or None where it is not installed or does not import; `why_not` then says why."""
    quiet = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(quiet), redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except Exception as error:  # whatever a peer raises at import must not end the run
        _refusals[name] = f"{name} does not import: {type(error).__name__}: {error}"
        return None


def why_not(name: str) -> str:
    """One line on why `get(name)` gave None."""
    stored = json.loads(STAMP.read_text())["refusals"] if STAMP.exists() else {}
    if name in stored:
        return f"{name} could not be installed: {stored[name]}"
    return _refusals.get(name, f"{name} was not asked for")
