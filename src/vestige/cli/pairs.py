"""Rows of the data, or a vestige of it, and rows of a model, or new data.

`vestige compare REAL FAKE`: how far they are apart, in every measure, with one sentence of conclusion.
`vestige weigh REAL FAKE -o weights.npy`: weights that turn the fake rows into real ones.

Where REAL ends in .vestige, what was kept of the data stands for it, and new rows are brought into its frame.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError, NotEstimable, rendered

if TYPE_CHECKING:
    from torch import Tensor

    from vestige.ratios.support import Reach
    from vestige.vestiges import Comparison, Plan, PrivateVestige, Vestige, Weighing
    from vestige.vestiges.given import GivenRows

LONG_WORK = 5.0  # seconds, from which on a plan is announced
OUTSIDE_ROWS, OUTSIDE_FEATURES = 5, 8  # of rows out of the other side's reach that are shown
COPIED_ROWS = 10  # of those that repeat rows of the data, that are named


@dataclass(frozen=True, kw_only=True)
class PairVerb(output.SeededVerb):
    """A verb about rows of the data and rows of a model."""

    real: Positional[str]
    """The data: .npy, .npz, .safetensors, .csv, .parquet, FILE:key, a folder of images, or the .vestige of any; for
    'compare' also an .npz of 'mu' and 'sigma', as pytorch-fid and clean-fid write it, which answers FID alone."""
    fake: Positional[str]
    """The model's rows, in the same manner."""
    estimator: str = "auto"
    """A ratio estimator of 'vestige list estimators'."""
    rows: int = 20_000
    """Fit the ratio on at most so many rows of either side."""
    memory: Annotated[float | None, arg(metavar="GB")] = None
    """Use at most so many gigabytes beside the data; half of what is free unless told."""
    drop: tuple[str, ...] = ()
    """Columns of the tables to leave out."""

    def options(self, *names: str) -> dict[str, Any]:
        """These options and those of every such verb, as the library takes them; long work is announced."""
        found = {name: getattr(self, name) for name in ("estimator", "rows", "seed", *names)}
        return found | {"memory": None if self.memory is None else self.memory * 1e9, "on_plan": announce}

    def read(self) -> tuple[GivenRows | Vestige | PrivateVestige, GivenRows | str]:
        """The data and the model's rows; a vestige reads new rows by itself."""
        if not is_vestige(self.real):
            from vestige.vestiges.given import sides

            return sides(self.real, self.fake, drop=self.drop)
        from vestige.vestiges import load

        if self.drop:
            raise InputError("Columns are left out when the data is kept, so --drop is for rows alone.")
        return load(self.real), self.fake


def announce(plan: Plan) -> None:
    """What long work will cost, before it begins."""
    if plan.seconds >= LONG_WORK:
        output.note(f"plan: {plan}")


@dataclass(frozen=True, kw_only=True)
class CompareVerb(PairVerb):
    """How far a model's rows are from the data: divergences, metrics, intervals, a diagnosis and a conclusion."""

    weights: Annotated[str | None, arg(metavar="FILE")] = None
    """Weights of the fake rows, such as 'vestige weigh' writes; shown beside the unweighted figures."""
    scale: Literal["auto", "raw", "standard"] = "auto"
    """Features of the metrics as they are, or standardised by the data; auto standardises tables."""
    level: float = 0.95
    """The level of the intervals."""
    pair_rows: int = 5000
    """Metrics that compare every row with every other see at most so many of either side."""
    html: Annotated[Path | None, arg(metavar="PAGE.html")] = None
    """Write a page too: the answer, what differs in pictures, every number."""

    def run(self) -> None:
        """Read, compare, print."""
        from vestige.vestiges import STEPS, compare
        from vestige.vestiges.fid_statistics import is_fid_statistics

        if self.html is not None and self.html.suffix.lower() not in (".html", ".htm"):
            raise InputError(f"The page of --html must end in .html. Got '{self.html}' instead.")
        if is_fid_statistics(self.real):
            self._by_fid()
            return
        with output.progress("reading"):
            p, q = self.read()
        weights = None if self.weights is None else read_weights(self.weights, None if isinstance(q, str) else len(q.x))
        options = self.options("level", "pair_rows")
        options["standardise"] = None if self.scale == "auto" else self.scale == "standard"
        real, fake = shown(self.real), shown(self.fake)
        sides = {fake: None} | ({} if weights is None else {f"{fake}, weighted,": weights})
        with output.progress("comparing", len(STEPS) * len(sides)) as advance:
            options["on_step"] = lambda part: advance(1, f"comparing: {part}")
            both = [compare(p, q, q_weights=w, names=(real, name), **options) for name, w in sides.items()]
        told = dict(vars(both[0]))
        away: list[output.Table | str] = [*outside(both[0], p, q)]
        if self.html is not None:
            from vestige.vestiges.page import page

            out_of_reach = [part for part in away if isinstance(part, output.Table)]
            with output.progress("drawing the page"):
                page(both[0], outside=out_of_reach, rows=typical_images(both[0], p, q)).save(self.html)
            told |= {"page": self.html}
            away.append(output.Note(f"page written to {self.html}"))
        parts = *self._shown(both), *away, *(one.conclusion for one in both)
        self.answer(told | ({} if weights is None else {"weighted": both[1]}), *parts)

    def _by_fid(self) -> None:
        """Of a file of 'mu' and 'sigma': FID, and one sentence about the rest."""
        from vestige.vestiges import compare
        from vestige.vestiges.words import NAMES

        if self.weights is not None or self.drop:
            raise InputError("A file of 'mu' and 'sigma' answers FID of whole rows: --weights and --drop need rows.")
        names = shown(self.real), shown(self.fake)
        found = compare(self.real, self.fake, level=self.level, seed=self.seed, names=names)
        rows = [(NAMES.get(name, name), one) for name, one in found.metrics.items() if one.known]
        title = f"mean and covariance of {found.d} features, {found.n_q} fake rows"
        table = output.Table(title, ("", f"value and {self.level:.0%} interval"), rows)
        beside = *map(output.Note, found.notes), *map(output.Caution, found.warnings)
        self.answer(vars(found), table, *beside, found.conclusion)

    def _shown(self, both: list[Comparison]) -> Iterator[output.Table | str]:
        from vestige.vestiges.words import NAMES, column_table

        plain = both[0]
        columns = plain.columns
        if columns is not None and columns.of_table:
            kinds = [(c.name, c.kind, c.treatment, len(c.features), "; ".join(c.notes)) for c in columns.columns]
            yield output.Table("columns", ("name", "kind", "treatment", "features", "notes"), kinds)
        yield from map(output.Note, plain.notes)
        heads = [f"value and {self.level:.0%} interval", "weighted"][: len(both)]
        private = plain.diagnosis is None
        of_vestige = f"a vestige of {'about ' if private else ''}" if plain.by_draws or private else ""
        real = f"{of_vestige}{plain.n_p} real rows"
        size = f"{real}, {plain.n_q} fake rows, {plain.d} features"
        rows: list[list[Any]] = [[NAMES.get(k, k), *(one.divergences[k] for one in both)] for k in plain.divergences]
        yield output.Table(f"divergences: {size}", ("", *heads), rows, note=ratio_note(plain) if plain.ratio else "")
        rows = [
            [NAMES.get(name, name), *(one.metrics[name] for one in both), estimate.details.get("same")]
            for name, estimate in plain.metrics.items()
            if estimate.known or not plain.by_draws  # those that need rows are named below
        ]
        yield output.Table("metrics", ("", *heads, "same distribution"), rows)
        if lacking := [NAMES.get(k, k) for k, one in plain.metrics.items() if plain.by_draws and not one.known]:
            yield output.Note(f"a vestige keeps no rows, so these cannot be told: {', '.join(lacking)}")
        if plain.drift is not None:
            families = [(name, f"{p:.2g}") for name, p in plain.drift.families.items()]
            yield output.Table("drift test, by family of moments", ("", "p-value"), families)
        if plain.differences and plain.images is None:
            yield column_table(plain)
        if plain.images is not None:
            yield f"the images differ most in the {plain.images.region} (--html shows a map)"
        if private:
            yield f"drift test p-value {'none' if math.isnan(plain.p_value) else f'{plain.p_value:.3g}'}"
        for one, label in zip(both, ("weights for these rows", "after weighting"), strict=False):
            d = one.diagnosis
            if d is None:
                break
            k = "none" if d.pareto_k is None else f"{d.pareto_k:.2f}"
            tested = "none" if math.isnan(one.p_value) else f"{one.p_value:.3g}"
            yield (
                f"{label}: {d.verdict}; effective share of rows {d.ess_fraction:.1%}, Pareto k {k}, "
                f"mean {d.mean_weight:.3g}; {'drift test' if one.by_draws else 'no difference:'} p-value {tested}"
            )
        r = plain.reach
        if r is not None:
            means = f"mean weight {rendered(r.mean_weight, 3)}, mean inverse weight {rendered(r.mean_inverse, 3)}"
            yield (
                f"reach: {means}; rows farther from the other side than its own are from each other: "
                f"real {r.far_p:.1%}, fake {r.far_q:.1%}"
            )
        yield from map(output.Caution, dict.fromkeys(text for one in both for text in one.warnings))
        if plain.copies is not None and plain.copies.rows:
            first = ", ".join(map(str, plain.copies.rows[:COPIED_ROWS])) + (
                "" if len(plain.copies) <= COPIED_ROWS else ", ..."
            )
            yield output.Caution(f"fake rows that repeat real ones: {first}; --json has all of them")
        if len(both) > 1:
            flattered = "Weights that were fitted on these very rows flatter the weighted figures: use fresh real rows."
            yield output.Note(flattered)


Outside: TypeAlias = "tuple[list[str], list[list[Any]]]"  # names of features, and the first rows that are out of reach


def outside_rows(
    reached: Reach, p: GivenRows | Vestige | PrivateVestige, q: GivenRows | str
) -> tuple[Outside, Outside]:
    """Of either side, the first rows that are out of the other's reach; of a vestige reference draws."""
    from vestige.vestiges.given import GivenRows

    first_p, first_q = (rows[:OUTSIDE_ROWS] for rows in (reached.outside_p, reached.outside_q))
    if isinstance(q, str):
        from vestige.vestiges import Vestige

        assert isinstance(p, Vestige)
        new = readable(p, p.cells(q).cells[first_q]) if len(first_q) else ([], [])
        return readable(p, p.draws[0][first_p], drawn=True), new
    assert isinstance(p, GivenRows)
    names = list(p.columns.features)
    return (names, p.x[first_p].tolist()), (names, q.x[first_q].tolist())


def typical_images(found: Comparison, p: GivenRows | Vestige | PrivateVestige, q: GivenRows | str) -> dict[str, Tensor]:
    """New images that are most and least like the data and, with rows, images of which there are fewest new ones."""
    from torch import Tensor

    from vestige.vestiges import Vestige
    from vestige.vestiges.given import GivenRows
    from vestige.vestiges.image_difference import as_images

    if found.images is None or found.typical is None:
        return {}
    most, least, lacking = (list(rows) for rows in (found.typical.most, found.typical.least, found.typical.lacking))
    if isinstance(p, Vestige):
        from vestige.vestiges.batches import held

        new, shape, old = held(q, name="q", owner="compare").rows, p.frame.shape, None
        assert isinstance(new, Tensor)
    else:
        assert isinstance(p, GivenRows)
        assert isinstance(q, GivenRows)
        new, shape, old = q.x, p.columns.shape, p.x
    out = {"most like the data": new[most], "least like the data": new[least]}
    out |= {} if old is None else {"data that is lacking": old[lacking]}
    return {name: as_images(x, shape) for name, x in out.items()}


def readable(kept: Vestige, cells: Tensor, *, drawn: bool = False) -> Outside:
    """Names and values of cells in the frame of a vestige, or of what its density has `drawn`."""
    if kept.frame.schema is not None:
        table = kept.frame.schema.table(cells)
        return table.column_names, [list(row.values()) for row in table.to_pylist()]
    components = drawn and not kept.frame.density_of_cells
    names = [f"component {i}" for i in range(cells.shape[1])] if components else list(kept.frame.names)
    return names, cells.tolist()


def outside(found: Comparison, p: GivenRows | Vestige | PrivateVestige, q: GivenRows | str) -> Iterator[output.Table]:
    """The first rows of either side that are out of the other's reach, where that is known."""
    if found.reach is None:
        return
    of_p, of_q = outside_rows(found.reach, p, q)
    real = "reference draws" if found.by_draws else "real rows"
    for places, (names, rows), side, other in (
        (found.reach.outside_p, of_p, real, "fake"),
        (found.reach.outside_q, of_q, "fake rows", "real"),
    ):
        if rows:
            shown_names = names[:OUTSIDE_FEATURES]
            cells = [[i, *row[: len(shown_names)]] for i, row in zip(places.tolist(), rows, strict=False)]
            note = f"{len(cells)} of the {side} where there are no {other} ones"
            yield output.Table(f"{side} out of reach", ("row", *shown_names), cells, note=note, alike="column")


def read_weights(where: str, n: int | None) -> Tensor:
    """One weight a fake row, from a file with one column or with a column 'weight'; `n` of them where that is known."""
    from vestige.data import readers as files

    found = files.read(f"{where}:weight" if where.endswith(".npz") else where)  # as `weigh` writes it
    names = list(found.columns)
    if found.x.shape[1] > 1 and "weight" not in names:
        raise InputError(f"The file '{where}' must hold one weight a row. Got {found.x.shape[1]} columns instead.")
    if n is not None and len(found.x) != n:
        raise InputError(
            f"The file '{where}' must hold a weight for each of the {n} fake rows. Got {len(found.x)} instead."
        )
    return found.x[:, names.index("weight") if "weight" in names else 0].double()


def is_vestige(where: str) -> bool:
    """Whether this is the name of a vestige, which stands for data that is gone."""
    return where.endswith(".vestige")


def shown(where: str) -> str:
    """A file by its last name."""
    return Path(where).name or where


def ratio_note(found: Comparison) -> str:
    """How the log-ratios came about."""
    r = found.ratio
    figures = f"accuracy {r['held_out']['accuracy']:.3f}, calibration slope {r['calibration']['slope']:.2f}"
    rows = f"fitted on {r['rows_p']} real and {r['rows_q']} fake rows, each row held out"
    return f"log-ratios: {r['estimator']} ({r['why']}), {rows}; {figures}"


ENDINGS = (".npy", ".npz", ".csv")


@dataclass(frozen=True, kw_only=True)
class WeighVerb(PairVerb):
    """Weights with which averages over a model's rows become averages over the data; with a diagnosis."""

    output: Annotated[Path, arg(aliases=["-o"])]
    """Where the weights go, one a fake row, of mean one: .npy, .npz or .csv."""
    temper: float | None = None
    """Flatten the weights until they are worth at least this share of the rows, such as 0.1."""
    bootstrap: int = 0
    """Fit so many times on resampled rows; each weight gets a 95 % interval."""
    force: bool = False
    """Overwrite the output."""
    anyway: bool = False
    """Write weights that the diagnosis calls unreliable, or that cannot reach part of the data."""

    def run(self) -> None:
        """Read, fit, diagnose, write."""
        from vestige.ratios.support import OUT_OF_REACH
        from vestige.vestiges import weigh
        from vestige.vestiges.fid_statistics import ALONE, is_fid_statistics

        self._check()
        if is_fid_statistics(self.real):
            raise NotEstimable(ALONE)
        with output.progress("reading"):
            p, q = self.read()
        with output.progress("fitting the ratio"):
            found = weigh(p, q, min_ess=self.temper, **self.options("bootstrap"))
        off = [f"The ratio is off: {found.blind}."] if found.blind else []
        if not found.trustworthy and not self.anyway:
            why = " ".join([*found.final.warnings, *off])
            what = "are unreliable" if found.final.verdict != OUT_OF_REACH else OUT_OF_REACH
            raise NotEstimable(f"The weights {what} and were not written (--anyway writes them). {why}")
        written = write(self.output, found)
        told = {"written": written, **found.to_json()}
        cautions = map(output.Caution, (*found.warnings, *found.final.warnings, *off))
        where = f"{found.final.verdict}: written to {', '.join(map(str, written))}"
        self.answer(told, *map(output.Note, found.notes), *self._shown(found), *cautions, where)

    def _check(self) -> None:
        """Everything that can be refused before the first file is read."""
        if self.output.suffix not in ENDINGS:
            raise InputError(f"The output must end in {', '.join(ENDINGS)}. Got '{self.output}' instead.")
        for path in places(self.output, self.bootstrap > 0):
            if path.is_dir() or (path.exists() and not self.force):
                raise InputError(
                    f"The output must be a new file, or --force given. Got '{path}', which exists, instead."
                )
        if self.temper is not None and not 0 < self.temper <= 1:
            raise InputError(f"The share of --temper must be in (0, 1]. Got {self.temper:g} instead.")

    def _shown(self, found: Weighing) -> list[output.Table | str]:
        title = f"{len(found.weights)} weights by {found.report['estimator']} ({found.report['why']})"
        both = found.diagnosis, found.final
        rows = [(label, *(describe(getattr(one, name)) for one in both)) for label, name in FIGURES.items()]
        shown: list[output.Table | str] = [output.Table(title, ("", "raw", "as written"), rows)]
        if found.interval is not None:
            import numpy as np

            width = np.median(found.interval[:, 1] - found.interval[:, 0])
            shown.append(f"Intervals (95 %) from {self.bootstrap} fits; their median width is {width:.3g}.")
        if found.alpha < 1:
            shown.append(f"Tempered with exponent {found.alpha:.3g}.")
        return shown


FIGURES = {
    "effective rows": "ess",
    "share of rows": "ess_fraction",
    "mean weight": "mean_weight",
    "largest share": "max_share",
    "Pareto k": "pareto_k",
    "held-out accuracy": "accuracy",
    "held-out log-loss": "log_loss",
    "calibration error": "ece",
    "verdict": "verdict",
}


def describe(value: float | str | None) -> str:
    """A cell of the table."""
    return "none" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def places(path: Path, with_intervals: bool) -> list[Path]:
    """The files that will be written: an .npy holds one array, so intervals go beside it."""
    beside = [path.with_name(f"{path.stem}.interval.npy")] if with_intervals and path.suffix == ".npy" else []
    return [path, *beside]


def write(path: Path, found: Weighing) -> list[Path]:
    """Write the weights, whole or not at all; returns the files."""
    import numpy as np

    from vestige import store

    columns = {"weight": found.weights}
    if found.interval is not None:
        columns["low"], columns["high"] = found.interval.T
    written = places(path, found.interval is not None)
    # The intervals first: whoever finds the weights finds all of it.
    for place in reversed(written):
        buffer = io.BytesIO()
        if path.suffix == ".npz":
            np.savez_compressed(buffer, allow_pickle=False, **columns)
        elif path.suffix == ".csv":
            text = np.stack(list(columns.values()), 1)
            np.savetxt(buffer, text, fmt="%.17g", delimiter=",", header=",".join(columns), comments="")
        else:
            np.save(
                buffer,
                columns["weight"] if place == path else np.stack([columns["low"], columns["high"]], 1),
                allow_pickle=False,
            )
        store.write_bytes(place, buffer.getvalue())
    return written
