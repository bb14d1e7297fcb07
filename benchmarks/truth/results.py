"""Rows of finished cells, in benchmarks/results/truth: a file a source and edition, a line a row.

A run writes its file anew, whole or not at all, after each cell. Shards have files of their own; reading takes the
union of all files of a source and edition, and `merge` makes one of them. Of two rows of one cell that of the newer
version of the code counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.environments import ROOT

FOLDER = ROOT / "benchmarks" / "results" / "truth"
SOURCES = ("zoo", "drift", "mi", "unseen", "second")
EDITIONS = ("before", "after")
NAMES = ("kl", "reverse_kl", "js", "hellinger2")
COLUMNS = (
    "truth",
    "value",
    "low",
    "high",
    "std_error",
    "verdict",
    "two_sided",  # the value before anything is added to it and before any refusal
    "one_step",
    "movement",
    "reason",
)
Row = dict[str, Any]
DIGITS = 5


class Judged(NamedTuple):
    """One divergence of one row; NaN where a number is not known."""

    truth: float
    value: float
    low: float
    high: float
    std_error: float
    verdict: str
    two_sided: float
    one_step: float
    movement: float
    reason: str
    beyond: float = 0.0

    @property
    def point(self) -> float:
        """The value, before any refusal."""
        return self.two_sided if math.isnan(self.value) else self.value


def judged(row: Row, name: str) -> Judged:
    """The divergence `name` of a row."""
    fields = dict(zip(COLUMNS, row[name], strict=True))
    numbers = {key: value if key in ("verdict", "reason") else number(value) for key, value in fields.items()}
    return Judged(**numbers, beyond=number(row.get("beyond", {}).get(name, 0.0)))


def rounded(value: Any) -> Any:
    """A number to five digits; None for NaN and "inf" for infinity, which JSON has not."""
    if value is None or math.isnan(float(value)):
        return None
    return float(f"{float(value):.{DIGITS}g}") if math.isfinite(float(value)) else f"{float(value)}"


def number(value: Any) -> float:
    """What `rounded` stored."""
    return math.nan if value is None else float(value)


def path(source: str, edition: str, shard: tuple[int, int] | None = None, folder: Path | None = None) -> Path:
    """The file of a source and edition, or of one shard of it."""
    part = "" if shard is None else f".{shard[0]}-of-{shard[1]}"
    return (folder or FOLDER) / f"{source}-{edition}{part}.json"


def read(source: str, edition: str, folder: Path | None = None) -> list[Row]:
    """Every row of a source and edition, in the order in which they were measured."""
    rows: dict[tuple[str, int], Row] = {}
    own = path(source, edition, folder=folder)
    for file in [own, *sorted(own.parent.glob(f"{own.stem}.*-of-*.json"))]:
        for row in load(file):
            key = row["cell"], row["step"]
            if key not in rows or row["version"] >= rows[key]["version"]:
                rows[key] = row
    return list(rows.values())


def load(file: Path) -> list[Row]:
    """The rows of one file; none where it is not there."""
    return json.loads(file.read_text())["rows"] if file.exists() else []


def write(rows: Sequence[Row], file: Path) -> None:
    """Put the rows at `file`, whole or not at all."""
    from vestige.store.objects import write_bytes  # here: tables are printed without it

    lines = ",\n".join(json.dumps(row, allow_nan=False, separators=(",", ":")) for row in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, f'{{"columns":{json.dumps(COLUMNS)},"rows":[\n{lines}\n]}}\n'.encode())


def merge(source: str, edition: str, folder: Path | None = None) -> int:
    """Make one file of those of all shards; how many rows there are."""
    own, rows = path(source, edition, folder=folder), read(source, edition, folder)
    if rows:
        write(rows, own)
    for file in own.parent.glob(f"{own.stem}.*-of-*.json"):
        file.unlink()
    return len(rows)


def finished(rows: Sequence[Row], version: int, rule: int | None = None) -> set[str]:
    """Keys of the cells that this version of the code has measured and, if it is given, this one of the rule judged."""
    of_version = [row for row in rows if row["version"] == version]
    return {row["cell"] for row in of_version} - {
        row["cell"] for row in of_version if rule is not None and row.get("rule", 1) != rule
    }
