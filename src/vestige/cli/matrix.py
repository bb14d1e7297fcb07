"""`vestige matrix R.csv`: average, forgetting, intransigence and transfer of anybody's accuracy or loss matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    """Forgetting, intransigence and transfer of anybody's accuracy or loss matrix, of one run or of many seeds.

    A file is delimited text, .npy or nested JSON lists of R[trained up to, tested on]: row k was measured after
    training on tasks 1..k, column j on task j; blank or NaN cells were not measured. Many seeds: a long table (.csv,
    .parquet) with columns seed, trained, tested, accuracy; an .npy of (seeds, tasks, tasks); a log of Avalanche
    (eval_results.csv, or its metrics as JSON) or of Mammoth (logs.pyd); or several files, one a seed. They give means
    with 95 % intervals over seeds, and with --records a Record a seed for 'vestige report' and 'vestige audit'.
    Accuracies are fractions in every cell or percentages in every cell. F and I are positive when something was lost,
    BWT and FWT when something was gained.
    """

    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE")]
    """The matrix, or those of several seeds; '-' reads standard input."""
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
    records: Annotated[Path | None, arg(metavar="DIR")] = None
    """Write a Record a seed to DIR."""
    name: str | None = None
    """What the method is called in the Records; by default as the file."""

    def run(self) -> None:
        """Read, compute, print."""
        from vestige.data.readers import read_matrix
        from vestige.data.readers.runs import read_runs
        from vestige.metrics.matrix import require_one_scale, summary

        if self.name is not None and self.records is None:
            raise InputError("The option --name must come with --records. Got it alone instead.")
        where = ", ".join(map(str, self.files[:3])) + (" ..." if len(self.files) > 3 else "")
        found = read_runs(self.files, labels=self.labels)
        cells, tables = found.cells, dict(found.matrices)
        names = cells.header if cells else found.tasks
        if self.transpose:
            tables = {seed: [list(column) for column in zip(*R, strict=True)] for seed, R in tables.items()}
            names = cells.index if cells else found.tasks
        reference = None if self.reference is None else read_matrix(self.reference, vector=True).rows
        given = None if self.baseline is None else read_matrix(self.baseline, vector=True).rows
        baselines: dict[int, Any] = dict.fromkeys(tables, given) if given is not None else dict(found.baseline)
        results = {}
        try:
            for seed, R in tables.items():
                if not (cells and cells.percent):
                    require_one_scale(R, "vestige matrix", better=self.better)
                results[seed] = summary(R, reference, baselines.get(seed), better=self.better)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        R = next(iter(tables.values()))
        if _looks_transposed(R):
            output.warn(
                "Nothing below the diagonal was measured: is this R[tested on, trained up to]? Try --transpose."
            )
        names = names or [str(j) for j in range(1, len(R[0]) + 1)]
        read = {"file": where, "header": bool(cells and cells.header), "index": bool(cells and cells.index)}
        told: dict[str, Any] = {"read": read, "tasks": names}
        needs = {"Intransigence needs --reference.": reference, "Forward transfer needs --baseline.": baselines or None}
        missing = [text for text, given in needs.items() if given is None]
        if len(results) == 1:
            (only,) = results.values()
            told |= as_document(only)
            shown = tables_of(only, names, title=where)
        else:
            told |= many_as_document(results)
            shown = tables_of_many(results, names, title=where)
        notes = [*map(output.Note, missing), *self._written(tables, baselines, reference, names, told)]
        self.answer(told, *shown, *notes)

    def _written(
        self,
        tables: Mapping[int, Sequence[Sequence[float]]],
        baselines: Mapping[int, Any],
        reference: Any,  # noqa: ANN401 - rows of numbers
        names: Sequence[str],
        told: dict[str, Any],
    ) -> list[str]:
        """Records to the folder, where one is given, and the sentence that says so."""
        if self.records is None:
            return []
        from vestige.continual.record import Record
        from vestige.data.readers.runs import Runs

        called = self.name or self.files[0].stem or "imported"
        runs = Runs({s: [list(r) for r in R] for s, R in tables.items()}, dict(baselines), list(names))
        made = Record.from_matrix(runs, name=called, reference=reference, better=self.better)
        paths = [record.save(self.records) for record in made]
        told["records"] = paths
        return [f"{len(paths)} Record{'s' * (len(paths) > 1)} of '{called}' written to {self.records}."]


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


def tables_of(result: MatrixSummary, names: Sequence[str], title: str) -> list[output.Table]:
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


def many_as_document(results: Mapping[int, MatrixSummary]) -> dict[str, Any]:
    """Runs of several seeds for machines: means with intervals, the mean matrix, and every run by its seed."""
    from vestige.metrics.matrix import over_seeds

    first = next(iter(results.values()))
    means = {
        name: {"mean": e.value, "se": e.std_error, "low": e.low, "high": e.high, "level": e.level, "seeds": e.n}
        for name, e in over_seeds(list(results.values())).items()
    }
    whole = {"better": first.better, "trained": first.trained, "matrix": mean_matrix(results), "last": means}
    return whole | {"seeds": {str(seed): as_document(result) for seed, result in results.items()}}


def mean_matrix(results: Mapping[int, MatrixSummary]) -> list[list[float]]:
    """Cell by cell over the runs in which it was measured."""
    stacked = [result.matrix.tolist() for result in results.values()]
    known = [
        [[v for v in cell if not math.isnan(v)] for cell in zip(*rows, strict=True)]
        for rows in zip(*stacked, strict=True)
    ]
    return [[sum(cell) / len(cell) if cell else math.nan for cell in row] for row in known]


def tables_of_many(results: Mapping[int, MatrixSummary], names: Sequence[str], title: str) -> list[output.Table]:
    """The mean matrix (unless it is large), the quantities after the last task with intervals, and seed by seed."""
    from vestige.metrics.matrix import over_seeds

    first = next(iter(results.values()))
    drawn, n = [], len(results)
    if first.matrix.shape[1] <= SHOWN_TASKS:
        cells = [(i, *row) for i, row in enumerate(mean_matrix(results), 1)]
        direction = "larger is better" if first.better == "up" else "smaller is better"
        heading = f"{title}: mean R[trained up to, tested on] of {n} seeds, {direction}"
        drawn.append(output.Table(heading, ("", *names), cells))
    means = over_seeds(list(results.values()))
    rows = [(SYMBOLS[name], e.value, e.std_error, e.low, e.high, e.n) for name, e in means.items()]
    columns = ("", "mean", "se", "95 % from", "to", "seeds")
    drawn.append(output.Table(f"after {first.trained} tasks", columns, rows, "Intervals are Student's, over seeds."))
    by_seed = [(seed, *(result.last()[name] for name in means)) for seed, result in results.items()]
    drawn.append(output.Table("seed by seed", ("seed", *(SYMBOLS[name] for name in means)), by_seed))
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
