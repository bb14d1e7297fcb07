"""`vestige weigh REAL FAKE -o weights.npy`: weights that turn the fake rows into real ones."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError, NotEstimable

if TYPE_CHECKING:
    from vestige.vestiges import Weighing

ENDINGS = (".npy", ".npz", ".csv")


@dataclass(frozen=True)
class WeighVerb:
    """Weights with which averages over a model's rows become averages over the data; with a diagnosis."""

    real: Positional[str]
    """The data: .npy, .npz, .safetensors, .csv, .parquet, FILE:key, or a folder of images."""
    fake: Positional[str]
    """The model's rows, in the same manner; each gets a weight."""
    output: Annotated[Path, arg(aliases=["-o"])]
    """Where the weights go, one a fake row, of mean one: .npy, .npz or .csv."""
    temper: float | None = None
    """Flatten the weights until they are worth at least this share of the rows, such as 0.1."""
    bootstrap: int = 0
    """Fit so many times on resampled rows; each weight gets a 95 % interval."""
    estimator: str = "auto"
    """A ratio estimator of 'vestige list estimators'."""
    rows: int = 20_000
    """Fit on at most so many rows of either side; all fake rows get a weight."""
    drop: tuple[str, ...] = ()
    """Columns of the tables to leave out."""
    seed: int = 0
    """The same seed gives the same weights."""
    force: bool = False
    """Overwrite the output."""
    anyway: bool = False
    """Write weights that the diagnosis calls unreliable."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Read, fit, diagnose, write."""
        from vestige.data import readers as files
        from vestige.vestiges import weigh

        self._check()
        p, q, columns = files.read_pair(self.real, self.fake, drop=self.drop)
        with output.progress("fitting the ratio"):
            found = weigh(
                p,
                q,
                estimator=self.estimator,
                min_ess=self.temper,
                bootstrap=self.bootstrap,
                rows=self.rows,
                seed=self.seed,
            )
        if not found.trustworthy and not self.anyway:
            why = " ".join([*found.final.warnings, *([f"The ratio is off: {found.blind}."] if found.blind else [])])
            raise NotEstimable(f"The weights are unreliable and were not written (--anyway writes them). {why}")
        written = write(self.output, found)
        if self.json:
            summary = {"written": [str(path) for path in written], **found.to_json(), "columns": columns}
            output.document(summary)
        else:
            self._print(found, written)

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

    def _print(self, found: Weighing, written: list[Path]) -> None:
        raw, final = found.diagnosis, found.final
        rows = [(label, describe(get(raw)), describe(get(final))) for label, get in FIGURES.items()]
        title = f"{len(found.weights)} weights by {found.report['estimator']} ({found.report['why']})"
        output.table(output.Table(title, ("", "raw", "as written"), rows))
        if found.interval is not None:
            width = (found.interval[:, 1] - found.interval[:, 0]).median()
            output.say(f"Intervals (95 %) from {self.bootstrap} fits; their median width is {float(width):.3g}.")
        if found.alpha < 1:
            output.say(f"Tempered with exponent {found.alpha:.3g}.")
        for text in (*found.warnings, *final.warnings, *([f"The ratio is off: {found.blind}."] if found.blind else [])):
            output.warn(text)
        output.say(f"{final.verdict}: written to {', '.join(str(path) for path in written)}")


FIGURES: dict[str, Any] = {
    "effective rows": lambda d: d.ess,
    "share of rows": lambda d: d.ess_fraction,
    "mean weight": lambda d: d.mean_weight,
    "largest share": lambda d: d.max_share,
    "Pareto k": lambda d: d.pareto_k,
    "held-out accuracy": lambda d: d.accuracy,
    "held-out log-loss": lambda d: d.log_loss,
    "calibration error": lambda d: d.ece,
    "verdict": lambda d: d.verdict,
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

    weights = found.weights.numpy()
    interval = None if found.interval is None else found.interval.numpy()
    written = places(path, interval is not None)
    if path.suffix == ".npy":
        arrays = [weights] if interval is None else [weights, interval]
        # The intervals first: whoever finds the weights finds all of it.
        for place, array in reversed(list(zip(written, arrays, strict=True))):
            buffer = io.BytesIO()
            np.save(buffer, array, allow_pickle=False)
            store.write_bytes(place, buffer.getvalue())
        return written
    columns = {"weight": weights}
    if interval is not None:
        columns |= {"low": interval[:, 0], "high": interval[:, 1]}
    buffer = io.BytesIO()
    if path.suffix == ".npz":
        np.savez_compressed(buffer, allow_pickle=False, **columns)
    else:
        text = np.stack(list(columns.values()), 1)
        np.savetxt(buffer, text, fmt="%.17g", delimiter=",", header=",".join(columns), comments="")
    store.write_bytes(path, buffer.getvalue())
    return written
