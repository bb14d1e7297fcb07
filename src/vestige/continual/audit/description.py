"""An evaluation that somebody describes: of another paper in a small TOML file, or of a Record without an audit.

    [evaluation]
    name = "Two-task transfer"
    tasks = 2
    shared_head = true
    labels_at_test = false
    same_inputs = false          # tasks are the same inputs under a fixed map, such as a permutation
    kept_samples = 0             # of past tasks, when the last one trains
    retrains = false             # on past tasks, at any time
    borders_told = true
    continuous = false
    overlapping = false
    seconds = [10.0, 10.5]       # of training, by task
    held_bytes = [100000, 100000]

Every field but the name may be left out: its question is then not measured. What a file says is evidence by
declaration, and the answer names the line.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from vestige.continual.audit.answers import Audit, Facts, audit_of
from vestige.continual.record import Record
from vestige.core import InputError
from vestige.core.checks import one_of
from vestige.store.codec import decode

TABLE = "evaluation"
BOOLEANS = ("shared_head", "labels_at_test", "same_inputs", "retrains", "borders_told", "continuous", "overlapping")
COUNTS = {"tasks": 1, "kept_samples": 0, "kept_bytes": 0}  # and the least that makes sense
LARGEST = 2**53  # up to which a float is exact; nothing that is counted here comes near it
FIELDS = ("name", *BOOLEANS, *COUNTS, "seconds", "held_bytes")


def described(path: str | Path) -> Audit:
    """The audit of the evaluation that the file describes; a bad file is refused by line and field."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is not text in UTF-8.") from None
    except ValueError as error:  # what tomllib says of a bad file, and Python of a number with thousands of digits
        raise InputError(f"{path}: this is not TOML: {error}.") from None
    fields = document.get(TABLE)
    if not isinstance(fields, dict) or set(document) != {TABLE}:
        tables = ", ".join(f"[{name}]" for name in document) or "none"
        raise InputError(f"{path}: there must be one table, [{TABLE}]. Got {tables} instead.")
    if "name" not in fields:
        raise InputError(f"{path}: the field 'name' is missing.")
    lines = {name: _line(text, name) for name in fields}
    for name, value in fields.items():
        place = f"{path}, line {lines[name]}: "
        try:
            one_of(name, FIELDS, "field", "an evaluation")
        except InputError as error:
            raise InputError(place + str(error)) from None
        _check(name, value, place, fields.get("tasks"))
    where = {name: f"declared in line {line}" for name, line in lines.items()}
    known = {name: value for name, value in fields.items() if name != "name"}
    return audit_of(Facts(subject=fields["name"], where=where, **known))


def _line(text: str, name: str) -> int:
    pattern = re.compile(rf"""^\s*["']?{re.escape(name)}["']?\s*=""")
    return next((i for i, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _check(name: str, value: Any, place: str, tasks: Any) -> None:  # noqa: ANN401 - whatever the file says
    if name == "name":
        right, wanted = isinstance(value, str) and bool(value.strip()), "some words"
    elif name in BOOLEANS:
        right, wanted = isinstance(value, bool), "true or false"
    elif name in COUNTS:
        right = isinstance(value, int) and _cost(value) and value >= COUNTS[name]
        wanted = f"a whole number from {COUNTS[name]} to {LARGEST}"
    else:
        right = isinstance(value, list) and bool(value) and all(_cost(v) for v in value)
        wanted = f"a list of numbers from 0 to {LARGEST}, one a task"
        if right and isinstance(tasks, int) and len(value) != tasks:
            right, wanted = False, f"{wanted}, of which there are {tasks}"
    if not right:
        raise InputError(f"{place}the '{name}' of an evaluation must be {wanted}. Got {value!r} instead.")


def _cost(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


def from_record(record: Record) -> Audit:
    """The audit that a Record carries, or what can be said of one that carries none."""
    if record.audit is not None:
        found: Audit = decode(Audit, record.audit)
        return found
    if not record.task_names:
        raise InputError(f"The Record {record.id} is not of a stream of tasks: there is nothing to audit in it.")
    return audit_of(facts_of(record))


def facts_of(record: Record) -> Facts:
    """What a Record of a stream of tasks says by itself."""
    memory = record.bytes.get("memory")
    held = [sizes for name, sizes in record.bytes.items() if name != "peak"]
    return Facts(
        subject=f"Record {record.id}",
        tasks=len(record.task_names),
        shared_head=record.head == "single",
        kept_samples=None if memory is None or memory[-1] else 0,
        kept_bytes=None if memory is None else memory[-1],
        seconds=record.seconds.get("train_cpu"),
        held_bytes=[float(sum(sizes)) for sizes in zip(*held, strict=True)] or None,
    )
