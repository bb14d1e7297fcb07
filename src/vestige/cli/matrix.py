"""`vestige matrix R.csv`: average, forgetting, intransigence and transfer of anybody's accuracy or loss matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError

if TYPE_CHECKING:
    from vestige.metrics.matrix import MatrixSummary

SYMBOLS = {
    "average": "A",
    "forgetting": "F",
    "intransigence": "I",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
}
# More tasks than this, and the matrix is not repeated on the screen.
SHOWN_TASKS = 12


@dataclass(frozen=True)
class MatrixVerb(output.Verb):
    """Forgetting, intransigence and transfer of anybody's accuracy or loss matrix.

    The file is delimited text, .npy or nested JSON lists of R[trained up to, tested on]: row k was measured after
    training on tasks 1..k, column j on task j; blank or NaN cells were not measured. Accuracies are fractions in every
    cell or percentages in every cell. F and I are positive when something was lost, BWT and FWT when something was
    gained.
    """

    file: Positional[Path]
    """The matrix; '-' reads standard input."""
    reference: Annotated[Path | None, arg(metavar="FILE")] = None
    """For intransigence: what a model trained on tasks 1..k together reaches on task k; a vector, or its matrix."""
    baseline: Annotated[Path | None, arg(metavar="FILE")] = None
    """For forward transfer: what a model before any training reaches on each task; a vector."""
    better: Literal["up", "down"] = "up"
    """up for accuracies, down for losses and divergences."""
    labels: Literal["auto", "none", "header", "index", "both"] = "auto"
    """Which of the first line (header) and the first column (index) of the matrix are labels."""
    transpose: bool = False
    """The matrix in the file is R[tested on, trained up to]."""

    def run(self) -> None:
        """Read, compute, print."""
        from vestige.data.readers import read_matrix
        from vestige.metrics.matrix import require_one_scale, summary

        found = read_matrix(self.file, labels=self.labels)
        R, names = found.rows, found.header
        if self.transpose:
            R, names = [list(column) for column in zip(*R, strict=True)], found.index
        reference = None if self.reference is None else read_matrix(self.reference, vector=True).rows
        baseline = None if self.baseline is None else read_matrix(self.baseline, vector=True).rows
        try:
            if not found.percent:
                require_one_scale(found.rows, "vestige matrix", better=self.better)
            result = summary(R, reference, baseline, better=self.better)
        except InputError as error:
            raise InputError(f"{self.file}: {error}") from None
        if _looks_transposed(R):
            output.warn(
                "Nothing below the diagonal was measured: is this R[tested on, trained up to]? Try --transpose."
            )
        names = names or [str(j) for j in range(1, len(R[0]) + 1)]
        read = {"file": self.file, "header": found.header is not None, "index": found.index is not None}
        told = {"read": read, "tasks": names, **as_document(result)}
        needs = {"Intransigence needs --reference.": reference, "Forward transfer needs --baseline.": baseline}
        missing = [text for text, given in needs.items() if given is None]
        self.answer(told, *tables(result, names, title=str(self.file)), *map(output.Note, missing))


def _looks_transposed(R: Sequence[Sequence[float]]) -> bool:
    measured = [(i, j) for i, row in enumerate(R) for j, value in enumerate(row) if not math.isnan(value)]
    return any(j > i for i, j in measured) and not any(j < i for i, j in measured) and len(R) > 1


def as_document(result: MatrixSummary) -> dict[str, Any]:
    """The summary for machines: the whole matrix, every quantity after each task, and by task after the last."""
    at = [
        {"k": k, **{name: values[k - 1] if values else None for name, values in _series(result).items()}}
        for k in range(1, result.trained + 1)
    ]
    whole = {"better": result.better, "trained": result.trained, "matrix": result.matrix}
    return whole | {"at": at, "last": result.last(), "per_task": by_task(result)}


def tables(result: MatrixSummary, names: Sequence[str], title: str) -> list[output.Table]:
    """The matrix (unless it is large), the quantities after each task, and by task after the last."""
    direction = "larger is better" if result.better == "up" else "smaller is better"
    drawn = []
    if result.matrix.shape[1] <= SHOWN_TASKS:
        cells = [(i, *row) for i, row in enumerate(result.matrix.tolist(), 1)]
        drawn.append(output.Table(f"{title}: R[trained up to, tested on], {direction}", ("", *names), cells))
    given = {name: values for name, values in _series(result).items() if values is not None}
    lines = [(k, *(values[k - 1] for values in given.values())) for k in range(1, result.trained + 1)]
    drawn.append(output.Table("after k tasks", ("k", *(SYMBOLS[name] for name in given)), lines))
    if result.trained > 1:
        terms = by_task(result)
        told = [name for name in terms[0] if name in given]
        shown = [(names[row["task"] - 1], *(row[name] for name in told)) for row in terms]
        drawn.append(output.Table(f"by task, after {result.trained}", ("task", *(SYMBOLS[t] for t in told)), shown))
    return drawn


def _series(result: MatrixSummary) -> dict[str, tuple[float, ...] | None]:
    return {name: getattr(result, name) for name in SYMBOLS}


def by_task(result: MatrixSummary) -> list[dict[str, Any]]:
    """What each quantity is made of, task by task; None where it has no term for that task."""
    terms = {
        "forgetting": dict(enumerate(result.forgetting_per_task, 1)),
        "intransigence": dict(enumerate(result.intransigence or (), 1)),
        "backward_transfer": dict(enumerate(result.backward_transfer_per_task, 1)),
        "forward_transfer": dict(enumerate(result.forward_transfer_per_task or (), 2)),
    }
    return [{"task": j, **{name: term.get(j) for name, term in terms.items()}} for j in range(1, result.trained + 1)]
