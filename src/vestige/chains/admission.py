"""The door of a chain: what a step may be given. Everything that can be refused is refused here, before any work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from vestige.chains.report import AVERAGE, Task
from vestige.core import checks
from vestige.core.checks import ArrayLike


def admit(
    real: Mapping[Task, ArrayLike],
    model: Mapping[Task, ArrayLike],
    born: Mapping[Task, int],
    width: int | None,
    min_samples: int,
    owner: str,
) -> tuple[dict[Task, Tensor], dict[Task, Tensor]]:
    """Data of tasks that are new, and samples of these and of all in `born`, as float64; `width` None: any."""
    for task in (*real, *model):
        if isinstance(task, bool) or not isinstance(task, str | int) or task == AVERAGE:
            checks.refuse("task", owner, f"a whole number, or a word other than '{AVERAGE}'", repr(task))
    for task in real:
        if task in born:
            seen = f"data of task {task!r}, which was seen at step {born[task]} and has left"
            checks.refuse("real", owner, "data of new tasks", seen)
    needed = [*born, *real]
    if not needed:
        checks.refuse("real", owner, "given at the first step", "nothing")
    for task in model:
        if task not in needed:
            checks.refuse("model", owner, f"of known or new tasks ({listed(needed)})", f"task {task!r}")
    missing = [task for task in needed if task not in model]
    if missing:
        checks.refuse("model", owner, "given for every known and new task", f"none for {listed(missing)}")
    admitted: tuple[dict[Task, Tensor], dict[Task, Tensor]] = ({}, {})
    for name, given, into in zip(("real", "model"), (real, model), admitted, strict=True):
        for task, x in given.items():
            label = f"{name}[{task!r}]"
            into[task] = checks.samples(x, label, owner, min_rows=min_samples, width=width)
            width = into[task].shape[1]
    return admitted


def listed(tasks: Iterable[Task]) -> str:
    """Tasks in a sentence."""
    return ", ".join(repr(task) for task in tasks)
