"""A Record: what one run of one configuration with one seed gave, and everything needed to run it again.

One JSON file, written atomically, or one line of a file of many (`save_all`). Its id is a hash of what determines the
outcome: the resolved configuration, the seed, the versions of what took part and, for a run that is not a unit of an
experiment, the class of the learner and the structure of its network. A version is an integer in the file of an
experiment, a method, a generator and so on; it is raised when results change (`tests/golden` says when), so that code
may move and be reworded without making a finished run stale. Where a version is 1 the id does not mention it.

What a file must hold is what the annotations of `Record` say, which the codec reads it by: a field that is missing, is
unknown or has another type or shape is refused by file, line and key.

Records of the first edition had a hash of the code instead. They are read as version 0, and keep their ids.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Self

import torch
from jaxtyping import Float64
from torch import Tensor

from vestige import store
from vestige.core import InputError, StoreError, checks, machine
from vestige.core.checks import ArrayLike
from vestige.core.errors import shortened
from vestige.core.plain import plain
from vestige.metrics.anytime import anytime
from vestige.metrics.matrix import DIRECTIONS, LARGEST_FRACTION, MatrixSummary, require_one_scale, summary
from vestige.show.tables import card
from vestige.store import Plain
from vestige.store.codec import SHOWN, stored_names

if TYPE_CHECKING:
    from vestige.data.readers.runs import Runs

IMPORTED = "accuracy"  # the head of a matrix that came from elsewhere, where nobody said which it is
FIRST_EDITION = {"experiment": 0}
NAME = re.compile(r"\w[\w .,+-]*")  # of an experiment
SAME = 1e-6  # numbers of one id that are further apart, absolutely and relatively, are other results


@dataclass(frozen=True)
class Tried:
    """A setting of a search on validation data, with its score and Record for each seed."""

    set: dict[str, Plain]
    scores: list[float]
    records: list[str]

    @property
    def mean(self) -> float:
        """Over seeds; a setting one of whose scores is not a number cannot win."""
        return -math.inf if any(map(math.isnan, self.scores)) else fmean(self.scores)

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; NaN of one."""
        return stdev(self.scores) if len(self.scores) > 1 else math.nan


@dataclass(frozen=True)
class Searched:
    """What a search tried before it chose the setting of a run; `on` says which rows and tasks it saw."""

    on: str
    chosen: dict[str, Plain]
    tried: list[Tried]

    def __str__(self) -> str:
        tried = [f"{_told(t.set)}: {t.mean:.4g} +- {t.spread:.2g} ({len(t.scores)} seeds)" for t in self.tried]
        return "\n".join([f"Chosen on {self.on}: {_told(self.chosen)}", *tried])


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


# Parts of `config` and `details` that reports and audits rely on, where they are there; the rest is anybody's.
CONFIG: dict[str, Any] = {"experiment": str}
DETAILS: dict[str, Any] = {
    "command": str,
    "better": str,
    "run": dict[str, Plain],
    "refused": dict[str, Plain],
    "reference": dict[str, Plain],
    "search": Searched,
    "verdicts": list[str | None] | dict[str, str | None],
}


SCREEN = 10  # tasks of a matrix that a screen shows


@dataclass(frozen=True, repr=False)
class Record:
    """The outcome of one run. R[trained_up_to, tested_on] is `matrices[head]`; NaN is what was not measured.

    `reference` is what a jointly trained model reaches on each task (RWalk Eq. 4), `baseline[head]` what this very
    network reached before any training, which forward transfer is measured from. `values` are numbers of any shape
    under a name, for what is not a matrix of accuracies; `details` say more about the run than determines it.
    `learner` and `structure` are the class that ran and the names and shapes of its network's parameters; `version`
    has the versions of what took part, `versions` the software.

    Example
    -------
    >>> R = torch.tensor([[0.9, 0.5], [0.6, 0.8]], dtype=torch.float64)
    >>> print(str(Record({"method": "ewc"}, 0, "single", {"single": R})).partition(": ")[2])
    ewc, seed 0, 2 tasks
      average            0.7000
      forgetting         0.3000
      backward_transfer  -0.3000
    R[trained up to, tested on], single:
     0.900  0.500
     0.600  0.800
    """

    config: dict[str, Plain]
    seed: int
    head: str = ""
    matrices: dict[str, Float64[Tensor, "t t"]] = field(default_factory=dict)
    reference: Float64[Tensor, " t"] | None = None
    baseline: dict[str, Float64[Tensor, " t"]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=dict)
    task_names: list[str] = field(default_factory=list)
    values: dict[str, Float64[Tensor, "..."]] = field(default_factory=dict)
    details: dict[str, Plain] = field(default_factory=dict)
    audit: dict[str, Plain] | None = None
    learner: str = ""
    structure: list[str] = field(default_factory=list)
    version: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=machine.software)
    machine: dict[str, Plain] = field(default_factory=machine.machine_facts)

    @property
    def R(self) -> Float64[Tensor, "t t"]:  # noqa: N802 - the name it has in the papers
        """The matrix under the head that the stream declared."""
        return self.matrices[self.head]

    @property
    def id(self) -> str:
        """Hash of what determines the outcome."""
        if self.first_edition:
            return store.content_id({"config": self.config, "seed": self.seed, "code": self.versions.get("code")})
        return run_id(self.config, self.seed, self.version, self.learner, self.structure)

    @property
    def first_edition(self) -> bool:
        """Whether it was made before results had versions."""
        return self.version == FIRST_EDITION

    @property
    def edition(self) -> str:
        """The versions of what made it, in words; those that are 1 are not named."""
        raised = [f"{name} {number}" for name, number in self.version.items() if number != 1]
        return "first edition" if self.first_edition else ", ".join(raised) or "1"

    def summary(self) -> MatrixSummary:
        """A, F, I, BWT and FWT under the declared head."""
        better = str(self.details.get("better", "up")) if self.head == IMPORTED else "up"
        return summary(self.R, self.reference, self.baseline.get(self.head), better=better)

    @classmethod
    def from_matrix(
        cls,
        results: Any,  # noqa: ANN401 - whatever another framework left
        *,
        name: str = "imported",
        data: str = "",
        seed: int | None = None,
        head: str | None = None,
        reference: ArrayLike | None = None,
        baseline: ArrayLike | None = None,
        better: str = "up",
    ) -> list[Self]:
        """A Record a seed from what another framework measured: R[trained_up_to, tested_on] of one run or of many.

        Parameters
        ----------
        results
            An array (tasks, tasks) or (seeds, tasks, tasks); matrices by seed in a dict; a frame with a row a cell;
            what Avalanche's `eval` returned, a dict after each experience, in a list; or the path of a file, or
            several, as `vestige.data.readers.runs` reads them: delimited text, .npy, .parquet, JSON, and the logs of
            Avalanche and Mammoth.
        name, data
            What the method and the data are called in reports.
        seed
            Of a single run; several have their own, or are counted.
        head
            "single" or "multi", where it is known: the audit goes by it.
        reference, baseline
            What joint training, and a network before any training, reach on each task; the latter may be in `results`.
        better
            "down" for losses. Accuracies in percent are divided by 100, which `details` says.

        Example
        -------
        >>> Record.from_matrix([[[0.9, 0.1], [0.6, 0.8]], [[0.8, 0.1], [0.7, 0.9]]])[1].R.tolist()
        [[0.8, 0.1], [0.7, 0.9]]
        """
        owner = "Record.from_matrix"
        checks.one_of(better, DIRECTIONS, "better", owner)
        under = IMPORTED if head is None else checks.one_of(head, ("single", "multi"), "head", owner)
        runs = _runs_of(results, owner)
        if seed is not None and len(runs.matrices) > 1:
            checks.refuse("seed", owner, "None for several runs", seed)
        tables = {s: checks.matrix(one, "R", owner, finite=False) for s, one in runs.matrices.items()}
        tasks = len(next(iter(tables.values()))[0])
        before = {s: _one_a_task(row, tasks, "baseline", owner) for s, row in runs.baseline.items()}
        if baseline is not None:
            before = dict.fromkeys(tables, _one_a_task(baseline, tasks, "baseline", owner))
        known = None if reference is None else _one_a_task(reference, tasks, "reference", owner)
        together = torch.cat(list(tables.values()))
        require_one_scale(together, owner, better=better)
        scale, details = 1.0, {"better": better}
        if better == "up" and float(together.nan_to_num().max()) > LARGEST_FRACTION:
            scale, details["scale"] = 0.01, "percentages, divided by 100"
        found = []
        for own, R in tables.items():
            summary(R, better=better)  # refuses what no run can have left
            whole = torch.cat([R, R.new_full((tasks - len(R), tasks), math.nan)]) * scale
            digest = store.content_id({"matrix": plain(whole)})
            config: dict[str, Any] = {
                "stream": {"stream": "imported", "data": data, "digest": digest},
                "learner": {"method": name},
            }
            record = cls(
                config,
                own if seed is None else seed,
                under,
                {under: whole},
                None if known is None else known * scale,
                {under: before[own] * scale} if own in before else {},
                task_names=runs.tasks or [str(task) for task in range(1, tasks + 1)],
                details=dict(details),
            )
            try:
                _agree(**{key: getattr(record, key) for key in cls.__dataclass_fields__})
            except StoreError as error:
                raise InputError(f"{owner}: {error}") from None
            found.append(record)
        return found

    def anytime(self) -> dict[str, float]:
        """min-ACC, WC-ACC, average anytime accuracy and stability gap of a run that was tested while it trained."""
        if "while_training" not in self.values:
            raise InputError(
                "The Record must be of a run with `every`. Got one that was tested at borders alone instead."
            )
        return anytime(self.values["while_training"], self.values["while_training_at"][:, 0])

    def _head(self) -> str:
        """What it is, in a line."""
        learner = self.config.get("learner")
        method = learner.get("method") if isinstance(learner, Mapping) else None
        ran = self.config.get("experiment") or self.config.get("method") or self.learner or method or "run"
        tasks = f", {len(self.R)} tasks" if self.head else ""
        return f"Record {self.id[:12]}: {ran}, seed {self.seed}{tasks}"

    def _figures(self) -> list[tuple[str, float]]:
        """What came out in few numbers: those of the matrix after the last task, or the first values."""
        if self.head:
            return [(name, float(value)) for name, value in self.summary().last().items() if value is not None]
        return [(name, float(value)) for name, value in self.values.items() if value.numel() == 1][:SCREEN]

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {value:.4g}" for name, value in self._figures()[:3])
        return f"<{' | '.join(filter(None, (self._head(), told)))}>"

    def __str__(self) -> str:
        lines = [self._head(), *(f"  {name:<18} {value:.4f}" for name, value in self._figures())]
        if self.head:
            shown = self.R[-SCREEN:, :SCREEN]
            cut = " (the last rows, the first columns)" if len(self.R) > SCREEN else ""
            lines.append(f"R[trained up to, tested on], {self.head}{cut}:")
            lines += [" ".join("     -" if math.isnan(v) else f"{v:6.3f}" for v in row) for row in shown.tolist()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return card(self._head(), self._figures())

    def save(self, path: str | Path) -> Path:
        """Write to `path`, or to `ID.json` where `path` is a folder; other numbers under the same id are refused."""
        path = Path(path)
        path = path if path.suffix == ".json" else path / f"{self.id}.json"
        try:
            before = Record.load(path) if path.exists() else self
        except StoreError:  # damaged, and written over
            before = self
        self.check_against(before, path)
        return store.save(path, "record", self._fields())

    def check_against(self, before: Record, where: str | Path) -> None:
        """Refuse to take the place of `before`, stored at `where`, if it has this id and other results."""
        if before is self or before.id != self.id:
            return
        for what in ("learner", "structure", "matrices", "values", "baseline", "reference"):
            if not _same(getattr(self, what), getattr(before, what)):
                raise InputError(
                    f"The Record {self.id} in {where} has another '{what}' than this run of the same configuration and "
                    "seed. If code was changed on purpose, raise the `version` of the learner or experiment; if "
                    "another machine or device made it, save to another folder."
                )

    def _fields(self) -> dict[str, Any]:
        """As they are stored."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return (
            fields
            | {name: plain(fields[name]) for name in ("matrices", "baseline", "values", "reference")}
            | {"id": self.id}
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The Record stored at `path`; damage is named by file and key."""
        fields, _ = store.load(path, "record")
        return cls._built(fields, str(path))

    @classmethod
    def _built(cls, fields: dict[str, Any], where: str) -> Self:
        """From fields as they are stored; what does not fit the annotations is refused by `where` and key."""
        if "code" in fields:  # of the first edition
            code = {"code": fields.pop("code")}
            fields["versions"] = fields["versions"] | code if isinstance(fields.get("versions"), dict) else code
            fields |= {"learner": "", "structure": [], "version": FIRST_EDITION}
        stored_id = fields.pop("id", None)
        try:
            known = stored_names(cls)
            for name in sorted(known.keys() ^ fields.keys()):
                said = "missing" if name in known else "unknown"
                raise StoreError(f"The key '{shortened(name, SHOWN)}' of the stored Record is {said}.")
            read = {name: store.decode(hint, fields[name], at=name) for name, hint in known.items()}
            for whole, parts in (("config", CONFIG), ("details", DETAILS)):
                for name in parts.keys() & fields[whole].keys():
                    store.decode(parts[name], fields[whole][name], at=f"{whole}.{name}")
            _agree(**read)
        except StoreError as error:
            raise StoreError(f"{where}: {error}") from None
        record = cls(**read)
        if record.id != stored_id:
            raise StoreError(f"{where}: The key 'id' does not match the configuration it names.")
        return record


def _one_a_task(value: ArrayLike, tasks: int, name: str, owner: str) -> Float64[Tensor, " t"]:
    """A number for each task; of a matrix the diagonal; NaN for tasks that were never reached."""
    tensor = checks.as_tensor(value, name, owner)
    row = checks.vector(
        tensor.diagonal() if tensor.ndim == 2 and 1 not in tensor.shape else tensor, name, owner, finite=False
    )
    if len(row) > tasks:
        checks.refuse(name, owner, f"at most {tasks} long, one a task", len(row))
    return torch.cat([row, row.new_full((tasks - len(row),), math.nan)])


def _runs_of(results: Any, owner: str) -> Runs:  # noqa: ANN401
    """The runs that a user handed over, in whatever form."""
    from vestige.data.readers import runs as reading
    from vestige.data.readers.frames import as_table, is_frame

    if isinstance(results, reading.Runs):
        return results
    if isinstance(results, str | Path):
        return reading.read_runs([Path(results)])
    if isinstance(results, list | tuple) and results and all(isinstance(one, str | Path) for one in results):
        return reading.read_runs([Path(one) for one in results])
    if not isinstance(results, Mapping) and is_frame(results):
        table = as_table(results, owner)
        return reading.from_columns({n: table.column(n).to_pylist() for n in table.column_names}, "the table")
    if isinstance(results, Mapping) or (isinstance(results, list | tuple) and results and isinstance(results[0], dict)):
        return reading.from_value(plain(results), "the results")
    tensor = checks.as_tensor(results, "results", owner)
    if tensor.ndim not in (2, 3) or 0 in tensor.shape:
        must = "of shape (tasks, tasks) or (seeds, tasks, tasks)"
        checks.refuse("results", owner, must, f"shape {tuple(tensor.shape)}")
    stacked = tensor.cpu().double().reshape(-1, *tensor.shape[-2:]).tolist()
    return reading.Runs(dict(enumerate(stacked)))


def _agree(
    config: Mapping[str, Any],
    head: str,
    matrices: Mapping[str, Tensor],
    reference: Tensor | None,
    **read: Any,  # noqa: ANN401
) -> None:
    """Refuse fields that contradict each other: all are of the same tasks, and nothing is without a name."""
    tasks = len(next(iter(matrices.values()), ()))
    told: dict[str, Sized | None] = {f"matrices.{name}": matrix for name, matrix in matrices.items()}
    told |= {f"baseline.{name}": row for name, row in read["baseline"].items()}
    told |= {"reference": reference, "task_names": read["task_names"] or None}
    for key, each in told.items():
        if matrices and each is not None and len(each) != tasks:
            raise StoreError(f"The key '{key}' must be of {tasks} tasks, as 'matrices' are. Got {len(each)} instead.")
    if head and head not in matrices:
        must = f"a key of 'matrices': {', '.join(matrices) or 'there are none'}"
        raise StoreError(f"The key 'head' must be {must}. Got '{shortened(head, SHOWN)}' instead.")
    for key in ("version", "values", "baseline", "seconds", "bytes", "matrices"):
        if any(not name.strip() for name in (read | {"matrices": matrices})[key]):
            raise StoreError(f"The key '{key}' must have names. Got an empty one instead.")
    name = config.get("experiment", "a bare run")  # of folders and files, too
    if not NAME.fullmatch(name):
        raise StoreError(
            f"The key 'config.experiment' must be a plain name. Got {shortened(repr(name), SHOWN)} instead."
        )


def identity(kind: type, parameters: Iterable[tuple[str, Tensor]]) -> dict[str, Any]:
    """The fields of a Record that say what ran: its class, names and shapes of its parameters, its version."""
    ours = kind.__module__.partition(".")[0] in ("vestige", "vestige_papers")
    return {
        "learner": kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}",
        "structure": [f"{name} {'x'.join(map(str, p.shape))}".strip() for name, p in parameters],
        "version": {"learner": int(getattr(kind, "version", 1))},
    }


def run_id(
    config: Mapping[str, Any], seed: int, version: Mapping[str, int], learner: str = "", structure: Sequence[str] = ()
) -> str:
    """The id of a run; that of a unit of an experiment is known before it runs, and without learner and structure."""
    raised = {name: number for name, number in version.items() if number != 1}
    ran = {} if "experiment" in config else {"learner": learner, "structure": list(structure)}
    return store.content_id({"config": config, "seed": checks.whole(seed, "seed", "Record"), "version": raised} | ran)


def load_all(path: str | Path, on_damage: Callable[[StoreError], None] | None = None) -> list[Record]:
    """The Records of a file, one (.json) or many (.jsonl); damage is named by file, line and key.

    Where `on_damage` is given it hears of each Record that cannot be read, and the others are what is returned.
    """
    path, found = Path(path), []
    with store.passing_over(on_damage):
        if path.suffix != ".jsonl":
            return [Record.load(path)]
        for where, fields in store.load_lines(path, "record", on_damage):
            with store.passing_over(on_damage):
                found.append(Record._built(fields, where))
    return found


def save_all(records: Iterable[Record], path: str | Path) -> Path:
    """Add `records` to the file at `path` (.jsonl), a line each; they take the place of earlier versions."""
    path = Path(path)
    kept = load_all(path) if path.exists() else []
    found = {record.id: record for record in kept}
    for record in records:
        record.check_against(found.get(record.id, record), path)
        found[record.id] = record
    return store.save_lines(path, "record", [record._fields() for record in latest(found.values())])


def latest(records: Iterable[Record]) -> list[Record]:
    """One Record a configuration and seed, that of the highest version; by seed and then by id."""
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: sum(number - 1 for number in r.version.values())):
        found[run_id(record.config, record.seed, {}, record.learner, record.structure)] = record
    return sorted(found.values(), key=lambda record: (record.seed, record.id))


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - a field of a Record
    """Whether two fields say the same; numbers that are not finite are stored as one."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        a, b = (value.where(value.isfinite(), math.nan) for value in (one, other))
        return a.shape == b.shape and torch.allclose(a, b, rtol=SAME, atol=SAME, equal_nan=True)
    return bool(type(one) is type(other) and one == other)
