"""An environment of its own for packages that we compare with: made on demand, made anew when its list changes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Environment:
    """A virtual environment in the folder `name`, in which modules of `benchmarks` can be started.

    `needed` is installed by one call of pip, without which there is no environment. Each of `optional` (import name ->
    what pip installs) has a call of its own: one that cannot be installed takes no other with it. `constraints` holds
    every call to the versions in that file; the environment is made anew when it or one of `depends_on` changes.
    """

    name: str
    needed: Sequence[str]
    optional: Mapping[str, Sequence[str]] = field(default_factory=dict)
    constraints: Path | None = None
    depends_on: Sequence[Path] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return ROOT / self.name

    @property
    def _stamp(self) -> Path:
        return self.home / ".complete.json"

    @property
    def _python(self) -> Path:
        return self.home / ("Scripts" if os.name == "nt" else "bin") / ("python.exe" if os.name == "nt" else "python")

    def _wanted(self) -> str:
        """A digest of everything that the environment depends on."""
        files = [*([self.constraints] if self.constraints else []), *self.depends_on]
        text = json.dumps([list(self.needed), {name: list(what) for name, what in self.optional.items()}])
        return hashlib.sha256("".join([text, *(file.read_text() for file in files)]).encode()).hexdigest()

    def _pip(self, *arguments: str) -> str | None:
        """Run pip inside the environment; the last line of its complaint if it failed."""
        command = [str(self._python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pins = ["-c", str(self.constraints)] if self.constraints else []
        done = subprocess.run([*command, *pins, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return None
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return (errors or done.stderr.splitlines() or ["pip failed without a word"])[-1].strip()

    def ensure(self) -> Path | None:
        """The environment's python, made or renewed where needed; None if it cannot be made at all."""
        if self._stamp.exists() and json.loads(self._stamp.read_text())["wanted"] == self._wanted():
            return self._python
        print(f"Installing peers into {self.name} (a few minutes the first time) ...", file=sys.stderr)
        self._stamp.unlink(missing_ok=True)
        made = subprocess.run([sys.executable, "-m", "venv", str(self.home)], check=False)
        failed = self._pip(*self.needed) if made.returncode == 0 else "python -m venv failed"
        if failed:
            print(f"The environment {self.name} could not be made: {failed}", file=sys.stderr)
            return None
        refusals = {name: reason for name, what in self.optional.items() if (reason := self._pip(*what))}
        # Written last, so an install that was interrupted is done again.
        self._stamp.write_text(json.dumps({"wanted": self._wanted(), "refusals": refusals}))
        return self._python

    def inside(self) -> bool:
        """Whether this process already runs in the environment."""
        return Path(sys.prefix).resolve() == self.home.resolve()

    def start(
        self, module: str, arguments: Sequence[str], *, stdout: int | None = None
    ) -> subprocess.Popen[str] | None:
        """`python -m MODULE` with `arguments` in the environment, on one thread; None if there is none."""
        python = self.ensure()
        if python is None:
            return None
        variables = os.environ | ONE_THREAD | self.variables
        command = [str(python), "-m", module, *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=stdout, text=True)

    def refusals(self) -> dict[str, str]:
        """Which of `optional` could not be installed, and why."""
        return json.loads(self._stamp.read_text())["refusals"] if self._stamp.exists() else {}
