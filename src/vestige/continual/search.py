"""Settings of a learner chosen on rows that are held out from training: several seeds, and never a test row.

    found = vs.search(stream, "ewc", {"lam": [10, 100, 1000]}, epochs=5)
    learner = vs.methods.build("ewc", stream, **found.chosen)

What it runs on is `stream.validation`: every n-th training row of a class is tested on in place of the test set, which
that stream does not hold. A setting is scored by its mean over at least `LEAST_SEEDS` seeds, and their spread is
reported beside it: one seed chooses noise.

A search over the whole stream looks at tasks that a learner in use would not have met when its settings must be fixed.
`tasks=k` is the stricter protocol (Chaudhry et al. 2019, "Efficient lifelong learning with A-GEM", section 2: settings
are chosen on the first few tasks alone); the chosen setting then runs on all of them.
"""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vestige.continual import protocol
from vestige.continual.learners import METHODS, Learner, build
from vestige.continual.record import Record, Searched, Tried
from vestige.core import checks
from vestige.data.stream import Stream
from vestige.metrics import matrix

LEAST_SEEDS = 3
NTH = 20  # every n-th row of a class is held out
FEW, NTH_FEW = 100, 6  # with at most so many rows of a class, more of them are
Score = Callable[[Record], float]
Make = Callable[..., Learner]


def average_accuracy(record: Record) -> float:
    """A after the last task in percent, under the head that the stream declared."""
    return 100 * matrix.average_accuracy(record.R)


def first_tasks(record: Record, tasks: int | None) -> Record:
    """The Record that a run over the first `tasks` alone would have been read by: their part of every matrix."""
    if tasks is None:
        return record
    tasks = checks.whole(tasks, "tasks", "a search", low=1, high=len(record.R))
    parts = {name: each[:tasks, :tasks] for name, each in record.matrices.items()}
    rows = {name: row[:tasks] for name, row in record.baseline.items()}
    reference = None if record.reference is None else record.reference[:tasks]
    names = record.task_names[:tasks]
    return replace(record, matrices=parts, baseline=rows, reference=reference, task_names=names)


def by_setting(
    records: Iterable[Record],
    setting: Callable[[Record], dict[str, Any]],
    score: Score = average_accuracy,
    tasks: int | None = None,
) -> list[Tried]:
    """Records that were run on validation rows by what `setting` says they tried, in the order of their coming.

    `tasks` scores them by the first tasks alone.
    """
    found: dict[str, Tried] = {}
    for record in records:
        point = setting(record)
        each = found.setdefault(json.dumps(point), Tried(point, [], []))
        each.scores.append(score(first_tasks(record, tasks)))
        each.records.append(record.id)
    return list(found.values())


def best(tried: Sequence[Tried], owner: str = "search") -> Tried:
    """The setting with the best mean over seeds, of equals the first; too few seeds are refused."""
    seeds = min(len(each.scores) for each in tried)
    if seeds < LEAST_SEEDS:
        checks.refuse("seeds", owner, f"at least {LEAST_SEEDS}: one seed chooses noise", seeds)
    return max(tried, key=lambda each: each.mean)


def seen_by(tasks: int | None, rows: str = "validation data") -> str:
    """What a search saw, in words."""
    return f"{rows}, {'all tasks' if tasks is None else f'the first {tasks} tasks alone'}"


def rows_held_out(per_class: int | None) -> int:
    """Every how-manieth row of a class is held out where a class has so many (None: many)."""
    return NTH_FEW if per_class is not None and per_class <= FEW else NTH


def search(
    stream: Stream,
    method: str | Make,
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: int = LEAST_SEEDS,
    tasks: int | None = None,
    nth: int | None = None,
    score: Score = average_accuracy,
    options: Mapping[str, Any] | None = None,
    **training: Any,  # noqa: ANN401 - of protocol.run
) -> Searched:
    """Try every combination of `grid` on held-out training rows of `stream`, and say which is best.

    Parameters
    ----------
    stream
        The stream that the setting is for; its test sets are not touched.
    method
        A name of `vestige.methods`, or what makes a learner: `make(stream, seed=..., **settings)`.
    grid
        {field: values}: fields of the learner's configuration, or arguments of `vestige.run` such as "epochs".
    seeds
        How many runs of each setting, at least three.
    tasks
        Choose on the first `tasks` alone; None: on all of them.
    nth
        Every n-th training row of a class is held out; None: 20, or 6 of classes of at most 100 rows.
    score
        What a Record is worth, higher is better; average accuracy in percent if not given.
    options
        Further fields of the learner, the same in every run.
    training
        Arguments of `vestige.run`, the same in every run.

    Returns
    -------
    Searched
        `chosen`, {field: value}, and `tried`, each setting with its scores by seed, their mean and spread.
    """
    owner = "search"
    seeds = checks.whole(seeds, "seeds", owner, low=LEAST_SEEDS)
    if not grid or not all(grid.values()):
        checks.refuse("grid", owner, "a field with values", dict(grid))
    nth = nth or rows_held_out(stream.smallest_class())
    held = stream.validation(nth, tasks)
    of_run = set(inspect.signature(protocol.run).parameters) - {"stream", "learner", "seed"}
    if isinstance(method, str):
        own = METHODS[checks.one_of(method, METHODS, "method", owner)].default_config().__dataclass_fields__
        for name in grid:
            checks.one_of(name, {*own, *of_run}, "grid", owner)
        of_run -= set(own)
    make: Make = method if callable(method) else lambda stream, **given: build(method, stream, **given)
    tried = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        told = training | {name: value for name, value in point.items() if name in of_run}
        given = {**(options or {}), **{name: value for name, value in point.items() if name not in of_run}}
        records = [protocol.run(held, make(held, seed=seed, **given), seed=seed, **told) for seed in range(seeds)]
        tried.append(Tried(point, [score(record) for record in records], [record.id for record in records]))
    return Searched(seen_by(tasks, f"every {nth}th training row of a class"), best(tried).set, tried)
