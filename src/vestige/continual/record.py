"""A Record: what one run of one configuration with one seed gave, and everything needed to run it again.

One JSON file, written atomically. Its id is a hash of what determines the outcome: the resolved configuration, the seed
and the code of the rooms that compute it. Comments, docstrings and rooms that only show results do not count, so a
better-worded docstring does not make a finished run stale.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import store
from vestige.core import checks, machine
from vestige.core.errors import StoreError
from vestige.metrics.matrix import MatrixSummary, summary


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = body[1:]
    return tree


@functools.cache
def code_version(root: Path = Path(__file__).parents[2]) -> str:
    """Hash of the code under `root`, blind to comments, layout and docstrings."""
    digest = hashlib.sha256()
    for file in sorted(f for package in ("vestige", "vestige_papers") for f in (root / package).rglob("*.py")):
        digest.update(f"\0{file.relative_to(root).as_posix()}\0".encode())
        digest.update(ast.dump(_without_docstrings(ast.parse(file.read_text(encoding="utf-8")))).encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Record:
    """The outcome of one run. R[trained_up_to, tested_on] is `matrices[head]`; NaN is what was not measured.

    `reference` is what a jointly trained model reaches on each task (RWalk Eq. 4), `baseline[head]` what this very
    network reached before any training, which forward transfer is measured from. `values` are numbers of any shape
    under a name, for what is not a matrix of accuracies; `details` say more about the run than determines it.
    """

    config: dict[str, Any]
    seed: int
    head: str = ""
    matrices: dict[str, Float64[Tensor, "t t"]] = field(default_factory=dict)
    reference: Float64[Tensor, " t"] | None = None
    baseline: dict[str, Float64[Tensor, " t"]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=dict)
    task_names: list[str] = field(default_factory=list)
    values: dict[str, Float64[Tensor, "..."]] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    audit: dict[str, Any] | None = None
    code: str = field(default_factory=code_version)
    versions: dict[str, str] = field(default_factory=machine.software)
    machine: dict[str, Any] = field(default_factory=machine.machine_facts)

    @property
    def R(self) -> Float64[Tensor, "t t"]:  # noqa: N802 - the name it has in the papers
        """The matrix under the head that the stream declared."""
        return self.matrices[self.head]

    @property
    def id(self) -> str:
        """Hash of what determines the outcome."""
        return run_id(self.config, self.seed, self.code)

    def summary(self) -> MatrixSummary:
        """A, F, I, BWT and FWT under the declared head."""
        return summary(self.R, self.reference, self.baseline.get(self.head))

    def save(self, path: str | Path) -> Path:
        """Write to `path`, or to `ID.json` where `path` is a folder."""
        path = Path(path)
        path = path if path.suffix == ".json" else path / f"{self.id}.json"
        matrices = {name: _to_lists(matrix) for name, matrix in self.matrices.items()}
        reference = None if self.reference is None else _to_lists(self.reference)
        baseline = {name: _to_lists(vector) for name, vector in self.baseline.items()}
        values = {name: _to_lists(value) for name, value in self.values.items()}
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        numbers = {"matrices": matrices, "reference": reference, "baseline": baseline, "values": values}
        return store.save(path, "record", fields | numbers | {"id": self.id})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The Record stored at `path`; damage is named by file and key."""
        fields, _ = store.load(path, "record")
        stored_id = fields.pop("id", None)
        missing = sorted(set(cls.__dataclass_fields__) ^ set(fields))
        if missing:
            raise StoreError(f"{path}: key '{missing[0]}' is missing or unknown.")
        fields["matrices"] = {name: _from_lists(rows) for name, rows in fields["matrices"].items()}
        fields["baseline"] = {name: _from_lists(row) for name, row in fields["baseline"].items()}
        fields["values"] = {name: _from_lists(value) for name, value in fields["values"].items()}
        fields["reference"] = None if fields["reference"] is None else _from_lists(fields["reference"])
        record = cls(**fields)
        if record.id != stored_id:
            raise StoreError(f"{path}: key 'id' does not match the configuration it names.")
        return record


def run_id(config: dict[str, Any], seed: int, code: str | None = None) -> str:
    """The id that a run of `config` with `seed` will have, known before it runs."""
    return store.content_id(
        {"config": config, "seed": checks.whole(seed, "seed", "Record"), "code": code or code_version()}
    )


def _to_lists(matrix: Tensor) -> Any:  # noqa: ANN401 - nested lists, or a number
    def plain(value: Any) -> Any:  # noqa: ANN401 - nested lists of any depth
        if isinstance(value, list):
            return [plain(v) for v in value]
        return value if math.isfinite(value) else None

    return plain(matrix.tolist())


def _from_lists(rows: Any) -> Tensor:  # noqa: ANN401
    def filled(value: Any) -> Any:  # noqa: ANN401
        return [filled(v) for v in value] if isinstance(value, list) else math.nan if value is None else value

    return torch.tensor(filled(rows), dtype=torch.float64)
