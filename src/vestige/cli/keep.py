"""What remains of data whose rows are deleted.

`vestige keep FILE -o cats.vestige`: the last thing that is done with the rows.
`vestige show cats.vestige`: what such a file holds, part by part.
`vestige merge a.vestige b.vestige -o all.vestige`: one file for the rows of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from vestige.cli import output
from vestige.core import InputError

if TYPE_CHECKING:
    import pandas as pd

    from vestige.vestiges import PrivateVestige
    from vestige.vestiges.vestige import Vestige

ENDING = ".vestige"
PARTS = ("name", "shape", "bytes", "what it is", "gives away")
GROUPS = ("part", "arrays", "bytes", "what it is", "gives away")
# Options that decide how rows are read, which rows that are added follow those that are there in.
OF_THE_FIRST = ("features", "third_moments", "block", "drop", "like", "model")
WITH_EPSILON = ("delta", "bounds", "public", "unit", "max_rows")
WITHOUT_EPSILON = ("features", "third_moments", "block", "append", "model", "fid_stats")
ERRORS = {
    "js": "Jensen-Shannon",
    "hellinger2": "Hellinger, squared",
    "js_smoothed": "Jensen-Shannon, smoothed",
    "hellinger2_smoothed": "Hellinger, squared, smoothed",
    "mmd2": "MMD^2, RBF",
    "kid": "KID",
}


@dataclass(frozen=True, kw_only=True)
class KeepVerb(output.SeededVerb):
    """Keep what remains of data when its rows are deleted: a small file that stands for them and holds no row."""

    rows: Positional[str]
    """The data: .npy, .npz, .safetensors, .csv, .parquet, .arrow, .feather, FILE:key, or a folder of images."""
    output: Annotated[Path, arg(aliases=["-o"])]
    """Where it goes; the name ends in .vestige."""
    features: str = "auto"
    """A feature map of 'vestige list features', for images and wide arrays."""
    third_moments: bool = False
    """Keep third moments too, for an exact KID; they give away the most about single rows."""
    block: int = 1
    """Rows that stand next to each other depend on each other over so many rows, as in a series."""
    drop: tuple[str, ...] = ()
    """Columns of a table to leave out."""
    like: Annotated[Path | None, arg(metavar="FILE")] = None
    """Read the rows as those of this vestige were, so that both can be merged."""
    model: Annotated[str | None, arg(metavar="FILE")] = None
    """Samples of a generator of these rows: refuse if they repeat some, exactly or nearly; nothing of them is kept."""
    allow_copies: bool = False
    """Keep the rows even if the samples of --model repeat some."""
    append: bool = False
    """Add the rows, at least 50, to the vestige that is there."""
    fid_stats: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write mean and covariance of the features too, as an .npz that pytorch-fid and clean-fid read."""
    force: bool = False
    """Overwrite the output."""
    epsilon: float | None = None
    """Keep nothing but sums with noise: differentially private. Keeping the same rows again is a second expense."""
    delta: float = 1e-6
    """The chance, about, that --epsilon does not hold; below one over the number of rows."""
    bounds: Annotated[Path | None, arg(metavar="FILE.toml")] = None
    """With --epsilon, a line a column: age = [0, 100], job = ["cook", "smith"]; never taken from the rows."""
    public: Annotated[str | None, arg(metavar="FILE")] = None
    """With --epsilon, rows that need no protection: scales, bins and categories are theirs without --bounds."""
    unit: str = "row"
    """With --epsilon, whom it protects: a row, or the column that names whose rows they are."""
    max_rows: int | None = None
    """With --unit, how many rows of one count; they are chosen at random."""

    def run(self) -> None:
        """Read, keep, write."""
        self._check()
        if self.epsilon is not None:
            self._run_privately(self.epsilon)
            return
        from vestige.vestiges.keep import STEPS, append, keep
        from vestige.vestiges.vestige import Vestige

        there = Vestige.load(self.output) if self.append else None
        like = None if self.like is None else Vestige.load(self.like)
        notes: list[str] = []
        with output.progress("keeping", len(STEPS)) as advance:
            if there is None:
                kept = keep(
                    self.rows,
                    features=self.features,
                    third=self.third_moments,
                    block=self.block,
                    drop=self.drop,
                    like=like,
                    model=self.model,
                    allow_copies=self.allow_copies,
                    seed=self.seed,
                    on_step=lambda part: advance(1, f"keeping: {part}"),
                    on_note=notes.append,
                )
            else:
                kept = append(there, self.rows, seed=self.seed, on_note=notes.append)
        written = kept.save(self.output)
        if self.fid_stats is not None:
            kept.to_fid_stats(self.fid_stats)
        added = "" if there is None else f"{kept.n - there.n} rows were added. "
        told = f"{added}{kept!r}: {size(written)} in {written}"
        said = [f"{note[:1].upper()}{note[1:]}." for note in notes]
        self.answer({"written": str(written), **summary(kept, written), "notes": notes}, told, *said)

    def _run_privately(self, epsilon: float) -> None:
        """The same with an epsilon."""
        from vestige.vestiges import PrivateVestige
        from vestige.vestiges.keep import STEPS, keep

        like = None if self.like is None else PrivateVestige.load(self.like)
        promised: dict[str, Any] = {"epsilon": epsilon, "delta": self.delta, "bounds": self.bounds}
        promised |= {"public": self.public, "unit": self.unit, "max_rows": self.max_rows}
        with output.progress("keeping", len(STEPS)) as advance:
            step = lambda part: advance(1, f"keeping: {part}")  # noqa: E731
            kept = keep(self.rows, drop=self.drop, like=like, seed=self.seed, on_step=step, **promised)
        written = kept.save(self.output)
        self.answer(
            {"written": str(written), **private_summary(kept, written)}, f"{kept!r} {size(written)} in {written}"
        )

    def _check(self) -> None:
        """Everything that can be refused before a row is read."""
        check_output(self.output, self.force or self.append)
        private = self.epsilon is not None
        for name in WITHOUT_EPSILON if private else WITH_EPSILON:
            if getattr(self, name) != getattr(KeepVerb, name):
                option, must = name.replace("_", "-"), "left out with --epsilon" if private else "given with --epsilon"
                raise InputError(f"--{option} must be {must}. Got it {'with' if private else 'without'} instead.")
        if self.fid_stats is not None:
            check_output(self.fid_stats, self.force or self.append, ".npz")
        if not self.append:
            return
        for name in OF_THE_FIRST:
            if getattr(self, name) != getattr(KeepVerb, name):
                option = name.replace("_", "-")
                raise InputError(f"--append reads the rows as the first ones were. Got --{option} beside it instead.")
        if not self.output.is_file():
            raise InputError(f"The output of --append must be a vestige that is there. Got '{self.output}' instead.")


@dataclass(frozen=True, kw_only=True)
class ShowVerb(output.Verb):
    """What a vestige holds: columns, density, its own errors, every stored part, and what each gives away."""

    file: Positional[Path]
    """A .vestige file."""
    parts: bool = False
    """List every stored array by itself."""

    def run(self) -> None:
        """Read and print."""
        from vestige.vestiges import Vestige, load

        kept = load(self.file)
        if isinstance(kept, Vestige):
            self.answer(summary(kept, self.file), *self._shown(kept))
        else:
            self.answer(private_summary(kept, self.file), *self._shown_privately(kept))

    def _shown_privately(self, kept: PrivateVestige) -> list[output.Table | str]:
        columns = [
            (c.name, c.kind, c.treatment, len(c.features), "; ".join(c.notes)) for c in kept.schema.report().columns
        ]
        parts = stored(kept, self.file)
        rows = parts.itertuples(index=False, name=None) if self.parts else grouped(parts)
        heads = PARTS if self.parts else GROUPS
        return [
            f"{kept!r} {size(self.file)}, made by version {kept.made_by}",
            output.Table("columns", ("name", "kind", "treatment", "features", "notes"), columns),
            output.Table("what is stored", heads, [tuple(map(_cell, row)) for row in rows]),
        ]

    def _shown(self, kept: Vestige) -> list[output.Table | str]:
        shown: list[output.Table | str] = [f"{kept!r}: {size(self.file)}, made by version {kept.made_by}"]
        schema = kept.frame.schema
        if schema is not None:
            columns = [
                (c.name, c.kind, c.treatment, len(c.features), "; ".join(c.notes)) for c in schema.report().columns
            ]
            shown.append(output.Table("columns", ("name", "kind", "treatment", "features", "notes"), columns))
        held = (
            f"measured on {kept.errors.held} rows that density and weights had not seen; comparisons are widened by it"
        )
        found = kept.errors.estimates
        errors = [(told, found[name]) for name, told in ERRORS.items() if name in found]
        shown.append(output.Table("its own error: reference draws against rows", ("", "value"), errors, note=held))
        parts = stored(kept, self.file)
        rows = parts.itertuples(index=False, name=None) if self.parts else grouped(parts)
        heads = PARTS if self.parts else GROUPS
        shown.append(output.Table("what is stored", heads, [tuple(map(_cell, row)) for row in rows]))
        return [*shown, *attacked(kept), kept.notice]


@dataclass(frozen=True, kw_only=True)
class MergeVerb(output.Verb):
    """One vestige for the rows of several, which were kept like one another (--like)."""

    files: Positional[tuple[Path, ...]]
    """At least two .vestige files."""
    output: Annotated[Path, arg(aliases=["-o"])]
    """Where the vestige of all rows goes; the name ends in .vestige."""
    force: bool = False
    """Overwrite the output."""

    def run(self) -> None:
        """Read, merge, write."""
        if len(self.files) < 2:
            raise InputError(f"The files of vestige merge must be at least two. Got {len(self.files)} instead.")
        check_output(self.output, self.force)
        from vestige.vestiges import Vestige, load

        loaded: list[Any] = [load(path) for path in self.files]
        kept = loaded[0]
        with output.progress("merging", len(loaded) - 1) as advance:
            for path, other in zip(self.files[1:], loaded[1:], strict=True):
                if type(other) is not type(kept):
                    raise InputError(f"'{self.files[0]}' and '{path}' must both have an epsilon. Got one instead.")
                try:
                    kept = kept.merge(other)
                except InputError as error:
                    raise InputError(f"'{self.files[0]}' and '{path}': {error}") from None
                advance(1)
        written = kept.save(self.output)
        told = f"{len(loaded)} vestiges of {' + '.join(str(one.n) for one in loaded)} rows. {kept!r}: "
        found = summary(kept, written) if isinstance(kept, Vestige) else private_summary(kept, written)
        self.answer({"written": str(written), **found}, f"{told}{size(written)} in {written}")


def check_output(path: Path, overwrite: bool, ending: str = ENDING) -> None:
    """A name with its ending, of no folder, and new unless it may be overwritten."""
    if path.suffix != ending:
        raise InputError(f"The output must end in {ending}. Got '{path}' instead.")
    if path.is_dir() or (path.exists() and not overwrite):
        raise InputError(f"The output must be a new file, or --force given. Got '{path}', which exists, instead.")


def size(path: Path) -> str:
    """Of a file, for people."""
    count = path.stat().st_size
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def summary(kept: Vestige, path: Path) -> dict[str, Any]:
    """What a vestige holds, for machines."""
    schema = kept.frame.schema
    return {
        "n": kept.n,
        "bytes": path.stat().st_size,
        "frame": kept.frame.told(),
        "kinds": dict(zip(kept.frame.names, kept.frame.kinds, strict=True)),
        "columns": None if schema is None else schema.report().columns,
        "features": None if schema is None else schema.feature_names,
        "densities": [
            {"density": part.density.name, "rows": part.rows, "draws": len(part.weights)}
            for part in kept.reference.parts
        ],
        "third_moments": kept.third is not None,
        "errors": kept.errors.estimates,
        "held": kept.errors.held,
        "seed": kept.seed,
        "attacks": kept.attacks().to_dict("records"),
        "notice": kept.notice,
        "made_by": kept.made_by,
        "stored": stored(kept, path).to_dict("records"),
    }


def private_summary(kept: PrivateVestige, path: Path) -> dict[str, Any]:
    """What a vestige with an epsilon holds, for machines."""
    return {
        "n": kept.n,
        "bytes": path.stat().st_size,
        **vars(kept.guarantee),
        "covers": str(kept.guarantee),
        "columns": kept.schema.report().columns,
        "features": kept.schema.feature_names,
        "public_rows": 0 if kept.base is None else len(kept.base),
        "made_by": kept.made_by,
        "stored": stored(kept, path).to_dict("records"),
    }


def stored(kept: Vestige | PrivateVestige, path: Path) -> pd.DataFrame:
    """Every stored array, and what is not one: the header."""
    import pandas as pd

    arrays = kept.kept()
    header = max(0, path.stat().st_size - int(arrays["bytes"].sum()))
    told = "schema, options, numbers of rows and a checksum of each array, as text"
    entry = ("header", (), header, told, "names of columns, categories that enough rows share: nothing of one row")
    return pd.concat([arrays, pd.DataFrame([entry], columns=arrays.columns)], ignore_index=True)


def grouped(parts: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The arrays of each part together."""
    by_what = parts.groupby(["what", "gives away"], sort=False)
    return [(_part(list(g["name"])), len(g), int(g["bytes"].sum()), *told) for told, g in by_what]


def attacked(kept: Vestige) -> list[output.Table | str]:
    """How well attacks did on public data of this kind; nothing where none was measured."""
    found = kept.attacks()
    if found.empty:
        return []
    n = int(found["n"].iloc[0])
    rows = [
        (str(one["attack"]), f"{one['auc']:.2f} [{one['low']:.2f}, {one['high']:.2f}]", str(one["data"]))
        for one in found.to_dict("records")
    ]
    note = "0.5 is guessing; 'last row' is the share of right guesses of somebody who knows all other rows"
    title = f"attacks on public data of this kind, {n} rows"
    return [output.Table(title, ("attack", "AUC and 95 % interval", "data"), rows, note=note)]


def _part(names: list[str]) -> str:
    """What the names of a part begin with."""
    words = [name.split(".") for name in names]
    same = [first[0] for first in zip(*words, strict=False) if len(set(first)) == 1]
    return ".".join(same) or names[0].split(".")[0]


def _cell(value: Any) -> Any:  # noqa: ANN401 - of a table
    return " x ".join(map(str, value)) if isinstance(value, tuple) else value
