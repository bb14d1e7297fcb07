"""`vestige report --reproductions`: the kept Records of experiments as one document."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.errors import InputError


@dataclass(frozen=True)
class Report:
    """Experiments that were run, as one document: measured beside published, with commands and verdicts."""

    folder: Positional[Path] = field(default_factory=lambda: Path("reproductions"))
    """Where the Records are, a folder for each experiment: what 'vestige run' was given as --out."""
    reproductions: bool = False
    """Write the Markdown document of every experiment in the folder."""
    out: Annotated[Path, arg(aliases=["-o"])] = field(default_factory=lambda: Path("REPRODUCTIONS.md"))
    """The file to write."""

    def run(self) -> None:
        """Read, write, say where."""
        if not self.reproductions:
            raise InputError("'vestige report' writes one document so far: give --reproductions.")
        from vestige import report, store

        store.write_bytes(self.out, report.reproductions(self.folder).encode())
        output.say(f"Written to {self.out}.")
