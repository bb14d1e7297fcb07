"""A training table of real rows and rows of another source, weighted: `weights.augment` for tables as people have them.

Tables come from files or frames, with text, dates and missing values; they are coded together as for `compare`, column
by column, and the label as one 0/1 column a class, so that the ratio is that of rows and labels together. What comes
out are the rows as they came in, real ones first, with one column more: the weight that scikit-learn's `sample_weight`
takes. A real row weighs one, a generated one k w (`ratios.weights.augment` has the reasons, and `choice` the rule by
which validation rows choose between real only, unweighted and weighted).

A label is a class where it is text, true or false, or whole numbers of at most MOST_CLASSES values; else a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from vestige.core import Estimate, InputError, checks
from vestige.core.plain import plain
from vestige.data.readers import ColumnReport, encode
from vestige.data.readers.address import locate, refuse_file
from vestige.data.readers.columns import floats, joint_kind
from vestige.data.readers.columns import plain as plain_column
from vestige.data.readers.frames import as_table, is_frame
from vestige.data.readers.tables import read_table
from vestige.ratios.support import Reach, reach, reachable
from vestige.ratios.weights import Choice, Diagnosis, diagnose, generated_weights, mass_per_row
from vestige.ratios.weights.augment import fold_weights
from vestige.ratios.weights.choice import FOLDS, REAL, UNWEIGHTED, WEIGHTED, ValidationSplit, choose_arm
from vestige.ratios.weights.joint import FIT_ROWS, beside_labels, held_out_joint
from vestige.show.tables import card
from vestige.vestiges.batches import is_path

if TYPE_CHECKING:
    from vestige.ratios import Ratio

MOST_CLASSES = 50  # values of a label of whole numbers; one with more is a number
OWNER = "augment"


@dataclass(frozen=True, repr=False)
class AugmentedTable:
    """The rows with their weights, and what those are worth.

    Parameters
    ----------
    table
        Real rows, then generated ones, with the columns that they came with and that of the weights: a pandas frame
        where the real rows came as one, else an Arrow table.
    arm
        "real only", "unweighted" or "weighted"; of real only there are no generated rows in the table.
    mass
        k, what a generated row of mean weight weighs beside a real row.
    reach
        What of the data the generated rows do not reach; `reach.mean_weight` is the reachable share.
    choice
        The scores that chose; None where nothing was validated.
    """

    table: Any
    weights: NDArray[np.float64]
    n_real: int
    n_generated: int
    arm: str
    mass: float
    diagnosis: Diagnosis
    reach: Reach
    choice: Choice | None
    columns: ColumnReport
    notes: tuple[str, ...] = ()

    @property
    def reachable(self) -> Estimate:
        """The share of the data that the generated rows reach, by the mean raw weight."""
        return self.reach.mean_weight

    @property
    def why(self) -> str:
        """What was done, and why, in one sentence."""
        if self.choice is not None:
            return self.choice.why
        return f"{self.arm}: nothing was validated; a generated row weighs {self.mass:.3g} in the mean."

    def _figures(self) -> list[tuple[str, str]]:
        return [
            ("rows", f"{self.n_real} real and {self.n_generated} generated"),
            ("weights", self.diagnosis.verdict),
            ("reachable share", f"{min(self.reachable.value, 1.0):.2f}"),
            ("effective share", f"{self.diagnosis.ess_fraction:.2f}"),
            ("k", f"{self.mass:.3g}"),
        ]

    def __repr__(self) -> str:
        return f"AugmentedTable({self.arm}: {', '.join(f'{name} {value}' for name, value in self._figures())})"

    def _repr_html_(self) -> str:
        return card(f"a training table, {self.arm}", self._figures())

    def to_json(self) -> dict[str, Any]:
        """Everything but the rows, as plain JSON."""
        return {
            "rows": len(self.weights),
            "real": self.n_real,
            "generated": self.n_generated,
            "arm": self.arm,
            "why": self.why,
            "mass": self.mass,
            "reachable": plain(self.reachable),
            "diagnosis": plain(self.diagnosis),
            "reach": plain(self.reach),
            "choice": None if self.choice is None else self.choice.to_json(),
            "notes": list(self.notes),
            "columns": plain(self.columns),
        }


def augment(
    real: Any,  # noqa: ANN401 - a table, or the name of a file
    fake: Any,  # noqa: ANN401
    *,
    label: str | None = None,
    choose: bool | None = None,
    validation: Any = None,  # noqa: ANN401
    model: Any = None,  # noqa: ANN401 - a scikit-learn model
    estimator: str | Ratio = "forest",
    min_ess: float | None = None,
    column: str = "weight",
    drop: Sequence[str] = (),
    folds: int = FOLDS,
    rows: int = FIT_ROWS,
    seed: int = 0,
    names: tuple[str, str] = ("real", "fake"),
    on_step: Callable[[str], None] = lambda _: None,
) -> AugmentedTable:
    """The rows of two tables as one training set, with a `column` of weights for `sample_weight`.

    Parameters
    ----------
    real, fake
        Frames, Arrow tables, or names of .csv, .parquet, .arrow or .feather files with the same columns.
    label
        The column that a model is to predict. Without one nothing can be validated, and all other rows are weighted.
    choose
        Whether validation rows choose between real only, unweighted and weighted; None: where there is a label.
    validation
        Real rows to choose by that the generator has not seen; else `folds` parts of the real rows in turn.
    model
        What is validated, on the columns as numbers: a scikit-learn model whose `fit` takes `sample_weight`; boosting
        unless told.
    drop
        Columns that neither the ratio nor the model may see, such as identifiers; they stay in the table.

    Example
    -------
    >>> rng = np.random.default_rng(0)
    >>> def table(n):
    ...     size = rng.normal(size=n)
    ...     return pd.DataFrame({"size": size, "kind": rng.choice(["a", "b"], n), "sold": size > 0})
    >>> found = augment(table(200), table(400), label="sold", choose=False)
    >>> found.n_real, found.n_generated, list(found.table.columns)
    (200, 400, ['size', 'kind', 'sold', 'weight'])
    """
    given = {names[0]: real, names[1]: fake} | ({} if validation is None else {"validation": validation})
    if choose and label is None:
        checks.refuse("label", OWNER, "given, to choose by", None)
    choose = label is not None if choose is None else choose
    if not choose and (validation is not None or model is not None):
        name = "validation" if validation is not None else "model"
        checks.refuse(name, OWNER, "None where nothing is chosen", "one")
    seed = checks.whole(seed, "seed", OWNER)
    on_step("reading")
    read = [_table(one, name) for name, one in given.items()]
    tables = [table for table, _ in read]
    origins = [str(one) if is_path(one) else name for name, one in given.items()]
    if column in tables[0].column_names:
        checks.refuse("column", OWNER, "a name that no column of the tables has", f"'{column}'")
    coded, report = encode(tables, origins, drop=[*drop, *([] if label is None else [_label(label, tables[0], drop)])])
    labels = [torch.zeros(len(x), dtype=torch.int64) for x in coded]
    if label is not None:
        labels = _labels(label, tables, origins)
    (x, y), (x_hat, y_hat) = (coded[0], labels[0]), (coded[1], labels[1])
    on_step("fitting the ratio")
    p, q = beside_labels((x, y), (x_hat, y_hat))
    found = held_out_joint(p, q, estimator=estimator, rows=rows, seed=seed)
    log_w = found.log_ratio_q
    figures: dict[str, Any] = found.figures
    reached = reach(p, q, found.log_ratio_p, log_w, seed=seed)
    diagnosis = reachable(diagnose(log_w, **figures), reached)
    choice = None
    if choose:
        on_step("validating")
        held = None if validation is None else (coded[2], labels[2])
        weigh = fold_weights((x_hat, y_hat), estimator=estimator, min_ess=min_ess, rows=rows)
        split = ValidationSplit.of((x, y), held, folds, seed=seed)
        choice = choose_arm(split, (x_hat, y_hat), weigh, model=model, seed=seed, owner=OWNER)
    arm = WEIGHTED if choice is None else choice.chosen
    parts = [np.ones(len(x))]
    if arm != REAL:
        own = torch.ones(len(x_hat)) if arm == UNWEIGHTED else generated_weights(log_w, min_ess)
        parts.append(own.double().numpy())
    weights = np.concatenate(parts)
    table = _joined((real, fake), tables[: len(parts)], column, weights)
    facts: dict[str, Any] = {"mass": mass_per_row(log_w, min_ess), "diagnosis": diagnosis, "reach": reached}
    facts |= {"choice": choice, "columns": report, "notes": (*(n for _, told in read for n in told), *report.notes)}
    return AugmentedTable(table, weights, len(x), len(weights) - len(x), arm, **facts)


def _table(one: Any, name: str) -> tuple[pa.Table, tuple[str, ...]]:  # noqa: ANN401 - a table, or the name of a file
    """A table with at least one row, and how it was read."""
    if is_path(one):
        at = locate(one)
        if at.kind != "table":
            refuse_file(at, "a table (.csv, .parquet, .arrow, .feather)", "an array or a folder of images")
        return read_table(at)
    if not is_frame(one):
        checks.refuse(name, OWNER, "a table, or the name of one; arrays are for weights.augment", type(one).__name__)
    table = as_table(one, OWNER)
    if not table.num_rows:
        checks.refuse(name, OWNER, "a table with at least one row", "none")
    return table, ()


def _label(label: str, table: pa.Table, drop: Sequence[str]) -> str:
    if label in drop:
        checks.refuse("drop", OWNER, "columns other than the label", f"'{label}'")
    return checks.one_of(label, table.column_names, "label", OWNER)


def _labels(name: str, tables: Sequence[pa.Table], origins: Sequence[str]) -> list[Tensor]:
    """The label of every table: classes as whole numbers, else numbers as they are."""
    for table, origin in zip(tables, origins, strict=True):
        if name not in table.column_names:
            raise InputError(f"The columns of {origin} must hold the label '{name}'. Got none of that name instead.")
    parts = [plain_column(table.column(name), name, origin) for table, origin in zip(tables, origins, strict=True)]
    for part, origin in zip(parts, origins, strict=True):
        if part.null_count:
            row = int(np.flatnonzero(pc.is_null(part).to_numpy(zero_copy_only=False))[0]) + 1
            raise InputError(
                f"The label '{name}' of {origin} must be complete. Got a missing value in data row {row} instead."
            )
    kind = joint_kind(name, parts, origins)
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    if kind == "text":
        codes = np.unique(np.array([text for part in parts for text in part.to_pylist()]), return_inverse=True)[1]
        return [torch.from_numpy(each.astype(np.int64)) for each in np.split(codes, cuts)]
    values = np.concatenate([floats(part, name, origin) for part, origin in zip(parts, origins, strict=True)])
    whole = all(pa.types.is_integer(part.type) or pa.types.is_boolean(part.type) for part in parts)
    found, codes = np.unique(values, return_inverse=True)
    if whole and len(found) <= MOST_CLASSES:
        return [torch.from_numpy(each.astype(np.int64)) for each in np.split(codes, cuts)]
    return [torch.from_numpy(each) for each in np.split(values, cuts)]


def _joined(given: tuple[Any, Any], tables: Sequence[pa.Table], column: str, weights: NDArray[np.float64]) -> Any:  # noqa: ANN401 - a pandas frame, or an Arrow table
    """The rows as they came, one table below the other, and the weights beside them."""
    if all(isinstance(one, pd.DataFrame) for one in given):
        real, fake = given
        aligned = [real, fake.set_axis([str(name) for name in fake.columns], axis=1)]
        aligned[1] = aligned[1][[str(name) for name in real.columns]].set_axis(real.columns, axis=1)
        frame = pd.concat(aligned[: len(tables)], ignore_index=True)
        return frame.assign(**{column: weights})
    names = tables[0].column_names
    joined = _below([table.select(names) for table in tables])
    joined = joined.append_column(column, pa.array(weights))
    return joined.to_pandas() if isinstance(given[0], pd.DataFrame) else joined


def _below(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of the same columns, one below the other; columns whose types cannot be joined become text."""
    columns = {}
    for name in tables[0].column_names:
        parts = [pa.table({name: table.column(name)}) for table in tables]
        try:
            whole = pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException:
            parts = [pa.table({name: part.column(name).cast(pa.large_string())}) for part in parts]
            whole = pa.concat_tables(parts)
        columns[name] = whole.column(name)
    return pa.table(columns)
