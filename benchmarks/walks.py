"""Four walks through the code: how many packages each passes, and how deep its calls go.

`python -m benchmarks.walks` runs each once to warm up (imports and caches do not count), and once under a profiler that
hears every call. Packages are those directly under `vestige`; `vestige_papers` is one; `core` and `store` do not count.
Depth is the largest number of frames of our own code on the stack; lambdas, generator expressions and comprehensions
have none of their own.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np

import vestige

MOST_PACKAGES, MOST_DEPTH = 10, 14
UNCOUNTED = {"core", "store"}
SOURCE = str(Path(vestige.__file__).parents[1])
EXPERIMENT = "rwalk-table1-mnist"


@dataclass
class Walk:
    """What a profiler heard."""

    packages: set[str] = field(default_factory=set)
    deepest: tuple[str, ...] = ()
    stack: list[str] = field(default_factory=list)

    def hear(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        if event == "return":
            if self.stack:
                self.stack.pop()
            return
        place = Path(code.co_filename).relative_to(SOURCE)
        self.stack.append(f"{place.with_suffix('').as_posix().replace('/', '.')}.{code.co_name}")
        package = place.parts[1] if place.parts[0] == "vestige" else place.parts[0]
        if package not in UNCOUNTED and not package.endswith(".py"):
            self.packages.add(package)
        if len(self.stack) > len(self.deepest):
            self.deepest = tuple(self.stack)


@contextmanager
def tables(folder: Path) -> Iterator[list[str]]:
    """Two small .csv files of mixed columns."""
    random = np.random.default_rng(0)
    names = []
    for name, shift in (("real", 0.0), ("fake", 0.5)):
        rows = zip(random.normal(shift, 1, 300), random.normal(0, 1, 300), random.choice(["a", "b"], 300), strict=True)
        lines = ["height,weight,kind", *(f"{x:.6f},{y:.6f},{kind}" for x, y, kind in rows)]
        names.append(str(folder / f"{name}.csv"))
        Path(names[-1]).write_text("\n".join(lines) + "\n")
    yield names


def compare(folder: Path) -> Callable[[], object]:
    from vestige.cli import main

    with tables(folder) as (real, fake):
        return lambda: main(["compare", real, fake])


def batch(folder: Path) -> Callable[[], object]:
    from vestige import data
    from vestige.continual.learners import build

    stream = data.split(data.load("digits"), 5, per_class=20)
    learner = build("rwalk_s", stream, seed=0)
    for task in stream.tasks():
        learner.begin_task(task)
        learner.observe(task.x, task.y)
        x, y = task.x[:16].clone(), task.y[:16].clone()
        if task.info.index == 0:
            learner.end_task(task)
    return lambda: learner.observe(x, y)


def monitor(folder: Path) -> Callable[[], object]:
    from vestige.monitor import Monitor

    random = np.random.default_rng(0)
    made = Monitor.create(folder / f"monitor{len(list(folder.iterdir()))}")
    samples = {k: random.normal(i, 1, (200, 2)) for i, k in enumerate("ab")}
    made.step({"a": samples["a"]}, {"a": samples["a"] + 0.1})
    return lambda: made.step({"b": samples["b"]}, {k: x + 0.2 for k, x in samples.items()})


def experiment(folder: Path) -> Callable[[], object]:
    from vestige.cli import main

    out = str(folder / f"runs{len(list(folder.iterdir()))}")
    return lambda: main(["run", EXPERIMENT, "--preset", "smoke", "--workers", "0", "--out", out])


WALKS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "a CSV through compare": compare,
    "a batch through rwalk with a memory": batch,
    "a second monitor step": monitor,
    "an experiment from shell to table": experiment,
}


def walk(prepare: Callable[[Path], Callable[[], object]]) -> Walk:
    """One walk, the second time that it is taken."""
    heard = Walk()
    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            prepare(Path(folder))()
            again = prepare(Path(folder))
            sys.setprofile(heard.hear)
            try:
                code = again()
            finally:
                sys.setprofile(None)
    if isinstance(code, int) and code:
        raise SystemExit(quiet.getvalue())
    return heard


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"at most {MOST_PACKAGES} packages and {MOST_DEPTH} calls deep")
    for column in ("walk", "packages", "depth", "which"):
        table.add_column(column, overflow="fold")
    for name, prepare in WALKS.items():
        found = walk(prepare)
        table.add_row(name, str(len(found.packages)), str(len(found.deepest)), ", ".join(sorted(found.packages)))
        if "--deepest" in sys.argv:
            print(name, *found.deepest, sep="\n    ")
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
