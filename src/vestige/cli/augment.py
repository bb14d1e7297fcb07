"""`vestige augment REAL FAKE -o train.parquet`: a training table of both, with weights for scikit-learn."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError, rendered

if TYPE_CHECKING:
    from vestige.vestiges import AugmentedTable

ENDINGS = (".parquet", ".csv")


@dataclass(frozen=True, kw_only=True)
class AugmentVerb(output.SeededVerb):
    """Real rows and a model's rows as one training table, with a weight for each row that scikit-learn takes.

    A real row weighs one. Where there is a label, held-out real rows choose between real rows only, all rows with
    equal weights, and the fake ones weighted; ties go to the real rows.
    """

    real: Positional[str]
    """The data: .csv, .parquet, .arrow or .feather."""
    fake: Positional[str]
    """Rows of a model or of another source, with the same columns."""
    output: Annotated[Path, arg(aliases=["-o"])]
    """Where the rows go, real ones first, with their columns as they are and that of the weights: .parquet or .csv."""
    label: Annotated[str | None, arg(metavar="COLUMN")] = None
    """The column that a model will predict. Without it nothing is validated, and the fake rows are weighted."""
    weighted: bool = False
    """Weigh the fake rows without asking validation rows."""
    validation: Annotated[str | None, arg(metavar="FILE")] = None
    """Real rows to choose by that the model of the fake rows has not seen; else five parts of REAL in turn."""
    column: str = "weight"
    """The name of the column of weights."""
    drop: tuple[str, ...] = ()
    """Columns that tell nothing, such as identifiers: kept in the output, seen by neither ratio nor validation."""
    estimator: str = "forest"
    """A ratio estimator of 'vestige list estimators'."""
    temper: float | None = None
    """Flatten the weights until they are worth at least this share of the rows, such as 0.1."""
    rows: int = 20_000
    """Fit the ratio on at most so many rows of either side."""
    force: bool = False
    """Overwrite the output."""

    def run(self) -> None:
        """Read, fit, validate, write."""
        from vestige.vestiges import augment

        self._check()
        choose = None if not self.weighted else False
        how: dict[str, Any] = {"column": self.column, "drop": self.drop, "estimator": self.estimator, "rows": self.rows}
        with output.progress("reading") as advance:
            found = augment(
                self.real,
                self.fake,
                label=self.label,
                choose=choose,
                validation=self.validation,
                min_ess=self.temper,
                seed=self.seed,
                on_step=lambda words: advance(0, words),
                **how,
            )
        write(self.output, found.table)
        cautions = [output.Caution(text) for text in found.diagnosis.warnings]
        rows = f"{found.n_real} real and {found.n_generated} fake rows"
        where = f"{rows} written to {self.output}; the weights are in the column '{self.column}'"
        told = {"written": self.output, "column": self.column, **found.to_json()}
        self.answer(told, *map(output.Note, found.notes), *self._shown(found), *cautions, found.why, where)

    def _check(self) -> None:
        """Everything that can be refused before the first file is read."""
        if self.output.suffix not in ENDINGS:
            raise InputError(f"The output must end in {' or '.join(ENDINGS)}. Got '{self.output}' instead.")
        if self.output.is_dir() or (self.output.exists() and not self.force):
            raise InputError(
                f"The output must be a new file, or --force given. Got '{self.output}', which exists, instead."
            )
        if self.temper is not None and not 0 < self.temper <= 1:
            raise InputError(f"The share of --temper must be in (0, 1]. Got {self.temper:g} instead.")
        if self.weighted and self.validation is not None:
            raise InputError("The options of vestige augment must be --weighted or --validation. Got both instead.")
        if self.label is None and self.validation is not None:
            raise InputError("The rows of --validation must have a --label to choose by. Got none instead.")

    def _shown(self, found: AugmentedTable) -> list[output.Table | str]:
        d = found.diagnosis
        accuracy = "none" if d.accuracy is None else f"{d.accuracy:.3f}"
        figures = [
            ("verdict on the weights", d.verdict),
            ("reachable share of the data (mean raw weight)", rendered(found.reachable, 3)),
            ("effective share of the fake rows (ESS)", f"{d.ess_fraction:.3f}"),
            ("k, the mass of a fake row beside a real one", f"{found.mass:.3g}"),
            ("accuracy of the classifier, real or fake", accuracy),
        ]
        shown: list[output.Table | str] = [output.Table("the fake rows", ("", ""), figures)]
        choice = found.choice
        if choice is not None:
            rows: list[list[Any]] = []
            for arm, one in choice.scores.items():
                gain = choice.gains.get(arm)
                more = "" if gain is None else f"{gain.value:+.4f} (se {gain.std_error:.4f})"
                rows.append([arm, f"{one.value:.4f} (se {one.std_error:.4f})", more])
            title = f"{choice.score} of {choice.model} on {choice.n} held-out real rows"
            shown.append(output.Table(title, ("", "score", "over real only"), rows))
        return shown


def write(path: Path, table: Any) -> None:  # noqa: ANN401 - an Arrow table
    """Write the rows, whole or not at all."""
    from pyarrow import csv, parquet

    from vestige import store

    buffer = io.BytesIO()
    if path.suffix == ".csv":
        csv.write_csv(table, buffer)
    else:
        parquet.write_table(table, buffer)
    store.write_bytes(path, buffer.getvalue())
