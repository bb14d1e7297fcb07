"""Matrices of several runs, one a seed, as frameworks of continual learning write them.

- Long tables (delimited text, .parquet, .arrow, .feather, frames): a row a cell, with columns for what was trained up
  to, what was tested, the accuracy and, unless there is one run, the seed; `COLUMNS` has the names that are known.
  `eval_results.csv` of Avalanche's CSVLogger is such a table. Tasks are whole numbers, counted from any, or words in
  the order in which they come; a row that was measured before any training gives the baseline.
- Stacks: .npy of (seeds, tasks, tasks), or nested lists in JSON; an object of matrices by seed.
- Avalanche's metrics in JSON: a list with the dict of each evaluation, or the dict of all of them, in which
  `Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000` names the accuracy of experience 0. The evaluations are those
  after each experience; one more than there are is from before any training.
- `logs.pyd` of Mammoth: a line a run, a dict as Python prints it, with `accuracy_J_taskI` for task J after task I. It
  is taken apart by its quotes and brackets, never evaluated. Runs of several settings in one file are refused.

A file of one matrix (see `matrices`) is one run. Of several files each is a run of its own, numbered in their order,
unless they say their seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from vestige.core import InputError
from vestige.core.errors import shortened
from vestige.data.readers import matrices
from vestige.data.readers.matrices import Cells, cells
from vestige.data.readers.tables import NUMBER, is_missing

# Names of the columns of a long table, in small letters and without what is no letter.
COLUMNS = {
    "seed": ("seed", "run", "runid", "repeat", "repetition", "replicate", "trial"),
    "trained": ("trained", "trainedon", "trainedupto", "trainedtask", "traintask", "trainingexp", "trainexp", "after",
                "aftertask", "trainingtask", "train"),
    "tested": ("tested", "testedon", "testedtask", "testtask", "evalexp", "evaltask", "task", "on", "test"),
    "accuracy": ("accuracy", "acc", "evalaccuracy", "testaccuracy", "testacc", "top1", "value", "score", "loss", "r"),
}  # fmt: skip
METRIC = re.compile(r"Top1_Acc_Exp/eval_phase/test_stream(?:/Task\d{1,9})?/Exp(\d{1,9})", re.ASCII)
CELL = re.compile(r"accuracy_(\d{1,9})_task(\d{1,9})", re.ASCII)
# Of Mammoth's arguments: what two runs of one setting may differ in.
BY_RUN = re.compile(
    r"seed|conf_\w+|accmean_task\d+|accuracy_\d+_task\d+|wandb\w*|notes|\w*timestamp\w*|\w*transfer|forgetting"
)
SCALAR = re.compile(r"(?:np|numpy)\.float\d+\((.*)\)")
DEPTH = 50  # of brackets within a value
BRACKETS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True)
class Runs:
    """Matrices by seed, all of one shape; what was reached before training; names of tasks, where there are any."""

    matrices: dict[int, list[list[float]]]
    baseline: dict[int, list[float]] = field(default_factory=dict)
    tasks: list[str] | None = None
    seeds_told: bool = False
    cells: Cells | None = None  # of a file that holds one matrix

    @property
    def only(self) -> list[list[float]]:
        """The first matrix."""
        return next(iter(self.matrices.values()))


def read_runs(paths: Sequence[Path], *, labels: str = "auto") -> Runs:
    """The runs in `paths`; see the top of this file."""
    if not paths:
        raise InputError("The files of matrices must be at least one. Got none instead.")
    found = {path: _read(path, labels) for path in paths}
    if len(found) == 1:
        return next(iter(found.values()))
    told = all(runs.seeds_told for runs in found.values())
    together: dict[int, list[list[float]]] = {}
    baseline: dict[int, list[float]] = {}
    for path, runs in found.items():
        for own, matrix in runs.matrices.items():
            seed = own if told else len(together)
            if seed in together:
                raise InputError(
                    f"The files must have runs of different seeds. Got seed {seed} again in {path} instead."
                )
            together[seed] = matrix
            if own in runs.baseline:
                baseline[seed] = runs.baseline[own]
    first = next(iter(found.values()))
    return _of_one_shape(Runs(together, baseline, first.tasks, told), " and ".join(map(str, paths[:3])))


def _read(path: Path, labels: str) -> Runs:
    if path.suffix.lower() in (".parquet", ".arrow", ".feather"):
        from vestige.data.readers.address import locate
        from vestige.data.readers.tables import read_table

        table, _ = read_table(locate(path))
        matrices.require_cells(table.num_rows, path)
        return from_columns({name: table.column(name).to_pylist() for name in table.column_names}, str(path))
    data = matrices.file_bytes(path)
    if data.startswith(b"\x93NUMPY"):
        return _stacked(matrices.npy_values(data, path), path)
    text = matrices.file_text(data, path)
    start = text.lstrip()[:2]
    if start == "{'":
        return _mammoth(text, path)
    if start.startswith(("[", "{")):
        return from_value(matrices.json_values(text, path), path)
    if (long := _long_text(text, path)) is not None:
        return long
    found = cells(text, str(path), labels=labels)
    return Runs({0: found.rows}, cells=found)


def _stacked(value: Any, path: object) -> Runs:  # noqa: ANN401 - whatever a file holds
    """Nested lists of two or three levels."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(row, list) and row and isinstance(row[0], list) for row in value)
    ):
        found = {seed: matrices.nested(one, Path(f"{path}, run {seed}"), False) for seed, one in enumerate(value)}
        return _of_one_shape(Runs(found), path)
    return Runs({0: (rows := matrices.nested(value, Path(str(path)), False))}, cells=Cells(rows))


def from_value(value: Any, path: object) -> Runs:  # noqa: ANN401 - whatever JSON holds
    """Plain nested values: a matrix, a stack, matrices by seed, or what Avalanche returns from its evaluations."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return _evaluations(value, path)
    if isinstance(value, list):
        return _stacked(value, path)
    if not isinstance(value, dict) or not value:
        raise InputError(f"The file {path} must hold matrices. Got {matrices.shorten(value)} instead.")
    if key := next((key for key in ("R", "matrix") if key in value), None):
        return from_value(value[key], path)
    if any(METRIC.fullmatch(str(name)) for name in value):
        return _all_metrics(value, path)
    seeds = {str(name): re.fullmatch(r"(?:seed|run)?[ _-]?(\d{1,18})", str(name)) for name in value}
    if not all(seeds.values()):
        got = ", ".join(map(repr, list(value)[:5]))
        raise InputError(
            f"The object in {path} must have a key 'R' or 'matrix', matrices by seed, or Avalanche's metrics. "
            f"Got the keys {shortened(got, 120)} instead."
        )
    found: dict[int, list[list[float]]] = {}
    baseline: dict[int, list[float]] = {}
    tasks = None
    for name, match in seeds.items():
        one, seed = from_value(value[name], f"{path}, '{name}'"), int(match[1]) if match else 0
        if len(one.matrices) > 1 or seed in found:
            raise InputError(f"The runs in {path} must be one matrix a seed. Got more for '{name}' instead.")
        found[seed], tasks = one.only, one.tasks
        if one.baseline:
            baseline[seed] = next(iter(one.baseline.values()))
    return _of_one_shape(Runs(found, baseline, tasks, True), path)


def _evaluations(evaluations: Sequence[Mapping[str, Any]], path: object) -> Runs:
    """A dict of metrics for each evaluation, in order."""
    columns: dict[int, list[Any]] = {}
    for i, metrics in enumerate(evaluations):
        for name, value in metrics.items():
            if match := METRIC.fullmatch(str(name)):
                columns.setdefault(int(match[1]), [None] * len(evaluations))[i] = value
    if not columns:
        raise InputError(
            f"The evaluations in {path} must have metrics called Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000. "
            f"Got {shortened(', '.join(map(repr, list(evaluations[0])[:3])), 120) or 'none'} instead."
        )
    return _by_experience(columns, path)


def _all_metrics(metrics: Mapping[str, Any], path: object) -> Runs:
    """The dict of all evaluations: steps and values of each metric, its values alone, or one."""
    columns: dict[int, list[Any]] = {}
    for name, value in metrics.items():
        if match := METRIC.fullmatch(str(name)):
            both = (
                isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(v, list | tuple) for v in value)
            )
            values = list(value[1]) if both else list(value) if isinstance(value, list | tuple) else [value]
            columns[int(match[1])] = values
    return _by_experience(columns, path)


def _by_experience(columns: Mapping[int, list[Any]], path: object) -> Runs:
    """Columns of R; as many evaluations as experiences, one more (the first from before training), or the last."""
    tasks, counts = sorted(columns), sorted({len(column) for column in columns.values()})
    t = len(tasks)
    if len(counts) > 1 or counts[0] not in (1, t, t + 1):
        must = f"one evaluation of each of {t} experiences after each of them, or one more from before any training"
        raise InputError(f"The metrics in {path} must be {must}. Got {' and '.join(map(str, counts))} instead.")
    rows = [
        [matrices.value_of(columns[task][i], f"Evaluation {i + 1}, experience {task} of {path}") for task in tasks]
        for i in range(counts[0])
    ]
    baseline = {0: rows.pop(0)} if len(rows) == t + 1 else {}
    empty = [[math.nan] * t for _ in range(t - len(rows))]  # before the only one
    return Runs({0: empty + rows}, baseline, [str(task) for task in tasks])


def _long_text(text: str, path: Path) -> Runs | None:
    """A long table of delimited text; None where its header is that of no such table."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not _roles(re.split(r"[\t;,]", first) if re.search(r"[\t;,]", first) else first.split()):
        return None
    lines, _ = matrices.split_lines(text, str(path))
    (_, header), body = lines[0], lines[1:]
    for number, line in body:
        if len(line) != len(header):
            matrices.refuse_width(f"Line {number} of {path}", len(header), len(line))
    return from_columns({name: [line[j] for _, line in body] for j, name in enumerate(header)}, str(path))


def _roles(names: Sequence[str]) -> dict[str, str]:
    """Which column is what; nothing unless trained, tested and accuracy are among them."""
    bare = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in names}
    found = {
        role: min(fitting, key=lambda name: known.index(bare[name]))
        for role, known in COLUMNS.items()
        if (fitting := [name for name in names if bare[name] in known])
    }
    return found if {"trained", "tested", "accuracy"} <= found.keys() else {}


def from_columns(columns: Mapping[str, Sequence[Any]], path: str) -> Runs:
    """The runs of a long table."""
    roles = _roles(list(columns))
    if not roles:
        wanted = "; ".join(f"{role}: {', '.join(known[:4])}" for role, known in COLUMNS.items())
        got = shortened(", ".join(columns), 120) or "none"
        raise InputError(f"The columns of {path} must be those of a long table ({wanted} ...). Got {got} instead.")
    n = len(columns[roles["tested"]])
    if n == 0:
        raise InputError(f"The table in {path} must hold a row for each cell. Got none instead.")
    trained, tested = (_tasks(columns[roles[role]], roles[role], path) for role in ("trained", "tested"))
    seeds, told = _seeds(columns[roles["seed"]], path) if "seed" in roles else ([0] * n, False)
    order = _ordered([task for task in tested if task is not None])
    before = [task for task in _ordered([task for task in trained if task is not None]) if task not in order]
    if before and (len(before) > 1 or None in trained or _ordered([*order, before[0]])[0] != before[0]):
        got = f"'{before[-1]}'"
        raise InputError(
            f"The tasks that were trained in {path} must be among those that were tested. Got {got} instead."
        )
    t = len(order)
    matrices.require_cells(t * t * len(set(seeds)), path)
    place = {task: i for i, task in enumerate(order)}
    found = {seed: [[math.nan] * t for _ in range(t)] for seed in sorted(set(seeds))}
    baseline: dict[int, list[float]] = {}
    seen: set[tuple[int, Any, Any]] = set()
    values = columns[roles["accuracy"]]
    for i, (seed, after, on) in enumerate(zip(seeds, trained, tested, strict=True)):
        where = f"Data row {i + 1}, column {roles['accuracy']} of {path}"
        if on is None:
            raise InputError(
                f"{where.replace(roles['accuracy'], roles['tested'])} must name a task. Got nothing instead."
            )
        if (seed, after, on) in seen:
            raise InputError(
                f"{where} must be a cell that was not there before. Got task {on} after {after} again instead."
            )
        seen.add((seed, after, on))
        cell = values[i]
        value = (
            matrices.cell_of(cell, where, decimal_comma=False)
            if isinstance(cell, str)
            else matrices.value_of(cell, where)
        )
        if after is None or after not in place:
            baseline.setdefault(seed, [math.nan] * t)[place[on]] = value
        else:
            found[seed][place[after]][place[on]] = value
    if all(math.isnan(value) for one in found.values() for row in one for value in row):
        raise InputError(f"The table in {path} must hold accuracies after training. Got none instead.")
    return Runs(found, baseline, [str(task) for task in order], told)


def _tasks(cells: Sequence[Any], name: str, path: str) -> list[Any]:
    """Tasks as whole numbers or words; None where nothing was trained."""
    found: list[Any] = []
    for i, cell in enumerate(cells):
        text = str(cell).strip() if cell is not None else ""
        number = float(text) if NUMBER.fullmatch(text) else math.nan
        if is_missing(text):
            found.append(None)
        elif math.isfinite(number) and number == int(number) and abs(number) < 10**9:
            found.append(int(number))
        elif isinstance(cell, str) and math.isnan(number):
            found.append(shortened(text, 40))
        else:
            got = matrices.shorten(cell)
            raise InputError(f"Data row {i + 1}, column {name} of {path} must be a task. Got {got} instead.")
    return found


def _ordered(tasks: Sequence[Any]) -> list[Any]:
    """Each once: numbers by size, otherwise in the order in which they come."""
    distinct = list(dict.fromkeys(tasks))
    return sorted(distinct) if all(isinstance(task, int) for task in distinct) else distinct


def _seeds(cells: Sequence[Any], path: str) -> tuple[list[int], bool]:
    """Whole numbers as they are; words numbered in the order in which they come."""
    tasks = _tasks(cells, "seed", path)
    if all(isinstance(seed, int) and seed >= 0 for seed in tasks):
        return tasks, True
    place = {seed: i for i, seed in enumerate(dict.fromkeys(tasks))}
    return [place[seed] for seed in tasks], False


def _mammoth(text: str, path: Path) -> Runs:
    """A line a run, of one setting."""
    runs: list[dict[str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            runs.append(dict(_pairs(line.strip(), f"Line {number} of {path}")))
            matrices.require_cells(sum(map(len, runs)), path)
    settings = [{key: value for key, value in run.items() if not BY_RUN.fullmatch(key)} for run in runs]
    for other in settings[1:]:
        if other != settings[0]:
            key = min(k for k in {*settings[0], *other} if settings[0].get(k) != other.get(k))
            got = f"{shortened(key, 40)} = {shortened(settings[0].get(key), 40)} and {shortened(other.get(key), 40)}"
            raise InputError(f"The runs in {path} must be of one setting. Got {got} instead.")
    told = all(re.fullmatch(r"\d{1,18}", run.get("seed", "")) for run in runs)
    rows: dict[str, list[Any]] = {"seed": [], "trained": [], "tested": [], "accuracy": []}
    for i, run in enumerate(runs):
        marked = {key: match for key in run if (match := CELL.fullmatch(key))}
        if not marked:
            raise InputError(f"Run {i + 1} of {path} must have numbers called accuracy_1_task1 ... Got none instead.")
        for key, match in marked.items():
            bare = SCALAR.fullmatch(run[key])
            cell = [int(run["seed"]) if told else i, int(match[2]), int(match[1]), bare[1] if bare else run[key]]
            for column, value in zip(rows.values(), cell, strict=True):
                column.append(value)
    return replace(_of_one_shape(from_columns(rows, str(path)), path), seeds_told=told)


def _pairs(line: str, place: str) -> Iterator[tuple[str, str]]:
    """Keys and values, as they are spelt, of a dict as Python prints it."""
    if not line.startswith("{") or not line.endswith("}"):
        _refuse_line(place)
    end = len(line) - 1
    at = _skipped(line, 1)
    while at < end:
        close = _string_end(line, at, end, place)
        key, at = line[at + 1 : close], close + 1
        if line[at : at + 1] != ":":
            _refuse_line(place)
        start = at = at + 1
        open_brackets: list[str] = []
        while at < end and (open_brackets or line[at] != ","):
            if line[at] in "'\"":
                at = _string_end(line, at, end, place)
            elif line[at] in BRACKETS and len(open_brackets) < DEPTH:
                open_brackets.append(BRACKETS[line[at]])
            elif line[at] in BRACKETS or (line[at] in ")]}" and (not open_brackets or open_brackets.pop() != line[at])):
                _refuse_line(place)
            at += 1
        if open_brackets:
            _refuse_line(place)
        yield key, line[start:at].strip()
        at = _skipped(line, at + 1)


def _skipped(line: str, at: int) -> int:
    while line[at : at + 1].isspace():
        at += 1
    return at


def _string_end(line: str, at: int, end: int, place: str) -> int:
    """Where the text that begins at `at` ends."""
    quote = line[at]
    if quote not in "'\"":
        _refuse_line(place)
    at += 1
    while at < end and line[at] != quote:
        at += 2 if line[at] == "\\" else 1
    if at >= end:
        _refuse_line(place)
    return at


def _refuse_line(place: str) -> NoReturn:
    raise InputError(f"{place} must be a dict of numbers and words as Python prints it. Got something else instead.")


def _of_one_shape(runs: Runs, path: object) -> Runs:
    shapes = {(len(one), len(one[0])) for one in runs.matrices.values()}
    if len(shapes) > 1:
        got = " and ".join(f"{rows} x {columns}" for rows, columns in sorted(shapes)[:3])
        raise InputError(f"The runs in {path} must be of the same tasks. Got {got} instead.")
    return runs
