"""Forty pairs with a known KL that others wrote: the tasks of `benchmark-mi`, and its estimators on the same samples.

    python -m benchmarks.mi --data       # samples of every task, into build/mi/TASK.npz: x, y, mutual_information
    python -m benchmarks.mi --peers      # KSG, MINE, Donsker-Varadhan and InfoNCE on them, into results/mi_peers.json
    python -m benchmarks.mi              # the table of what is stored

Mutual information is KL(joint || product of the marginals), so each task is a pair: p are the rows (x, y), q the rows
(x, y permuted). The package needs versions that Vestige does not run with, so it lives in `.venv-mi`, and this module
starts itself again there; what it finds comes back as one line of JSON a cell and is stored before the next begins.
A cell that is stored with the same settings is not computed again.

Settings of the peers: the defaults of the package's classes. KSG: the mean of k = 5 and k = 10, standardised columns.
The neural ones: a ReLU network of 16 and 8 units (the package's own benchmark has runs with 10 and 5 as well), Adam at
0.1, batches of 256, half of the rows to train and half to test, the best test value, stop after two tests (one each 250
steps) without a better one. The only departure: the limit of 10 000 steps is lowered to what 60 CPU-seconds allow
(`Peer.max_steps`); `stopped` of a cell says whether the limit or the test ended the training. The package derives its
batches from that limit too, so a cell that the test ended differs from the default's by the chance of other batches,
which can be large: asinh-student-identity-5-5-2 (truth .448) has .034 here and .280 with the default limit for
Donsker-Varadhan, .091 and .026 for MINE.

Reference: Czyz, Grabowski, Vogt, Beerenwinkel, Marx, "Beyond Normal: On the Evaluation of Mutual Information
Estimators", NeurIPS 2023.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.environments import ROOT, Environment

REQUIREMENTS = [
    "benchmark-mi==0.1.3",
    "jax==0.4.30",
    "jaxlib==0.4.30",
    "numpy==1.26.4",
    "scipy==1.17.1",
    "scikit-learn==1.9.1",
    "equinox==0.10.11",
    "optax==0.1.9",
    "tensorflow-probability==0.20.1",
]
ENVIRONMENT = Environment(
    name=".venv-mi",
    needed=REQUIREMENTS,
    variables={
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "JAX_PLATFORMS": "cpu",
    },
)

DATA = ROOT / "build" / "mi"
RESULTS = ROOT / "benchmarks" / "results" / "mi_peers.json"
ROWS, SEED, TASKS = 10_000, 0, 40
PERMUTATION_SEED = 0
MADE_BY = {"rows": ROWS, "seed": SEED, "packages": REQUIREMENTS}  # results of other samples are not these

CELL_SECONDS = 60.0
TEST_EVERY = 250  # the package tests, and can stop, only after this many steps


class Pair(NamedTuple):
    """Rows of p and of q, and KL(p || q)."""

    p: np.ndarray
    q: np.ndarray
    kl: float


@dataclass(frozen=True)
class Peer:
    """An estimator of the package, and what it costs: CPU seconds = a + b * columns of (x, y), measured on one thread.

    `cell` is for a whole cell, `step` for one step of training with its share of the tests; None where nothing is
    trained. Measured on 1 + 1, 5 + 5, 25 + 25 and 50 + 50 columns.
    """

    kind: str
    cell: tuple[float, float]
    step: tuple[float, float] | None = None

    def max_steps(self, columns: int) -> int | None:
        """The steps that CELL_SECONDS allow, in whole tests."""
        if self.step is None:
            return None
        return int(CELL_SECONDS / (self.step[0] + self.step[1] * columns)) // TEST_EVERY * TEST_EVERY

    def settings(self, columns: int) -> dict[str, Any]:
        """What the estimator is made with, beside its defaults."""
        steps = self.max_steps(columns)
        return {} if steps is None else {"max_n_steps": steps, "verbose": False}

    def cost(self, columns: int) -> float:
        """CPU seconds that a cell is expected to take."""
        return self.cell[0] + self.cell[1] * columns


# The cheap ones first, so that a run that is cut short has whole columns of the table.
PEERS = {
    "ksg": Peer("KSGEnsembleFirstEstimator", cell=(11.5, 0.01)),
    "mine": Peer("MINEEstimator", cell=(14.0, 0.0), step=(0.010, 0.0)),
    "dv": Peer("DonskerVaradhanEstimator", cell=(18.0, 0.25), step=(0.021, 0.00036)),
    "infonce": Peer("InfoNCEEstimator", cell=(24.0, 0.25), step=(0.021, 0.00036)),
}


def tasks() -> list[str]:
    """The tasks whose samples are at hand, by name."""
    return sorted(path.stem for path in DATA.glob("*.npz"))


def columns(task: str) -> int:
    """Columns of x and y together."""
    with np.load(DATA / f"{task}.npz") as stored:
        return stored["x"].shape[1] + stored["y"].shape[1]


def pair(task: str) -> Pair:
    """p = (x, y), q = (x, y permuted), by the same permutation for every task, and their KL."""
    with np.load(DATA / f"{task}.npz") as stored:
        x, y, truth = stored["x"], stored["y"], float(stored["mutual_information"])
    permutation = np.random.default_rng(PERMUTATION_SEED).permutation(len(x))
    return Pair(np.hstack([x, y]), np.hstack([x, y[permutation]]), truth)


# Results ----------------------------------------------------------------------------------------------------


def empty() -> dict[str, Any]:
    """Results before the first cell."""
    return {"made_by": MADE_BY, "truth": {}, "cells": {name: {} for name in PEERS}}


def read(path: Path = RESULTS) -> dict[str, Any]:
    """What is stored; empty if nothing is, or if it was made from other samples."""
    stored = json.loads(path.read_text()) if path.exists() else empty()
    return stored if stored["made_by"] == MADE_BY else empty()


def write(results: dict[str, Any], path: Path) -> None:
    """Put the results at `path`, whole or not at all."""
    from vestige.store.objects import write_bytes  # here: inside the environment there is no Vestige

    write_bytes(path, (json.dumps(results, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def missing(results: dict[str, Any], widths: dict[str, int]) -> list[tuple[str, str]]:
    """(peer, task) still to be computed, in the order of PEERS; `widths` are the columns of each task."""
    return [
        (name, task)
        for name, peer in PEERS.items()
        for task, width in widths.items()
        if results["cells"].get(name, {}).get(task, {}).get("settings") != peer.settings(width)
    ]


def median_errors(results: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """Per peer the median of |value - truth| / truth and its number of cells; one without a value counts as 1."""
    found = {}
    for name, cells in results["cells"].items():
        errors = [
            1.0 if cell["value"] is None else abs(cell["value"] / results["truth"][task] - 1.0)
            for task, cell in cells.items()
        ]
        found[name] = (statistics.median(errors) if errors else math.nan, len(errors))
    return found


# Inside the environment -------------------------------------------------------------------------------------


def _write_samples() -> None:
    import bmi

    DATA.mkdir(parents=True, exist_ok=True)
    for task, definition in bmi.benchmark.BENCHMARK_TASKS.items():
        path = DATA / f"{task}.npz"
        if path.exists():
            continue
        x, y = definition.sample(ROWS, SEED)
        part = DATA / f".{task}.part"
        with part.open("wb") as file:
            np.savez(
                file,
                x=np.asarray(x, dtype=np.float64),
                y=np.asarray(y, dtype=np.float64),
                mutual_information=np.float64(definition.mutual_information),
            )
        os.replace(part, path)


def _estimate(name: str, task: str) -> dict[str, Any]:
    """One cell: value (None if there is none, then `error` says why), CPU seconds, steps and what ended them."""
    import bmi

    with np.load(DATA / f"{task}.npz") as stored:
        x, y = stored["x"], stored["y"]
    settings = PEERS[name].settings(x.shape[1] + y.shape[1])
    cell: dict[str, Any] = {"peer": name, "task": task, "settings": settings, "value": None}
    began = time.process_time()
    try:
        estimator = getattr(bmi.estimators, PEERS[name].kind)(**settings)
        found = estimator.estimate_with_info(x, y)
        value, info = float(found.mi_estimate), found.additional_information or {}
    except Exception as error:  # whatever a peer raises is its result
        return cell | {"error": f"{type(error).__name__}: {error}", "cpu_seconds": _since(began)}
    cell["cpu_seconds"] = _since(began)
    if "n_training_steps" in info:
        cell["steps"] = info["n_training_steps"]
        cell["stopped"] = "limit" if info.get("early_stopping_not_triggered") else "test"
    return cell | ({"value": value} if math.isfinite(value) else {"error": f"the value is {value}"})


def _since(began: float) -> float:
    return round(time.process_time() - began, 2)


def _inside(arguments: argparse.Namespace) -> int:
    if arguments.data:
        _write_samples()
    for cell in arguments.cells:
        with redirect_stdout(sys.stderr):
            line = json.dumps(_estimate(*cell.split(":", 1)))
        print(line, flush=True)
    return 0


# Outside ----------------------------------------------------------------------------------------------------


def _make_samples() -> int:
    if len(tasks()) == TASKS:
        return 0
    started = ENVIRONMENT.start("benchmarks.mi", ["--data"])
    return 1 if started is None else started.wait()


def _cells(wanted: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Each of the wanted cells as it is finished."""
    arguments = [f"{name}:{task}" for name, task in wanted]
    started = ENVIRONMENT.start("benchmarks.mi", ["--peers", *arguments], stdout=subprocess.PIPE)
    if started is None or started.stdout is None:
        return
    with started:
        yield from map(json.loads, started.stdout)


def keep(results: dict[str, Any], cell: dict[str, Any], path: Path) -> None:
    """Put a finished cell among the results and store them all."""
    rest = {key: value for key, value in cell.items() if key not in ("peer", "task")}
    results["cells"].setdefault(cell["peer"], {})[cell["task"]] = rest
    write(results, path)


def _plan(wanted: list[tuple[str, str]], widths: dict[str, int]) -> None:
    """Print what is to come and what it costs."""
    total = 0.0
    for name, peer in PEERS.items():
        costs = [peer.cost(widths[task]) for one, task in wanted if one == name]
        total += sum(costs)
        print(f"{name:8s} {len(costs):3d} cells, about {sum(costs) / 60:5.1f} CPU-minutes")
    print(f"{'all':8s} {len(wanted):3d} cells, about {total / 60:5.1f} CPU-minutes on one thread", flush=True)


def run_peers(path: Path = RESULTS) -> int:
    """Compute what is not stored at `path` yet; 1 if some of it is still missing at the end."""
    results, widths = read(path), {task: columns(task) for task in tasks()}
    results["truth"] = {task: pair(task).kl for task in widths}
    wanted = missing(results, widths)
    _plan(wanted, widths)
    for cell in _cells(wanted) if wanted else []:
        keep(results, cell, path)
        shown = cell.get("error") or f"{cell['value']:.3f}"
        truth = results["truth"][cell["task"]]
        print(f"{cell['peer']} {cell['task']}: {shown} for {truth:.3f}, {cell['cpu_seconds']} CPU-s", flush=True)
    left = len(missing(results, widths))
    if left:
        print(f"{left} cells are missing; the same command goes on with them.", file=sys.stderr)
    return int(left > 0)


def _print_table(results: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("task", "truth", *PEERS, title=f"Mutual information in nats, {ROWS} rows, seed {SEED}")
    for task, truth in results["truth"].items():
        values = [results["cells"].get(name, {}).get(task, {}).get("value") for name in PEERS]
        table.add_row(task, f"{truth:.3f}", *("-" if value is None else f"{value:.3f}" for value in values))
    table.add_section()
    errors = median_errors(results)
    cells = [f"{error:.1%} ({count})" for error, count in (errors.get(name, (math.nan, 0)) for name in PEERS)]
    table.add_row("median |relative error| (tasks)", "", *cells)
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def main() -> int:
    """Exit code 1 where samples or cells are missing at the end."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mi", description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="store_true", help="write the samples of every task")
    parser.add_argument("--peers", action="store_true", help="run the package's estimators on what is not stored yet")
    parser.add_argument("cells", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if ENVIRONMENT.inside():
        return _inside(arguments)
    if (arguments.data or arguments.peers) and _make_samples():
        return 1
    if arguments.data:
        for task in tasks():
            p, q, kl = pair(task)
            print(f"{task}: {len(p)} and {len(q)} rows, {p.shape[1]} columns, KL {kl:.4f}")
    if arguments.peers:
        return run_peers()
    if not arguments.data:
        _print_table(read())
    return 0


if __name__ == "__main__":
    sys.exit(main())
