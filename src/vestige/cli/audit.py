"""`vestige audit FILE`: the desiderata of a continual-learning evaluation, each answered with evidence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from vestige.cli import output
from vestige.errors import InputError, VestigeError

if TYPE_CHECKING:
    from vestige.audit import Audit as Answers


class DesiderataFail(VestigeError):
    """A desideratum fails, and --strict was given."""


@dataclass(frozen=True)
class Audit:
    """Was an evaluation of continual learning honest? Eleven questions, each answered with evidence.

    The file is a Record (.json), or a description of somebody's evaluation (.toml): a table [evaluation] with a name
    and any of tasks, shared_head, labels_at_test, same_inputs, kept_samples, kept_bytes, retrains, borders_told,
    continuous, overlapping, seconds and held_bytes. What is not said is not measured.
    """

    file: Positional[Path]
    """A Record or a description."""
    strict: bool = False
    """End with exit code 1 if one of the five desiderata fails: for the tests of a research repository."""
    paragraph: bool = False
    """Print a paragraph for a paper's appendix instead of the table."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Read, answer, print."""
        found = read(self.file)
        if self.json:
            output.document(found.to_json() | {"failed": found.failed, "unknown": found.unknown})
        elif self.paragraph:
            output.say(found.paragraph())
        else:
            output.table(output.Table(found.subject, ("", "question", "verdict", "evidence"), found.rows()))
        if self.strict and found.failed:
            raise DesiderataFail(f"{len(found.failed)} of the five desiderata fail: {', '.join(found.failed)}.")


def read(path: Path) -> Answers:
    """The audit of what lies at `path`."""
    from vestige.audit import described, from_record
    from vestige.record import Record

    if not path.is_file():
        raise InputError(f"The 'file' of vestige audit must be there. Got {path} instead.")
    if path.suffix == ".toml":
        return described(path)
    if path.suffix == ".json":
        return from_record(Record.load(path))
    raise InputError(
        f"The 'file' of vestige audit must be a Record (.json) or a description (.toml). Got {path} instead."
    )
