"""How the main jobs grow: `python -m benchmarks growth [--only JOB] [--again] [--plan]`.

Each job runs at four sizes of each of its axes (rows n, columns d, tasks, parameters, members), each axis in a process
of its own on one thread, from the smallest size to the largest. A point is stored when it is finished, and one that is
stored is not run again unless `--again` says so; so a run that was stopped goes on. `python -m benchmarks page` draws
what is stored.

- Time is CPU time: the least of three calls, or of as many as fit into `SHORT` seconds, after one call at the smallest
  sizes that pays for imports and caches. Where something else does the same or less, `beside`, it is timed in turn in
  the same process, and the ratio of the two is what should be read: the speed of a machine drifts.
- Memory is what the process held at its peak, `peak` as the system counts it for the whole process, data and
  libraries included, and `added` by the call above what was held before.
- The exponent is the slope of a line by least squares through (log size, log seconds), with its standard error from
  what the points leave (two degrees of freedom of four points). Small sizes have fixed costs, which make a slope less
  steep than the job will be: the slope between the last two points stands beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import stored
from benchmarks.environments import ONE_THREAD, ROOT
from benchmarks.timing import cpu_seconds

FILE = stored.RESULTS / "growth.jsonl"
REPEATS, SHORT = 3, 2.0
KEY = ("job", "axis", "size")
Sizes = Mapping[str, int]


class Work(NamedTuple):
    """What is timed, and what is timed beside it."""

    run: Callable[[], object]
    beside: Callable[[], object] | None = None


@dataclass(frozen=True)
class Job:
    """`make(sizes)` gives the work; `axes` are the sizes that are tried, the others stay at `base`."""

    make: Callable[[Sizes], Work]
    base: Sizes
    axes: Mapping[str, tuple[int, ...]]
    kind: str  # "kernel" or "end to end"
    what: str
    beside: str = ""
    seconds: float = 1.0  # CPU seconds that a point takes, about, its repeats and its share of the imports included

    def smallest(self) -> dict[str, int]:
        """The least of every axis."""
        return dict(self.base) | {axis: min(sizes) for axis, sizes in self.axes.items()}


class Slope(NamedTuple):
    """An exponent, its standard error, and the slope between the last two points."""

    exponent: float
    error: float
    last: float


def slope(sizes: Sequence[float], values: Sequence[float]) -> Slope:
    """The exponent b of values = a sizes^b, by least squares on logarithms."""
    x, y = [math.log(s) for s in sizes], [math.log(v) for v in values]
    n, mean_x, mean_y = len(x), sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    b = sum((a - mean_x) * (c - mean_y) for a, c in zip(x, y, strict=True)) / spread
    left = sum((c - mean_y - b * (a - mean_x)) ** 2 for a, c in zip(x, y, strict=True))
    error = math.sqrt(left / (n - 2) / spread) if n > 2 else math.nan
    return Slope(b, error, (y[-1] - y[-2]) / (x[-1] - x[-2]))


def pair(n: int, d: int) -> tuple[Any, Any]:
    """Two sets of skewed, dependent columns, the second shifted a little."""
    from benchmarks.vestige import numbers

    return numbers(n, d, 1), numbers(n, d, 2) + 0.1


def ratio(sizes: Sizes) -> Work:
    """The default of `vestige.ratios`: a classifier's logits."""
    from sklearn.linear_model import LogisticRegression

    from vestige.ratios import Logistic

    p, q = pair(sizes["n"], sizes["d"])
    x, y = [*p.tolist(), *q.tolist()], [1] * len(p) + [0] * len(q)
    return Work(lambda: Logistic().fit(p, q), lambda: LogisticRegression(max_iter=1000).fit(x, y))


def ratio_by_kernels(sizes: Sizes) -> Work:
    """A closed form: the work does not depend on the data."""
    from vestige.ratios import ULSIF

    p, q = pair(sizes["n"], sizes["d"])
    return Work(lambda: ULSIF().fit(p, q))


def compare(sizes: Sizes) -> Work:
    """Two sets, everything that `compare` says."""
    import vestige as vs

    p, q = pair(sizes["n"], sizes["d"])
    return Work(lambda: vs.compare(p, q))


def keep(sizes: Sizes) -> Work:
    """A vestige of rows, beside one pass for mean and covariance."""
    import vestige as vs
    from vestige.core.numerics import Moments

    p, _ = pair(sizes["n"], sizes["d"])
    return Work(lambda: vs.keep(p), lambda: Moments.of(p))


def chain_step(sizes: Sizes) -> Work:
    """The step of a chain after that in which the data was there, as many tasks as there are."""
    import copy

    from vestige.chains import Chain

    data = {str(t): pair(sizes["n"], sizes["d"]) for t in range(sizes["tasks"])}
    chain = Chain()
    chain.step({t: p for t, (p, _) in data.items()}, {t: q for t, (_, q) in data.items()})
    return Work(lambda: copy.deepcopy(chain).step(model={t: q + 0.1 for t, (_, q) in data.items()}))


def fid(sizes: Sizes) -> Work:
    """Beside the formula with the root of the product of covariances, by scipy."""
    import numpy as np
    from scipy.linalg import sqrtm

    from vestige.metrics.fid import fid as ours

    p, q = pair(sizes["n"], sizes["d"])

    def textbook() -> float:
        (m, a), (k, b) = ((x.mean(0), np.cov(x, rowvar=False)) for x in (p.numpy(), q.numpy()))
        return float(((m - k) ** 2).sum() + np.trace(a + b - 2 * sqrtm(a @ b).real))

    return Work(lambda: ours(p, q), textbook)


def kid(sizes: Sizes) -> Work:
    """Beside all pairs of rows by plain products."""
    from vestige.metrics.mmd import kid as ours

    p, q = pair(sizes["n"], sizes["d"])

    def pairs() -> float:
        return float(sum(((a @ b.mT / p.shape[1] + 1) ** 3).mean() for a, b in ((p, p), (q, q), (p, q))))

    return Work(lambda: ours(p, q), pairs)


def step_of(method: str) -> Callable[[Sizes], Work]:
    """`STEPS` steps of a method after `tasks` tasks, beside plain training."""

    def make(sizes: Sizes) -> Work:
        import torch

        from vestige.continual import protocol
        from vestige.continual.learners import build
        from vestige.core import rng
        from vestige.data import DataSet
        from vestige.data.streams import split

        classes, rows = 2 * sizes["tasks"], 64
        g = rng.fork(0, "growth")
        x, y = torch.rand(rows * classes, 784, generator=g), torch.arange(rows * classes) % classes
        names = tuple(str(c) for c in range(classes))
        data = DataSet("made up", x, y, x[:classes], y[:classes], names, "none", "made up")
        stream = split(data, 2, train_logits="all")
        learners = []
        for name in (method, "vanilla"):
            learner = build(name, stream, hidden=(width(sizes["parameters"]),) * 2)
            protocol.run(stream, learner, batch_size=64)
            learners.append(learner)
        batch, label = x[:64], y[:64]

        def steps(learner: Any) -> Callable[[], None]:
            def run() -> None:
                for _ in range(STEPS):
                    learner.observe(batch, label)

            return run

        return Work(steps(learners[0]), steps(learners[1]))

    return make


STEPS = 60


def width(parameters: int) -> int:
    """Units of two hidden layers on 784 inputs and 10 outputs that have about so many parameters."""
    return max(1, round((-796 + math.sqrt(796**2 + 4 * (parameters - 10))) / 2))


def bootstrap(sizes: Sizes) -> Work:
    """Networks on resamples, beside a tenth as many of scikit-learn's, one after another."""
    import numpy as np
    from sklearn.neural_network import MLPClassifier

    from vestige.ratios.bootstrap import bootstrap as ours
    from vestige.ratios.logistic import Logistic

    p, q = pair(sizes["n"], 2)
    x, y = np.concatenate([p.numpy(), q.numpy()]), np.repeat([1, 0], sizes["n"])
    return Work(
        lambda: ours(Logistic(hidden=(32,)), p, q, sizes["members"]),
        lambda: [
            MLPClassifier((32,), max_iter=200, random_state=i).fit(x, y) for i in range(max(1, sizes["members"] // 10))
        ],
    )


ROWS = (1000, 2000, 4000, 8000)
JOBS: dict[str, Job] = {
    "ratio": Job(
        ratio, {"n": 2000, "d": 8}, {"n": ROWS, "d": (4, 8, 16, 32)}, "kernel",
        "`Logistic().fit(p, q)`, which stops early: how many steps it takes depends on the data",
        "LogisticRegression of scikit-learn, which is linear in the columns", 4,
    ),
    "ratio by kernels": Job(
        ratio_by_kernels, {"n": 2000, "d": 8}, {"n": ROWS, "d": (4, 8, 16, 32)}, "kernel", "`ULSIF().fit(p, q)`",
        seconds=2,
    ),
    "compare": Job(
        compare, {"n": 1000, "d": 8}, {"n": (500, 1000, 2000, 4000), "d": (4, 8, 16, 32)}, "end to end",
        "`vs.compare(p, q)`", seconds=5,
    ),
    "keep": Job(
        keep, {"n": 2000, "d": 8}, {"n": ROWS, "d": (4, 8, 16, 32)}, "end to end", "`vs.keep(p)`",
        "one pass for mean and covariance", 5,
    ),
    "chain step": Job(
        chain_step, {"n": 500, "d": 2, "tasks": 1},
        {"n": (500, 1000, 2000, 4000), "d": (2, 4, 8, 16), "tasks": (1, 2, 4, 8)}, "end to end",
        "the second `Chain().step`, without the data", seconds=4,
    ),
    "FID": Job(
        fid, {"n": 4000, "d": 128}, {"n": (2000, 4000, 8000, 16_000), "d": (64, 128, 256, 512)}, "kernel",
        "`fid(p, q)`", "the formula with scipy's `sqrtm`", 2,
    ),
    "KID": Job(
        kid, {"n": 2000, "d": 32}, {"n": ROWS, "d": (16, 32, 64, 128)}, "kernel", "`kid(p, q)`, whole",
        "every pair of rows by plain products", 3,
    ),
    "EWC step": Job(
        step_of("ewc"), {"parameters": 250_000, "tasks": 2},
        {"parameters": (60_000, 125_000, 250_000, 500_000), "tasks": (1, 2, 4, 8)}, "kernel",
        f"{STEPS} steps of batches of 64 after the tasks", "plain training", 3,
    ),
    "RWalk step": Job(
        step_of("rwalk"), {"parameters": 250_000, "tasks": 2},
        {"parameters": (60_000, 125_000, 250_000, 500_000), "tasks": (1, 2, 4, 8)}, "kernel",
        f"{STEPS} steps of batches of 64 after the tasks", "plain training", 3,
    ),
    "bootstrap": Job(
        bootstrap, {"n": 200, "members": 50}, {"n": (100, 200, 400, 800), "members": (25, 50, 100, 200)}, "kernel",
        "`bootstrap(Logistic(hidden=(32,)), p, q, members)`", "a tenth as many `MLPClassifier` of scikit-learn", 4,
    ),
}  # fmt: skip


def measure(job: Job, axis: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The points of an axis in this process, smallest first."""
    import torch

    from vestige.core.machine import PeakMemory

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for call in job.make(job.smallest()):  # imports and caches
        if call is not None:
            call()
    for size in sorted(sizes):
        work = job.make(dict(job.base) | {axis: size})
        memory = PeakMemory()
        before = memory.peak() or 0
        taken = [cpu_seconds(work.run)]
        added = (memory.peak() or 0) - before
        beside: list[float] = []
        for turn in range(REPEATS):
            if turn and sum(taken) + taken[0] <= SHORT:
                taken.append(cpu_seconds(work.run))
            if work.beside is not None and sum(beside) + max(beside, default=0.0) <= SHORT:
                beside.append(cpu_seconds(work.beside))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        yield {
            "size": size,
            "sizes": dict(job.base) | {axis: size},
            "seconds": min(taken),
            "repeats": len(taken),
            "beside": min(beside) if beside else None,
            "peak": peak,
            "added": added,
        }


def child(name: str, axis: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "growth", "--points", name, axis, *map(str, sizes)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        for line in started.stdout:
            yield json.loads(line)
    if started.returncode:
        raise RuntimeError(f"{name} over {axis} ended with code {started.returncode}.")


Measured = Callable[[str, str, Sequence[int]], Iterator[dict[str, Any]]]


def missing(jobs: Mapping[str, Job], file: Path) -> list[tuple[str, str, list[int]]]:
    """Job, axis, and those of its sizes that are not stored."""
    there = {tuple(line[name] for name in KEY) for line in stored.read(file)}
    left = [
        (name, axis, [size for size in sizes if (name, axis, size) not in there])
        for name, job in jobs.items()
        for axis, sizes in job.axes.items()
    ]
    return [(name, axis, sizes) for name, axis, sizes in left if sizes]


def run(jobs: Mapping[str, Job], file: Path, measured: Measured) -> int:
    """Every point that is not stored yet; how many there were."""
    done = 0
    for name, axis, sizes in missing(jobs, file):
        for point in measured(name, axis, sizes):
            line = {"job": name, "axis": axis, "kind": jobs[name].kind} | point
            stored.add(file, [line | stored.context("python -m benchmarks growth")], KEY)
            print(f"{name}, {axis} = {point['size']}: {point['seconds']:.3g} CPU s", file=sys.stderr, flush=True)
            done += 1
    return done


def plan(jobs: Mapping[str, Job], file: Path) -> str:
    """What there is to run and what it will cost."""
    lines, total = [], 0.0
    for name, axis, sizes in missing(jobs, file):
        cost = jobs[name].seconds * len(sizes)
        total += cost
        lines.append(f"{name}: {axis} = {', '.join(map(str, sizes))}, about {cost:.0f} CPU s")
    return "\n".join([*lines, f"about {total / 60:.1f} CPU minutes in all"])


def main(options: Sequence[str]) -> int:
    """Print the plan, then run it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument("--only", action="append", metavar="JOB", help=f"one of {', '.join(JOBS)}; may be repeated")
    parser.add_argument("--again", action="store_true", help="run stored points again")
    parser.add_argument("--plan", action="store_true", help="print what there is to run, and stop")
    parser.add_argument("--points", nargs="+", metavar="JOB AXIS SIZE", help="points of an axis, in this process")
    given = parser.parse_args(options)
    if given.points:
        name, axis, *sizes = given.points
        for point in measure(JOBS[name], axis, [int(size) for size in sizes]):
            print(json.dumps(point), flush=True)
        return 0
    unknown = [name for name in given.only or () if name not in JOBS]
    if unknown:
        parser.error(f"no job is named {', '.join(unknown)}; there are {', '.join(JOBS)}")
    jobs = {name: job for name, job in JOBS.items() if not given.only or name in given.only}
    if given.again and not given.plan:
        stored.write(FILE, [line for line in stored.read(FILE) if line["job"] not in jobs])
    print(plan(jobs, FILE), file=sys.stderr)
    if not given.plan:
        run(jobs, FILE, child)
    return 0
