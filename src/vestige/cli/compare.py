"""`vestige compare REAL FAKE`: how far two sample sets are apart, in every measure, with one sentence of conclusion."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from vestige.data.readers import ColumnReport
    from vestige.vestiges import Comparison

NAMES = {
    "kl": "KL(real || fake)",
    "reverse_kl": "KL(fake || real)",
    "js": "Jensen-Shannon",
    "hellinger2": "Hellinger, squared",
    "pearson_chi2": "Pearson chi^2",
    "neyman_chi2": "Neyman chi^2",
    "total_variation": "total variation",
    "jeffreys": "Jeffreys",
    "fid": "FID",
    "fid_extrapolated": "FID, n to infinity",
    "kid": "KID",
    "mmd2": "MMD^2, RBF",
    "prd_f8_recall": "PRD F8 (recall)",
    "prd_f1_8_precision": "PRD F1/8 (precision)",
}


@dataclass(frozen=True)
class CompareVerb:
    """How far a model's rows are from the data: divergences, metrics, intervals, a diagnosis and a conclusion."""

    real: Positional[str]
    """The data: .npy, .npz, .safetensors, .csv, .parquet, FILE:key, or a folder of images."""
    fake: Positional[str]
    """The model's rows, in the same manner."""
    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the fake rows, such as 'vestige weigh' writes; shown beside the unweighted figures."""
    scale: Literal["auto", "raw", "standard"] = "auto"
    """Features of the metrics as they are, or standardised by the data; auto standardises tables."""
    estimator: str = "auto"
    """A ratio estimator of 'vestige list estimators'."""
    level: float = 0.95
    """The level of the intervals."""
    rows: int = 20_000
    """Fit the ratio on at most so many rows of either side."""
    pair_rows: int = 5000
    """Metrics that compare every row with every other see at most so many of either side."""
    drop: tuple[str, ...] = ()
    """Columns of the tables to leave out."""
    seed: int = 0
    """The same seed gives the same numbers."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Read, compare, print."""
        from vestige.data import readers as files
        from vestige.vestiges import STEPS, compare

        p, q, columns = files.read_pair(self.real, self.fake, drop=self.drop)
        weights = None if self.weights is None else read_weights(self.weights, len(q))
        options: dict[str, Any] = {
            "estimator": self.estimator,
            "standardise": self.scale == "standard" or (self.scale == "auto" and is_table(columns)),
            "level": self.level,
            "rows": self.rows,
            "pair_rows": self.pair_rows,
            "seed": self.seed,
            "names": (shown(self.real), shown(self.fake)),
        }
        with output.progress("comparing", len(STEPS) * (1 if weights is None else 2)) as advance:
            plain = compare(p, q, on_step=lambda _: advance(1), **options)
            weighted = None
            if weights is not None:
                options["names"] = (shown(self.real), f"{shown(self.fake)}, weighted,")
                weighted = compare(p, q, q_weights=weights, on_step=lambda _: advance(1), **options)
        if self.json:
            found = {"columns": columns, **vars(plain)}
            output.document(found | ({} if weighted is None else {"weighted": weighted}))
            return
        if is_table(columns):
            print_columns(columns)
        for note in columns.notes:
            output.note(note)
        self._print(plain, weighted)

    def _print(self, plain: Comparison, weighted: Comparison | None) -> None:
        heads = [f"value and {self.level:.0%} interval", *(() if weighted is None else ("weighted",))]
        both = [plain] if weighted is None else [plain, weighted]
        rows: list[tuple[output.Cell, ...]] = [
            (NAMES.get(name, name), *(one.divergences[name] for one in both)) for name in plain.divergences
        ]
        size = f"{plain.n_p} real rows, {plain.n_q} fake rows, {plain.d} features"
        output.table(output.Table(f"divergences: {size}", ("", *heads), rows, note=ratio_note(plain)))
        lines: list[tuple[output.Cell, ...]] = [
            (NAMES.get(name, name), *(one.metrics[name] for one in both), estimate.details.get("same"))
            for name, estimate in plain.metrics.items()
        ]
        output.table(output.Table("metrics", ("", *heads, "same distribution"), lines))
        for one, label in zip(both, ("weights for these rows", "after weighting"), strict=False):
            d = one.diagnosis
            k = "none" if d.pareto_k is None else f"{d.pareto_k:.2f}"
            output.say(
                f"{label}: {d.verdict}; effective share of rows {d.ess_fraction:.1%}, Pareto k {k}, "
                f"mean {d.mean_weight:.3g}; permutation p-value {one.p_value:.3g}"
            )
        for text in dict.fromkeys(text for one in both for text in one.warnings):
            output.warn(text)
        if weighted is not None:
            output.note(
                "Weights that were fitted on these very rows flatter the weighted figures: use fresh real rows."
            )
        for one in both:
            output.say(one.conclusion)


def read_weights(where: str, n: int) -> Tensor:
    """One weight a fake row, from a file with one column or with a column 'weight'."""
    from vestige.data import readers as files

    found = files.read(f"{where}:weight" if where.endswith(".npz") else where)  # as `weigh` writes it
    names = list(found.columns)
    if found.x.shape[1] > 1 and "weight" not in names:
        raise InputError(f"The file '{where}' must hold one weight a row. Got {found.x.shape[1]} columns instead.")
    if len(found.x) != n:
        raise InputError(
            f"The file '{where}' must hold a weight for each of the {n} fake rows. Got {len(found.x)} instead."
        )
    return found.x[:, names.index("weight") if "weight" in names else 0].double()


def is_table(columns: ColumnReport) -> bool:
    """Whether the report is of tables, whose columns have names and units of their own."""
    return any(
        column.kind not in ("number", "pixel") or column.features == (column.name,) for column in columns.columns
    )


def print_columns(columns: ColumnReport) -> None:
    """What was done to each column."""
    rows = [(c.name, c.kind, c.treatment, len(c.features), "; ".join(c.notes)) for c in columns.columns]
    output.table(output.Table("columns", ("name", "kind", "treatment", "features", "notes"), rows))


def shown(where: str) -> str:
    """A file by its last name."""
    return Path(where).name or where


def ratio_note(found: Comparison) -> str:
    """How the log-ratios came about."""
    r = found.ratio
    figures = f"accuracy {r['held_out']['accuracy']:.3f}, calibration slope {r['calibration']['slope']:.2f}"
    rows = f"fitted on {r['rows_p']} real and {r['rows_q']} fake rows, each row held out"
    return f"log-ratios: {r['estimator']} ({r['why']}), {rows}; {figures}"
